"""How good is a policy: pass@k on questions it was not trained on, with intervals.

    pass@k = 1 - C(n - c, k) / C(n, k)        from c right among n samples, unbiased
                                              (arXiv 2107.03374, eq. 1)

An accuracy without an interval is not a result: questions differ far more than samples do, so the
intervals here resample questions. Two policies are compared question by question, as most of the
noise is in the questions and cancels in the difference.

Shapes: _Q questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import torch
from torch import Tensor

from data import Question, stable_seed
from reward import score
from rollout import sample, uniforms


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right; 1 <= k <= n."""
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"need 1 <= k <= n and 0 <= c <= n, got n={n}, c={c}, k={k}")
    # 1 - C(n - c, k) / C(n, k)
    return 1.0 - comb(n - c, k) / comb(n, k)


def bootstrap_interval(
    values_Q: Sequence[float], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the mean over questions, resampling questions."""
    values_Q = torch.as_tensor(values_Q, dtype=torch.float64)
    generator = torch.Generator().manual_seed(stable_seed("bootstrap", seed))
    picks = torch.randint(len(values_Q), (resamples, len(values_Q)), generator=generator)
    means = values_Q[picks].mean(dim=1)
    tail = (1 - level) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


@dataclass
class Evaluation:
    """What `evaluate_policy` found: right answers a question, and how the completions looked."""

    right_Q: list[int]
    scored_Q: list[int]  # samples with a verdict
    samples: int
    mean_length: float
    truncated: float  # share

    def rates(self) -> list[float]:
        """pass@1 of each question that has a verdict."""
        return [c / n for c, n in zip(self.right_Q, self.scored_Q) if n]

    def row(self) -> dict[str, float]:
        """A line of eval.csv: pass@k with its interval, for k = 1 and all samples."""
        row: dict[str, float] = {"questions": len(self.right_Q), "samples": self.samples}
        for k in sorted({1, self.samples}):
            values = [pass_at_k(n, c, k) for c, n in zip(self.right_Q, self.scored_Q) if n >= k]
            if values:
                row[f"pass@{k}"] = sum(values) / len(values)
                row[f"pass@{k}_low"], row[f"pass@{k}_high"] = bootstrap_interval(values)
        return row


def evaluate_policy(
    policy,
    questions: Sequence[Question],
    samples: int,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
    chunk_tokens: int | None = None,
) -> Evaluation:
    """`samples` completions of every question, scored. The random numbers depend on the seed only:
    two policies are compared on the same draws, and training's own are never touched.
    """
    prompts = [policy.encode(q.question) for q in questions]
    with policy.autocast():
        rollout = sample(
            policy.model,
            prompts,
            samples,
            uniforms(stable_seed(seed, "evaluation"), len(questions), 1, samples, max_new_tokens),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            end_ids=policy.end_ids,
            pad_id=policy.pad_id,
            chunk_tokens=chunk_tokens,
        )
    texts = [policy.decode(ids[mask].tolist()) for ids, mask in rollout.rows()]
    golds = [q.answer for q in questions for _ in range(samples)]
    rewards_QS = torch.tensor(score(texts, golds, rollout.truncated_B.tolist())).view(-1, samples)
    return Evaluation(
        right_Q=(rewards_QS == 1).sum(dim=1).tolist(),
        scored_Q=(~rewards_QS.isnan()).sum(dim=1).tolist(),
        samples=samples,
        mean_length=float(rollout.lengths_B.float().mean()),
        truncated=float(rollout.truncated_B.float().mean()),
    )


def paired_difference(
    before_Q: Sequence[float], after_Q: Sequence[float]
) -> tuple[float, float, float]:
    """(mean, low, high) of after - before, question by question, 95 % interval."""
    difference: Tensor = torch.tensor(after_Q, dtype=torch.float64) - torch.tensor(
        before_Q, dtype=torch.float64
    )
    return float(difference.mean()), *bootstrap_interval(difference)
