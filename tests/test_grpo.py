"""Group-relative advantages, the clipped loss and k3 against numbers worked out by hand."""

import random
from math import exp, inf, isfinite, log, nan, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo import (
    AGGREGATIONS,
    clipped_loss,
    group_advantages,
    kl_k3,
    ratio_diagnostics,
    row_weights,
)

quick = settings(max_examples=60, deadline=None)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------------------- advantages


def test_advantages_by_hand():
    # 1 0 0 0: mean 1/4, variance (9 + 1 + 1 + 1)/16/4 = 3/16, std .4330127
    # A = .75/.4331127 = 1.731651 and -.25/.4331127 = -.577217
    # 1 1 0 0: mean 1/2, std 1/2, A = +-.5/.5001 = +-.99980
    A = group_advantages(tensor([1.0, 0, 0, 0], [1, 1, 0, 0]))
    expected = tensor([1.731651, -0.577217, -0.577217, -0.577217], [0.9998, 0.9998] + [-0.9998] * 2)
    torch.testing.assert_close(A, expected, atol=1e-6, rtol=1e-6)


def test_standard_deviation_has_1_over_m_and_not_torchs_default():
    A = group_advantages(tensor([1.0, 0, 0, 0]), eps=0.0)
    assert float(A[0, 0]) == pytest.approx(0.75 / (sqrt(3) / 4))  # 1.732; 1/(M-1) would say 1.5
    assert float(A.square().mean()) == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [1e-4, 0.0, 1e-12])
@pytest.mark.parametrize("value, M", [(0.15, 6), (0.1, 7), (1 / 3, 11), (0.0, 8), (1.0, 8)])
def test_constant_group_of_015_has_zero_advantage(value, M, eps, dtype):
    A = group_advantages(torch.full((2, M), value, dtype=dtype), eps)
    assert A.eq(0).all() and A.dtype == dtype


def test_near_tie_has_no_advantage_and_small_differences_are_damped_by_epsilon():
    assert group_advantages(tensor([0.5, 0.5 + 5e-7])).eq(0).all()
    # 0 and 2e-4: mean 1e-4, std 1e-4, A = +-1e-4/(1e-4 + 1e-4) = +-.5
    A = group_advantages(tensor([0.0, 2e-4]))
    torch.testing.assert_close(A, tensor([-0.5, 0.5]))


def test_each_group_is_normalised_by_itself():
    # an easy and a hard question: over the whole batch the lone failure would not stand out
    rewards = tensor([1.0, 1, 1, 0], [1, 0, 0, 0])
    A = group_advantages(rewards)
    torch.testing.assert_close(A[0], -A[1].flip(0))
    for p in range(2):
        torch.testing.assert_close(A[p : p + 1], group_advantages(rewards[p : p + 1]))


def test_missing_verdict_is_outside_mean_and_std_and_gets_advantage_zero():
    # 1 and 0 of three: mean 1/2, std 1/2
    a = 0.5 / 0.5001
    A = group_advantages(tensor([1, nan, 0], [nan, nan, 1], [nan, nan, nan], [0, nan, 0]))
    torch.testing.assert_close(A, tensor([a, 0, -a], [0, 0, 0], [0, 0, 0], [0, 0, 0]))


@pytest.mark.parametrize("shape", [(4, 1), (4, 0), (8,), (2, 2, 2)])
def test_group_of_one_and_wrong_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="M >= 2"):
        group_advantages(torch.zeros(shape))


# eighths are exact in binary: shift, scale and order meet no rounding in the rewards
steps = st.integers(2, 6).flatmap(
    lambda M: st.lists(
        st.lists(st.sampled_from([nan] + [k / 8 for k in range(9)]), min_size=M, max_size=M),
        min_size=1,
        max_size=5,
    )
)


@quick
@given(steps, st.integers(-8, 8), st.sampled_from([0.5, 2.0, 8.0]))
def test_advantages_ignore_shift_and_scale(rows, shift, scale):
    rewards = tensor(*rows)
    A = group_advantages(rewards)
    torch.testing.assert_close(group_advantages(rewards + shift), A)
    exact = group_advantages(rewards, eps=0.0)
    torch.testing.assert_close(group_advantages(rewards * scale, eps=0.0), exact)
    torch.testing.assert_close(group_advantages(-rewards, eps=0.0), -exact)


