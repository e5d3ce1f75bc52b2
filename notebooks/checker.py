"""Checks an answer to an exercise of exercises.ipynb, and says in one line what is wrong with it.

    check("clipped_objective", clipped_objective)

Each exercise has one function here. It feeds the answer inputs whose right result is known, worked
out by hand or from the project's own functions, and returns None or a sentence. A sentence names
the input, what came out and what that would do to training; how to mend it is left to the reader.
The order of the questions is the lesson: what goes wrong most often is asked first.

An answer may do anything: crash, return text, change its input. `Answer` turns that into sentences
too, so no traceback is ever shown.

Shapes: _P questions · _F phrasings of a question, the original first · _G samples of a phrasing ·
_M samples of a group · _B rows · _T tokens · _V vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from math import comb, isfinite
from numbers import Real

import torch
from torch import Tensor

import acr
import avspo
import grpo
import tagrpo

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a progress bar asks for a widget that is not needed here
    import evaluate
    import rollout

CHECKERS: dict[str, Callable[[Answer], str | None]] = {}


def check(name: str, answer: Callable) -> None:
    """Prints one line: right, or not yet and why."""
    reason = verdict(name, answer)
    print(f"right: {name}" if reason is None else f"not yet: {reason}")


def verdict(name: str, answer: Callable) -> str | None:
    """None for a right answer, else a sentence that says what is wrong."""
    if not isinstance(name, str) or name not in CHECKERS:
        shown = repr(name[:40]) if isinstance(name, str) else _a(name)
        return f"there is no exercise {shown}; there are {', '.join(CHECKERS)}"
    if not callable(answer):
        return f"give check the function itself, not {_a(answer)}: check({name!r}, {name})"
    try:
        with torch.enable_grad():  # and at the end the mode that was, whatever the answer did
            return CHECKERS[name](Answer(answer))
    except Wrong as wrong:
        return str(wrong)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # nothing that a learner writes may end in a traceback
        return f"your result cannot be used: {_one_line(error)}"


# --------------------------------------------------------------------- a learner's function


class Wrong(Exception):
    """What is wrong with an answer, as a sentence."""


class Answer:
    """A learner's function, called with care: a usable result comes out, or Wrong is raised."""

    def __init__(self, function: Callable):
        self.function = function

    def __call__(self, *inputs):
        before = _snapshot(inputs)
        try:
            with torch.enable_grad():  # even where the call before switched gradients off
                result = self.function(*inputs)
        except NotImplementedError as error:
            if str(error):
                raise Wrong(f"your function stopped with {_one_line(error)}") from None
            raise Wrong("nothing is written yet: the function in the cell above is empty") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit too would end the notebook
            raise Wrong(f"your function stopped with {_one_line(error)}") from None
        if not _same(before, _snapshot(inputs)):
            raise Wrong("your function changes its input, which the caller still needs")
        if result is None:
            raise Wrong("your function returns None: is there a `return`?")
        return result

    def tensor(self, *inputs, shape: Sequence[int], hint: str = "") -> Tensor:
        """hint: what to add where the shape is wrong."""
        result = self(*inputs)
        if not isinstance(result, Tensor):
            raise Wrong(f"your function should return a tensor, and returns {_a(result)}")
        if result.shape != torch.Size(shape):
            expected, got = tuple(shape), tuple(result.shape)
            raise Wrong(f"the result should have shape {expected}, and yours has {got}{hint}")
        if not result.isfinite().all():
            raise Wrong(f"there is NaN or infinity in your result for {_shown(*inputs)[:120]}")
        return result

    def number(self, *inputs) -> float:
        result = self(*inputs)
        if isinstance(result, Tensor) and result.dim() == 0:
            result = result.item()
        if isinstance(result, bool) or not isinstance(result, Real):
            raise Wrong(f"your function should return a number, and returns {_a(result)}")
        if not isfinite(result):
            raise Wrong(f"your function returns {result} for {_shown(*inputs)}")
        return result


