"""Sample completions with Hugging Face `generate`, and score tokens under a policy.

Three things go wrong here in most small trainers, and each has its line below:

- The distribution sampled from is not the one that is scored. `generate` takes filters (top-k,
  repetition penalty, …) from the model's folder where they are left unset. Here the folder's
  settings are put aside, nothing is filtered, and the temperature divides the logits in both
  places. The log-probabilities of the two agree within 1e-4 in float32.
- The end of a completion is guessed from padding. Here it is the position of the first end token,
  which is itself trained on; padding with the end token, or a second end token, changes nothing.
- Text is encoded again. The ids that were sampled are the ids that are trained on.

Random numbers. A sample depends on (seed, step, row, position) only: one uniform number for each,
turned into a token by the inverse of the cumulative distribution (float64) in a logits processor,
under `generate(do_sample=False)`. How rows are batched or cut into chunks changes no sample.

Shapes: _P questions · _F phrasings · _G samples of a phrasing · _B rows (P*F*G) · _T tokens ·
_V vocabulary. Rows are in order: all samples of a phrasing, then the next phrasing, then the next
question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList


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
    """Draws one token a row: the first whose cumulative probability exceeds the row's number.

    Used under `do_sample=False`: it gives back scores whose argmax is the token drawn. It also
    keeps that token's log-probability and the entropy, which cost nothing more here.
    """

    def __init__(self, uniforms_BT: Tensor, temperature: float, prompt_length: int):
        self.uniforms_BT, self.temperature = uniforms_BT, temperature
        self.prompt_length = prompt_length
        self.logprobs: list[Tensor] = []
        self.entropies: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        # float64 wants the CPU on devices that have none (mps)
        logits_BV = (scores.cpu() if scores.device.type == "mps" else scores).double()
        logprobs_BV = torch.log_softmax(logits_BV / self.temperature, dim=-1)
        probs_BV = logprobs_BV.exp()
        cdf_BV = probs_BV.cumsum(dim=-1)
        position = input_ids.shape[1] - self.prompt_length
        u_B1 = self.uniforms_BT[:, position, None].to(cdf_BV.device)
        token_B1 = torch.searchsorted(cdf_BV, u_B1 * cdf_BV[:, -1:], right=True)
        token_B1 = token_B1.clamp(max=scores.shape[1] - 1)
        self.logprobs.append(logprobs_BV.gather(1, token_B1)[:, 0].float())
        self.entropies.append(-(probs_BV * logprobs_BV).nan_to_num(0.0).sum(dim=-1).float())
        return torch.zeros_like(scores).scatter_(1, token_B1.to(scores.device), 1.0)


@contextmanager
def _ready_to_generate(model) -> Iterator[None]:
    """The folder's generation settings out of the way, and evaluation mode: gradient checkpointing,
    which would switch the cache off, acts in training mode only."""
    training, settings = model.training, model.generation_config
    model.eval()
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = settings
        model.train(training)


def left_pad(prompts: Sequence[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Prompts of different lengths -> (ids, attention mask), padded on the left, on the CPU."""
    ids = pad_sequence(
        [torch.tensor(p) for p in prompts],
        batch_first=True,
        padding_value=pad_id,
        padding_side="left",
    )
    lengths = torch.tensor([len(p) for p in prompts])
    return ids, (torch.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]).long()


def completion_mask(completions_BT: Tensor, end_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(mask_BT, truncated_B): True up to and including the first end token; no end token at all.

    By position, never by `id == pad`: the pad token is often the end token.
    """
    is_end_BT = torch.isin(completions_BT, torch.tensor(list(end_ids), dtype=torch.long))
    ends_before_BT = is_end_BT.cumsum(dim=1) - is_end_BT.long()
    return ends_before_BT == 0, ~is_end_BT.any(dim=1)


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
) -> Rollout:
    """`group_size` completions of each prompt.

    prompts: token ids, one list a phrasing. uniforms_BT: from `uniforms`, a row for each
    completion. temperature > 0 divides the logits. end_ids: every id that ends a completion.
    chunk_tokens: at most so many tokens (prompts and completions, padding included) in one call of
    `generate`; None for all in one. Raises ValueError for a temperature near 0.
    """
    if temperature < 0.01:
        raise ValueError(f"temperature {temperature} makes log-probabilities infinite")
    rows = [p for p in prompts for _ in range(group_size)]
    longest = max(map(len, rows)) + max_new_tokens
    per_call = len(rows) if chunk_tokens is None else max(1, chunk_tokens // longest)
    settings = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(end_ids),
        pad_token_id=pad_id,
    )
    completions, logprobs, entropies = [], [], []
    with _ready_to_generate(model):
        for start in range(0, len(rows), per_call):
            ids, attention = left_pad(rows[start : start + per_call], pad_id)
            draw = InverseCdf(
                uniforms_BT[start : start + per_call], temperature, prompt_length=ids.shape[1]
            )
            output = model.generate(
                input_ids=ids.to(model.device),
                attention_mask=attention.to(model.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList([draw]),
            )
            completions += output[:, ids.shape[1] :].cpu().unbind()
            logprobs += torch.stack(draw.logprobs, dim=1).cpu().unbind()
            entropies += torch.stack(draw.entropies, dim=1).cpu().unbind()
    completions_BT = pad_sequence(completions, batch_first=True, padding_value=pad_id)
    mask_BT, truncated_B = completion_mask(completions_BT, end_ids)

    def padded(values: list[Tensor]) -> Tensor:
        return torch.where(mask_BT, pad_sequence(values, batch_first=True), 0.0)

    return Rollout(rows, completions_BT, mask_BT, truncated_B, padded(logprobs), padded(entropies))


def token_logprobs(
    model,
    prompts: Sequence[list[int]],
    completions_BT: Tensor,
    mask_BT: Tensor,
    *,
    temperature: float,
    pad_id: int,
) -> Tensor:
    """log pi(o_t | prompt, o_<t) of every completion token, with gradient. (B, T), on the model's
    device; where mask_BT is False the values mean nothing.

    prompts: one a row. Under TA-GRPO these are the *anchored* prompts, not the sampled ones.
    """
    T = completions_BT.shape[1]
    prompt_ids, prompt_mask = left_pad(prompts, pad_id)
    ids = torch.cat([prompt_ids, completions_BT], dim=1).to(model.device)
    attention = torch.cat([prompt_mask, mask_BT.long()], dim=1).to(model.device)
    logits = model(
        input_ids=ids,
        attention_mask=attention,
        # left padding shifts positions in models that count them from the left edge
        position_ids=(attention.cumsum(dim=1) - 1).clamp(min=0),
        use_cache=False,
        logits_to_keep=T + 1,
    ).logits
    # the logits at position t - 1 score the token at t
    logits_BTV = logits[:, -T - 1 : -1].float() / temperature
    chosen_BT = logits_BTV.gather(2, ids[:, -T:, None])[:, :, 0]
    return chosen_BT - logits_BTV.logsumexp(dim=2)


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