@quick
@given(steps, st.randoms(use_true_random=False))
def test_advantages_follow_their_samples_and_sum_to_zero(rows, rng):
    rewards = tensor(*rows)
    kept = rewards.clone()
    A = group_advantages(rewards)
    assert torch.equal(rewards.nan_to_num(-1), kept.nan_to_num(-1))  # not changed in place
    assert A.isfinite().all() and A.sum(dim=1).abs().max() < 1e-12
    within = torch.tensor(rng.sample(range(rewards.shape[1]), rewards.shape[1]))
    across = torch.tensor(rng.sample(range(len(rows)), len(rows)))
    torch.testing.assert_close(group_advantages(rewards[:, within]), A[:, within])
    torch.testing.assert_close(group_advantages(rewards[across]), A[across])
    for row, a in zip(rows, A.tolist()):  # a better sample never has the smaller advantage
        ranked = sorted((r, x) for r, x in zip(row, a) if r == r)
        assert [x for _, x in ranked] == sorted(x for _, x in ranked)


# ------------------------------------------------------------------------------- the clip


def one_token(ratio, advantage, low=0.2, high=0.2):
    """(objective, d objective / d logprob) of one token of one row, by autograd."""
    logprob = tensor([log(ratio) - 2]).requires_grad_()
    loss = clipped_loss(
        logprob, tensor([-2.0]), tensor(advantage), torch.ones(1, 1), tensor(1.0), low, high
    )
    loss.backward()
    return -float(loss.detach()), -float(logprob.grad)


@pytest.mark.parametrize(
    "ratio, advantage, objective, gradient",
    [
        # d(ratio A)/d logprob = ratio A; 0 where the clipped term is the smaller one
        (1.5, 2.0, 1.2 * 2, 0.0),  # good and grew: enough of that
        (1.5, -2.0, 1.5 * -2, 1.5 * -2),  # bad and grew: pushed down with all its weight
        (0.5, 2.0, 0.5 * 2, 0.5 * 2),  # good and shrank: pulled back up
        (0.5, -2.0, 0.8 * -2, 0.0),  # bad and shrank: enough of that
        (1.1, 2.0, 1.1 * 2, 1.1 * 2),  # within the range both ways
        (0.9, -2.0, 0.9 * -2, 0.9 * -2),
        (1.0, 2.0, 2.0, 2.0),
        (1.0, -2.0, -2.0, -2.0),
    ],
)
def test_clip_keeps_gradient_of_bad_actions_that_grew(ratio, advantage, objective, gradient):
    assert one_token(ratio, advantage) == (pytest.approx(objective), pytest.approx(gradient))


@pytest.mark.parametrize(
    "ratio, advantage, objective, gradient",
    [
        (1.25, 1.0, 1.25, 1.25),  # above 1.2, below 1.28
        (1.30, 1.0, 1.28, 0.0),
        (1.30, -1.0, -1.30, -1.30),
        (0.85, -1.0, -0.9, 0.0),  # below .9, above .8
        (0.85, 1.0, 0.85, 0.85),
        (0.95, -1.0, -0.95, -0.95),
    ],
)
def test_upper_and_lower_clip_range_are_not_mixed_up(ratio, advantage, objective, gradient):
    found = one_token(ratio, advantage, low=0.1, high=0.28)
    assert found == (pytest.approx(objective), pytest.approx(gradient))


@quick
@given(st.floats(0.2, 3), st.floats(-3, 3), st.floats(0, 0.9), st.floats(0, 0.9))
def test_clipped_objective_equals_the_papers_formula(ratio, advantage, low, high):
    clipped = min(max(ratio, 1 - low), 1 + high)
    expected = min(ratio * advantage, clipped * advantage)
    assert one_token(ratio, advantage, low, high)[0] == pytest.approx(expected, abs=1e-12)


def test_value_of_the_loss_is_zero_but_its_gradient_is_not():
    """The first update: pi_old is pi, the ratio is 1, and people think that nothing trains."""
    A = group_advantages(tensor([1.0, 0, 0, 0]))[0]
    logprobs = tensor(*[[-1.0, -2.0]] * 4).requires_grad_()
    weights = row_weights(torch.full((4,), 2), "sequence", 8).double()
    loss = clipped_loss(logprobs, logprobs.detach(), A, torch.ones(4, 2), weights)
    loss.backward()
    assert abs(float(loss.detach())) < 1e-12
    # each token weighs 1/(4 * 2), and minus turns the ascent into a loss
    torch.testing.assert_close(logprobs.grad, (-A / 8)[:, None].expand(4, 2))


