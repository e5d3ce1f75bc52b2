"""Sample completions with Hugging Face `generate`, and score tokens under a policy.

Three things have gone wrong here in public trainers, and each has its line below:

- The distribution sampled from is not the one that is scored. `generate` takes filters (top-k,
  repetition penalty, …) from the model's folder where they are left unset. Here the folder's
  settings are put aside, nothing is filtered, and the temperature divides the logits in both
  places. The log-probabilities of the two agree within 1e-4 in float32.
- The end of a completion is guessed from padding. Here it is the position of the first end token,
  which is itself trained on; padding with the end token, or a second end token, changes nothing.
- Text is encoded again. The ids that were sampled are the ids that are trained on.

Three things make it fast, and each changes nothing but the time: a prompt is run once for all its
samples, when they are drawn and when they are scored; finished rows leave the batch; and logits are
taken for completion tokens only, a few at a time, and computed again in the backward pass.

Random numbers. A sample depends on (seed, step, row, position) and the step's shape (P, G, T) only:
one uniform number for each, turned into a token by the inverse of the cumulative distribution
(float64) in a logits processor, under `generate(do_sample=False)`. How rows are batched or cut into
chunks changes no sample (in float32; bfloat16 rounds differently in other shapes).

Shapes: _P questions · _F phrasings · _G samples of a phrasing · _B rows (P*F*G) · _T tokens ·
_V vocabulary · _H hidden size · _N completion tokens of all rows. Rows are in order: all samples of
a phrasing, then the next phrasing, then the next question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


@dataclass
class Rollout:
    """Sampled completions, a row each."""

    prompts: list[list[int]]  # the prompt of each row, token ids
    completions_BT: Tensor  # sampled ids, padded on the right
    mask_BT: Tensor  # True on completion tokens, the end token included
    truncated_B: Tensor  # True where the limit came before an end token
    logprobs_BT: Tensor  # log-probability of each token as it was sampled, 0 where padded
    entropy_BT: Tensor  # entropy of the distribution it was drawn from, nats

    @property
    def lengths_B(self) -> Tensor:
        return self.mask_BT.sum(dim=1)

    @property
    def mean_entropy(self) -> float:
        """Over all sampled tokens, nats."""
        return float(self.entropy_BT.sum() / self.mask_BT.sum())

    def rows(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(completion ids, mask) of each row."""
        return zip(self.completions_BT, self.mask_BT)


def uniforms(seed: int, P: int, F: int, G: int, T: int) -> Tensor:
    """The random numbers of a step, float64 in [0, 1), (P*F*G, T). seed: that of the step.

    Drawn phrasing by phrasing, so that the original's samples get the same numbers however many
    phrasings there are, and so the same in every algorithm.
    """
    generator = torch.Generator().manual_seed(seed)
    u_FPGT = torch.rand(F, P, G, T, generator=generator, dtype=torch.float64)
    return u_FPGT.transpose(0, 1).reshape(P * F * G, T)


class InverseCdf(LogitsProcessor):
    """Draws one token a row: the first whose cumulative probability exceeds the row's number, or
    the likeliest at temperature 0.

    Used under `do_sample=False`: it gives back scores whose argmax is the token drawn. It also
    keeps that token's log-probability and the entropy, which cost nothing more here (those of
    temperature 1 where the temperature is 0).
    """

    def __init__(self, uniforms_BT: Tensor, temperature: float, prompt_length: int):
        self.uniforms_BT, self.temperature = uniforms_BT, temperature
        self.prompt_length = prompt_length
        self.logprobs: list[Tensor] = []
        self.entropies: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        # float64 wants the CPU on devices that have none (mps)
        logits_BV = (scores.cpu() if scores.device.type == "mps" else scores).double()
        logprobs_BV = torch.log_softmax(logits_BV / (self.temperature or 1.0), dim=-1)
        probs_BV = logprobs_BV.exp()
        if self.temperature == 0:
            token_B1 = logits_BV.argmax(dim=-1, keepdim=True)
        else:
            cdf_BV = probs_BV.cumsum(dim=-1)
            position = input_ids.shape[1] - self.prompt_length
            u_B1 = self.uniforms_BT[:, position, None].to(cdf_BV.device)
            token_B1 = torch.searchsorted(cdf_BV, u_B1 * cdf_BV[:, -1:], right=True)
            token_B1 = token_B1.clamp(max=scores.shape[1] - 1)
        self.logprobs.append(logprobs_BV.gather(1, token_B1)[:, 0].float())
        # clamped, as 0 * -inf is NaN
        self.entropies.append(-(probs_BV * logprobs_BV.clamp(min=-1e4)).sum(dim=-1).float())
        return torch.zeros_like(scores).scatter_(1, token_B1.to(scores.device), 1.0)