def _gradient(result: Tensor, leaf: Tensor) -> Tensor:
    """d sum(result) / d leaf."""
    if not result.requires_grad:
        raise Wrong("no gradient comes through your result: is it detached, or a plain number?")
    (gradient,) = torch.autograd.grad(result.sum(), leaf, allow_unused=True)
    return torch.zeros_like(leaf) if gradient is None else gradient


def _snapshot(value):
    """A copy that later changes do not reach."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return [_snapshot(v) for v in value] if isinstance(value, (list, tuple)) else value


def _same(a, b) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def _close(got, want, tolerance: float = 1e-5) -> bool:
    got, want = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (got, want))
    return torch.allclose(got, want, rtol=tolerance, atol=tolerance)


def _shown(*values) -> str:
    """Values as a reader would write them, short."""
    texts = []
    for value in values:
        if isinstance(value, Tensor):
            value = value.tolist()
        if isinstance(value, (list, tuple)):
            some = [_shown(v) for v in value[:8]] + ["…"] * (len(value) > 8)
            texts.append("[" + ", ".join(some) + "]")
        else:
            texts.append(f"{value:.4g}" if isinstance(value, float) else repr(value))
    return ", ".join(texts)


def _a(value) -> str:
    """What kind of thing it is: 'an int', 'a list'."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__


def exercise(function: Callable[[Answer], str | None]) -> Callable[[Answer], str | None]:
    CHECKERS[function.__name__] = function
    return function


def _random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------------------- the exercises


@exercise
def advantages(answer: Answer) -> str | None:
    for (value, M), eps in product([(0.15, 6), (0.1, 7), (1 / 3, 11), (0.0, 8), (1.0, 8)],
                                   [1e-8, 1e-4]):  # fmt: skip
        A_M = answer.tensor(torch.full((M,), value), eps, shape=(M,))
        if A_M.ne(0).any():
            return (
                f"your advantages of a constant group are not 0: {M} rewards of {value:.3g} with "
                f"eps = {eps:g} give {A_M.abs().max():.2g}, so samples that are all alike are "
                "pushed all the same"
            )
    groups = [torch.tensor([1.0, 0, 0, 0]), torch.tensor([0.15] * 5 + [0.151])]
    groups += [torch.rand(M, generator=_random(M)) for M in range(2, 9)]
    for rewards_M, eps in product(groups, [1e-8, 1e-4]):
        A_M = answer.tensor(rewards_M, eps, shape=rewards_M.shape)
        want_M = grpo.group_advantages(rewards_M[None], eps)[0]
        if A_M.eq(0).all():
            return (
                f"constant groups are right, but the rewards {_shown(rewards_M)} differ, and your "
                "advantages are 0 there too: a real signal is lost"
            )
        if not _close(A_M, want_M, 1e-4):
            return (
                "constant groups are right, but other groups have changed: the rewards "
                f"{_shown(rewards_M)} with eps = {eps:g} give {_shown(A_M)} instead of "
                f"{_shown(want_M)}"
            )
    return None


@exercise
def pass_at_k(answer: Answer) -> str | None:
    small = [(n, c, k) for n in range(1, 7) for c in range(n + 1) for k in range(1, n + 1)]
    for n, c, k in [(5, 2, 2), (4, 1, 4), (5, 0, 3), *small, (32, 5, 8), (200, 3, 100)]:
        got, want = answer.number(n, c, k), evaluate.pass_at_k(n, c, k)
        if _close(got, want):
            continue
        case = f"{c} right of n = {n}, k = {k}: you say {got:.4g}"
        if _close(got, 1 - (1 - c / n) ** k):
            return (
                f"{case}, right is {want:.4g}; the share of right samples is itself an estimate, "
                "and a curved function of an estimate is biased"
            )
        if _close(got, 1 - want):
            return f"{case}, which is the chance that all {k} are wrong"
        if _close(got, comb(c, k) / comb(n, k)):
            return f"{case}, which is the chance that all {k} are right"
        if not 0 <= got <= 1:
            return f"{case}, and that is no probability"
        if k > n - c:
            return f"{case}, but among any {k} of the {n} there is a right one"
        return f"{case}, right is {want:.4g}"
    return None


