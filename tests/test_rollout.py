"""Sampling and scoring: the same distribution, the right mask, whatever the batching."""

import pytest
import torch
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from rollout import (
    InverseCdf,
    completion_mask,
    left_pad,
    micro_batches,
    sample,
    token_logprobs,
    uniforms,
)

PROMPTS = [[5, 6, 7], [8, 9], [5, 6, 7, 8, 9, 10, 11]]
G, T = 6, 12


@pytest.fixture(scope="module", params=["rope", "learned positions"])
def model(request):
    torch.manual_seed(0)
    common = dict(vocab_size=40, pad_token_id=None, bos_token_id=None, eos_token_id=2)
    if request.param == "rope":
        config = LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            **common,
        )
        net = LlamaForCausalLM(config)
    else:
        net = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, **common))
    for parameter in net.parameters():  # far from uniform, or every test here would be easy
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return net.eval()


def rollout_of(model, **changes):
    options = (
        dict(max_new_tokens=T, temperature=0.7, end_ids=[2, 3], pad_id=2, chunk_tokens=None)
        | changes
    )
    return sample(model, PROMPTS, G, uniforms(0, 3, 1, G, T), **options)


def test_training_forward_scores_tokens_as_they_were_sampled(model):
    """T = .7, left-padded prompts, two end ids, pad = end token, float32: within 1e-4."""
    rollout = rollout_of(model)
    assert 0 < rollout.truncated_B.sum() < 3 * G, "want both ended and truncated rows"
    with torch.no_grad():
        scored_BT = token_logprobs(
            model,
            rollout.prompts,
            rollout.completions_BT,
            rollout.mask_BT,
            temperature=0.7,
            pad_id=2,
        )
    difference = (scored_BT - rollout.logprobs_BT)[rollout.mask_BT].abs().max()
    assert difference < 1e-4


