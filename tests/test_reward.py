"""The box, the rule for plain numbers, and what a batch reports."""

import math
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reward
from reward import extract_answer, last_report, math_reward, score

ROOT = Path(__file__).resolve().parents[1]

# (gold, completion, paid). The comments say what other graders do with it.
COMPLETIONS = [
    ("42", "The answer is 42.", 0),  # no box
    ("42", r"First \boxed{41}. Wait, that is wrong, so \boxed{42}.", 1),  # merged to {41, 42}
    ("42", r"So \boxed{42}. Check. Hmm, maybe \boxed{41}.", 0),
    ("1, 2", r"The roots are \boxed{1} and \boxed{2}.", 0),  # one box, as the prompt says
    ("3", r"It is \boxed{3} or \boxed{4}.", 0),
    ("4", r"It is \boxed{3} or \boxed{4}.", 0),  # two boxes thrown at the grader
    ("44", r"\boxed{42}\boxed{43}\boxed{44}", 0),
    ("42", r"Therefore the answer is \boxed{42", 0),  # cut off
    ("42", r"We get 42, so \boxed{}", 0),
    ("5", r"I will put my final answer within \boxed{}. Let me think: 2+3=5", 0),  # read as 2
    ("42", r"<think>I guess \boxed{41}</think> The answer is \boxed{42}.", 1),
    ("10", "The values are 7, 8, 9, 10", 0),
    ("9", r"Final Answer: \[Answer: 009\]", 0),
    ("42", r"\boxed{42} is wrong, it is not 42, the answer is 7", 1),  # undecidable by rule
    ("56", r"\boxed{7 \cdot 8}", 0),  # not evaluated
    ("42", r"\fbox{42}", 1),
    ("840", r"\boxed{840} and so, once more, \boxed{840}", 1),  # glued to 840840
    ("4", r"\boxed{004} ... \boxed{004}", 1),  # glued to 4.004
    (r"\frac{1}{2}", r"\boxed{\frac{1}{2}}", 1),  # cut at the first brace
    (r"\{1, 2\}", r"\boxed{\{1, 2\}}", 1),
    ("73", r"**73** so \boxed{\mathbf{73}}", 1),
]


@pytest.mark.parametrize("gold, completion, paid", COMPLETIONS)
def test_whole_completions(gold, completion, paid):
    assert math_reward(completion, gold) == paid


@pytest.mark.parametrize(
    "completion, answer",
    [
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{x \in \{1, 2\}} done", r"x \in \{1, 2\}"),
        (r"\boxed{\left\{ x \mid x > 0 \right\}}", r"\left\{ x \mid x > 0 \right\}"),
        (r"\boxed{a \\ b}", r"a \\ b"),
        (r"\boxed {7}", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{\text{ an answer } \fbox{7}}", r"\text{ an answer } \fbox{7}"),
        (r"$$\boxed{7}$$ \boxed{ 7 }", "7"),
        (r"\boxed{0.5} = \boxed{1/2}", "1/2"),
        (r"the word \boxed in prose", None),
        (r"a box of 5", None),
        (r"\boxed{ }", None),
        (r"\boxed{...}", None),
        (r"\boxed{your answer}", None),
        (r"\boxed{\text{final answer}}", None),
        (r"\boxed{<answer>}", None),
        (r"\boxed{41}. No: \boxed{42", None),
        (r"in \boxed{ like this: \boxed{42}", "42"),
        (r"<think> it must be \boxed{42}", None),
        (r"\boxed{41} <think> or \boxed{42}", "41"),
        (r"<think>a</think><think>\boxed{42}", None),
        (r"\boxed{3}, \boxed{4}", None),
        (r"\boxed{3}$ $\boxed{4}", None),
        (r"\boxed{3} \text{ and } \boxed{4}", None),
        (r"\boxed{4}, \boxed{4}", "4"),
        ("", None),
        ("}}}}", None),
    ],
)
def test_extraction(completion, answer):
    assert extract_answer(completion) == answer


BALANCED = st.recursive(
    st.text(st.characters(codec="utf-8", exclude_characters="\\{}<"), max_size=6),
    lambda inner: st.builds("{}{{{}}}{}".format, inner, inner, inner),
    max_leaves=6,
)
PROSE = st.text(st.characters(codec="utf-8", exclude_characters="\\{}<"), max_size=20)


@given(PROSE, BALANCED, PROSE)
def test_what_is_in_a_balanced_box_comes_out(before, content, after):
    answer = extract_answer(f"{before}\\boxed{{{content}}}{after}")
    assert answer in (content.strip(), None)
    assert answer is not None or reward._ECHO.fullmatch(content.strip())


@given(PROSE, BALANCED, BALANCED)
def test_the_last_box_wins_when_words_stand_between(before, first, last):
    answer = extract_answer(f"\\boxed{{{first}}} {before} so finally \\boxed{{{last}}}")
    assert answer == extract_answer(f"\\boxed{{{last}}}")


@given(st.text(max_size=200))
def test_text_without_a_box_has_no_answer(text):
    if "box" not in text:
        assert extract_answer(text) is None


@given(
    st.lists(st.sampled_from(["\\boxed{", "\\fbox{", "{", "}", "\\{", "\\}", "\\", "<think>", "7"]))
)
def test_no_heap_of_braces_breaks_the_extractor(tokens):
    answer = extract_answer("".join(tokens))
    assert answer is None or (answer and answer in "".join(tokens))


@settings(max_examples=50)
@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_integers_are_paid_exactly_when_equal(a, b):
    assert math_reward(f"\\boxed{{{a}}}", str(b)) == float(a == b)
    assert math_reward(f"\\boxed{{{a}}}", str(a)) == 1.0


@pytest.mark.parametrize(
    "text",
    ["\\boxed{" * 20_000, "\\boxed{" * 9000 + "}" * 9000, "\\boxed{" + "{" * 100_000,
     "\\boxed{" + "." * 100_000 + "x}", "<think>" * 20_000 + "\\boxed{1}",
     "\\boxed{1}" + " and" * 30_000 + "\\boxed{2}", "\\boxed{4 " + "cm " * 500 + "!}",
     "\\boxed{4" + " cm" * 120 + "!}", "\\boxed{4" + " " * 100_000 + "x}"],
)  # fmt: skip
def test_long_boxes_are_read_in_linear_time(text):
    start = time.perf_counter()
    math_reward(text, "4")
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    "box, gold, paid",
    [
        ("22", "22", 1), ("22.0", "22", 1), ("+22", "22", 1), (r"\frac{44}{2}", "22", 1),
        ("44/2", "22", 1), (r"2.2\times10^1", "22", 1), ("x = 22", "22", 1),
        (r"22\text{ cm}", "22", 1), (r"22\%", "22", 1), (r"\$22", "22", 1),
        (r"22^\circ", "22", 1), ("2 1/2", "2.5", 1),
        (r"2\frac12", r"\frac{5}{2}", 1), ("1,234", "1234", 1),
        ("17+5", "22", 0), (r"11\cdot 2", "22", 0), (r"\sqrt{484}", "22", 0), ("22!/21!", "22", 0),
        ("17+5=22", "22", 0), (r"\sqrt{4}\text{ cm}", r"2\text{ cm}", 0), ("22 or 23", "22", 0),
        ("22, 23", "22", 0), (r"\text{twenty-two}", "22", 0), ("22x", "22", 0), ("2^2", "4", 0),
        ("2.5 - 0", r"\frac{5}{2}", 0), (r"\frac{\pi}{2}", r"90^\circ", 1),
        ("45+45", r"90^\circ", 0),
    ],
)  # fmt: skip
def test_only_an_evaluated_number_is_paid_when_the_gold_is_a_plain_number(box, gold, paid):
    assert math_reward(f"\\boxed{{{box}}}", gold) == paid


