"""The collapse rate (eq. 6) against counting by hand and by brute force."""

from fractions import Fraction
from itertools import combinations, product
from math import comb, isnan, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acr import (
    CollapseMonitor,
    advantage_collapse_rate,
    collapse_report,
    collapsed,
    expected_acr,
    expected_acr_from_counts,
    scorable,
)

quick = settings(max_examples=60, deadline=None)
# quarters are exact in binary, so that a test of a symmetry meets no rounding
verdicts = st.sampled_from([0.0, 0.25, 0.5, 1.0, nan])
groups = st.integers(1, 5).flatmap(
    lambda M: st.lists(st.lists(verdicts, min_size=M, max_size=M), min_size=1, max_size=6)
)


def by_hand(rows):
    """(collapsed, all wrong, all right, scorable) counts, by a plain loop."""
    dead = wrong = able = 0
    for row in rows:
        seen = {r for r in row if not isnan(r)}
        if sum(not isnan(r) for r in row) >= 2:
            able += 1
            dead += len(seen) == 1
            wrong += seen == {0.0}
    return dead, wrong, dead - wrong, able


# ------------------------------------------------------------------------------- which groups


def test_groups_of_zeros_and_of_ones_are_collapsed_and_mixed_ones_are_not():
    rewards = torch.tensor([[0.0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]])
    assert collapsed(rewards).tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value, M", [(0.15, 6), (0.1, 7), (1 / 3, 5), (1e6 + 0.1, 9)])
def test_constant_group_of_non_dyadic_reward_is_collapsed(value, M, dtype):
    # the float32 standard deviation of these is not 0: 1.5e-8 for six 0.15
    assert collapsed(torch.full((1, M), value, dtype=dtype)).tolist() == [True]


def test_tolerance_is_on_the_range_and_includes_its_end():
    ranges = [0.0, 0.5e-6, 2**-20, 2e-6, 1e-3]  # 2**-20 = .95e-6, exact beside 0
    rewards = torch.tensor([[0.0, r, 0.0] for r in ranges], dtype=torch.float64)
    assert collapsed(rewards).tolist() == [True, True, True, False, False]
    assert collapsed(torch.tensor([[0.0, 0.25]]), tol=0.25).tolist() == [True]
    # a range of 1e-5 in a large group has a small deviation, but it is a difference all the same
    lone = torch.zeros(1, 1000, dtype=torch.float64)
    lone[0, 0] = 1e-5
    assert lone.std(correction=0) < 1e-6 and collapsed(lone).tolist() == [False]


def test_missing_verdicts_are_not_looked_at():
    rewards = torch.tensor([[1, nan, 1], [1, nan, 0], [nan, 0, 0]])
    assert collapsed(rewards).tolist() == [True, False, True]


def test_group_with_fewer_than_two_verdicts_is_in_neither_part_of_the_rate():
    rewards = torch.tensor([[1, nan, nan], [nan, nan, nan], [0, 0, nan], [1, 0, 1]])
    assert scorable(rewards).tolist() == [False, False, True, True]
    assert collapsed(rewards).tolist() == [False, False, True, False]
    # two groups can be judged, one of them has collapsed, and two cannot
    assert collapse_report(rewards) == {
        "acr": 0.5,
        "acr_all_wrong": 0.5,
        "acr_all_right": 0.0,
        "unscorable": 2,
    }


def test_rate_is_nan_not_zero_when_nothing_was_scored():
    report = collapse_report(torch.full((3, 4), nan))
    assert report["unscorable"] == 3
    assert all(isnan(report[key]) for key in ("acr", "acr_all_wrong", "acr_all_right"))
    assert isnan(advantage_collapse_rate(torch.full((3, 4), nan)))


def test_flat_rewards_are_refused():
    with pytest.raises(ValueError, match="shape"):
        collapsed(torch.zeros(8))


# ------------------------------------------------------------------------------- the rate (eq. 6)


def test_rate_of_five_groups_counted_by_hand():
    rewards = torch.tensor(
        [[0.0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]]
    )
    # collapsed: 1st, 2nd, 4th, 5th = 4/5; all wrong: 1st, 4th = 2/5; the other 2/5 are right
    report = collapse_report(rewards)
    assert advantage_collapse_rate(rewards) == report["acr"] == 4 / 5
    assert report["acr_all_wrong"] == 2 / 5
    assert report["acr_all_right"] == 2 / 5
    assert report["unscorable"] == 0


