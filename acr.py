"""Advantage collapse: which groups carry no gradient, and how often (arXiv 2605.21125, sec. 3).

GRPO learns from differences inside a group of samples. When all rewards of a group are the same,
every advantage is 0 and its samples, paid for in full, teach nothing. Neither the loss nor the
accuracy shows it; the rate below does.

    ACR = collapsed groups / groups of the step                                     (eq. 6)

What ACR = 1 means depends on the other two rates that are reported beside it: `acr_all_wrong` = 1
is a task that is too hard, or a verifier that is broken; `acr_all_right` = 1 is one that is solved.
(A collapsed group is all wrong when its rewards are 0 or less, else all right.)

Choices. The paper calls a group collapsed when its standard deviation is below 1e-6; here the test
is max - min <= 1e-6. That says the same without rounding: six rewards of 0.15 have a float32
standard deviation near 1.5e-8, of which GRPO's (r - mean)/(std + eps) with a tiny eps makes
advantages; six of 20.3 have one of 1.9e-6, and the paper's test does not see that they are equal.
Samples without a verdict are NaN and are not looked at; a group with fewer than two verdicts is in
neither part of the fraction and is counted as `unscorable`.

Shapes: _P questions (groups) · _M samples of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, nan
from numbers import Integral

import torch
from torch import Tensor

TOL = 1e-6  # closer rewards are the same; a near-tie that is wider counts as a difference


def scorable(rewards_PM: Tensor) -> Tensor:
    """Groups with at least two verdicts (not NaN). (P, M) -> bool (P,)."""
    return (~rewards_PM.isnan()).sum(dim=1) >= 2


def collapsed(rewards_PM: Tensor, tol: float = TOL) -> Tensor:
    """Groups whose rewards are all the same: max - min <= tol. (P, M) -> bool (P,).

    NaN (no verdict) is ignored; a group with fewer than two verdicts is never collapsed.
    """
    if rewards_PM.dim() != 2:
        raise ValueError(f"expected rewards of shape (P, M), got {tuple(rewards_PM.shape)}")
    highest_P = rewards_PM.nan_to_num(nan=-torch.inf).amax(dim=1)
    lowest_P = rewards_PM.nan_to_num(nan=torch.inf).amin(dim=1)
    return (highest_P - lowest_P <= tol) & scorable(rewards_PM)


def advantage_collapse_rate(rewards_PM: Tensor) -> float:
    """ACR (eq. 6), from 0 to 1; NaN when no group has two verdicts."""
    return collapse_report(rewards_PM)["acr"]


def collapse_report(rewards_PM: Tensor) -> dict[str, float]:
    """The rate and its two parts: `acr`, `acr_all_wrong`, `acr_all_right`, and `unscorable`.

    A collapsed group is all wrong when its rewards are <= 0, else all right, so the two parts add
    up to `acr`. `unscorable` is a number of groups, the others are shares of the scorable groups.
    """
    dead_P = collapsed(rewards_PM)
    groups = int(scorable(rewards_PM).sum())
    wrong = int((dead_P & (rewards_PM.nan_to_num(nan=-torch.inf).amax(dim=1) <= 0)).sum())
    dead = int(dead_P.sum())

    def share(count: int) -> float:
        return count / groups if groups else nan

    # ACR = collapsed groups / groups of the step (eq. 6)
    return {
        "acr": share(dead),
        "acr_all_wrong": share(wrong),
        "acr_all_right": share(dead - wrong),
        "unscorable": len(rewards_PM) - groups,
    }


def expected_acr(p_P: Sequence[float] | Tensor, G: int) -> float:
    """Expected ACR of questions with success probabilities p: mean_j(p_j^G + (1 - p_j)^G).

    The mean is over questions, outside the powers: half the questions at p = 0 and half at p = 1
    give 1, while their mean p = .5 would say .008 for G = 8. The p must be true probabilities;
    for rates estimated from samples use `expected_acr_from_counts`, as plugging those in is biased
    upwards.
    """
    p_P = torch.as_tensor(p_P, dtype=torch.float64)
    if G < 1 or p_P.numel() == 0 or not bool(((p_P >= 0) & (p_P <= 1)).all()):
        raise ValueError("expected_acr takes probabilities in [0, 1] and a group size G >= 1")
    # mean_j(p_j^G + (1 - p_j)^G)
    return float((p_P**G + (1 - p_P) ** G).mean())


def expected_acr_from_counts(n: int, c: int | Sequence[int], G: int) -> float:
    """Unbiased estimate of p^G + (1-p)^G from c right answers among n samples, 1 <= G <= n.

        [C(c, G) + C(n - c, G)] / C(n, G)

    the chance that G of the n samples, drawn without replacement, agree. A sequence of counts, one
    a question, gives the mean over the questions.
    """
    counts = [c] if isinstance(c, Integral) else list(c)
    if not 1 <= G <= n or not counts or not all(0 <= k <= n for k in counts):
        raise ValueError(f"need 1 <= G <= n and 0 <= c <= n, got G={G}, n={n}, c={c}")
    # [C(c, G) + C(n - c, G)] / C(n, G)
    total = comb(n, G)
    return sum((comb(int(k), G) + comb(n - int(k), G)) / total for k in counts) / len(counts)


class CollapseMonitor:
    """ACR over a run: `acr_100` (mean of the first 100 steps, as the paper reports it), a moving
    average, and one sentence, said once, when much of the sampling teaches nothing.

    >>> monitor = CollapseMonitor(window=2, threshold=0.5)
    >>> monitor.update(collapse_report(torch.zeros(4, 8)), reward=0.0)
    >>> monitor.update(collapse_report(torch.zeros(4, 8)), reward=0.0)
    '100 % of samples carried no gradient for 2 steps (100 % wrong, 0 % right); reward stagnated'
    """

    def __init__(self, window: int = 50, threshold: float = 0.5):
        if window < 2:  # the reward's rise is that between the two halves of the window
            raise ValueError(f"window must be at least 2 steps, got {window}")
        self.window, self.threshold = window, threshold
        self.reports: list[dict[str, float]] = []
        self.rewards: list[float] = []
        self.warned = False

    @property
    def acr_100(self) -> float:
        return self._mean("acr", self.reports[:100])

    @property
    def moving_average(self) -> float:
        return self._mean("acr", self.reports[-self.window :])

    def update(self, report: dict[str, float], reward: float) -> str | None:
        """Takes a step's `collapse_report` and mean reward; returns the sentence, or None."""
        if report["acr"] == report["acr"]:  # a step without verdicts (NaN) says nothing about ACR
            self.reports.append(report)
            self.rewards.append(reward)
        if self.warned or len(self.reports) < self.window:
            return None
        if self.moving_average < self.threshold:
            return None
        self.warned = True
        recent = self.reports[-self.window :]
        wrong, right = self._mean("acr_all_wrong", recent), self._mean("acr_all_right", recent)
        sentence = (
            f"{self.moving_average:.0%} of samples carried no gradient for {self.window} steps "
            f"({wrong:.0%} wrong, {right:.0%} right)"
        ).replace("%", " %")
        # Groups also collapse because the policy learns: 'stagnated' only where nothing rose.
        half = self.window // 2
        earlier, later = self.rewards[-self.window : -half], self.rewards[-half:]
        rising = sum(later) / len(later) > sum(earlier) / len(earlier)
        return sentence if rising else sentence + "; reward stagnated"

    @staticmethod
    def _mean(key: str, reports: list[dict[str, float]]) -> float:
        return sum(r[key] for r in reports) / len(reports) if reports else nan