def test_unevaluated_expression_is_paid_when_the_gold_is_no_plain_number():
    assert math_reward(r"\boxed{\frac{\pi}{2} + \frac{\pi}{2}}", r"\pi") == 1.0
    assert math_reward(r"\boxed{(x+1)(x-1)}", "x^2 - 1") == 1.0
    assert reward.is_equivalent("22", "17+5") is True


def test_report_counts_boxes_cuts_and_expressions():
    golds = ["22", "22", "22", "22", "22"]
    texts = [r"\boxed{22}", r"\boxed{17+5}", "22", r"\boxed{22", r"\boxed{22} and"]
    assert score(texts, golds, [False, False, False, True, True]) == [1, 0, 0, 0, 1]
    report = last_report()
    assert {k: report[k] for k in ("scored", "no_box", "truncated", "unevaluated")} == {
        "scored": 5, "no_box": 2, "truncated": 2, "unevaluated": 1,
    }  # fmt: skip
    assert report["unevaluated_share"] == pytest.approx(0.2)


def test_no_verdict_is_nan_and_counted():
    rewards = score([r"\boxed{9^{9^{9^9}}}", r"\boxed{\sqrt{8}}"], [r"\sqrt{2}", r"2\sqrt{2}"])
    assert math.isnan(rewards[0]) and rewards[1] == 1.0
    assert last_report()["too_big"] == 1
    assert math.isnan(math_reward(r"\boxed{9^{9^{9^9}}}", r"\sqrt{2}"))


def test_lengths_that_differ_are_an_error():
    with pytest.raises(ValueError, match="same length"):
        score(["a", "b"], ["1"])


def test_empty_batch():
    assert score([], []) == [] and last_report()["unevaluated_share"] == 0


def test_integer_batches_start_no_process_and_import_no_sympy():
    code = (
        "import sys, subprocess\n"
        "def refuse(*a, **k): raise AssertionError('a process was started')\n"
        "import reward\n"
        "subprocess.Popen = refuse\n"
        "boxes = ['17', '18', '17+0', 'x', '', '-', '1.0', '1,0', r'\\frac{34}{2}', '9**9**9']\n"
        "rewards = reward.score([f'so \\\\boxed{{{b}}}' for b in boxes], ['17'] * len(boxes))\n"
        "assert rewards == [1, 0, 0, 0, 0, 0, 0, 0, 1, 0], rewards\n"
        "assert reward.readable_golds(['1', '-2', '3/4']) == [True] * 3\n"
        "assert not {'sympy', 'mpmath', 'math_verify', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_scoring_leaves_the_global_random_state_alone():
    random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), torch.get_rng_state()
    score([r"\boxed{3}", r"\boxed{x+x}", r"\boxed{\sqrt{12}}"], ["3", "2x", r"2\sqrt{3}"])
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