@quick
@given(groups)
def test_report_equals_a_plain_count(rows):
    report = collapse_report(torch.tensor(rows))
    dead, wrong, right, able = by_hand(rows)
    assert report["unscorable"] == len(rows) - able
    if able:
        assert report["acr"] == dead / able
        assert report["acr_all_wrong"] == wrong / able
        assert report["acr_all_right"] == right / able


@quick
@given(groups, st.randoms(use_true_random=False), st.sampled_from([-2.0, 0.5, 3.0]))
def test_collapse_ignores_order_shift_and_scale(rows, rng, number):
    rewards = torch.tensor(rows)
    before = collapsed(rewards)
    assert torch.equal(collapsed(rewards + number), before)
    assert torch.equal(collapsed(rewards * number), before)
    within = torch.tensor(rng.sample(range(rewards.shape[1]), rewards.shape[1]))
    across = torch.tensor(rng.sample(range(len(rows)), len(rows)))
    assert torch.equal(collapsed(rewards[:, within]), before)
    assert torch.equal(collapsed(rewards[across]), before[across])


def test_looking_at_rewards_does_not_change_them():
    rewards = torch.tensor([[1, nan, 1], [0, 0, 0]])
    kept = rewards.clone()
    collapse_report(rewards)
    assert torch.equal(rewards.nan_to_num(-1), kept.nan_to_num(-1))


# ------------------------------------------------------------------------------- what to expect


def agree_brute_force(p, G):
    """P(G draws agree), by adding up the probabilities of all 2^G outcomes."""
    total = Fraction(0)
    for outcome in product([0, 1], repeat=G):
        if len(set(outcome)) == 1:
            chance = Fraction(1)
            for o in outcome:
                chance *= p if o else 1 - p
            total += chance
    return total


@pytest.mark.parametrize("G", range(1, 9))
def test_expected_rate_equals_all_outcomes_enumerated(G):
    ps = [Fraction(k, 10) for k in range(11)]
    for p in ps:
        assert expected_acr([float(p)], G) == pytest.approx(float(agree_brute_force(p, G)))
    mean = sum(agree_brute_force(p, G) for p in ps) / len(ps)
    assert expected_acr([float(p) for p in ps], G) == pytest.approx(float(mean))


def test_expected_rate_is_not_that_of_the_mean_probability():
    assert expected_acr([0.0, 1.0], 8) == 1.0
    assert expected_acr([0.5], 8) == 2 * 0.5**8  # .0078
    assert expected_acr(torch.tensor([0.0, 1.0, 0.5]), 2) == pytest.approx((1 + 1 + 0.5) / 3)


def test_rates_estimated_from_eight_samples_say_165_where_058_is_true():
    p, G = Fraction(3, 10), 8
    true = p**G + (1 - p) ** G
    assert expected_acr([0.3], G) == pytest.approx(float(true))
    assert round(float(true), 3) == 0.058
    plugged_in = counted = 0.0
    for c in range(G + 1):  # c right answers of 8, with its binomial probability
        chance = float(comb(G, c) * p**c * (1 - p) ** (G - c))
        plugged_in += chance * expected_acr([c / G], G)
        counted += chance * expected_acr_from_counts(G, c, G)
    assert round(plugged_in, 3) == 0.165
    assert counted == pytest.approx(float(true))


@pytest.mark.parametrize("n", range(1, 13))
def test_counts_estimate_equals_every_subset_drawn(n):
    for c in range(n + 1):
        samples = [1] * c + [0] * (n - c)
        for G in range(1, n + 1):
            drawn = list(combinations(samples, G))
            agree = sum(sum(s) in (0, G) for s in drawn)
            expected = Fraction(agree, len(drawn))
            assert expected_acr_from_counts(n, c, G) == pytest.approx(float(expected))


@quick
@given(st.integers(1, 12), st.data(), st.fractions(0, 1, max_denominator=20))
def test_counts_estimate_is_unbiased(n, data, p):
    G = data.draw(st.integers(1, n))
    mean = sum(
        float(comb(n, c) * p**c * (1 - p) ** (n - c)) * expected_acr_from_counts(n, c, G)
        for c in range(n + 1)
    )
    assert mean == pytest.approx(expected_acr([float(p)], G))