def test_step_raises_what_was_rewarded_and_lowers_the_rest():
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)  # four possible answers
    rows = torch.arange(4)
    A = group_advantages(tensor([0.0, 0, 1, 0]))[0]
    logprobs = logits.log_softmax(0)[rows][:, None]
    weights = row_weights(torch.ones(4), "sequence", 1).double()
    clipped_loss(logprobs, logprobs.detach(), A, torch.ones(4, 1), weights).backward()
    assert logits.grad[2] < 0 and (logits.grad[[0, 1, 3]] > 0).all()


def test_row_without_advantage_has_no_gradient_without_the_kl_term_and_some_with_it():
    for beta, alive in ((0.0, False), (0.1, True)):
        logprobs = tensor([-1.0]).requires_grad_()
        loss = clipped_loss(
            logprobs, tensor([-1.5]), tensor(0.0), torch.ones(1, 1), tensor(1.0),
            beta=beta, ref_logprobs_BT=tensor([-2.0]),
        )  # fmt: skip
        loss.backward()
        assert bool(logprobs.grad.ne(0)) == alive


# ------------------------------------------------------------------------------- aggregation


@pytest.mark.parametrize(
    "aggregation, value, short, long",
    [
        # a good answer of 2 tokens, a bad one of 8, ratio 1, L_max 16
        ("sequence", -(2 / 2 - 8 / 8) / 2, 1 / (2 * 2), 1 / (2 * 8)),
        ("token", -(2 - 8) / 10, 1 / 10, 1 / 10),
        ("constant", -(2 - 8) / (2 * 16), 1 / (2 * 16), 1 / (2 * 16)),
    ],
)
def test_aggregations_of_lengths_2_and_8_by_hand(aggregation, value, short, long):
    mask = torch.zeros(2, 8)
    mask[0, :2] = mask[1] = 1
    logprobs = torch.full((2, 8), -1.0, dtype=torch.float64, requires_grad=True)
    weights = row_weights(mask.sum(dim=1), aggregation, 16).double()
    loss = clipped_loss(logprobs, logprobs.detach(), tensor(1.0, -1.0), mask, weights)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(value, abs=1e-6)
    expected = tensor([-short] * 2 + [0.0] * 6, [long] * 8)
    torch.testing.assert_close(logprobs.grad, expected, atol=1e-7, rtol=1e-6)


def test_denominators_count_every_row_of_the_rollout_collapsed_or_not():
    lengths = torch.tensor([2, 4, 2, 2])
    assert row_weights(lengths, "sequence", 9).tolist() == pytest.approx(
        [1 / 8, 1 / 16] + [1 / 8] * 2
    )
    assert row_weights(lengths, "token", 9).tolist() == pytest.approx([1 / 10] * 4)
    assert row_weights(lengths, "constant", 9).tolist() == pytest.approx([1 / 36] * 4)


def test_empty_completions_divide_by_nothing():
    for aggregation in AGGREGATIONS:
        assert row_weights(torch.tensor([0, 0]), aggregation, 4).isfinite().all()


def test_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="sequence, token, constant"):
        row_weights(torch.tensor([1]), "mean", 4)


# ------------------------------------------------------------------------------- rows and masks