@contextmanager
def _ready_to_generate(model, cast_weights: bool) -> Iterator[None]:
    """The folder's generation settings out of the way, and evaluation mode: gradient checkpointing,
    which would switch the cache off, acts in training mode only.

    cast_weights: under autocast, the weights themselves take its precision meanwhile. Autocast
    would keep the keys in the cache, and all between two matrix products, in float32.
    """
    device, training, settings = model.device.type, model.training, model.generation_config
    cast = cast_weights and torch.is_autocast_enabled(device)
    weights = [(p, p.data) for p in model.parameters() if p.is_floating_point()] if cast else []
    model.eval()
    model.generation_config = GenerationConfig()
    try:
        for parameter, weight in weights:
            parameter.data = weight.to(torch.get_autocast_dtype(device))
        with torch.autocast(device, enabled=False) if cast else nullcontext():
            yield
    finally:
        for parameter, weight in weights:
            parameter.data = weight
        model.generation_config = settings
        model.train(training)


def left_pad(prompts: Sequence[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Prompts of different lengths -> (ids, attention mask), padded on the left, on the CPU."""
    rows = [torch.tensor(p) for p in prompts]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad_id, padding_side="left")
    lengths = torch.tensor([len(p) for p in prompts])
    return ids, (torch.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]).long()


def completion_mask(completions_BT: Tensor, end_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(mask_BT, truncated_B): True up to and including the first end token; no end token at all.

    By position, never by `id == pad`: the pad token is often the end token.
    """
    is_end_BT = torch.isin(completions_BT, torch.tensor(list(end_ids), dtype=torch.long))
    ends_before_BT = is_end_BT.cumsum(dim=1) - is_end_BT.long()
    return ends_before_BT == 0, ~is_end_BT.any(dim=1)


def _positions(attention: Tensor) -> Tensor:
    """Left padding shifts positions in models that count them from the left edge."""
    return (attention.cumsum(dim=1) - 1).clamp(min=0)


# ------------------------------------------------------------- a prompt is run once for its rows


def _row_cache(model) -> DynamicCache | None:
    """An empty cache whose rows can be repeated and dropped. None for models that keep something
    else than keys and values (recurrent ones): they run every row from its start to the end."""
    if not model._supports_default_dynamic_cache():
        return None
    cache = DynamicCache(config=model.config)
    kinds = (DynamicLayer, DynamicSlidingWindowLayer)
    return cache if all(type(layer) in kinds for layer in cache.layers) else None


def _prefill(
    model, prompts: Sequence[list[int]], pad_id: int, cache: DynamicCache, leave: int = 0
) -> tuple[Tensor, Tensor]:
    """Runs each different prompt once, but for its last `leave` tokens, and fills `cache` with a
    row for each of `prompts`. Returns the last hidden state, (B, hidden), and the attention mask
    of the whole prompts, (B, longest prompt).
    """
    numbers: dict[tuple[int, ...], int] = {}
    which = [numbers.setdefault(tuple(p), len(numbers)) for p in prompts]
    ids, attention = left_pad([list(p) for p in numbers], pad_id)
    which_B, ids, attention = (x.to(model.device) for x in (torch.tensor(which), ids, attention))
    run = slice(ids.shape[1] - leave)
    hidden = model.base_model(
        input_ids=ids[:, run],
        attention_mask=attention[:, run],
        # what goes on from this cache counts positions of the left-padded mask too
        position_ids=_positions(attention)[:, run],
        cache=cache,
        use_cache=True,
    )[0]
    # index_select, not [which_B] or the cache's own method: rows meet in the backward pass, and
    # those add them up in whatever order the threads come
    for layer in cache.layers:
        layer.keys = layer.keys.index_select(0, which_B)
        layer.values = layer.values.index_select(0, which_B)
    return hidden[:, -1].index_select(0, which_B), attention[which_B]


# ------------------------------------------------------------------------------- sampling


@torch.no_grad()
def sample(
    model,
    prompts: Sequence[list[int]],
    group_size: int,
    uniforms_BT: Tensor,
    *,
    max_new_tokens: int,
    temperature: float,
    end_ids: Sequence[int],
    pad_id: int,
    chunk_tokens: int | None = None,
    share_prompts: bool = True,
    segment: int | None = 16,
    cast_weights: bool = True,
) -> Rollout:
    """`group_size` completions of each prompt.

    prompts: token ids, one list a phrasing. uniforms_BT: from `uniforms`, a row for each
    completion. temperature > 0 divides the logits; 0 takes the likeliest token. end_ids: every id
    that ends a completion. chunk_tokens: at most so many tokens (prompts and completions, padding
    included) at a time; None for all in one. Raises ValueError for a temperature near 0.

    For speed, and no sample changes in float32: `share_prompts` runs each different prompt once;
    rows that have ended are dropped after every `segment` tokens (None: never). `cast_weights`:
    see `_ready_to_generate`.
    """
    if temperature < 0.01 and temperature != 0:
        raise ValueError(f"temperature {temperature} makes log-probabilities infinite")
    rows = [p for p in prompts for _ in range(group_size)]
    longest = max(map(len, rows)) + max_new_tokens
    per_chunk = len(rows) if chunk_tokens is None else max(1, chunk_tokens // longest)
    completions_BT = torch.full((len(rows), max_new_tokens), pad_id)
    logprobs_BT, entropy_BT = torch.zeros(2, len(rows), max_new_tokens)
    settings = dict(do_sample=False, eos_token_id=list(end_ids), pad_token_id=pad_id)
    with _ready_to_generate(model, cast_weights):
        for live_B in torch.arange(len(rows)).split(per_chunk):  # rows that have not ended
            ids, attention = left_pad([rows[i] for i in live_B], pad_id)
            ids, attention = ids.to(model.device), attention.to(model.device)
            start, done, cache = ids.shape[1], 0, _row_cache(model)
            if cache and share_prompts and start > 1:
                # the last token is left to generate, which wants its logits
                _prefill(model, [rows[i] for i in live_B], pad_id, cache, leave=1)
            # rows cannot leave a batch that has no cache to drop them from
            at_once = segment if segment and cache else max_new_tokens
            while done < max_new_tokens and len(live_B):
                draw = InverseCdf(uniforms_BT[live_B], temperature, prompt_length=start)
                ids = model.generate(
                    input_ids=ids,
                    attention_mask=attention,
                    generation_config=GenerationConfig(
                        max_new_tokens=min(at_once, max_new_tokens - done), **settings
                    ),
                    logits_processor=LogitsProcessorList([draw]),
                    **({"cache": cache} if cache else {}),
                )
                new = ids[:, start + done :]
                # on some devices generate runs one token too far before it stops
                for t, drawn in enumerate(zip(new.T, draw.logprobs, draw.entropies), done):
                    for kept_BT, values in zip((completions_BT, logprobs_BT, entropy_BT), drawn):
                        kept_BT[live_B, t] = values.cpu()
                done += new.shape[1]
                _, unended = completion_mask(new.cpu(), end_ids)
                live_B, on = live_B[unended], unended.nonzero()[:, 0].to(ids.device)
                if cache and len(on) < len(ids):
                    cache.batch_select_indices(on)
                attention = torch.cat([attention, torch.ones_like(new)], dim=1)[on]
                ids = ids[on]
    mask_BT, truncated_B = completion_mask(completions_BT, end_ids)
    mask_BT = mask_BT[:, : int(mask_BT.sum(dim=1).max())]
    T = mask_BT.shape[1]
    logprobs_BT = torch.where(mask_BT, logprobs_BT[:, :T], 0.0)
    entropy_BT = torch.where(mask_BT, entropy_BT[:, :T], 0.0)
    return Rollout(rows, completions_BT[:, :T], mask_BT, truncated_B, logprobs_BT, entropy_BT)


# ------------------------------------------------------------------------------- scoring

_plain_heads: WeakKeyDictionary = WeakKeyDictionary()


def _has_plain_head(model) -> bool:
    """Whether the logits are the output embedding of the base model's last hidden states, and no
    more: some models scale or cap them. Tried on one token, bit for bit, once a model."""
    if model not in _plain_heads:
        one = dict(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device))
        base, head = model.base_model, model.get_output_embeddings()
        with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            _plain_heads[model] = (
                head is not None
                and base is not model
                and torch.equal(head(base(**one)[0]), model(**one).logits)
            )
    return _plain_heads[model]


def token_logprobs(
    model,
    prompts: Sequence[list[int]],
    completions_BT: Tensor,
    mask_BT: Tensor,
    *,
    temperature: float,
    pad_id: int,
    share_prompts: bool = True,
    logits_at_once: int | None = 512,
) -> Tensor:
    """log pi(o_t | prompt, o_<t) of every completion token, with gradient. (B, T), on the model's
    device; 0 where mask_BT is False.

    prompts: one a row. Under TA-GRPO these are the *anchored* prompts, not the sampled ones.

    For speed and memory only: `share_prompts` runs each different prompt once, with gradient (not
    under gradient checkpointing, which allows no cache); `logits_at_once` is for how many tokens
    logits exist at a time (None: all). Models that scale or cap their logits run plainly.
    """
    T = completions_BT.shape[1]
    ids_BT, mask_BT = completions_BT.to(model.device), mask_BT.to(model.device).bool()
    head = model.get_output_embeddings() if _has_plain_head(model) else None
    shared = share_prompts and head and len(set(map(tuple, prompts))) < len(prompts)
    keeps_states = not (model.training and model.is_activation_checkpointing)
    # the state at position t - 1 predicts the token at t
    if shared and keeps_states and (cache := _row_cache(model)):
        first_BH, attention = _prefill(model, prompts, pad_id, cache)
        states_BTH = first_BH[:, None]
        if T > 1:
            attention = torch.cat([attention, mask_BT[:, :-1].long()], dim=1)
            later_BTH = model.base_model(
                input_ids=ids_BT[:, :-1],
                attention_mask=attention,
                position_ids=_positions(attention)[:, 1 - T :],
                cache=cache,
                use_cache=True,
            )[0]
            states_BTH = torch.cat([states_BTH, later_BTH], dim=1)
    else:
        prompt_ids, attention = (x.to(model.device) for x in left_pad(prompts, pad_id))
        attention = torch.cat([attention, mask_BT.long()], dim=1)
        run = model.base_model if head else partial(model, logits_to_keep=T + 1)
        states_BTH = run(
            input_ids=torch.cat([prompt_ids, ids_BT], dim=1),
            attention_mask=attention,
            position_ids=_positions(attention),
            use_cache=False,
        )[0][:, -T - 1 : -1]

    def chosen(states_NH: Tensor, ids_N: Tensor) -> Tensor:
        logits_NV = head(states_NH) if head else states_NH
        # the softmax in float32 at least; cross_entropy is minus the log-probability
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / temperature
        return -cross_entropy(logits_NV, ids_N, reduction="none")

    # `checkpoint` forgets a part's logits, and computes them again in the backward pass
    states_NH, ids_N = states_BTH[mask_BT], ids_BT[mask_BT]
    size = logits_at_once or max(1, len(ids_N))
    logprobs_N = torch.cat([
        checkpoint(chosen, *part, use_reentrant=False, preserve_rng_state=False)
        if logits_at_once else chosen(*part)
        for part in zip(states_NH.split(size), ids_N.split(size))
    ])  # fmt: skip
    return logprobs_N.new_zeros(mask_BT.shape).masked_scatter(mask_BT, logprobs_N)


def micro_batches(lengths_B: Tensor, token_budget: int) -> list[list[int]]:
    """Row numbers, cut so that rows * longest row <= token_budget (one row at least), sorted by
    length so that little is padded. lengths_B: prompt and completion together.
    """
    batches: list[list[int]] = []
    for row in lengths_B.argsort(descending=True, stable=True).tolist():
        longest = int(lengths_B[batches[-1][0]]) if batches else 0
        if batches and (len(batches[-1]) + 1) * longest <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