def test_temperature_divides_the_logits_when_scoring(model):
    completion = torch.tensor([[4, 9, 3]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    got = token_logprobs(model, [PROMPTS[0]], completion, mask, temperature=0.5, pad_id=2)
    logits = model(torch.tensor([PROMPTS[0] + [4, 9, 3]])).logits[0]
    for t, token in enumerate([4, 9, 3]):
        # the logits of position 2 + t (prompt length 3) predict completion token t
        expected = torch.log_softmax(logits[2 + t] / 0.5, dim=-1)[token]
        assert torch.isclose(got[0, t], expected, atol=1e-5)


def test_padding_changes_no_log_probability(model):
    rollout = rollout_of(model)
    together = token_logprobs(
        model, rollout.prompts, rollout.completions_BT, rollout.mask_BT, temperature=0.7, pad_id=2
    )
    for row in range(0, 3 * G, 4):
        length = int(rollout.lengths_B[row])
        alone = token_logprobs(
            model,
            [rollout.prompts[row]],
            rollout.completions_BT[row : row + 1, :length],
            rollout.mask_BT[row : row + 1, :length],
            temperature=0.7,
            pad_id=2,
        )
        assert torch.allclose(alone[0], together[row, :length], atol=1e-5)


def test_chunks_change_no_sample(model):
    whole = rollout_of(model)
    for budget in (1, 40, 95):  # down to one row a call
        parts = rollout_of(model, chunk_tokens=budget)
        assert torch.equal(whole.mask_BT, parts.mask_BT)
        assert torch.equal(whole.completions_BT[whole.mask_BT], parts.completions_BT[parts.mask_BT])
        assert torch.equal(whole.truncated_B, parts.truncated_B)


def test_sampling_ignores_the_model_folders_settings(model):
    """top_k and the rest of a hostile generation_config.json, and transformers' own defaults."""
    plain = rollout_of(model)
    kept = model.generation_config
    model.generation_config = GenerationConfig(
        do_sample=True, top_k=1, top_p=0.1, min_p=0.5, temperature=9.0, repetition_penalty=5.0,
        no_repeat_ngram_size=1, suppress_tokens=[4, 5, 6, 7, 8, 9], bad_words_ids=[[10], [11]],
        min_new_tokens=T, forced_eos_token_id=12, begin_suppress_tokens=[1], num_beams=3,
        exponential_decay_length_penalty=(1, 5.0), max_length=5, eos_token_id=9, typical_p=0.1,
    )  # fmt: skip
    try:
        hostile = rollout_of(model)
        assert model.generation_config.top_k == 1, "the model's own settings are given back"
    finally:
        model.generation_config = kept
    assert torch.equal(plain.completions_BT, hostile.completions_BT)
    assert torch.equal(plain.logprobs_BT, hostile.logprobs_BT)


def test_samples_follow_the_distribution():
    """A grid of numbers in [0, 1) falls on each token as often as its probability says."""
    logits = torch.tensor([[2.0, -1.0, 0.5, -torch.inf, 1.0]])
    count = 20_000
    u = ((torch.arange(count, dtype=torch.float64) + 0.5) / count)[:, None]
    draw = InverseCdf(u, temperature=0.7, prompt_length=3)
    scores = draw(torch.zeros(count, 3, dtype=torch.long), logits.expand(count, -1))
    frequency = torch.bincount(scores.argmax(1), minlength=5) / count
    expected = torch.softmax(logits[0] / 0.7, dim=0)
    assert torch.allclose(frequency, expected, atol=1e-4)
    assert frequency[3] == 0
    entropy = -(expected[expected > 0].log() * expected[expected > 0]).sum()
    assert torch.isclose(draw.entropies[0][0], entropy, atol=1e-5)


def test_the_largest_random_number_never_draws_an_impossible_token():
    logits = torch.full((1, 6), -torch.inf)
    logits[0, 1:4] = torch.tensor([0.1, 0.2, 0.3])
    u = torch.tensor([[1 - 2**-53]], dtype=torch.float64)
    token = InverseCdf(u, 1.0, 1)(torch.zeros(1, 1, dtype=torch.long), logits).argmax()
    assert int(token) == 3


def test_the_original_gets_the_same_numbers_however_many_phrasings():
    alone = uniforms(3, 4, 1, G, T).view(4, 1, G, T)
    four = uniforms(3, 4, 4, G, T).view(4, 4, G, T)
    assert torch.equal(alone[:, 0], four[:, 0])
    assert len(four.unique()) == four.numel()


def test_end_token_is_trained_when_pad_equals_end_token():
    ids = torch.tensor([[7, 2, 2, 2], [7, 8, 9, 4], [3, 2, 7, 2], [7, 8, 9, 2]])
    mask, truncated = completion_mask(ids, end_ids=[2, 3])
    assert mask.tolist() == [
        [True, True, False, False],
        [True, True, True, True],
        [True, False, False, False],  # the second end id ends it as well
        [True, True, True, True],
    ]
    assert truncated.tolist() == [False, True, False, False]


def test_rows_stay_with_their_prompt(model):
    """Prompt after prompt (AABBCC), as the rewards' (P, F, G) shape expects."""
    assert rollout_of(model).prompts == [p for p in PROMPTS for _ in range(G)]


def test_left_padding_and_its_mask():
    ids, mask = left_pad([[1, 2, 3], [4]], pad_id=0)
    assert ids.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize("temperature", [1e-4, 0.0099, -1.0])
def test_a_temperature_near_zero_is_refused(model, temperature):
    """Zero itself is greedy: test_temperature_zero_takes_the_likeliest_token."""
    with pytest.raises(ValueError, match="temperature"):
        rollout_of(model, temperature=temperature)


def test_sampling_leaves_training_mode_and_global_random_state_alone(model):
    model.train()
    state = torch.random.get_rng_state()
    rollout_of(model)
    assert model.training
    model.eval()
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("budget", [1, 30, 100, 10**6])
def test_micro_batches_hold_every_row_once_and_keep_the_budget(budget):
    lengths = torch.tensor([5, 30, 7, 7, 12, 1, 28, 30])
    batches = micro_batches(lengths, budget)
    assert sorted(row for rows in batches for row in rows) == list(range(8))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * int(lengths[rows].max()) <= budget
    assert micro_batches(torch.tensor([], dtype=torch.long), budget) == []