@exercise
def rewards_by_question(answer: Answer) -> str | None:
    golds, G = ["8", "15", "3"], 2
    rows = [gold for gold in golds for _ in range(G)]
    R_PG = answer.tensor(rows, golds, G, shape=(3, 2))
    if R_PG.ne(1).any():
        return (
            f"the answers {', '.join(rows)} are all right (the gold answers are "
            f"{', '.join(golds)}, two samples each), and you pay {float(R_PG.sum()):g} of 6: with "
            "whose gold answer is each compared?"
        )
    drawn = _random(0)
    cases = [(["4", "4", "7"], 2, "4 7 7 4 7 7".split())]  # two questions, one gold answer
    for golds, G in [(["1", "2"], 3), (["9"], 4), (["5", "6", "7", "8"], 1),
                     *[(["1", "2", "3", "4"], 3)] * 8]:  # fmt: skip
        picks = torch.randint(len(golds), (len(golds) * G,), generator=drawn).tolist()
        cases.append((golds, G, [golds[i] for i in picks]))
    for golds, G, rows in cases:
        P = len(golds)
        want = [[float(a == gold) for a in rows[p * G : p * G + G]] for p, gold in enumerate(golds)]
        R_PG = answer.tensor(rows, golds, G, shape=(P, G))
        if _close(R_PG, want):
            continue
        case = f"answers {', '.join(rows)} to gold {', '.join(golds)}, {G} samples each"
        if float(R_PG.sum()) == sum(map(sum, want)):
            return (
                f"{case}: as many rewards as there should be, but not where they belong: row p of "
                f"the result is question p; you return {_shown(R_PG)}"
            )
        return f"{case}: you return {_shown(R_PG)} instead of {_shown(want)}"
    return None


@exercise
def kl_loss(answer: Answer) -> str | None:
    objective_T, nothing_T = torch.tensor([1.0, 0.5, 0.0]), torch.zeros(3)
    if answer.tensor(objective_T, nothing_T, 0.1, shape=()) > 0:
        return "with no KL at all, a larger objective gives you a larger loss: a loss is lowered"
    # a uniform policy over four tokens, each drawn once, and a reference that prefers the first
    ref_V = torch.tensor([1.0, 0.5, -0.5, -1.0], dtype=torch.float64).log_softmax(0)

    def kl(logits_V: Tensor) -> Tensor:
        logprobs_V = logits_V.log_softmax(0)
        return (logprobs_V.exp() * (logprobs_V - ref_V)).sum()

    logits_V = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    k3_V = grpo.kl_k3(logits_V.log_softmax(0), ref_V)
    loss = answer.tensor(torch.zeros_like(ref_V), k3_V, 0.1, shape=())
    if not loss.requires_grad:
        return "the KL term has no gradient in your loss: nothing holds the policy to the reference"
    slope_V = _gradient(loss, logits_V)
    before, after = kl(logits_V), kl(logits_V - 0.5 * slope_V / slope_V.norm().clamp(min=1e-9))
    if after > before:
        return (
            "with all advantages 0, a step down your loss takes the policy away from the "
            f"reference: KL goes from {before:.3f} to {after:.3f}"
        )
    drawn = _random(1)
    for T, beta in [(2, 0.1), (5, 0.0), (5, 0.04), (9, 1.0)]:
        logprobs_BT, ref_BT = -3 * torch.rand(2, 1, T, generator=drawn)
        A, ones_BT = torch.randn(1, generator=drawn), torch.ones(1, T)
        want = grpo.clipped_loss(
            logprobs_BT, logprobs_BT, A, ones_BT, torch.tensor([1 / T]), beta=beta,
            ref_logprobs_BT=ref_BT,
        )  # fmt: skip
        k3_T = grpo.kl_k3(logprobs_BT, ref_BT)[0]
        got = answer.tensor(A.expand(T), k3_T, beta, shape=())
        if not _close(got, want):
            return (
                f"the direction is right, the size is not: objective {float(A):.3g} at each of {T} "
                f"tokens, mean k3 {k3_T.mean():.3g}, beta = {beta:g}: you return {got:.4g} instead "
                f"of {want:.4g}"
            )
    got = answer.tensor(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.1]), 0.1, shape=())
    if not _close(got, -0.47):
        return f"objective [1, 0], k3 [0.5, 0.1], beta = 0.1: you return {got:.4g}, right is -0.47"
    return None


