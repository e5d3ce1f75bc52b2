"""AVSPO: virtual rewards give collapsed groups a gradient again (arXiv 2605.21125, sec. 4).

    K   = max(1, min(M, ceil(M * ACR^alpha)))                                          (eq. 8)
    v_k = r_obs * (1 - k/(K+1))       if r_obs = max_i r_i > 0, else
          r_anchor * (K - k + 1)/K    k = 1 … K                                        (eq. 9)
    A_i = (r_i - mean') / (std' + eps)      for the M real samples, mean' and std' over all M + K
    tau <- clip(tau + eta * sign(R_t - R_{t-1}) * (ACR_t - tau), 0.1, 0.9)             (eq. 10)

The virtual rewards enter two statistics and nothing else: they have no tokens and no place in the
loss. They are used only if ACR > tau, and only in collapsed groups. Everything else is GRPO.

What this does: an all-wrong group is pushed down and an all-right group is pushed up, on average
over its samples. Every real sample of a rescued group gets the same advantage; no ranking is made
inside it. With M = 8 its size is .3536, .4685, .5523, .6202, .6776, .7276, .7718, .8115 for
K = 1 … 8, and r_anchor cancels: where wrong is 0, it scales all values of an all-wrong group alike
(exactly so at eps = 0).

What to know before using it:
- To an all-wrong group it says 'not this', never 'what instead'. Where nearly all groups are all
  wrong, that is most of the gradient, and it can unlearn what the model could do: see
  `results/smollm2-cpu`, where GRPO learns and AVSPO ends at 0. `--rescue all_right` leaves it out.
- The gate depends on how many groups make up a step. If a group collapses with probability a, it
  opens with probability Pr(Bin(P, a)/P > tau). With one group a step (the paper's stated setting)
  ACR is 0 or 1: the gate opens at every collapse and K = M always. With many groups and a < tau it
  hardly ever opens: a = .4 and tau = .5 give .40 of steps for P = 1, .14 for 16, .01 for 128. See
  `gate_open_probability`; `--acr-window` measures ACR over the last groups instead of one step's.
- R_t - R_{t-1} compares different questions: its sign is mostly noise. In 500 steps at eta = .01
  tau walks a few hundredths around its start with 32 groups a step (up to a tenth where ACR is far
  from it), a tenth or two with one. The convergence that the paper claims does not follow from
  eq. 10.

Where the paper is silent: std is 1/M, eps = 1e-4 as in `grpo`; the update of tau comes after the
policy's and the first step changes nothing. Samples without a verdict are NaN: M counts scored
samples, and the NaN keeps advantage 0.

Shapes: _P questions · _M samples of a group.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from acr import advantage_collapse_rate, collapsed
from grpo import EPS_STD, group_advantages

RULES = ("stratified", "random", "fixed")
GROUPS = ("both", "all_wrong", "all_right")


def num_virtual(group_size: int, acr: float, alpha: float = 0.5) -> int:
    """K, the number of virtual rewards (eq. 8): from 1 to group_size, growing with ACR in [0, 1].

    alpha > 0; the paper uses 0.5.
    """
    # K = max(1, min(M, ceil(M * ACR^alpha))) (eq. 8)
    # 1e-9 keeps a product that is whole in exact arithmetic from being rounded up to the next K
    return max(1, min(group_size, math.ceil(group_size * acr**alpha - 1e-9)))


def virtual_rewards(
    rewards_M: Tensor,
    K: int,
    rule: str = "stratified",
    r_anchor: float = 0.1,
    r_max: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """K virtual rewards for one collapsed group (eq. 9). (M,) -> (K,).

    rule: `stratified` is the paper's; its ablations are `random`, uniform on [0, r_max], and
    `fixed`, 0.5 * r_max, where r_max is the largest reward there is (not the largest seen, so that
    all-wrong groups are rescued too). NaN rewards are ignored.
    """
    if K < 1:
        raise ValueError(f"K must be at least 1, got {K}")
    if rule == "random":
        uniform = torch.rand(K, generator=generator, dtype=torch.float64)
        return (r_max * uniform).to(rewards_M)
    if rule == "fixed":
        return torch.full((K,), 0.5 * r_max).to(rewards_M)
    if rule != "stratified":
        raise ValueError(f"unknown rule {rule!r}: one of {', '.join(RULES)}")
    # v_k = r_obs (1 - k/(K+1)), or r_anchor (K - k + 1)/K if all are wrong (eq. 9)
    r_obs = float(rewards_M[~rewards_M.isnan()].max())
    k = torch.arange(1, K + 1, dtype=torch.float64)
    if r_obs > 0:
        return (r_obs * (1 - k / (K + 1))).to(rewards_M)
    return (r_anchor * (K - k + 1) / K).to(rewards_M)


def avspo_advantages(
    rewards_PM: Tensor,
    tau: float,
    acr: float | None = None,
    alpha: float = 0.5,
    virtual_k: int | None = None,
    rule: str = "stratified",
    groups: str = "both",
    r_anchor: float = 0.1,
    r_max: float = 1.0,
    eps: float = EPS_STD,
    generator: torch.Generator | None = None,
) -> Tensor:
    """GRPO advantages, with collapsed groups rescued where ACR > tau. (P, M) -> (P, M).

    acr: what the gate and K read; None for the ACR of these groups. virtual_k: a fixed K instead
    of eq. 8. groups: rescue `both`, or only `all_wrong` or `all_right` ones (the paper's
    ablations; all right is every collapsed group with a reward above 0). Raises ValueError for
    unknown rules and groups, and K < 1.
    """
    if groups not in GROUPS:
        raise ValueError(f"unknown groups {groups!r}: one of {', '.join(GROUPS)}")
    advantages_PM = group_advantages(rewards_PM, eps)
    if acr is None:
        acr = advantage_collapse_rate(rewards_PM)
    # AVSPO, change 1 of 2 (eqs. 8-9): past the gate, collapsed groups get virtual rewards
    if acr > tau:
        for p in collapsed(rewards_PM).nonzero().flatten().tolist():
            scored_M = ~rewards_PM[p].isnan()
            real = rewards_PM[p][scored_M]
            if groups == ("all_wrong" if real.max() > 0 else "all_right"):
                continue
            K = num_virtual(len(real), acr, alpha) if virtual_k is None else virtual_k
            pool = torch.cat([real, virtual_rewards(real, K, rule, r_anchor, r_max, generator)])
            # A_i = (r_i - mean') / (std' + eps)
            rescued = (real - pool.mean()) / (pool.std(correction=0) + eps)
            advantages_PM[p, scored_M] = rescued
    return advantages_PM


class AdaptiveThreshold:
    """tau of the gate, moved after each policy update (eq. 10).

    tau: where it starts. eta: step size; 0 keeps tau where it is. bounds: its range.
    """

    def __init__(
        self, tau: float = 0.5, eta: float = 0.01, bounds: tuple[float, float] = (0.1, 0.9)
    ):
        self.tau, self.eta, self.bounds = tau, eta, bounds
        self.last_reward: float | None = None

    def update(self, acr: float, mean_reward: float) -> float:
        """Takes this step's ACR and mean reward, returns the new tau. The first call only looks.

        A step without verdicts (NaN) changes nothing.
        """
        if math.isnan(acr) or math.isnan(mean_reward):
            return self.tau
        if self.last_reward is not None and self.eta > 0:
            # AVSPO, change 2 of 2 (eq. 10): towards ACR when the reward rose, away when it fell
            change = mean_reward - self.last_reward
            direction = (change > 0) - (change < 0)
            # tau <- clip(tau + eta sign(R_t - R_{t-1}) (ACR_t - tau), 0.1, 0.9)
            tau = self.tau + self.eta * direction * (acr - self.tau)
            self.tau = min(self.bounds[1], max(self.bounds[0], tau))
        self.last_reward = mean_reward
        return self.tau


def gate_open_probability(num_groups: int, collapse_probability: float, tau: float) -> float:
    """P(Bin(P, a)/P > tau): how often a step of P groups opens the gate when each collapses with
    probability a. As in the header: a = .4, tau = .5 gives .40, .14, .01 for P = 1, 16, 128.
    """
    opens = [k for k in range(num_groups + 1) if k / num_groups > tau]
    # in logarithms: the binomial coefficients of a few thousand groups overflow
    binomial = torch.distributions.Binomial(
        num_groups, torch.tensor(collapse_probability, dtype=torch.float64)
    )
    return float(
        binomial.log_prob(torch.tensor(opens, dtype=torch.float64)).exp().sum().clamp(max=1.0)
    )
