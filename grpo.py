"""GRPO, the baseline every variant is read against (arXiv 2402.03300).

    A_i   = (r_i - mean) / (std + eps)          over the M samples of a group; exactly 0 if all
                                                rewards of the group are the same
    rho_t = pi(o_t | q, o_<t) / pi_old(o_t | q, o_<t)
    k3_t  = pi_ref/pi - log(pi_ref/pi) - 1

    objective = mean over groups of 1/M sum_i 1/|o_i| sum_t
                [ min(rho_t A_i, clip(rho_t, 1 - lo, 1 + hi) A_i) - beta k3_t ]

and the loss is minus that. q is the question, o_i the i-th of its M sampled completions, |o_i| its
length and o_t its t-th token; pi is the policy, pi_old the policy that sampled, pi_ref a fixed one;
lo and hi are the clip range, .2 both. Four answers in advance:

- With one update per rollout the ratio is exactly 1 and the advantages of a group sum to 0, so the
  *value* of this loss is near 0 (not so where tokens are averaged instead of samples, or where
  AVSPO moves whole groups). Its gradient is not: look at grad_norm.
- A is a constant and rho carries the gradient: at rho = 1 it is A * grad log pi, plain REINFORCE.
- `min` keeps the gradient of a bad sample (A < 0) whose probability grew: it is the large ratio
  that is punished. Only a good sample that grew, or a bad one that shrank, is cut off.
- Every denominator is that of the whole rollout, collapsed groups included, and is fixed before
  micro-batches are cut: how the rows are split changes no gradient.

Choices. Standard deviation with 1/M (the paper does not say; torch's default is 1/(M-1)) and
eps = 1e-4 (TRL's value). The paper's objective is the aggregation `sequence`. `token` divides by
the tokens of the step (TRL's `dapo`, verl's `token-mean`; the DAPO paper writes it per group).
`constant` divides by rows * L_max (Dr. GRPO, arXiv 2503.20783): long answers are not discounted.
(Dr. GRPO also drops the division by std; that is not done here.)
A sample without a verdict is NaN: it is outside mean and std, its advantage is 0, and it stays in
the denominators.

Shapes: _P questions · _M samples of a group · _B rows, group after group · _T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from acr import collapsed, scorable

EPS_STD = 1e-4
AGGREGATIONS = ("sequence", "token", "constant")
MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: beyond it k3 would overflow and turn into NaN


def group_advantages(rewards_PM: Tensor, eps: float = EPS_STD) -> Tensor:
    """Group-relative advantages. (P, M) -> (P, M), exactly 0 in a collapsed group.

    NaN rewards get advantage 0, as does a group with fewer than two verdicts. Raises ValueError
    for a group of one: it has nothing to be compared with.
    """
    if rewards_PM.dim() != 2 or rewards_PM.shape[1] < 2:
        raise ValueError(f"expected (P, M) rewards with M >= 2, got {tuple(rewards_PM.shape)}")
    if not rewards_PM.is_floating_point():
        rewards_PM = rewards_PM.float()
    mean_P1 = rewards_PM.nanmean(dim=1, keepdim=True)
    std_P1 = (rewards_PM - mean_P1).square().nanmean(dim=1, keepdim=True).sqrt()
    # A_i = (r_i - mean) / (std + eps)
    advantages_PM = (rewards_PM - mean_P1) / (std_P1 + eps)
    has_signal_P = scorable(rewards_PM) & ~collapsed(rewards_PM)
    return torch.where(has_signal_P[:, None] & ~rewards_PM.isnan(), advantages_PM, 0.0)


def row_weights(lengths_B: Tensor, aggregation: str, max_tokens: int) -> Tensor:
    """What one token of each row weighs in the loss. Lengths of *all* rows of the rollout -> (B,).

    A function of its own because the loss is computed in pieces. Weights are fixed here, once, for
    the whole rollout; `clipped_loss` is then called on any rows with their weights:

        weights_B = row_weights(lengths_B, "sequence", max_tokens)
        for rows in micro_batches: clipped_loss(..., weights_B[rows]).backward()

    `max_tokens` is L_max, the limit on a completion's length; only `constant` uses it. Raises
    ValueError for an unknown aggregation.
    """
    rows = len(lengths_B)
    if aggregation == "sequence":
        return 1.0 / (rows * lengths_B.clamp(min=1).float())
    if aggregation == "token":
        return (1.0 / lengths_B.sum().clamp(min=1).float()).expand(rows)
    if aggregation == "constant":
        return torch.full((rows,), 1.0 / (rows * max_tokens), device=lengths_B.device)
    raise ValueError(f"unknown aggregation {aggregation!r}: one of {', '.join(AGGREGATIONS)}")


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """The k3 estimate of KL(pi || pi_ref) per token, >= 0, for tokens drawn from pi.

    k3 = pi_ref/pi - log(pi_ref/pi) - 1. Its mean over tokens of pi is the KL. The log ratio is
    clamped at +-20 before exp. Its gradient, with the tokens held fixed, is that of
    KL(pi_ref || pi), not of KL(pi || pi_ref): another slope, the same minimum.
    """
    log_ratio = (ref_logprobs - logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    # k3_t = pi_ref/pi - log(pi_ref/pi) - 1
    # as expm1(x) - x: for the small x of early training exp(x) - 1 - x is rounding, even negative
    return log_ratio.expm1() - log_ratio


def clipped_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    weights_B: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.0,
    ref_logprobs_BT: Tensor | None = None,
) -> Tensor:
    """The loss of some rows of a rollout; the losses of its micro-batches add up to the whole.

    logprobs_BT: log pi(o_t) of the sampled tokens, with gradient. old_logprobs_BT: the same
    under pi_old, without. mask_BT: 1 for completion tokens, the end token included.
    weights_B: from `row_weights` over the whole rollout. clip_low, clip_high: the ratio is clipped
    to [1 - clip_low, 1 + clip_high]. beta > 0 needs ref_logprobs_BT.
    """
    advantages_B1, mask_BT = advantages_B[:, None], mask_BT.bool()
    # Padding is put to 0 first, with where and not *, as inf * 0 is NaN: whatever stands there must
    # reach neither the value nor, through exp, the gradient.
    logprobs_BT = torch.where(mask_BT, logprobs_BT, 0.0)
    log_ratio_BT = logprobs_BT - torch.where(mask_BT, old_logprobs_BT, 0.0)
    # rho_t = pi(o_t | q, o_<t) / pi_old(o_t | q, o_<t)
    ratio_BT = log_ratio_BT.clamp(max=MAX_LOG_RATIO).exp()
    clipped_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    # min(rho_t A_i, clip(rho_t, 1 - lo, 1 + hi) A_i) - beta k3_t
    objective_BT = torch.min(ratio_BT * advantages_B1, clipped_BT * advantages_B1)
    if beta > 0:
        ref_logprobs_BT = torch.where(mask_BT, ref_logprobs_BT, 0.0)
        objective_BT = objective_BT - beta * kl_k3(logprobs_BT, ref_logprobs_BT)
    return -((objective_BT * mask_BT).sum(dim=1) * weights_B).sum()


@torch.no_grad()
def ratio_diagnostics(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    ref_logprobs_BT: Tensor | None = None,
) -> dict[str, float]:
    """Sums over tokens, to be added up over micro-batches and divided by `tokens`:
    `ratio`, `clipped` (tokens whose gradient the clip cut off), `kl` (k3 against the reference).

    With one update per rollout the ratio is 1 and nothing is ever clipped.
    """
    mask_BT = mask_BT.bool()
    ratio_BT = (logprobs_BT - old_logprobs_BT).clamp(max=MAX_LOG_RATIO).exp()
    good_B1 = advantages_B[:, None] > 0
    bad_B1 = advantages_B[:, None] < 0
    cut_BT = (good_B1 & (ratio_BT > 1 + clip_high)) | (bad_B1 & (ratio_BT < 1 - clip_low))
    sums = {
        "tokens": float(mask_BT.sum()),
        "ratio": float(ratio_BT[mask_BT].sum()),
        "clipped": float((cut_BT & mask_BT).sum()),
    }
    if ref_logprobs_BT is not None:
        sums["kl"] = float(kl_k3(logprobs_BT, ref_logprobs_BT)[mask_BT].sum())
    return sums