@exercise
def expected_acr(answer: Answer) -> str | None:
    small = [(n, c, G) for n in range(2, 9) for c in range(n + 1) for G in range(1, n + 1)]
    for n, c, G in [(8, 0, 4), (8, 8, 4), (4, 2, 2), (8, 4, 8), *small, (64, 19, 8)]:
        got, want = answer.number(n, c, G), acr.expected_acr_from_counts(n, c, G)
        if _close(got, want):
            continue
        case = f"{c} right of n = {n}, G = {G}: you say {got:.4g}"
        if c in (0, n):
            kind = "wrong" if c == 0 else "right"
            return f"{case}, but where all samples are {kind} every group of {G} is constant"
        if _close(got, (c / n) ** G + (1 - c / n) ** G):
            return (
                f"{case}, right is {want:.4g}; the share of right samples is itself an estimate, "
                "and its powers are too large on average"
            )
        if not 0 <= got <= 1:
            return f"{case}, and a rate lies between 0 and 1"
        return f"{case}, right is {want:.4g}"
    return None


@exercise
def end_mask(answer: Answer) -> str | None:
    shared = [[5, 6, 2, 2, 2], [7, 2, 2, 2, 2], [5, 6, 7, 8, 9], [2, 2, 2, 2, 2]]
    apart = [[5, 6, 2, 0, 0], [5, 0, 6, 2, 0], [5, 2, 7, 8, 2], [5, 6, 7, 8, 2]]
    cases = [(torch.tensor(shared), 2, 2), (torch.tensor(apart), 2, 0)]
    drawn = _random(0)
    cases += [(torch.randint(5, (4, 7), generator=drawn), 2, pad) for pad in (2, 0, 2, 0)]
    for ids_BT, end, pad in cases:
        M_BT = answer.tensor(ids_BT, end, pad, shape=ids_BT.shape)
        if not ((M_BT == 0) | (M_BT == 1)).all():
            return "a mask holds True and False, or 1 and 0, and nothing else"
        want_BT, _ = rollout.completion_mask(ids_BT, [end])
        differ = (M_BT.bool() != want_BT).nonzero()
        if not len(differ):
            continue
        b, t = differ[0].tolist()
        row, sampled = _shown(ids_BT[b]), bool(want_BT[b, t])
        case = f"ids {row}, end token {end}, padding {pad}: "
        if sampled and ids_BT[b, t] == end:
            return (
                f"{case}the end token at position {t} was sampled and is not in your mask, so the "
                "model never learns to stop"
            )
        if sampled:
            return f"{case}token {int(ids_BT[b, t])} at position {t} was sampled and is left out"
        return f"{case}position {t} comes after the first end token and is in your mask"
    return None


@exercise
def scoring_prompts(answer: Answer) -> str | None:
    text = [["five plus three?", "5 + 3 ="], ["two times four?", "2 * 4 ="]]
    ids = [[[1, 5, 3], [1, 7], [1, 9, 9, 2]], [[1, 4], [1, 6, 6], [1, 8]]]
    for prompts_PF, G in [(text, 2), (text[:1], 3), (text, 1), (ids, 2), ([[p] for p in "abc"], 2)]:
        P, F = len(prompts_PF), len(prompts_PF[0])
        got = answer(prompts_PF, G)
        if not isinstance(got, (list, tuple)):
            return f"your function should return a list, and returns {_a(got)}"
        if len(got) != P * F * G:
            return (
                f"{P} questions x {F} phrasings x {G} samples are {P * F * G} rows, each with a "
                f"prompt of its own; you return {len(got)}"
            )
        anchored_PF = tagrpo.anchored_prompts(prompts_PF)
        want = [prompt for row in anchored_PF for prompt in row for _ in range(G)]
        for b, (prompt, right) in enumerate(zip(got, want)):
            p, f = b // (F * G), b // G % F
            if prompt == right:
                continue
            case = f"row {b} answers phrasing {f} of question {p}, {prompts_PF[p][f]!r}: you score "
            if prompt == prompts_PF[p][f]:
                return (
                    f"{case}it under that phrasing, so what the rephrasing made possible is learnt "
                    "for the rephrasing, not for the question"
                )
            if any(prompt in row for i, row in enumerate(prompts_PF) if i != p):
                return f"{case}it under {prompt!r}, which is another question"
            return f"{case}it under {_shown(prompt)[:60]}"
    return None


