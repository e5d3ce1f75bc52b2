"""Virtual rewards, the gate and the threshold (eqs. 8-10) against numbers worked out by hand."""

from fractions import Fraction
from itertools import product
from math import isnan, nan, prod, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acr import collapse_report, collapsed
from avspo import (
    AdaptiveThreshold,
    avspo_advantages,
    gate_open_probability,
    num_virtual,
    virtual_rewards,
)
from grpo import clipped_loss, group_advantages, row_weights

quick = settings(max_examples=60, deadline=None)
TABLE = [0.3536, 0.4685, 0.5523, 0.6202, 0.6776, 0.7276, 0.7718, 0.8115]  # |A|, K = 1 ... 8
WRONG, RIGHT, MIXED = [0.0] * 8, [1.0] * 8, [1.0] + [0.0] * 7


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def advantage_by_hand(real, virtual, eps=0.0):
    """A of the first real sample, over exact fractions of all M + K values."""
    pool = [Fraction(r) for r in (*real, *virtual)]
    mean = sum(pool) / len(pool)
    variance = sum((r - mean) ** 2 for r in pool) / len(pool)
    return float(Fraction(real[0]) - mean) / (sqrt(variance) + eps)


# ------------------------------------------------------------------------------- eq. 8: K


def test_number_of_virtual_rewards_by_hand():
    # 8 * sqrt(.25) = 4; 8 * sqrt(.5) = 5.66 -> 6; 8 * sqrt(1/64) = 1; 8 * sqrt(.02) = 1.13 -> 2
    assert [num_virtual(8, a) for a in (0.25, 0.5, 1 / 64, 0.02)] == [4, 6, 1, 2]
    # at least 1, at most the group; 8 * .5^1 = 4; 8 * .5^2 = 2
    assert [num_virtual(8, 0.0), num_virtual(8, 1.0)] == [1, 8]
    assert [num_virtual(8, 0.5, alpha=1), num_virtual(8, 0.5, alpha=2)] == [4, 2]
    assert num_virtual(32, 0.6) == 25  # 32 * .7746 = 24.8


@pytest.mark.parametrize("M", [2, 3, 5, 8, 16, 32])
def test_number_of_virtual_rewards_is_not_rounded_up_by_floating_point(M):
    """K is the smallest whole number with K^2 >= M^2 * ACR, found in integers."""
    for P in range(1, 65):
        for dead in range(P + 1):
            exact = next(K for K in range(M + 1) if K * K * P >= M * M * dead)
            assert num_virtual(M, dead / P) == max(1, min(M, exact)), (dead, P)
    # 25 * (14/25) is 14.000000000000002 in floating point
    assert num_virtual(25, 14 / 25, alpha=1) == 14


@quick
@given(st.integers(1, 64), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 3))
def test_number_of_virtual_rewards_grows_with_collapse_within_one_and_the_group(M, a, b, alpha):
    low, high = (num_virtual(M, x, alpha) for x in sorted((a, b)))
    assert 1 <= low <= high <= M


# ------------------------------------------------------------------------------- eq. 9: v_k


def test_virtual_rewards_of_a_right_group_by_hand():
    # r_obs (1 - k/5): .8, .6, .4, .2; below the real reward and above 0
    assert virtual_rewards(tensor(RIGHT)[0], 4).tolist() == pytest.approx([0.8, 0.6, 0.4, 0.2])
    half = torch.full((8,), 0.5, dtype=torch.float64)
    assert virtual_rewards(half, 3).tolist() == pytest.approx([0.375, 0.25, 0.125])


def test_virtual_rewards_of_a_wrong_group_by_hand():
    # .1 (4 - k + 1)/4: .1, .075, .05, .025
    wrong = tensor(WRONG)[0]
    assert virtual_rewards(wrong, 4).tolist() == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert virtual_rewards(wrong, 2, r_anchor=1.0).tolist() == pytest.approx([1.0, 0.5])
    assert virtual_rewards(wrong, 1).tolist() == pytest.approx([0.1])