def test_counts_of_several_questions_are_averaged():
    # n = 4, G = 2: c = 4 -> 1; c = 2 -> (1 + 1)/6; c = 0 -> 1; mean (1 + 1/3 + 1)/3 = 7/9
    assert expected_acr_from_counts(4, [4, 2, 0], 2) == pytest.approx(7 / 9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: expected_acr([0.5], 0),
        lambda: expected_acr([1.5], 8),
        lambda: expected_acr([-0.1], 8),
        lambda: expected_acr([nan], 8),
        lambda: expected_acr([], 8),
        lambda: expected_acr_from_counts(8, 3, 9),
        lambda: expected_acr_from_counts(8, 9, 8),
        lambda: expected_acr_from_counts(8, -1, 8),
        lambda: expected_acr_from_counts(8, 3, 0),
        lambda: expected_acr_from_counts(8, [], 8),
    ],
)
def test_impossible_probabilities_and_counts_are_refused(call):
    with pytest.raises(ValueError):
        call()


# ------------------------------------------------------------------------------- over a run

ALL_WRONG = {"acr": 1.0, "acr_all_wrong": 1.0, "acr_all_right": 0.0}
MOSTLY = {"acr": 0.75, "acr_all_wrong": 0.5, "acr_all_right": 0.25}
LIVELY = {"acr": 0.25, "acr_all_wrong": 0.25, "acr_all_right": 0.0}


def said(monitor, reports, rewards):
    return [monitor.update(report, reward) for report, reward in zip(reports, rewards)]


def test_monitor_speaks_once_after_a_full_window_and_in_words():
    lines = said(CollapseMonitor(window=50), [MOSTLY] * 200, [0.3] * 200)
    assert lines[:49] == [None] * 49 and lines[50:] == [None] * 150
    sentence = "75 % of samples carried no gradient for 50 steps (50 % wrong, 25 % right)"
    assert lines[49].startswith(sentence)
    assert "stagnated" in lines[49]


def test_monitor_is_quiet_while_groups_are_alive_and_speaks_when_they_die():
    lines = said(CollapseMonitor(window=4), [LIVELY] * 20 + [ALL_WRONG] * 20, [0.1] * 40)
    spoken = [i for i, line in enumerate(lines) if line]
    # the mean of 4 reaches .5 with 2 dead steps: (.25 + .25 + 1 + 1)/4 = .625; with 1 it is .4375
    assert spoken == [21]


@quick
@given(st.lists(st.floats(0.001, 0.1), min_size=2, max_size=40), st.integers(2, 20))
def test_monitor_never_says_stagnated_while_the_reward_rises(increments, window):
    rewards = torch.tensor(increments, dtype=torch.float64).cumsum(0).tolist()
    lines = said(CollapseMonitor(window=window), [MOSTLY] * len(rewards), rewards)
    spoken = [line for line in lines if line]
    assert len(spoken) == (1 if len(rewards) >= window else 0)
    assert not any("stagnated" in line for line in spoken)


def test_monitor_with_a_window_too_short_to_see_a_rise_is_refused():
    with pytest.raises(ValueError, match="window"):
        CollapseMonitor(window=1)
    (line,) = filter(None, said(CollapseMonitor(window=2), [ALL_WRONG] * 2, [0.0, 0.0]))
    assert line.startswith("100 % of samples")


def test_acr_100_is_the_mean_of_the_first_hundred_steps():
    monitor = CollapseMonitor()
    assert isnan(monitor.acr_100)
    said(monitor, [ALL_WRONG] * 60 + [LIVELY] * 70, [0.0] * 130)
    # (60 * 1 + 40 * .25)/100 = .7; what came later does not count
    assert monitor.acr_100 == pytest.approx(0.7)
    assert monitor.moving_average == pytest.approx(0.25)  # the last 50 were all lively


def test_acr_100_of_a_short_run_is_the_mean_of_what_there_is():
    monitor = CollapseMonitor()
    said(monitor, [ALL_WRONG, LIVELY], [0.0, 0.0])
    assert monitor.acr_100 == pytest.approx(0.625)


def test_step_without_verdicts_does_not_poison_the_averages():
    monitor = CollapseMonitor(window=2)
    assert monitor.update(collapse_report(torch.full((2, 4), nan)), nan) is None
    said(monitor, [LIVELY, ALL_WRONG], [0.1, 0.1])
    assert monitor.acr_100 == monitor.moving_average == pytest.approx(0.625)