@exercise
def scored_logprobs(answer: Answer) -> str | None:
    drawn = _random(0)
    for temperature in (1.0, 0.6, 1.5):
        logits_TV = 2 * torch.randn(6, 9, generator=drawn)
        # what the project's sampler draws from these logits, and with which log-probability
        sampler = rollout.InverseCdf(torch.rand(6, 1, generator=drawn), temperature, 1)
        tokens_T = sampler(torch.zeros(6, 1), logits_TV).argmax(dim=1)
        want_T = sampler.logprobs[0]
        got_T = answer.tensor(logits_TV, tokens_T, temperature, shape=(6,))
        if _close(got_T, want_T, 1e-4):
            continue
        case = f"at temperature {temperature:g} "
        every_TV, each_T = logits_TV[:1].expand(9, 9).clone(), torch.arange(9)
        total = answer.tensor(every_TV, each_T, temperature, shape=(9,)).exp().sum()
        if not _close(total, 1.0, 1e-4):
            return f"{case}your probabilities of all tokens add up to {total:.3g}, not to 1"
        worst = int((got_T - want_T).abs().argmax())
        ratio = (got_T - want_T)[worst].exp()
        return (
            f"{case}the sampler drew token {int(tokens_T[worst])} with log-probability "
            f"{want_T[worst]:.3f} and you score it {got_T[worst]:.3f}: before any update the "
            f"ratio of the two policies is {ratio:.2f} and should be 1"
        )
    return None


@exercise
def virtual_count(answer: Answer) -> str | None:
    first = [(8, 1.0, 0.5), (8, 0.0, 0.5), (8, 0.5, 0.5), (8, 0.25, 0.5), (16, 0.0625, 0.5)]
    rates, drawn = [0.01, 0.3, 0.77], _random(0)
    rates += torch.rand(12, generator=drawn).tolist()
    more = [(M, rate, alpha) for M in (2, 5, 8, 32) for rate in rates for alpha in (0.5, 1.0, 2.0)]
    for M, rate, alpha in first + more:
        exact = M * rate**alpha
        if (M, rate, alpha) not in first and abs(exact - round(exact)) < 1e-6:
            continue  # where rounding of the last digit decides, anything is right
        got, want = answer.number(M, rate, alpha), avspo.num_virtual(M, rate, alpha)
        case = f"M = {M}, ACR = {rate:.4g}, alpha = {alpha:g}"
        if got != int(got):
            return f"{case}: you return {got:.4g}, and a number of rewards is whole"
        if got == want:
            continue
        if got < 1:
            return f"{case}: you return {got:g}, and with no virtual reward nothing is rescued"
        if got > M:
            return f"{case}: you return {got:g}, more virtual rewards than real ones"
        return f"{case}: M * ACR^alpha is {exact:.4g} and K should be {want}; you return {got:g}"
    return None


@exercise
def position_ids(answer: Answer) -> str | None:
    _, prompts_BT = rollout.left_pad([[5, 6], [5, 6, 7, 8, 9], [7], [5, 6, 7, 8]], pad_id=0)
    finished_BT = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    whole_BT = torch.cat([prompts_BT, finished_BT], dim=1)
    for mask_BT in (prompts_BT, whole_BT, torch.ones(2, 4, dtype=torch.long), prompts_BT[2:3]):
        got_BT = answer.tensor(mask_BT, shape=mask_BT.shape)
        if got_BT.is_floating_point() or got_BT.dtype == torch.bool:
            return "positions are looked up in a table, so they must be whole numbers (torch.long)"
        for mask_T, got_T in zip(mask_BT.bool(), got_BT):
            real = got_T[mask_T].tolist()
            case = f"mask {_shown(mask_T.int())}: "
            if real[0] != 0 and not mask_T[0]:
                return (
                    f"{case}the first word of the question is at position {real[0]}, not 0: the "
                    "same question gives other logits in a batch with a longer one"
                )
            if real != list(range(len(real))):
                return f"{case}the real tokens get positions {real}, not 0, 1, 2, …"
            if (got_T < 0).any() or (got_T >= len(got_T)).any():
                return (
                    f"{case}the real tokens are right, but a padding gets position "
                    f"{int(got_T.min() if got_T.min() < 0 else got_T.max())}, which a table of "
                    "positions may not have"
                )
    return None


