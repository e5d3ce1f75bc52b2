"""What makes a step fast changes nothing but the time: each piece against the plain version."""

import copy
from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import rollout
import train
from avspo import avspo_advantages
from data import Question, arithmetic
from grpo import group_advantages
from rollout import sample, token_logprobs, uniforms
from support.policy import load_policy

PROMPTS = [[5, 6, 7], [8], [5, 6, 7, 8, 9, 10, 11], [5, 6, 7]]  # one a single token, two the same
G, T = 5, 12
SMALL = dict(
    vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=8, pad_token_id=2, bos_token_id=1,
    eos_token_id=2,
)  # fmt: skip
KINDS = {
    "llama": {},
    "gpt2": dict(n_embd=32, n_layer=2, n_head=2, n_positions=64),  # positions are learned
    "qwen2": dict(tie_word_embeddings=True),
    "mistral": dict(sliding_window=6),  # shorter than prompt and completion
    "gemma2": dict(final_logit_softcapping=2.0, sliding_window=6),  # logits are capped
    "mamba": dict(state_size=4),  # no keys and values to repeat
}


def build(kind):
    config = CONFIG_MAPPING[kind](**(SMALL | KINDS[kind]))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():  # far from uniform, or every test here would be easy
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return build(request.param)


def draw(model, **changes):
    options = dict(
        max_new_tokens=T, temperature=0.7, end_ids=[2, 3], pad_id=2, segment=3, chunk_tokens=None
    )
    return sample(model, PROMPTS, G, uniforms(0, len(PROMPTS), 1, G, T), **(options | changes))


class Tokens:
    """Counts the token positions that a module is run on, padding included."""

    def __init__(self, module):
        self.calls = []
        self.handle = module.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, module, args, kwargs):
        inputs = kwargs["input_ids"] if "input_ids" in kwargs else args[0][..., 0]
        self.calls.append(inputs.numel())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.handle.remove()


# ------------------------------------------------------------------ sampling


PLAIN_SAMPLING = dict(share_prompts=False, segment=None)


@pytest.mark.parametrize(
    "changes",
    [{}, dict(share_prompts=False), dict(segment=None), dict(segment=1), dict(chunk_tokens=60)],
    ids=["all on", "no sharing", "no segments", "segments of 1", "in chunks"],
)
def test_sharing_prompts_and_dropping_finished_rows_change_no_sample(model, changes):
    plain, fast = draw(model, **PLAIN_SAMPLING), draw(model, **changes)
    assert 0 < plain.truncated_B.sum() < len(plain.prompts), "want both ended and truncated rows"
    assert plain.prompts == fast.prompts
    assert torch.equal(plain.completions_BT, fast.completions_BT)
    assert torch.equal(plain.mask_BT, fast.mask_BT)
    assert torch.equal(plain.truncated_B, fast.truncated_B)
    assert torch.allclose(plain.logprobs_BT, fast.logprobs_BT, atol=1e-4)
    assert torch.allclose(plain.entropy_BT, fast.entropy_BT, atol=1e-4)


def test_a_prompt_is_run_once_for_all_its_samples():
    model = build("llama")
    with Tokens(model.base_model) as run:
        draw(model, segment=None)
    longest = max(map(len, PROMPTS))
    assert run.calls[0] == 3 * (longest - 1)  # three different prompts, the last token aside
    assert set(run.calls[1:]) == {len(PROMPTS) * G}  # then one token a row


def test_one_long_completion_costs_clearly_less_than_all_long():
    model = build("llama")

    def cost(short):
        """Positions run when the first `short` of 64 rows end at once."""
        with torch.no_grad():  # a model that repeats its input: a row's prompt decides its length
            for parameter in model.base_model.layers.parameters():
                parameter.zero_()
            model.lm_head.weight.copy_(model.get_input_embeddings().weight)
        prompts = [[2] if i < short else [9] for i in range(64)]
        with Tokens(model.base_model) as run:
            found = sample(model, prompts, 1, uniforms(0, 64, 1, 1, 64), max_new_tokens=64,
                           temperature=0, end_ids=[2], pad_id=2)  # fmt: skip
        assert int(found.truncated_B.sum()) == 64 - short
        return sum(run.calls)

    assert cost(short=63) < 0.3 * cost(short=0)


