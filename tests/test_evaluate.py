"""pass@k, intervals, and evaluating a policy."""

from itertools import combinations

import pytest
import torch

from data import Question, arithmetic
from evaluate import bootstrap_interval, evaluate_policy, paired_difference, pass_at_k


@pytest.mark.parametrize("n", range(1, 13))
def test_pass_at_k_equals_every_subset_drawn(n):
    for c in range(n + 1):
        right = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(combinations(right, k)) if n <= 9 or k in (1, 2, n) else None
            if subsets:
                expected = sum(map(any, subsets)) / len(subsets)
                assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n, c, k", [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_impossible_counts_are_refused(n, c, k):
    with pytest.raises(ValueError, match="need"):
        pass_at_k(n, c, k)


def test_intervals_hold_the_mean_and_narrow_with_more_questions():
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(2, (50,), generator=generator).double()
    many = few.repeat(16)
    low, high = bootstrap_interval(few)
    assert low < few.mean() < high
    narrow = bootstrap_interval(many)
    assert 3 < (high - low) / (narrow[1] - narrow[0]) < 5  # one over the root of 16


def test_pairing_finds_a_small_gain_that_separate_intervals_would_miss():
    before = [0.0] * 100 + [1.0] * 100
    after = [0.1] * 100 + [1.0] * 100
    mean, low, high = paired_difference(before, after)
    assert mean == pytest.approx(0.05) and 0.03 < low < high < 0.07
    assert bootstrap_interval(before)[1] > bootstrap_interval(after)[0]


def test_evaluating_twice_gives_the_same_and_chunks_change_nothing(tiny):
    questions = arithmetic("test", 12)
    once = evaluate_policy(tiny, questions, 3, max_new_tokens=8)
    assert once == evaluate_policy(tiny, questions, 3, max_new_tokens=8, chunk_tokens=50)
    assert once != evaluate_policy(tiny, questions, 3, max_new_tokens=8, seed=1)
    row = once.row()
    assert row["pass@1"] == pytest.approx(sum(once.right_Q) / 36)
    assert row["pass@1"] <= row["pass@3"]


def test_a_question_is_scored_against_its_own_answer(tiny):
    """The golds of two easy questions swapped: nothing is right any more."""
    asked = [Question("1", "What is 2 + 2?", "4"), Question("2", "What is 5 + 3?", "8")]
    swapped = [Question("1", "What is 2 + 2?", "8"), Question("2", "What is 5 + 3?", "4")]
    right = sum(evaluate_policy(tiny, asked, 8, max_new_tokens=8).right_Q)
    wrong = sum(evaluate_policy(tiny, swapped, 8, max_new_tokens=8).right_Q)
    assert right >= 12 > 4 >= wrong