def test_virtual_rewards_look_at_the_largest_verdict_and_not_at_missing_ones():
    rewards = torch.tensor([nan, 0.5, nan, 0.5], dtype=torch.float64)
    assert virtual_rewards(rewards, 1).tolist() == [0.25]


def test_random_virtual_rewards_lie_between_0_and_the_largest_reward_and_repeat():
    draws = [
        virtual_rewards(
            torch.zeros(8), 500, "random", r_max=2.0, generator=torch.Generator().manual_seed(s)
        )
        for s in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    for drawn in draws:
        assert drawn.min() >= 0 and drawn.max() <= 2
        # uniform on [0, 2]: mean 1, sd .577; 500 draws: standard error .026
        assert abs(float(drawn.mean()) - 1) < 0.13
        assert drawn.max() > 1.9 and drawn.min() < 0.1


def test_fixed_virtual_rewards_are_half_the_largest_reward():
    assert virtual_rewards(torch.zeros(8), 3, "fixed").tolist() == [0.5] * 3
    assert virtual_rewards(torch.ones(8), 2, "fixed", r_max=3.0).tolist() == [1.5] * 2


@pytest.mark.parametrize("K, rule", [(0, "stratified"), (-1, "fixed"), (2, "uniform")])
def test_no_virtual_rewards_or_an_unknown_rule_is_refused(K, rule):
    with pytest.raises(ValueError):
        virtual_rewards(torch.zeros(8), K, rule)


def test_unknown_groups_are_refused_even_where_nothing_collapsed():
    with pytest.raises(ValueError, match="groups"):
        avspo_advantages(tensor(MIXED), 0.5, groups="wrong")


# ------------------------------------------------------------------------------- the advantages


@pytest.mark.parametrize("K, size", list(enumerate(TABLE, start=1)))
def test_size_of_a_rescued_groups_advantage_is_the_headers_table(K, size):
    wrong = avspo_advantages(tensor(WRONG), 0.5, virtual_k=K, eps=0.0)
    right = avspo_advantages(tensor(RIGHT), 0.5, virtual_k=K, eps=0.0)
    assert wrong.tolist()[0] == pytest.approx([-size] * 8, abs=5e-5)
    assert right.tolist()[0] == pytest.approx([size] * 8, abs=5e-5)
    # the same from fractions, to every digit
    up = [Fraction(K - k + 1, 10 * K) for k in range(1, K + 1)]
    down = [1 - Fraction(k, K + 1) for k in range(1, K + 1)]
    assert float(wrong[0, 0]) == pytest.approx(advantage_by_hand([0] * 8, up), rel=1e-12)
    assert float(right[0, 0]) == pytest.approx(advantage_by_hand([1] * 8, down), rel=1e-12)


def test_rescue_with_one_virtual_reward_by_hand():
    # values 1 x 8 and .5: mean 17/18, variance (8/81)(1/4), std sqrt(2)/9 = .157135
    # A = (1 - 17/18)/(.157135 + .0001) = .0555556/.157235 = .353328
    A = avspo_advantages(tensor(RIGHT), 0.5, virtual_k=1)
    assert A.tolist()[0] == pytest.approx([0.353328] * 8, abs=1e-6)
    # values 0 x 8 and .1: mean 1/90, std .1 sqrt(8)/9 = .0314270; A = -.0111111/.0315270
    A = avspo_advantages(tensor(WRONG), 0.5, virtual_k=1)
    assert A.tolist()[0] == pytest.approx([-0.352432] * 8, abs=1e-6)


@pytest.mark.parametrize("r_anchor", [1e-3, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("K", [1, 5, 8])
def test_anchor_reward_cancels(r_anchor, K):
    exact = avspo_advantages(tensor(WRONG), 0.5, virtual_k=K, r_anchor=r_anchor, eps=0.0)
    assert exact.tolist()[0] == pytest.approx([-TABLE[K - 1]] * 8, abs=5e-5)
    right = [avspo_advantages(tensor(RIGHT), 0.5, virtual_k=K, r_anchor=a) for a in (0.1, r_anchor)]
    assert torch.equal(*right)  # it has no part in an all-right group at all


def test_adaptive_k_reads_the_steps_collapse_rate():
    # 2 of 3 groups: K = ceil(8 sqrt(2/3)) = ceil(6.53) = 7
    A = avspo_advantages(tensor(WRONG, RIGHT, MIXED), 0.5, eps=0.0)
    assert A[:2, 0].tolist() == pytest.approx([-TABLE[6], TABLE[6]], abs=5e-5)
    # the rate can be given: .3 -> K = ceil(8 * .5477) = ceil(4.38) = 5
    A = avspo_advantages(tensor(WRONG, RIGHT, MIXED), 0.1, acr=0.3, eps=0.0)
    assert A[:2, 0].tolist() == pytest.approx([-TABLE[4], TABLE[4]], abs=5e-5)


def test_gate_opens_above_tau_and_not_at_it():
    rewards = tensor(WRONG, RIGHT, MIXED, MIXED)  # ACR is 1/2
    plain = group_advantages(rewards)
    assert torch.equal(avspo_advantages(rewards, 0.5), plain)
    assert torch.equal(avspo_advantages(rewards, 0.51), plain)
    assert not torch.equal(avspo_advantages(rewards, 0.4999), plain)
    # what is given as acr decides, not what these groups show
    assert torch.equal(avspo_advantages(rewards, 0.1, acr=0.1), plain)
    assert not torch.equal(avspo_advantages(rewards, 0.9, acr=0.95), plain)
    # a rate that is not known opens nothing
    assert torch.equal(avspo_advantages(rewards, 0.1, acr=nan), plain)
    assert torch.equal(avspo_advantages(tensor(WRONG), 1.0), group_advantages(tensor(WRONG)))


def test_rescue_leaves_no_group_without_gradient():
    rewards = tensor(WRONG, WRONG, RIGHT, MIXED)
    assert (avspo_advantages(rewards, 0.5) != 0).any(dim=1).all()


@pytest.mark.parametrize(
    "groups, touched", [("both", [0, 1, 2]), ("all_wrong", [0, 2]), ("all_right", [1])]
)
def test_only_the_named_groups_are_rescued(groups, touched):
    rewards = tensor(WRONG, RIGHT, WRONG, MIXED)
    A = avspo_advantages(rewards, 0.5, groups=groups)
    plain = group_advantages(rewards)
    for p in range(4):
        assert torch.equal(A[p], plain[p]) != (p in touched), p


def test_rules_of_the_ablations_rescue_both_kinds_of_group_by_hand():
    # fixed, K = 8: values 0 x 8, .5 x 8: mean .25, std .25, A = -1; 1 x 8, .5 x 8: A = +1
    A = avspo_advantages(tensor(WRONG, RIGHT), 0.5, rule="fixed", eps=0.0)
    assert A.tolist() == [[-1.0] * 8, [1.0] * 8]
    generator = torch.Generator().manual_seed(0)
    A = avspo_advantages(tensor(WRONG, RIGHT), 0.5, rule="random", generator=generator)
    assert (A[0] < 0).all() and (A[1] > 0).all()


def test_missing_verdict_counts_in_neither_the_group_nor_its_advantage():
    # three verdicts: M = 3, ACR = 1, K = 3; values 0 x 3, .1, .0667, .0333: mean 1/30
    A = avspo_advantages(tensor([0, nan, 0, 0]), 0.5, eps=0.0)
    up = [Fraction(3 - k + 1, 30) for k in (1, 2, 3)]
    expected = advantage_by_hand([0] * 3, up)
    assert expected == pytest.approx(-sqrt(3 / 4))  # (1/30) / sqrt(14/5400 - 6/5400)
    assert A.tolist()[0] == pytest.approx([expected, 0, expected, expected], rel=1e-12)


def test_group_without_two_verdicts_is_not_rescued():
    A = avspo_advantages(tensor([0, nan, nan], [nan, nan, nan], [1, 1, 1]), 0.5)
    assert A[:2].tolist() == [[0.0] * 3] * 2 and (A[2] > 0).all()
    assert avspo_advantages(torch.full((2, 3), nan), 0.5).tolist() == [[0.0] * 3] * 2


def test_group_of_one_is_refused():
    with pytest.raises(ValueError):
        avspo_advantages(torch.zeros(4, 1), 0.5)


verdicts = st.sampled_from([0.0, 0.0, 1.0, 1.0, 0.5, nan])
steps = st.integers(2, 5).flatmap(
    lambda M: st.lists(
        st.one_of(
            st.lists(verdicts, min_size=M, max_size=M), st.sampled_from([[0.0] * M, [1.0] * M])
        ),
        min_size=1,
        max_size=6,
    )
)


@quick
@given(steps, st.floats(0.1, 0.9))
def test_mixed_groups_keep_their_advantages_and_rescued_ones_move_as_a_whole(rows, tau):
    rewards = tensor(*rows)
    kept = rewards.clone()
    A, plain, dead = avspo_advantages(rewards, tau), group_advantages(rewards), collapsed(rewards)
    assert torch.equal(rewards.nan_to_num(-1), kept.nan_to_num(-1))
    assert torch.equal(A[~dead], plain[~dead])
    assert (A[rewards.isnan()] == 0).all()
    acr = collapse_report(rewards)["acr"]
    for p in dead.nonzero().flatten().tolist():
        scored = ~rewards[p].isnan()
        (value,) = set(A[p][scored].tolist())  # one value: no ranking inside the group
        rescued_to = 1 if rewards[p][scored].max() > 0 else -1
        assert (value > 0) - (value < 0) == (rescued_to if acr > tau else 0)


@quick
@given(steps, st.randoms(use_true_random=False))
def test_rescue_does_not_depend_on_the_order_of_groups_or_samples(rows, rng):
    rewards = tensor(*rows)
    A = avspo_advantages(rewards, 0.3)
    within = torch.tensor(rng.sample(range(rewards.shape[1]), rewards.shape[1]))
    across = torch.tensor(rng.sample(range(len(rows)), len(rows)))
    torch.testing.assert_close(avspo_advantages(rewards[across], 0.3), A[across])
    torch.testing.assert_close(avspo_advantages(rewards[:, within], 0.3), A[:, within])


def test_virtual_samples_are_absent_from_the_loss():
    """Eight rows of two tokens: each token's gradient is -A/(8 * 2), whatever K was."""
    for K in (1, 8):
        A = avspo_advantages(tensor(WRONG), 0.5, virtual_k=K)
        assert A.shape == (1, 8)
        logprobs = torch.full((8, 2), -1.0, dtype=torch.float64, requires_grad=True)
        weights = row_weights(torch.full((8,), 2), "sequence", 16).double()
        mask = torch.ones(8, 2)
        loss = clipped_loss(logprobs, logprobs.detach(), A.reshape(-1), mask, weights)
        loss.backward()
        assert float(loss.detach()) == pytest.approx(-float(A[0, 0]))  # -(1/8) sum_i (1/2)(A + A)
        expected = torch.full((8, 2), -float(A[0, 0]) / 16, dtype=torch.float64)
        torch.testing.assert_close(logprobs.grad, expected)


# ------------------------------------------------------------------------------- eq. 10: tau


def test_threshold_follows_a_scripted_run_by_hand():
    threshold = AdaptiveThreshold(tau=0.5, eta=0.1)
    script = [  # acr, mean reward, tau afterwards
        (0.8, 0.20, 0.5),  # the first step only looks
        (0.8, 0.30, 0.53),  # rose: .5 + .1 (.8 - .5)
        (0.8, 0.25, 0.503),  # fell: .53 - .1 (.8 - .53)
        (0.9, 0.25, 0.503),  # equal: sign 0
        (0.1, 0.40, 0.4627),  # rose: .503 + .1 (.1 - .503)
        (0.1, 0.39, 0.49897),  # fell: .4627 - .1 (.1 - .4627)
        (0.1, 0.10, 0.538867),  # how far it fell is nothing to it: .49897 + .1 * .39897
    ]
    for acr, reward, tau in script:
        assert threshold.update(acr, reward) == pytest.approx(tau, abs=1e-12)
        assert threshold.tau == pytest.approx(tau, abs=1e-12)


def test_threshold_at_the_papers_step_size_by_hand():
    threshold = AdaptiveThreshold()
    assert (threshold.tau, threshold.eta, threshold.bounds) == (0.5, 0.01, (0.1, 0.9))
    threshold.update(0.7, 0.1)
    assert threshold.update(0.7, 0.2) == pytest.approx(0.502)  # .5 + .01 * .2
    assert threshold.update(0.3, 0.1) == pytest.approx(0.50402)  # .502 - .01 (.3 - .502)


def test_threshold_stays_within_its_bounds():
    threshold = AdaptiveThreshold(tau=0.5, eta=1.0)
    script = [
        (1.0, 0.1, 0.5),  # first
        (1.0, 0.2, 0.9),  # .5 + (1 - .5) = 1 -> .9
        (1.0, 0.1, 0.8),  # .9 - (1 - .9)
        (0.0, 0.2, 0.1),  # .8 + (0 - .8) = 0 -> .1
        (0.9, 0.1, 0.1),  # .1 - (.9 - .1) = -.7 -> .1
    ]
    for acr, reward, tau in script:
        assert threshold.update(acr, reward) == pytest.approx(tau)


@quick
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30), st.floats(0, 1))
def test_threshold_never_leaves_its_bounds(script, eta):
    threshold = AdaptiveThreshold(eta=eta)
    for acr, reward in script:
        assert 0.1 <= threshold.update(acr, reward) <= 0.9


def test_fixed_threshold_does_not_move_nor_jump_to_the_bounds():
    threshold = AdaptiveThreshold(tau=1.0, eta=0.0)
    for acr, reward in [(1.0, 0.1), (0.0, 0.5), (1.0, 0.2)]:
        assert threshold.update(acr, reward) == 1.0


def test_step_without_verdicts_leaves_threshold_and_last_reward_alone():
    threshold = AdaptiveThreshold(eta=0.1)
    threshold.update(0.8, 0.3)
    assert threshold.update(nan, 0.9) == threshold.update(0.8, nan) == 0.5
    # compared with .3, not with .9
    assert threshold.update(0.8, 0.4) == pytest.approx(0.53)
    assert not isnan(threshold.tau)


# ------------------------------------------------------------------------------- the gate's odds


def test_gate_with_more_groups_opens_less():
    share = [gate_open_probability(P, 0.4, 0.5) for P in (1, 16, 128)]
    assert [round(s, 2) for s in share] == [0.40, 0.14, 0.01]


@pytest.mark.parametrize("tau", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("P", [1, 2, 4, 7])
def test_gate_odds_equal_all_outcomes_enumerated(P, tau):
    a = 0.3
    total = sum(
        prod(a if dead else 1 - a for dead in outcome)
        for outcome in product([0, 1], repeat=P)
        if sum(outcome) / P > tau
    )
    assert gate_open_probability(P, a, tau) == pytest.approx(total)


def test_one_group_a_step_opens_the_gate_at_every_collapse_with_all_virtual_rewards():
    for row in (WRONG, RIGHT):
        A = avspo_advantages(tensor(row), 0.9, eps=0.0)
        assert abs(float(A[0, 0])) == pytest.approx(TABLE[7], abs=5e-5)  # K = M = 8
    assert gate_open_probability(1, 0.4, 0.9) == 0.4