def test_temperature_zero_takes_the_likeliest_token_whatever_the_random_numbers(model):
    greedy = draw(model, temperature=0)
    assert torch.equal(
        greedy.completions_BT, draw(model, temperature=0, **PLAIN_SAMPLING).completions_BT
    )
    for row in (0, G, 2 * G):
        ids, length = torch.tensor([greedy.prompts[row]]), int(greedy.lengths_B[row])
        for t in range(length):
            logits = model(ids).logits[0, -1]
            token = int(logits.argmax())
            assert token == greedy.completions_BT[row, t]
            logprob = torch.log_softmax(logits, dim=0)[token]  # at temperature 1
            assert torch.isclose(greedy.logprobs_BT[row, t], logprob, atol=1e-4)
            ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
    rows = greedy.completions_BT.view(len(PROMPTS), G, -1)
    assert (rows == rows[:, :1]).all()


def test_weights_are_cast_while_sampling_under_autocast_only_and_come_back_bit_for_bit():
    model = build("qwen2")
    before = copy.deepcopy(model.state_dict())
    for parameter in model.parameters():  # as after an update
        parameter.grad = torch.ones_like(parameter)
    kinds = []
    handle = model.base_model.register_forward_pre_hook(lambda m, _: kinds.append(m.dtype))
    draw(model)
    with torch.autocast("cpu", torch.bfloat16):
        cast = draw(model)
        with pytest.raises(
            IndexError
        ):  # too few random numbers: the weights come back all the same
            sample(model, PROMPTS, G, uniforms(0, 4, 1, G, 1), max_new_tokens=T, temperature=1.0,
                   end_ids=[], pad_id=2)  # fmt: skip
        drawn_in = set(kinds)
        plain = draw(model, cast_weights=False)
    handle.remove()
    assert drawn_in == {torch.float32, torch.bfloat16} and kinds[-1] == torch.float32
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]) and weight.dtype == before[name].dtype
    assert all((p.grad == 1).all() and p.grad.dtype == p.dtype for p in model.parameters())
    same = (cast.completions_BT == plain.completions_BT)[:, 0]
    assert same.float().mean() > 0.7, "the first tokens differ by rounding only"


# ------------------------------------------------------------------ scoring


PLAIN_SCORING = dict(share_prompts=False, logits_at_once=None)


def gradient(model, found, weights_BT, **changes):
    """(log-probabilities, gradient of their weighted sum)."""
    model.zero_grad()
    logprobs_BT = token_logprobs(model, found.prompts, found.completions_BT, found.mask_BT,
                                 temperature=0.7, pad_id=2, **changes)  # fmt: skip
    (logprobs_BT * weights_BT).sum().backward()
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return logprobs_BT.detach(), torch.cat(grads)


def truly_float64(model):
    """Transformers computes RMSNorm in float32 whatever the weights are."""

    def norm(module, x):
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + module.variance_epsilon)
        return module.weight * x

    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = partial(norm, module)
    return model.double()


def plain_logprobs(model, found):
    """By hand: one row at a time, no padding, the model's own logits."""
    for row, (completion, mask) in enumerate(found.rows()):
        prompt, answer = found.prompts[row], completion[mask]
        logits = model(torch.cat([torch.tensor(prompt), answer])[None]).logits[0] / 0.7
        yield torch.log_softmax(logits[len(prompt) - 1 : -1], dim=1).gather(1, answer[:, None])[
            :, 0
        ]


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-4), (torch.float64, 1e-10)])
@pytest.mark.parametrize(
    "changes",
    [{}, dict(logits_at_once=7), dict(share_prompts=False), dict(logits_at_once=None)],
    ids=["all on", "7 at once", "no sharing", "all logits"],
)
def test_sharing_prompts_and_chunking_logits_change_no_gradient(model, changes, dtype, limit):
    found = draw(model)
    net = copy.deepcopy(model)
    if dtype == torch.float64:
        if model.config.model_type in ("gemma2", "mamba"):
            pytest.skip("its logits or its softmax are float32 whatever the weights are")
        net = truly_float64(net)
    weights = torch.randn(found.mask_BT.shape, generator=torch.Generator().manual_seed(1))
    weights = torch.where(found.mask_BT, weights, 0.0).to(dtype)
    expected, plain = gradient(net, found, weights, **PLAIN_SCORING)
    got, fast = gradient(net, found, weights, **changes)
    assert got.dtype == dtype
    assert (plain - fast).norm() <= limit * plain.norm()
    assert torch.allclose(got, expected, atol=limit)
    assert (got[~found.mask_BT] == 0).all()