def random_rows(seed, B=12, T=9):
    """A rollout's worth of rows: lengths 1 ... T, ratios about 1, a third without advantage."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, T + 1, (B,), generator=generator)
    mask = torch.arange(T)[None] < lengths[:, None]
    new, noise, more = torch.randn(3, B, T, generator=generator, dtype=torch.float64)
    A = torch.randn(B, generator=generator, dtype=torch.float64)
    A[::3] = 0
    return new - 3, new - 3 + 0.3 * noise, new - 3 + 0.3 * more, A, mask, lengths


def loss_and_gradient(new, old, ref, A, mask, weights, parts, beta):
    leaf = new.clone().requires_grad_()
    total = 0.0
    for rows in parts:
        loss = clipped_loss(
            leaf[rows], old[rows], A[rows], mask[rows], weights[rows],
            beta=beta, ref_logprobs_BT=ref[rows],
        )  # fmt: skip
        loss.backward()
        total += float(loss.detach())
    return total, leaf.grad


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("beta", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(4))
def test_micro_batches_do_not_change_the_gradient(seed, beta, aggregation):
    *rows, lengths = random_rows(seed)
    weights = row_weights(lengths, aggregation, 16).double()
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    cuts = sorted(random.Random(seed).sample(range(1, len(lengths)), 3))
    parts = torch.tensor_split(order, cuts)
    whole, gradient = loss_and_gradient(*rows, weights, [torch.arange(len(lengths))], beta)
    summed, split = loss_and_gradient(*rows, weights, parts, beta)
    assert summed == pytest.approx(whole, abs=1e-12)
    torch.testing.assert_close(split, gradient, atol=1e-14, rtol=1e-12)
    if beta == 0:  # without a KL term, rows of advantage 0 may be left out
        live = rows[3].nonzero()[:, 0]
        summed, split = loss_and_gradient(*rows, weights, [live], beta)
        assert summed == pytest.approx(whole, abs=1e-12)
        torch.testing.assert_close(split, gradient, atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize(
    "new, old",
    [(inf, 0.0), (-inf, 0.0), (-inf, -inf), (inf, inf), (0.0, -inf), (nan, nan), (500.0, -500.0)],
)
def test_padding_never_reaches_loss_or_gradient(new, old, beta):
    clean = [tensor([-1.0, -2.0, -1.0], [-1.0, -1.0, -1.0]) for _ in range(2)]
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    A, weights = tensor(1.0, -0.5), tensor(0.25, 0.5)
    found = []
    for dirty in (False, True):
        logprobs, old_logprobs = (x.clone() for x in clean)
        if dirty:
            logprobs[mask == 0], old_logprobs[mask == 0] = new, old
        logprobs.requires_grad_()
        loss = clipped_loss(
            logprobs, old_logprobs, A, mask, weights, beta=beta, ref_logprobs_BT=old_logprobs - 0.1
        )
        loss.backward()
        found.append((loss.detach(), logprobs.grad))
    torch.testing.assert_close(found[1], found[0])
    assert found[1][1][mask == 0].eq(0).all()


def test_rows_carry_their_advantage_along():
    *rows, lengths = random_rows(0)
    weights = row_weights(lengths, "sequence", 16).double()
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(1))
    everything = [torch.arange(len(lengths))]
    whole, gradient = loss_and_gradient(*rows, weights, everything, 0.0)
    shuffled = [x[order] for x in rows]
    again, moved = loss_and_gradient(*shuffled, weights[order], everything, 0.0)
    assert again == pytest.approx(whole)
    torch.testing.assert_close(moved, gradient[order])


# ------------------------------------------------------------------------------- k3

PI, REF = (0.7, 0.2, 0.1), (0.3, 0.3, 0.4)


def true_kl(p, q):
    return sum(a * log(a / b) for a, b in zip(p, q))


def test_k3_by_hand():
    # pi_ref/pi = 1/2: .5 - log .5 - 1 = .193147; 2: 2 - log 2 - 1 = .306853; 1: 0
    found = kl_k3(tensor(-1.0, -1.0, -1.0), tensor(-1 - log(2), -1 + log(2), -1.0))
    torch.testing.assert_close(found, tensor(0.193147, 0.306853, 0.0), atol=1e-6, rtol=0)


def test_mean_of_k3_over_tokens_of_pi_is_the_true_kl():
    # .7 log(7/3) + .2 log(2/3) + .1 log(1/4) = .593109 - .081093 - .138629 = .373386
    k3 = kl_k3(tensor(*PI).log(), tensor(*REF).log())
    assert float((tensor(*PI) * k3).sum()) == pytest.approx(true_kl(PI, REF))
    assert true_kl(PI, REF) == pytest.approx(0.373386, abs=1e-6)
    # the other way round it is another number
    assert true_kl(REF, PI) != pytest.approx(true_kl(PI, REF), abs=1e-2)


def exact_kl_loss(logits, ref, beta):
    """The loss of one token in every possible way, each weighted by its probability under pi."""
    logprobs = logits.log_softmax(0)[:, None]
    return clipped_loss(
        logprobs, logprobs.detach(), torch.zeros(len(logits), dtype=torch.float64),
        torch.ones(len(logits), 1), logprobs.detach().exp()[:, 0],
        beta=beta, ref_logprobs_BT=ref.log()[:, None],
    )  # fmt: skip


def test_kl_is_lowered_not_raised_by_training_on_it():
    ref = tensor(*REF)
    logits = tensor(*PI).log().requires_grad_()
    loss = exact_kl_loss(logits, ref, beta=0.5)
    assert float(loss.detach()) == pytest.approx(0.5 * true_kl(PI, REF))  # + beta KL, not minus
    loss.backward()
    # E_pi[(1 - pi_ref/pi) grad log pi] = pi - pi_ref in the logits of a softmax
    torch.testing.assert_close(logits.grad, 0.5 * (tensor(*PI) - ref))
    before = true_kl(PI, REF)
    for _ in range(200):
        logits.grad = None
        exact_kl_loss(logits, ref, beta=1.0).backward()
        with torch.no_grad():
            logits -= 0.5 * logits.grad
        now = true_kl(logits.detach().softmax(0).tolist(), REF)
        assert now <= before + 1e-12
        before = now
    assert before < 1e-9


def test_k3_of_hopeless_tokens_is_finite_with_finite_gradient():
    for dtype in (torch.float32, torch.float64):
        logprobs = torch.tensor([-1000.0, -60.0, 0.0, 0.0], dtype=dtype, requires_grad=True)
        ref = torch.tensor([0.0, 0.0, -60.0, -1000.0], dtype=dtype)
        k3 = kl_k3(logprobs, ref)
        k3.sum().backward()
        # clamped at +-20: exp(20) - 21 = 4.9e8 and exp(-20) + 19 = 19
        assert k3.tolist() == pytest.approx([exp(20) - 21] * 2 + [19.0] * 2, rel=1e-6)
        assert logprobs.grad.isfinite().all()


def test_k3_is_never_negative_in_float32():
    for reach in (1e-4, 0.01, 1.0, 30.0):
        differences = torch.linspace(-reach, reach, 20001)
        assert kl_k3(torch.zeros_like(differences), differences).min() >= 0
    # x^2/2 to the third digit where exp(x) - x - 1 would be rounding: x = 1e-3 -> 5.0017e-7
    found = kl_k3(torch.tensor([-2.0]), torch.tensor([-2.0]) + torch.tensor([1e-3]))
    assert float(found) == pytest.approx(5e-7, rel=2e-3)


# ------------------------------------------------------------------------------- diagnostics


def test_diagnostics_by_hand():
    # ratios 1.5, .5, 1 of a good row; 1.5, .5 of a bad one; what is masked would be 7
    old = torch.zeros(2, 3, dtype=torch.float64)
    new = tensor([1.5, 0.5, 1.0], [1.5, 0.5, 7.0]).log()
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    sums = ratio_diagnostics(new, old, tensor(1.0, -1.0), mask)
    assert sums["tokens"] == 5
    assert sums["ratio"] == pytest.approx(1.5 + 0.5 + 1.0 + 1.5 + 0.5)
    assert sums["clipped"] == 2  # the good one that grew, the bad one that shrank
    assert "kl" not in sums
    # against ref = old = 0: k3 = 1/ratio + log ratio - 1; 1.5: .072132, .5: .306853, 1: 0
    sums = ratio_diagnostics(new, old, tensor(1.0, -1.0), mask, ref_logprobs_BT=old)
    assert sums["kl"] == pytest.approx(2 * 0.072132 + 2 * 0.306853, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_clip_fraction_counts_the_tokens_whose_gradient_is_cut(seed):
    new, old, _, A, mask, lengths = random_rows(seed)
    A[A == 0] = 0.1
    leaf = new.clone().requires_grad_()
    weights = row_weights(lengths, "token", 16).double()
    clipped_loss(leaf, old, A, mask, weights, 0.1, 0.3).backward()
    sums = ratio_diagnostics(new, old, A, mask, 0.1, 0.3)
    assert sums["clipped"] == int((leaf.grad.eq(0) & mask).sum()) > 0


def test_diagnostics_of_micro_batches_add_up_and_padding_is_not_in_them():
    new, old, ref, A, mask, lengths = random_rows(5)
    whole = ratio_diagnostics(new, old, A, mask, ref_logprobs_BT=ref)
    assert whole["tokens"] == int(lengths.sum())
    for x in (new, old, ref):
        x[~mask] = nan
    parts = [
        ratio_diagnostics(new[rows], old[rows], A[rows], mask[rows], ref_logprobs_BT=ref[rows])
        for rows in torch.arange(12).split(5)
    ]
    for key, value in whole.items():
        assert sum(part[key] for part in parts) == pytest.approx(value)


def test_diagnostics_of_a_row_that_is_all_masked_are_zero_not_nan():
    blank = torch.full((1, 3), nan)
    sums = ratio_diagnostics(blank, blank, torch.ones(1), torch.zeros(1, 3), ref_logprobs_BT=blank)
    assert all(isfinite(value) and value == 0 for value in sums.values())


def test_nothing_is_clipped_at_the_first_update():
    new, _, _, A, mask, _ = random_rows(1)
    sums = ratio_diagnostics(new, new, A, mask)
    assert sums["clipped"] == 0 and sums["ratio"] == sums["tokens"]
