"""TA-GRPO: one question in several phrasings, one group, one anchor (arXiv 2601.22478, v5).

A question q_0 is rephrased N times. G completions are sampled for each of the F = N + 1 phrasings.

    A     = (r - mean) / (std + eps)            mean and std over all F*G rewards of the question
    rho_t = pi(o_t | q_0, o_<t) / pi_old(o_t | q_0, o_<t)      whichever phrasing o came from

Two changes to GRPO. The *joint* advantage: easy phrasings lend their successes to hard ones, and a
group collapses only if all its phrasings agree. The *anchor*: every completion is scored, and
trained, as an answer to the original question, so what a rephrasing made possible is learnt where
it is wanted. At the first update the ratio is 1 as in GRPO; with more updates per rollout pi_old is
scored once, under q_0, before the first.

What the anchor costs. No importance weight pi(o|q_0)/pi(o|q_n) is applied, so the gradient is
biased by design: for o drawn from pi(·|q_n) the mean of grad log pi(o|q_0) is not 0, and k3 under
q_0 is no unbiased KL. The paper's premise is that phrasings lead to similar trajectories; the
logged `anchor_gap` measures it, in nats a token: mean_t [log pi_old(o_t|q_n) - log pi_old(o_t|q_0)]
over the completions of rephrasings that are trained on (those of a collapsed group are not scored).

Choices. Aggregation `sequence` as in `grpo` (the paper's is not public). A missing phrasing is
replaced by the original, sampled again: the group stays rectangular, the budget equal, the anchor
exact. The authors' public code pools the advantages but does not anchor: that is `--no-anchor`;
`--no-pool` normalises each phrasing by itself. Without rephrasings this is GRPO, bit for bit.

What pooling can promise: the probability of no gradient is never above that of the original alone
(`zero_gradient_probability`). That it is below that of a plain group of F*G samples holds on
average only, and where phrasings are exchangeable (any could as well have been the original): with
p_0 = .5 and three others at .99 the plain group is the better one.

Shapes: _P questions · _F phrasings of a question, the original first · _G samples of a phrasing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from grpo import EPS_STD, group_advantages


def pool_phrasings(rewards_PFG: Tensor, pool: bool = True) -> Tensor:
    """The groups that are normalised: (P, F*G) jointly, or (P*F, G), each phrasing by itself.

    `train.py` calls this and then GRPO's or AVSPO's advantages, which is how the two compose.
    """
    P, F, G = rewards_PFG.shape
    # TA-GRPO, change 1 of 2: the group is every sample of every phrasing
    return rewards_PFG.reshape(P, F * G) if pool else rewards_PFG.reshape(P * F, G)


def joint_advantages(rewards_PFG: Tensor, eps: float = EPS_STD) -> Tensor:
    """One baseline for all phrasings of a question. (P, F, G) -> (P, F, G).

    Exactly 0 where all F*G rewards agree.
    """
    return group_advantages(pool_phrasings(rewards_PFG), eps).reshape(rewards_PFG.shape)


def anchored_prompts(prompts_PF: Sequence[Sequence], anchor: bool = True) -> list[list]:
    """The prompt under which each phrasing's completions are scored: the original's, for all.

    prompts_PF: anything, one entry a phrasing, the original first. With `anchor` False each keeps
    its own (the authors' public code).
    """
    # TA-GRPO, change 2 of 2: pi, pi_old and pi_ref are all conditioned on the original question
    return [[row[0]] * len(row) if anchor else list(row) for row in prompts_PF]


def fill_phrasings(original: str, rephrasings: Sequence[str], count: int) -> list[str]:
    """The original, then `count` rephrasings; the original again for each that is missing."""
    chosen = list(rephrasings[:count])
    return [original] + chosen + [original] * (count - len(chosen))


def zero_gradient_probability(p_F: Sequence[float], G: int) -> float:
    """Probability that all F*G rewards of a question agree, p_f being the phrasings' success rates:
    prod_f p_f^G + prod_f (1 - p_f)^G. Never above p_0^G + (1 - p_0)^G.
    """
    p_F = list(p_F)
    if G < 1 or not p_F or not all(0 <= p <= 1 for p in p_F):
        raise ValueError("p_F must be probabilities in [0, 1] and G at least 1")
    # prod_f p_f^G + prod_f (1 - p_f)^G
    return prod(p**G for p in p_F) + prod((1 - p) ** G for p in p_F)