def test_scores_are_those_of_each_row_alone_by_the_models_own_logits(model):
    found = draw(model)
    with torch.no_grad():
        got = token_logprobs(model, found.prompts, found.completions_BT, found.mask_BT,
                             temperature=0.7, pad_id=2)  # fmt: skip
        for row, expected in enumerate(plain_logprobs(model, found)):
            assert torch.allclose(got[row][found.mask_BT[row]], expected, atol=1e-4)


def test_completions_of_one_token_are_scored_too(model):
    found = draw(model, max_new_tokens=1)
    ones = torch.ones(found.mask_BT.shape)
    expected, plain = gradient(model, found, ones, **PLAIN_SCORING)
    got, fast = gradient(model, found, ones)
    assert torch.allclose(got, expected, atol=1e-4) and torch.allclose(plain, fast, atol=1e-3)


def test_capped_logits_are_noticed():
    assert not rollout._has_plain_head(build("gemma2"))
    assert rollout._has_plain_head(build("llama")) and rollout._has_plain_head(build("gpt2"))


def test_gradient_checkpointing_changes_no_gradient():
    model = build("llama")
    found = draw(model)
    weights = found.mask_BT.float()
    _, plain = gradient(model, found, weights)
    model.activation_checkpointing_enable({"use_reentrant": False})
    model.train()
    _, kept = gradient(model, found, weights)
    assert (plain - kept).norm() <= 1e-4 * plain.norm()


def test_autocast_gives_the_same_gradient_but_for_bfloat16():
    model = build("qwen2")
    found = draw(model)
    weights = found.mask_BT.float()
    exact, plain = gradient(model, found, weights)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, fast = gradient(model, found, weights)
    assert rounded.dtype == torch.float32  # the softmax is
    assert torch.nn.functional.cosine_similarity(plain, fast, dim=0) > 0.99
    assert (exact - rounded)[found.mask_BT].abs().mean() < 0.1


def test_logits_are_never_there_for_a_whole_micro_batch_nor_for_padding():
    model = build("llama")
    found = draw(model)
    ones = torch.ones(found.mask_BT.shape)
    gradient(model, found, ones)  # the first call tries the head
    with Tokens(model.lm_head) as run:
        gradient(model, found, ones, logits_at_once=8)
    assert max(run.calls) <= 8
    assert sum(run.calls) == 2 * int(found.mask_BT.sum())  # forward, and again in the backward


# ------------------------------------------------------------------ the update


def one_step(algo="grpo", **changes):
    cfg = train.Config(algo=algo, prompts_per_step=12, group_size=4, grad_clip=1e9, **changes)
    cfg.check()
    policy = load_policy("tiny")
    return cfg, policy, train.sample_step(policy, arithmetic("train", 12), 1, cfg)


def updated(policy, batch, advantages, cfg, optimizer=None, **options):
    """The gradient of the update, and what it logs."""
    optimizer = optimizer or torch.optim.SGD(policy.model.parameters(), lr=0.0)
    logged = train.update_policy(policy, optimizer, batch, advantages, cfg, None, **options)
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()]), logged


def some_unscored(rewards_PM):
    """Two samples without a verdict, and a whole group."""
    rewards_PM = rewards_PM.clone()
    rewards_PM[0, :2] = torch.nan
    rewards_PM[1] = torch.nan
    return rewards_PM