@exercise
def virtual_rewards(answer: Answer) -> str | None:
    double = dict(dtype=torch.float64)
    cases = [(torch.ones(8, **double), 3, 0.1), (torch.zeros(8, **double), 2, 0.1)]
    cases += [
        (torch.full((6,), value, **double), K, r_anchor)
        for value, K, r_anchor in product((0.0, 1.0, 0.5), range(1, 7), (0.1, 0.3))
    ]
    for rewards_M, K, r_anchor in cases:
        got_K = answer.tensor(rewards_M, K, r_anchor, shape=(K,), hint=f": K is {K}")
        want_K = avspo.virtual_rewards(rewards_M, K, r_anchor=r_anchor)
        if _close(got_K, want_K):
            continue
        r_obs = float(rewards_M[0])
        case = f"{len(rewards_M)} rewards of {r_obs:g}, K = {K}, r_anchor = {r_anchor:g}: "
        if got_K.eq(r_obs).all():
            return f"{case}your virtual rewards equal the real ones, so the group is still constant"
        if _close(got_K.sort().values, want_K.sort().values):
            return f"{case}the right values in another order; v_1 is the largest"
        return f"{case}you return {_shown(got_K)} instead of {_shown(want_K)}"
    return None


@exercise
def joint_advantages(answer: Answer) -> str | None:
    split = torch.tensor([[[1.0, 1], [0, 0]]])
    A_PFG = answer.tensor(split, 1e-4, shape=(1, 2, 2))
    if A_PFG.eq(0).all():
        return (
            "rewards 1 1 under one phrasing and 0 0 under the other: your advantages are all 0, so "
            "the easy phrasing lends the hard one nothing"
        )
    constant = torch.full((1, 2, 3), 0.15)
    A_PFG = answer.tensor(constant, 1e-4, shape=(1, 2, 3))
    if A_PFG.ne(0).any():
        return (
            "six rewards of 0.15 in two phrasings: your advantages are not exactly 0 but "
            f"{A_PFG.abs().max():.2g}"
        )
    alone = answer.tensor(split, 1e-4, shape=(1, 2, 2))[0]
    beside = answer.tensor(torch.cat([split, torch.ones(2, 2, 2)]), 1e-4, shape=(3, 2, 2))[0]
    if not _close(alone, beside):
        return "a question's advantages change when another question stands beside it in the step"
    drawn = _random(0)
    for P, F, G in [(1, 2, 2), (2, 4, 8), (3, 3, 2), (2, 1, 4)]:
        for eps in (1e-4, 0.1):
            rewards_PFG = torch.rand(P, F, G, generator=drawn).round(decimals=1)
            got = answer.tensor(rewards_PFG, eps, shape=(P, F, G))
            want = tagrpo.joint_advantages(rewards_PFG, eps)
            if not _close(got, want, 1e-4):
                return (
                    f"rewards {_shown(rewards_PFG[0])} of one question, eps = {eps:g}: you return "
                    f"{_shown(got[0])} instead of {_shown(want[0])}"
                )
    return None


