"""A right answer to each exercise of exercises.ipynb, and wrong ones. Try first, then look.

The right answers are small and stand alone: none calls the project, so that the checker, which
compares with the project's functions, has something to be compared with in turn. The wrong ones are
what the checker must refuse: bugs of public trainers and slips that are easy to make. Where an
exercise is to find a bug, the code it starts from is one more wrong version; it stands in the
notebook only.

    SOLUTIONS["clipped_objective"]        the right function
    WRONG["clipped_objective"]            {what is wrong: a function}

Shapes: _P questions · _F phrasings of a question, the original first · _G samples of a phrasing ·
_M samples of a group · _B rows · _T tokens · _V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, comb, erf, floor, sqrt

import torch

SOLUTIONS: dict[str, Callable] = {}
WRONG: dict[str, dict[str, Callable]] = {}


def right(function: Callable) -> Callable:
    SOLUTIONS[function.__name__] = function
    return function


def wrong(exercise: str, what: str) -> Callable:
    def keep(function: Callable) -> Callable:
        WRONG.setdefault(exercise, {})[what] = function
        return function

    return keep


# ------------------------------------------------------------------------------- 1


@right
def advantages(rewards_M, eps=1e-8):
    if rewards_M.max() - rewards_M.min() <= 1e-6:
        return torch.zeros_like(rewards_M)
    return (rewards_M - rewards_M.mean()) / (rewards_M.std(correction=0) + eps)


@wrong("advantages", "a larger epsilon: smaller phantoms, but phantoms")
def _(rewards_M, eps=1e-8):
    return (rewards_M - rewards_M.mean()) / (rewards_M.std(correction=0) + max(eps, 1e-4))


@wrong("advantages", "std == 0 never holds after rounding")
def _(rewards_M, eps=1e-8):
    std = rewards_M.std(correction=0)
    if std == 0:
        return torch.zeros_like(rewards_M)
    return (rewards_M - rewards_M.mean()) / (std + eps)


@wrong("advantages", "only rewards of 0 and 1 are looked for")
def _(rewards_M, eps=1e-8):
    if (rewards_M == 0).all() or (rewards_M == 1).all():
        return torch.zeros_like(rewards_M)
    return (rewards_M - rewards_M.mean()) / (rewards_M.std(correction=0) + eps)


@wrong("advantages", "near ties are thrown away with the constant groups")
def _(rewards_M, eps=1e-8):
    if rewards_M.std(correction=0) < 0.01:
        return torch.zeros_like(rewards_M)
    return (rewards_M - rewards_M.mean()) / (rewards_M.std(correction=0) + eps)


@wrong("advantages", "torch's default standard deviation, 1/(M-1)")
def _(rewards_M, eps=1e-8):
    if rewards_M.max() - rewards_M.min() <= 1e-6:
        return torch.zeros_like(rewards_M)
    return (rewards_M - rewards_M.mean()) / (rewards_M.std() + eps)


# ------------------------------------------------------------------------------- 2


@right
def pass_at_k(n, c, k):
    none_right = 1.0
    for i in range(k):  # draw k of the n without putting back; the i-th is wrong as well
        none_right *= max(0, n - c - i) / (n - i)
    return 1 - none_right


@wrong("pass_at_k", "the estimated rate put into 1 - (1 - p)^k")
def _(n, c, k):
    return 1 - (1 - c / n) ** k


@wrong("pass_at_k", "k times the rate, cut at 1")
def _(n, c, k):
    return min(1.0, k * c / n)


@wrong("pass_at_k", "all k right instead of at least one")
def _(n, c, k):
    return comb(c, k) / comb(n, k)


@wrong("pass_at_k", "none right instead of at least one")
def _(n, c, k):
    return comb(n - c, k) / comb(n, k)


# ------------------------------------------------------------------------------- 3


@right
def rewards_by_question(answers_B, golds_P, G):
    return torch.tensor([
        [float(answers_B[p * G + g] == gold) for g in range(G)] for p, gold in enumerate(golds_P)
    ])  # fmt: skip


@wrong("rewards_by_question", "the right gold answers, laid out sample by sample")
def _(answers_B, golds_P, G):
    golds_B = [gold for gold in golds_P for _ in range(G)]
    rewards_B = [float(a == gold) for a, gold in zip(answers_B, golds_B)]
    return torch.tensor(rewards_B).view(G, len(golds_P)).T


@wrong("rewards_by_question", "right if it is anybody's answer")
def _(answers_B, golds_P, G):
    return torch.tensor([float(a in golds_P) for a in answers_B]).view(len(golds_P), G)


@wrong("rewards_by_question", "answers read sample by sample")
def _(answers_B, golds_P, G):
    P = len(golds_P)
    return torch.tensor([
        [float(answers_B[g * P + p] == golds_P[p]) for g in range(G)] for p in range(P)
    ])  # fmt: skip


@wrong("rewards_by_question", "a question found again by its text")
def _(answers_B, golds_P, G):
    return torch.tensor([
        [float(answers_B[golds_P.index(gold) * G + g] == gold) for g in range(G)]
        for gold in golds_P
    ])  # fmt: skip


# ------------------------------------------------------------------------------- 4


@right
def kl_loss(objective_T, k3_T, beta):
    return (beta * k3_T - objective_T).mean()


@wrong("kl_loss", "an objective, to be raised, instead of a loss")
def _(objective_T, k3_T, beta):
    return (objective_T - beta * k3_T).mean()


@wrong("kl_loss", "beta never reaches the loss")
def _(objective_T, k3_T, beta):
    return (k3_T - objective_T).mean()


@wrong("kl_loss", "the KL term left out")
def _(objective_T, k3_T, beta):
    return -objective_T.mean()


@wrong("kl_loss", "the KL term logged, but without gradient")
def _(objective_T, k3_T, beta):
    return -objective_T.mean() + beta * k3_T.detach().mean()


@wrong("kl_loss", "summed over tokens")
def _(objective_T, k3_T, beta):
    return -(objective_T - beta * k3_T).sum()


# ------------------------------------------------------------------------------- 5


@right
def expected_acr(n, c, G):
    all_right = all_wrong = 1.0
    for i in range(G):  # draw G of the n without putting back
        all_right *= max(0, c - i) / (n - i)
        all_wrong *= max(0, n - c - i) / (n - i)
    return all_right + all_wrong


@wrong("expected_acr", "the estimated rate put into p^G + (1 - p)^G")
def _(n, c, G):
    return (c / n) ** G + (1 - c / n) ** G


@wrong("expected_acr", "all-wrong groups only")
def _(n, c, G):
    return comb(n - c, G) / comb(n, G)


@wrong("expected_acr", "all-right groups only")
def _(n, c, G):
    return comb(c, G) / comb(n, G)


@wrong("expected_acr", "groups that are mixed instead of those that agree")
def _(n, c, G):
    return 1 - (comb(c, G) + comb(n - c, G)) / comb(n, G)


@wrong("expected_acr", "a number of groups instead of a share")
def _(n, c, G):
    return comb(c, G) + comb(n - c, G)


# ------------------------------------------------------------------------------- 6


@right
def end_mask(ids_BT, end_id, pad_id):
    mask_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for row, mask in zip(ids_BT.tolist(), mask_BT):
        length = row.index(end_id) + 1 if end_id in row else len(row)
        mask[:length] = True
    return mask_BT


@wrong("end_mask", "everything up to the end token, which is left out")
def _(ids_BT, end_id, pad_id):
    return (ids_BT == end_id).cumsum(dim=1) == 0


@wrong("end_mask", "everything in the mask")
def _(ids_BT, end_id, pad_id):
    return torch.ones_like(ids_BT, dtype=torch.bool)


@wrong("end_mask", "up to the last end token instead of the first")
def _(ids_BT, end_id, pad_id):
    is_end_BT = ids_BT == end_id
    return is_end_BT.flip(1).cumsum(dim=1).flip(1).bool() | ~is_end_BT.any(dim=1, keepdim=True)


@wrong("end_mask", "one token too many")
def _(ids_BT, end_id, pad_id):
    is_end_BT = (ids_BT == end_id).long()
    ended_BT = is_end_BT.cumsum(dim=1).bool().long()
    return ended_BT.cumsum(dim=1) <= 2


@wrong("end_mask", "every end token put back, the padding with them")
def _(ids_BT, end_id, pad_id):
    return (ids_BT != pad_id) | (ids_BT == end_id)


@wrong("end_mask", "a sampled token that happens to be the pad token is dropped")
def _(ids_BT, end_id, pad_id):
    is_end_BT = (ids_BT == end_id).long()
    up_to_end_BT = is_end_BT.cumsum(dim=1) - is_end_BT == 0
    return up_to_end_BT & ((ids_BT != pad_id) | (ids_BT == end_id))


# ------------------------------------------------------------------------------- 7


@right
def scoring_prompts(prompts_PF, G):
    return [row[0] for row in prompts_PF for _ in range(len(row) * G)]


@wrong("scoring_prompts", "no anchor: each completion under the phrasing it came from")
def _(prompts_PF, G):
    return [prompt for row in prompts_PF for prompt in row for _ in range(G)]


@wrong("scoring_prompts", "one question's original for all questions")
def _(prompts_PF, G):
    return [prompts_PF[0][0] for row in prompts_PF for _ in range(len(row) * G)]


@wrong("scoring_prompts", "a prompt a phrasing instead of one a row")
def _(prompts_PF, G):
    return [row[0] for row in prompts_PF for _ in row]


@wrong("scoring_prompts", "question after question, then again, instead of all rows of a question")
def _(prompts_PF, G):
    return [row[0] for row in prompts_PF] * (len(prompts_PF[0]) * G)


# ------------------------------------------------------------------------------- 8


@right
def scored_logprobs(logits_TV, tokens_T, temperature):
    logits_TV = logits_TV / temperature
    chosen_T = logits_TV[torch.arange(len(tokens_T)), tokens_T]
    return chosen_T - logits_TV.logsumexp(dim=-1)


@wrong("scored_logprobs", "log-probabilities divided, not logits")
def _(logits_TV, tokens_T, temperature):
    logprobs_TV = torch.log_softmax(logits_TV, dim=-1) / temperature
    return logprobs_TV.gather(1, tokens_T[:, None])[:, 0]


@wrong("scored_logprobs", "multiplied instead of divided")
def _(logits_TV, tokens_T, temperature):
    logprobs_TV = torch.log_softmax(logits_TV * temperature, dim=-1)
    return logprobs_TV.gather(1, tokens_T[:, None])[:, 0]


@wrong("scored_logprobs", "scored against the next position's logits")
def _(logits_TV, tokens_T, temperature):
    logprobs_TV = torch.log_softmax(logits_TV / temperature, dim=-1).roll(-1, dims=0)
    return logprobs_TV.gather(1, tokens_T[:, None])[:, 0]


@wrong("scored_logprobs", "probabilities instead of their logarithms")
def _(logits_TV, tokens_T, temperature):
    probs_TV = torch.softmax(logits_TV / temperature, dim=-1)
    return probs_TV.gather(1, tokens_T[:, None])[:, 0]


# ------------------------------------------------------------------------------- 9


@right
def virtual_count(M, acr, alpha=0.5):
    return max(1, min(M, ceil(M * acr**alpha)))


@wrong("virtual_count", "rounded down")
def _(M, acr, alpha=0.5):
    return max(1, min(M, floor(M * acr**alpha)))


@wrong("virtual_count", "rounded to the nearest")
def _(M, acr, alpha=0.5):
    return max(1, min(M, round(M * acr**alpha)))


@wrong("virtual_count", "none at all where ACR is 0")
def _(M, acr, alpha=0.5):
    return min(M, ceil(M * acr**alpha))


@wrong("virtual_count", "alpha forgotten")
def _(M, acr, alpha=0.5):
    return max(1, min(M, ceil(M * acr)))


@wrong("virtual_count", "alpha as a factor")
def _(M, acr, alpha=0.5):
    return max(1, min(M, ceil(M * acr * alpha)))


@wrong("virtual_count", "a square root whatever alpha is")
def _(M, acr, alpha=0.5):
    return max(1, min(M, ceil(M * sqrt(acr))))


# ------------------------------------------------------------------------------- 10


@right
def position_ids(mask_BT):
    positions_BT = torch.zeros_like(mask_BT, dtype=torch.long)
    for mask, positions in zip(mask_BT.bool(), positions_BT):
        positions[mask] = torch.arange(int(mask.sum()))
    return positions_BT


@wrong("position_ids", "counted from 1")
def _(mask_BT):
    return mask_BT.cumsum(dim=1)


@wrong("position_ids", "-1 on the padding: no row of the table")
def _(mask_BT):
    return mask_BT.cumsum(dim=1) - 1


@wrong("position_ids", "the longest row's shift for all rows")
def _(mask_BT):
    B, T = mask_BT.shape
    shift = int((mask_BT == 0).sum(dim=1).min())
    return (torch.arange(T) - shift).clamp(min=0).expand(B, T)


@wrong("position_ids", "counted from the right")
def _(mask_BT):
    return (mask_BT.flip(1).cumsum(dim=1).flip(1) - 1).clamp(min=0)


# ------------------------------------------------------------------------------- 11


@right
def virtual_rewards(rewards_M, K, r_anchor=0.1):
    r_obs = rewards_M.max().item()
    if r_obs > 0:
        values = [r_obs * (1 - k / (K + 1)) for k in range(1, K + 1)]
    else:
        values = [r_anchor * (K - k + 1) / K for k in range(1, K + 1)]
    return torch.tensor(values, dtype=rewards_M.dtype)


@wrong("virtual_rewards", "k counted from 0")
def _(rewards_M, K, r_anchor=0.1):
    k, r_obs = torch.arange(K).to(rewards_M), rewards_M.max()
    return r_obs * (1 - k / (K + 1)) if r_obs > 0 else r_anchor * (K - k + 1) / K


@wrong("virtual_rewards", "K instead of K + 1 below: the last one is 0")
def _(rewards_M, K, r_anchor=0.1):
    k, r_obs = torch.arange(1, K + 1).to(rewards_M), rewards_M.max()
    return r_obs * (1 - k / K) if r_obs > 0 else r_anchor * (K - k + 1) / K


@wrong("virtual_rewards", "all-wrong groups get zeros")
def _(rewards_M, K, r_anchor=0.1):
    return rewards_M.max() * (1 - torch.arange(1, K + 1).to(rewards_M) / (K + 1))


@wrong("virtual_rewards", "an all-wrong group treated as a right one of r_anchor")
def _(rewards_M, K, r_anchor=0.1):
    top = rewards_M.max() if rewards_M.max() > 0 else r_anchor
    return top * (1 - torch.arange(1, K + 1).to(rewards_M) / (K + 1))


@wrong("virtual_rewards", "a single opposite reward, K times")
def _(rewards_M, K, r_anchor=0.1):
    return torch.full((K,), 0.0 if rewards_M.max() > 0 else 1.0).to(rewards_M)


@wrong("virtual_rewards", "r_obs taken to be 1")
def _(rewards_M, K, r_anchor=0.1):
    k = torch.arange(1, K + 1).to(rewards_M)
    return 1 - k / (K + 1) if rewards_M.max() > 0 else r_anchor * (K - k + 1) / K


# ------------------------------------------------------------------------------- 12


@right
def joint_advantages(rewards_PFG, eps=1e-4):
    result_PFG = torch.zeros_like(rewards_PFG)
    for rewards_FG, result_FG in zip(rewards_PFG, result_PFG):
        if rewards_FG.max() - rewards_FG.min() > 1e-6:
            mean, std = rewards_FG.mean(), rewards_FG.std(correction=0)
            result_FG[:] = (rewards_FG - mean) / (std + eps)
    return result_PFG


def _normalised(rewards, eps, **over):
    mean, std = rewards.mean(**over, keepdim=True), rewards.std(**over, keepdim=True, correction=0)
    low, high = rewards.amin(**over, keepdim=True), rewards.amax(**over, keepdim=True)
    return torch.where(high - low > 1e-6, (rewards - mean) / (std + eps), 0.0)


@wrong("joint_advantages", "each phrasing normalised by itself")
def _(rewards_PFG, eps=1e-4):
    return _normalised(rewards_PFG, eps, dim=2)


@wrong("joint_advantages", "over the whole step, question mixed with question")
def _(rewards_PFG, eps=1e-4):
    return _normalised(rewards_PFG, eps, dim=(0, 1, 2))


@wrong("joint_advantages", "over phrasings, but sample by sample")
def _(rewards_PFG, eps=1e-4):
    return _normalised(rewards_PFG, eps, dim=1)


@wrong("joint_advantages", "phantom advantages of a constant group")
def _(rewards_PFG, eps=1e-4):
    mean = rewards_PFG.mean(dim=(1, 2), keepdim=True)
    std = rewards_PFG.std(dim=(1, 2), keepdim=True, correction=0)
    return (rewards_PFG - mean) / (std + eps)


@wrong("joint_advantages", "a joint mean, but each phrasing's own deviation")
def _(rewards_PFG, eps=1e-4):
    mean = rewards_PFG.mean(dim=(1, 2), keepdim=True)
    return (rewards_PFG - mean) / (rewards_PFG.std(dim=2, keepdim=True, correction=0) + eps)


@wrong("joint_advantages", "torch's default standard deviation, 1/(FG-1)")
def _(rewards_PFG, eps=1e-4):
    mean, std = (f(dim=(1, 2), keepdim=True) for f in (rewards_PFG.mean, rewards_PFG.std))
    constant = rewards_PFG.amax((1, 2), True) - rewards_PFG.amin((1, 2), True) <= 1e-6
    return torch.where(constant, 0.0, (rewards_PFG - mean) / (std + eps))


# ------------------------------------------------------------------------------- 13


@right
def k3(logprobs_T, ref_logprobs_T):
    log_ratio_T = ref_logprobs_T - logprobs_T
    return log_ratio_T.exp() - log_ratio_T - 1


@wrong("k3", "k1: the plain difference, negative for half the tokens")
def _(logprobs_T, ref_logprobs_T):
    return logprobs_T - ref_logprobs_T


@wrong("k3", "k2: half the square, another estimate and not exact")
def _(logprobs_T, ref_logprobs_T):
    return 0.5 * (logprobs_T - ref_logprobs_T).square()


@wrong("k3", "the logarithm added")
def _(logprobs_T, ref_logprobs_T):
    log_ratio_T = ref_logprobs_T - logprobs_T
    return log_ratio_T.exp() + log_ratio_T - 1


@wrong("k3", "the 1 forgotten")
def _(logprobs_T, ref_logprobs_T):
    log_ratio_T = ref_logprobs_T - logprobs_T
    return log_ratio_T.exp() - log_ratio_T


@wrong("k3", "ratio of one direction, logarithm of the other")
def _(logprobs_T, ref_logprobs_T):
    return (logprobs_T - ref_logprobs_T).exp() - (ref_logprobs_T - logprobs_T) - 1


@wrong("k3", "no gradient: pi detached")
def _(logprobs_T, ref_logprobs_T):
    log_ratio_T = ref_logprobs_T - logprobs_T.detach()
    return log_ratio_T.exp() - log_ratio_T - 1


# ------------------------------------------------------------------------------- 14


@right
def clipped_objective(ratio_T, advantages_T, eps=0.2):
    good_T = ratio_T.clamp(max=1 + eps) * advantages_T
    bad_T = ratio_T.clamp(min=1 - eps) * advantages_T
    return torch.where(advantages_T > 0, good_T, bad_T)


@wrong("clipped_objective", "clipped on both sides, whatever the sign")
def _(ratio_T, advantages_T, eps=0.2):
    return ratio_T.clamp(1 - eps, 1 + eps) * advantages_T


@wrong("clipped_objective", "the larger of the two instead of the smaller")
def _(ratio_T, advantages_T, eps=0.2):
    return torch.max(ratio_T * advantages_T, ratio_T.clamp(1 - eps, 1 + eps) * advantages_T)


@wrong("clipped_objective", "no clip at all")
def _(ratio_T, advantages_T, eps=0.2):
    return ratio_T * advantages_T


@wrong("clipped_objective", "the product clipped, not the ratio")
def _(ratio_T, advantages_T, eps=0.2):
    product_T = ratio_T * advantages_T
    return torch.min(product_T, product_T.clamp(1 - eps, 1 + eps))


@wrong("clipped_objective", "a loss instead of an objective")
def _(ratio_T, advantages_T, eps=0.2):
    return -torch.min(ratio_T * advantages_T, ratio_T.clamp(1 - eps, 1 + eps) * advantages_T)


@wrong("clipped_objective", "clipped from above only")
def _(ratio_T, advantages_T, eps=0.2):
    return torch.min(ratio_T * advantages_T, ratio_T.clamp(max=1 + eps) * advantages_T)


# ------------------------------------------------------------------------------- 15


@right
def rescued_advantages(rewards_M, acr, eps=1e-4):
    K = virtual_count(len(rewards_M), acr)
    pool = torch.cat([rewards_M, virtual_rewards(rewards_M, K)])
    return (rewards_M - pool.mean()) / (pool.std(correction=0) + eps)


def _pool(rewards_M, acr):
    return torch.cat([rewards_M, virtual_rewards(rewards_M, virtual_count(len(rewards_M), acr))])


@wrong("rescued_advantages", "virtual samples get advantages too")
def _(rewards_M, acr, eps=1e-4):
    pool = _pool(rewards_M, acr)
    return (pool - pool.mean()) / (pool.std(correction=0) + eps)


@wrong("rescued_advantages", "mean over the pool, deviation over the real samples")
def _(rewards_M, acr, eps=1e-4):
    return (rewards_M - _pool(rewards_M, acr).mean()) / (rewards_M.std(correction=0) + eps)


@wrong("rescued_advantages", "mean over the real samples, deviation over the pool")
def _(rewards_M, acr, eps=1e-4):
    return (rewards_M - rewards_M.mean()) / (_pool(rewards_M, acr).std(correction=0) + eps)


@wrong("rescued_advantages", "statistics of the virtual rewards alone")
def _(rewards_M, acr, eps=1e-4):
    virtual = _pool(rewards_M, acr)[len(rewards_M) :]
    return (rewards_M - virtual.mean()) / (virtual.std(correction=0) + eps)


@wrong("rescued_advantages", "torch's default standard deviation, 1/(M+K-1)")
def _(rewards_M, acr, eps=1e-4):
    pool = _pool(rewards_M, acr)
    return (rewards_M - pool.mean()) / (pool.std() + eps)


@wrong("rescued_advantages", "K = M whatever the collapse rate")
def _(rewards_M, acr, eps=1e-4):
    pool = _pool(rewards_M, 1.0)
    return (rewards_M - pool.mean()) / (pool.std(correction=0) + eps)


@wrong("rescued_advantages", "all-wrong groups pushed up")
def _(rewards_M, acr, eps=1e-4):
    pool = _pool(rewards_M, acr)
    return ((rewards_M - pool.mean()) / (pool.std(correction=0) + eps)).abs()


# ------------------------------------------------------------------------------- 16


@right
def rollout_loss(token_losses, batches):
    tokens = sum(len(losses_T) for losses_T in token_losses)
    return sum(token_losses[i].sum() / tokens for rows in batches for i in rows)


@wrong("rollout_loss", "the tokens of the batches counted, not those of the rollout")
def _(token_losses, batches):
    tokens = sum(len(token_losses[i]) for rows in batches for i in rows)
    return sum(token_losses[i].sum() / tokens for rows in batches for i in rows)


@wrong("rollout_loss", "a mean of rows instead of a mean of tokens")
def _(token_losses, batches):
    return sum(token_losses[i].mean() for rows in batches for i in rows) / len(token_losses)


@wrong("rollout_loss", "means of batches, weighed by their rows")
def _(token_losses, batches):
    total = sum(torch.cat([token_losses[i] for i in rows]).mean() * len(rows) for rows in batches)
    return total / len(token_losses)


@wrong("rollout_loss", "divided twice")
def _(token_losses, batches):
    tokens = sum(len(losses_T) for losses_T in token_losses)
    return sum(token_losses[i].sum() / tokens for rows in batches for i in rows) / len(batches)


@wrong("rollout_loss", "means of batches added up, not divided")
def _(token_losses, batches):
    return sum(torch.cat([token_losses[i] for i in rows]).mean() for rows in batches)


@wrong("rollout_loss", "the right value, as a number without gradient")
def _(token_losses, batches):
    tokens = sum(len(losses_T) for losses_T in token_losses)
    total = sum(token_losses[i].sum().item() for rows in batches for i in rows)
    return torch.tensor(total / tokens)


# ------------------------------------------------------------------------------- 17


@right
def gate_probability(P, a, tau):
    return sum(comb(P, k) * a**k * (1 - a) ** (P - k) for k in range(P + 1) if k / P > tau)


@wrong("gate_probability", "open at tau as well as above it")
def _(P, a, tau):
    return sum(comb(P, k) * a**k * (1 - a) ** (P - k) for k in range(P + 1) if k / P >= tau)


@wrong("gate_probability", "the chance that any group collapses")
def _(P, a, tau):
    return 1 - (1 - a) ** P


@wrong("gate_probability", "the chance of one group, whatever P")
def _(P, a, tau):
    return a


@wrong("gate_probability", "the expected rate against tau")
def _(P, a, tau):
    return 1.0 if a > tau else 0.0


@wrong("gate_probability", "orderings not counted")
def _(P, a, tau):
    return sum(a**k * (1 - a) ** (P - k) for k in range(P + 1) if k / P > tau)


@wrong("gate_probability", "a bell curve in place of the binomial")
def _(P, a, tau):
    spread = sqrt(a * (1 - a) / P) + 1e-12
    return 0.5 * (1 - erf((tau - a) / spread / sqrt(2)))
