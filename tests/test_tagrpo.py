"""Joint advantages and the anchor against numbers worked out by hand."""

from fractions import Fraction
from itertools import product
from math import nan, prod, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acr import collapse_report
from grpo import group_advantages
from tagrpo import (
    anchored_prompts,
    fill_phrasings,
    joint_advantages,
    pool_phrasings,
    zero_gradient_probability,
)

quick = settings(max_examples=100, deadline=None)


# ------------------------------------------------------------------------------- joint advantages


def test_joint_advantages_by_hand():
    # question 1, two phrasings: 1 0 | 0 0: mean 1/4, std sqrt(3)/4
    # question 2: 1 1 | 0 0: each phrasing has collapsed, together mean 1/2, std 1/2
    # question 3: all agree
    rewards = torch.tensor([[[1.0, 0], [0, 0]], [[1, 1], [0, 0]], [[1, 1], [1, 1]]])
    std = sqrt(3) / 4 + 1e-4
    expected = [
        [[0.75 / std, -0.25 / std], [-0.25 / std, -0.25 / std]],
        [[0.5 / 0.5001] * 2, [-0.5 / 0.5001] * 2],
        [[0.0, 0.0], [0.0, 0.0]],
    ]
    torch.testing.assert_close(joint_advantages(rewards), torch.tensor(expected))


def test_easy_phrasing_revives_a_group_that_plain_grpo_had_lost():
    rewards = torch.zeros(1, 4, 8)
    rewards[0, 2, 5] = 1.0  # one success, in a rephrasing
    assert group_advantages(rewards[:, 0]).eq(0).all()
    A = joint_advantages(rewards)
    assert A.ne(0).all() and A[0, 2, 5] > 0
    assert A[0, 0].lt(0).all()  # the original's failures are now below the mean
    # mean 1/32, std sqrt(31)/32: A = -(1/32)/(sqrt(31)/32 + 1e-4)
    assert A[0, 0].tolist() == pytest.approx([-(1 / 32) / (sqrt(31) / 32 + 1e-4)] * 8)


def test_each_phrasing_by_itself_without_pooling():
    rewards = torch.tensor([[[1.0, 1], [0, 0]], [[1, 0], [1, 1]]])
    groups = pool_phrasings(rewards, pool=False)
    assert groups.tolist() == [[1, 1], [0, 0], [1, 0], [1, 1]]
    assert collapse_report(groups)["acr"] == 3 / 4
    assert collapse_report(pool_phrasings(rewards))["acr"] == 0
    # 1 0 alone: mean 1/2, std 1/2
    a = 0.5 / 0.5001
    expected = torch.tensor([[0, 0], [0, 0], [a, -a], [0, 0]])
    torch.testing.assert_close(group_advantages(groups), expected)


rewards_PFG = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 4)).flatmap(
    lambda shape: st.lists(
        st.sampled_from([0.0, 1.0, 0.25, nan]), min_size=prod(shape), max_size=prod(shape)
    ).map(lambda flat: torch.tensor(flat).reshape(shape))
)


@quick
@given(rewards_PFG)
def test_without_rephrasings_it_is_grpo_bit_for_bit(rewards):
    original = rewards[:, :1]
    plain = group_advantages(rewards[:, 0])
    assert torch.equal(joint_advantages(original)[:, 0], plain)
    for pool in (True, False):
        assert torch.equal(group_advantages(pool_phrasings(original, pool)), plain)


@quick
@given(rewards_PFG, st.randoms(use_true_random=False))
def test_questions_do_not_mix_and_phrasings_keep_their_samples(rewards, rng):
    P, F, G = rewards.shape
    A = joint_advantages(rewards)
    assert A.shape == rewards.shape
    for p in range(P):
        torch.testing.assert_close(A[p : p + 1], joint_advantages(rewards[p : p + 1]))
    order = torch.tensor(rng.sample(range(F), F))
    torch.testing.assert_close(joint_advantages(rewards[:, order]), A[:, order])
    assert A.sum(dim=(1, 2)).abs().max() < 1e-4
    assert (A[rewards.isnan()] == 0).all()


def test_samples_without_a_verdict_are_outside_the_joint_mean():
    rewards = torch.tensor([[[1.0, nan], [0, nan]], [[nan, nan], [nan, 1]]])
    a = 0.5 / 0.5001  # 1 and 0: mean 1/2, std 1/2; the second question has one verdict only
    expected = torch.tensor([[[a, 0], [-a, 0]], [[0, 0], [0, 0]]])
    torch.testing.assert_close(joint_advantages(rewards), expected)


def test_rewards_are_not_changed():
    rewards = torch.tensor([[[1.0, 0], [0, nan]]])
    kept = rewards.clone()
    pool_phrasings(rewards), joint_advantages(rewards)
    assert torch.equal(rewards.nan_to_num(-1), kept.nan_to_num(-1))


def test_one_sample_in_one_phrasing_is_refused():
    with pytest.raises(ValueError):
        joint_advantages(torch.zeros(3, 1, 1))