@exercise
def k3(answer: Answer) -> str | None:
    drawn = _random(0)
    for V in (2, 4, 8):
        logits_V, ref_V = torch.randn(2, V, generator=drawn, dtype=torch.float64).log_softmax(1)
        leaf_V = logits_V.clone().requires_grad_()
        got_V = answer.tensor(leaf_V, ref_V, shape=(V,))
        same_V = answer.tensor(ref_V, ref_V, shape=(V,))
        if not _close(same_V, torch.zeros(V)):
            return f"where pi and pi_ref agree you return {_shown(same_V)} instead of 0"
        if (got_V < -1e-9).any():
            return (
                f"you return {got_V.min():.3f} for log pi = {logits_V[got_V.argmin()]:.3f}, "
                f"log pi_ref = {ref_V[got_V.argmin()]:.3f}; k3 is never negative"
            )
        pi_V = logits_V.exp()
        mean, kl = (pi_V * got_V).sum(), (pi_V * (logits_V - ref_V)).sum()
        if not _close(mean, kl):
            return (
                f"over tokens drawn from pi your values average {mean:.4f}, and KL(pi || pi_ref) "
                f"is {kl:.4f}; over tokens drawn from pi_ref they average "
                f"{(ref_V.exp() * got_V).sum():.4f}, and KL(pi_ref || pi) is "
                f"{(ref_V.exp() * (ref_V - logits_V)).sum():.4f}"
            )
        want_V = grpo.kl_k3(logits_V, ref_V)
        if not _close(got_V, want_V):
            return f"the mean is right, single tokens are not: {_shown(got_V)}"
        if _gradient(got_V, leaf_V).eq(0).all():
            return "no gradient reaches pi: nothing holds the policy to the reference"
    return None


# what it means where the gradient of one action is wrong: (good, grew) -> words
_CLIP = {
    (False, True): "a bad action that grew: this is the one to be pushed down hardest",
    (False, False): "a bad action that has shrunk enough: it should be let go",
    (True, True): "a good action that has grown enough: it should be let go",
    (True, False): "a good action that shrank: it should be pulled up again",
}


@exercise
def clipped_objective(answer: Answer) -> str | None:
    value = answer.tensor(torch.ones(2), torch.tensor([1.0, -1.0]), 0.2, shape=(2,))
    if _close(value, [-1.0, 1.0]):
        return "at ratio 1 you return minus the advantage: a loss, where an objective is asked for"
    for (good, grew), meaning in _CLIP.items():
        ratio_T = torch.tensor([1.5 if grew else 0.5], requires_grad=True)
        A_T = torch.tensor([1.0 if good else -1.0])
        slope = float(_gradient(answer.tensor(ratio_T, A_T, 0.2, shape=(1,)), ratio_T))
        right = float(A_T) if good != grew else 0.0
        if not _close(slope, right):
            return (
                f"advantage {float(A_T):+g}, ratio {ratio_T.item():g}: the gradient is {slope:g} "
                f"and should be {right:g}. It is {meaning}"
            )
    drawn = _random(0)
    for eps in (0.1, 0.2, 0.3):
        ratio_T = (0.2 + 1.6 * torch.rand(24, generator=drawn)).requires_grad_()
        A_T = torch.randn(24, generator=drawn)
        got_T = answer.tensor(ratio_T, A_T, eps, shape=(24,))
        slope_T = _gradient(got_T, ratio_T)
        for t in range(24):  # a rollout of one token each, through the project's loss
            leaf = ratio_T[t].detach().log()[None, None].requires_grad_()
            loss = grpo.clipped_loss(leaf, torch.zeros(1, 1), A_T[t : t + 1], torch.ones(1, 1),
                                     torch.ones(1), eps, eps)  # fmt: skip
            loss.backward()
            case = f"advantage {A_T[t]:.3g}, ratio {ratio_T[t]:.3g}, eps = {eps:g}: "
            if not _close(got_T[t], -loss):
                return f"{case}you return {got_T[t]:.4g} instead of {-loss:.4g}"
            # by the chain rule, as the project's gradient is for the log-probability
            want = -leaf.grad.item() / ratio_T[t].item()
            if not _close(slope_T[t], want, 1e-4):
                return f"{case}the value is right, the gradient {slope_T[t]:.4g} is not {want:.4g}"
    return None