@pytest.mark.parametrize(
    "rule", ["grpo", "unscored", "avspo", "avspo, unscored"]
)  # fmt: skip
@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_leaving_out_rows_without_gradient_is_exact(rule, aggregation):
    cfg, policy, batch = one_step(loss_agg=aggregation)
    policy.model.double()
    groups = batch.rewards_PFG[:, 0]
    groups = some_unscored(groups) if "unscored" in rule else groups
    if "avspo" in rule:  # rescued groups have a gradient, though their rewards agree
        advantages = avspo_advantages(groups, tau=0.1, acr=0.6)
    else:
        advantages = group_advantages(groups)
    live = int((advantages != 0).sum())
    assert advantages.isfinite().all() and live > 0
    skipped, logged = updated(policy, batch, advantages.reshape(-1), cfg)
    whole, every = updated(policy, batch, advantages.reshape(-1), cfg, skip_dead=False)
    assert (logged["live_rows"], every["live_rows"]) == (live, 48)
    assert (skipped - whole).norm() <= 1e-10 * whole.norm()


def test_a_fully_dead_step_changes_the_weights_as_without_skipping():
    weights = []
    for skip in (True, False):
        cfg, policy, batch = one_step()
        optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3, weight_decay=0.1)
        advantages = group_advantages(batch.rewards_PFG[:, 0]).reshape(-1)
        train.update_policy(policy, optimizer, batch, advantages, cfg, None)
        zero = torch.zeros_like(advantages)
        updated(policy, batch, zero, cfg, optimizer, skip_dead=skip)
        weights.append(torch.cat([p.detach().flatten() for p in policy.model.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("updates", [1, 3])
def test_old_log_probabilities_cost_no_forward_of_their_own(updates, monkeypatch):
    cfg, policy, batch = one_step(updates_per_rollout=updates, micro_batch_tokens=40)
    scored = []

    def counting(model, prompts, *args, **options):
        scored.append(len(prompts))
        return token_logprobs(model, prompts, *args, **options)

    monkeypatch.setattr(train, "token_logprobs", counting)
    advantages = group_advantages(batch.rewards_PFG[:, 0]).reshape(-1)
    _, logged = updated(policy, batch, advantages, cfg)
    assert sum(scored) == updates * logged["live_rows"] and len(scored) > updates
    assert logged["ratio_mean"] == pytest.approx(1.0, abs=1e-5)  # the learning rate is 0


def test_tagrpo_runs_each_phrasing_once_to_sample_and_the_original_once_to_score():
    cfg = train.Config(algo="tagrpo", prompts_per_step=1, group_size=4)
    cfg.check()
    policy = load_policy("tiny")
    question = Question("1", "What is 1 + 1?", "2", ("Add 1 to 1.", "Compute 1 + 1."))
    with Tokens(policy.model.base_model) as run:
        batch = train.sample_step(policy, [question], 1, cfg)
    lengths = [len(policy.encode(q)) for q in (question.question, *question.rephrasings)]
    assert run.calls[0] == 3 * (max(lengths) - 1)  # a missing phrasing is the original again
    advantages = torch.ones(16)
    with Tokens(policy.model.base_model) as run:
        updated(policy, batch, advantages, cfg)
    later = 16 * (int(batch.rollout.lengths_B.max()) - 1)
    assert run.calls[-2:] == [lengths[0], later]  # 16 rows, one prompt


def test_the_gradient_is_the_same_to_the_last_bit_whenever_it_is_computed(tiny):
    """With two threads and enough rows of one prompt for them to meet in the backward pass."""
    prompts = [tiny.encode("What is 4 + 15?")] * 320
    generator = torch.Generator().manual_seed(0)
    completions = torch.randint(5, 100, (320, 6), generator=generator)
    mask = torch.ones_like(completions, dtype=torch.bool)
    weights = torch.rand(320, 6, generator=generator)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    found = []
    try:
        for _ in range(6):
            tiny.model.zero_grad()
            logprobs = token_logprobs(
                tiny.model, prompts, completions, mask, temperature=1.0, pad_id=tiny.pad_id
            )
            (logprobs * weights).sum().backward()
            found.append(torch.cat([p.grad.flatten() for p in tiny.model.parameters()]))
    finally:
        torch.set_num_threads(threads)
        tiny.model.zero_grad()
    assert all(torch.equal(found[0], other) for other in found[1:])