# ------------------------------------------------------------------------------- the anchor


def test_every_completion_is_trained_under_the_original_question():
    prompts = [[[1, 2], [3], [4, 5, 6]], [[7], [8, 9], [7]]]
    assert anchored_prompts(prompts) == [[[1, 2]] * 3, [[7]] * 3]


def test_without_the_anchor_every_completion_keeps_its_phrasing():
    prompts = [[[1, 2], [3], [4, 5, 6]], [[7], [8, 9], [7]]]
    assert anchored_prompts(prompts, anchor=False) == prompts


def test_anchor_changes_nothing_without_rephrasings_and_not_the_list_it_was_given():
    alone = [[[1, 2]], [[3]]]
    assert anchored_prompts(alone) == anchored_prompts(alone, anchor=False) == alone
    prompts = [["a", "b"], ["c", "d"]]
    anchored_prompts(prompts)
    assert prompts == [["a", "b"], ["c", "d"]]


# ------------------------------------------------------------------------------- phrasings


def test_original_comes_first_and_stands_in_for_what_is_missing():
    assert fill_phrasings("q", ["a", "b", "c"], 3) == ["q", "a", "b", "c"]
    assert fill_phrasings("q", ["a"], 3) == ["q", "a", "q", "q"]
    assert fill_phrasings("q", [], 2) == ["q", "q", "q"]
    assert fill_phrasings("q", ("a", "b", "c", "d"), 2) == ["q", "a", "b"]
    assert fill_phrasings("q", ["a"], 0) == ["q"]


# ------------------------------------------------------------------------------- zero gradient


def brute_force(p_F, G):
    """P(all F*G verdicts agree), by adding up the probabilities of all outcomes."""
    chances = [p for p in p_F for _ in range(G)]
    total = Fraction(0)
    for outcome in product([0, 1], repeat=len(chances)):
        if len(set(outcome)) == 1:
            total += prod(p if o else 1 - p for p, o in zip(chances, outcome))
    return total


@pytest.mark.parametrize("G", [1, 2, 3])
def test_zero_gradient_probability_equals_all_outcomes_enumerated(G):
    tenths = [Fraction(k, 10) for k in (0, 1, 5, 9, 10)]
    for p_F in [(p,) for p in tenths] + list(product(tenths, repeat=2)):
        found = zero_gradient_probability([float(p) for p in p_F], G)
        assert found == pytest.approx(float(brute_force(p_F, G)), abs=1e-15)
    p_F = (Fraction(1, 5), Fraction(1, 2), Fraction(9, 10))
    found = zero_gradient_probability([float(p) for p in p_F], G)
    assert found == pytest.approx(float(brute_force(p_F, G)))


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=5)


@quick
@given(probabilities, st.integers(1, 16))
def test_pooling_never_makes_no_gradient_likelier_than_the_original_alone(p_F, G):
    alone = p_F[0] ** G + (1 - p_F[0]) ** G
    assert zero_gradient_probability(p_F, G) <= alone * (1 + 1e-12)


@quick
@given(probabilities, st.integers(1, 16))
def test_pooling_beats_the_larger_plain_group_on_average_over_who_is_the_original(p_F, G):
    # exchangeable phrasings: prod p_f^G <= mean_f p_f^(F G), the inequality of the two means
    M = len(p_F) * G
    plain = sum(p**M + (1 - p) ** M for p in p_F) / len(p_F)
    assert zero_gradient_probability(p_F, G) <= plain * (1 + 1e-12) + 1e-300


def test_pooling_with_three_phrasings_too_easy_is_worse_than_a_plain_group_of_32():
    # .5^8 * .99^24 + .5^8 * .01^24 = .00390625 * .785678 = .0030691
    pooled = zero_gradient_probability([0.5, 0.99, 0.99, 0.99], 8)
    assert pooled == pytest.approx(0.0030691, abs=1e-7)
    plain_32 = zero_gradient_probability([0.5], 32)
    assert plain_32 == 2 * 0.5**32  # 4.7e-10
    plain_8 = zero_gradient_probability([0.5], 8)
    assert plain_8 == 2 * 0.5**8  # .0078
    assert plain_32 < pooled < plain_8


def test_pooling_is_better_than_a_plain_group_of_32_where_the_original_is_the_extreme_one():
    # original .99, others .5: .99^8 .5^24 = 5.5e-8, against .99^32 = .725
    assert zero_gradient_probability([0.99, 0.5, 0.5, 0.5], 8) < 1e-7
    assert zero_gradient_probability([0.99], 32) == pytest.approx(0.725, abs=1e-3)


@pytest.mark.parametrize("p_F, G", [([], 8), ([0.5], 0), ([1.1], 8), ([0.5, -0.1], 8), ([nan], 8)])
def test_impossible_probabilities_are_refused(p_F, G):
    with pytest.raises(ValueError):
        zero_gradient_probability(p_F, G)