@exercise
def rescued_advantages(answer: Answer) -> str | None:
    drawn = torch.rand(4, generator=_random(0)).tolist()
    groups = [(0.0, 8), (1.0, 8), (0.5, 8), (0.15, 6), (0.0, 3), (1.0, 2)]
    for (value, M), rate, eps in product(groups, [1 / 64, 1.0, 0.3, *drawn], [1e-4, 0.0]):
        exact = M * rate**0.5
        if rate not in (1 / 64, 1.0) and abs(exact - round(exact)) < 1e-6:
            continue
        rewards_M = torch.full((M,), value, dtype=torch.float64)
        hint = "; virtual samples have no tokens and no place in the loss"
        got_M = answer.tensor(rewards_M, rate, eps, shape=(M,), hint=hint)
        want_M = avspo.avspo_advantages(rewards_M[None], tau=0.0, acr=rate, eps=eps)[0]
        if _close(got_M, want_M):
            continue
        case = f"{M} rewards of {value:g}, ACR = {rate:.3g}, eps = {eps:g}: "
        if got_M.eq(0).all():
            return f"{case}your advantages are still 0, so the group is not rescued"
        if (got_M * want_M < 0).any():
            way = "up, and all are wrong" if value == 0 else "down, and all are right"
            return f"{case}you push these samples {way}"
        return f"{case}you return {got_M[0]:.4f} for each sample, right is {want_M[0]:.4f}"
    return None


@exercise
def rollout_loss(answer: Answer) -> str | None:
    short, long = torch.ones(2, requires_grad=True), torch.zeros(8, requires_grad=True)
    whole = answer.tensor([short, long], [[0, 1]], shape=())
    if not _close(whole, 0.2):
        return (
            "in one batch: 2 tokens of loss 1 and 8 of loss 0, 10 tokens in all, give "
            f"{whole:.4g} instead of 0.2"
        )
    parts = answer.tensor([short, long], [[0], [1]], shape=())
    if not _close(parts, 0.2):
        return (
            "2 tokens of loss 1 and 8 of loss 0: in one batch your loss is 0.2, cut into two "
            f"batches it is {parts:.4g}; how much memory you have would decide what is learnt"
        )
    slope = _gradient(parts, short)
    if not _close(slope, [0.1, 0.1]):
        return f"the value is right, but each of 10 tokens has gradient {slope[0]:.4g}, not 0.1"
    fewer = answer.tensor([short, long, torch.zeros(5)], [[0], [1]], shape=())
    if not _close(fewer, 2 / 15):
        return (
            "a third row of 5 tokens, loss 0, is left out of the batches to save time: your loss "
            f"is then {fewer:.4g}, and {2 / 15:.4g} where it goes through with the rest"
        )
    drawn = _random(0)
    for lengths, batches in [([3, 1, 7], [[2], [0, 1]]), ([4, 4, 2, 9], [[3, 0], [1], [2]]),
                             ([6], [[0]]), ([1, 12, 5], [[1]])]:  # fmt: skip
        losses = [torch.randn(T, generator=drawn) for T in lengths]
        weights_B = grpo.row_weights(torch.tensor(lengths), "token", max_tokens=12)
        want = sum(losses[i].sum() * weights_B[i] for rows in batches for i in rows)
        got = answer.tensor(losses, batches, shape=())
        if not _close(got, want):
            return (
                f"rows of {_shown(lengths)} tokens in batches {_shown(batches)}: you return "
                f"{got:.4g} instead of {want:.4g}"
            )
    return None


@exercise
def gate_probability(answer: Answer) -> str | None:
    first = [(1, 0.4, 0.5), (2, 0.4, 0.5), (16, 0.4, 0.5), (128, 0.4, 0.5)]
    more = list(product([1, 2, 4, 8, 32], [0.1, 0.5, 0.65, 0.9], [0.25, 0.5, 0.75]))
    for P, a, tau in first + more:
        got, want = answer.number(P, a, tau), avspo.gate_open_probability(P, a, tau)
        if _close(got, want):
            continue
        case = f"P = {P}, a = {a:g}, tau = {tau:g}: you say {got:.4g}, right is {want:.4g}"
        if (P, tau) == (2, 0.5) and _close(got, 0.64):
            return f"{case}. One collapsed group of two makes ACR .5, and the gate opens above tau"
        return case
    for P, a in product([1, 8], [0.0, 1.0]):
        got = answer.number(P, a, 0.5)
        if not _close(got, a):
            return f"groups that {'always' if a else 'never'} collapse (P = {P}): you say {got:.4g}"
    return None
