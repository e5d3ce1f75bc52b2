"""Pairs of answers by kind, and the parts that judge them."""

import json
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward import is_equivalent
from support.answer_text import clean, looks_unevaluated, read_literal, same_text
from support.equivalence import equivalent
from support.expressions import TooBig, Unreadable, read, trees_equal
from support.verifier_process import shared_pool

PAIRS = defaultdict(list)
for line in (Path(__file__).parent / "equivalence_pairs.jsonl").open(encoding="utf-8"):
    row = json.loads(line)
    PAIRS[row["kind"]].append((row["gold"], row["prediction"], row["equal"]))


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_of_this_kind(kind):
    verdicts, _ = shared_pool().judge([(g, p) for g, p, _ in PAIRS[kind]])
    wrong = [(*row, v) for row, v in zip(PAIRS[kind], verdicts) if v is not row[2]]
    assert not wrong


@pytest.mark.parametrize("kind", PAIRS)
def test_golds_of_this_kind_equal_themselves_without_comparing_texts(kind):
    golds = [g for g, _, _ in PAIRS[kind]]
    verdicts, _ = shared_pool().judge([(g, g) for g in golds], string_path=False)
    assert [g for g, v in zip(golds, verdicts) if v is not True] == []


def test_order_of_gold_and_prediction_is_kept():
    assert is_equivalent("(0,1)", "0<x<1") is True
    assert is_equivalent("5", "x=5") is True
    assert is_equivalent("5 = 2a + b", "2a + b") is False


@pytest.mark.parametrize(
    "text, value",
    [
        ("7,425,000", 7425000), ("1 1/4", Fraction(5, 4)), (r"-2\frac{1}{2}", Fraction(-5, 2)),
        (r"1.2\times 10^{-3}", Fraction(12, 10000)), ("1e3", 1000), ("007", 7), ("−5", -5),
        (r"0.\overline{3}", Fraction(1, 3)), (r"0.1\overline{6}", Fraction(1, 6)),
        (r"\frac{-3}{4}", Fraction(-3, 4)), (".5", Fraction(1, 2)), (r"11,\!880", 11880),
        (r"{,}5", None), ("1,23", None), ("17+5", None), (r"2\frac{3}{2}", None), ("2^3", None),
        ("1/0", None), ("", None), ("-", None), ("1e999999999", None), (r"\pi", None),
        ("52_8", None), ("3 or 4", None), (r"3 \text{ (or 4)}", None),
    ],
)  # fmt: skip
def test_literals(text, value):
    literal = read_literal(text)
    assert literal is None if value is None else literal.value == value


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_written_fractions_are_read_exactly(a, b):
    assert read_literal(f"\\frac{{{a}}}{{{b}}}").value == Fraction(a, b)
    assert read_literal(f"{a}/{b}").value == Fraction(a, b)
    assert read_literal(f"{a:,}").value == a


@given(st.text(max_size=60))
@settings(max_examples=300)
def test_no_text_breaks_the_part_that_runs_in_the_main_process(text):
    clean(text), same_text(text, "x"), read_literal(text, label=True), looks_unevaluated(text)


@given(st.text(st.sampled_from("0123456789+-*/^()[]{}\\,.=<>|!_ xyi°±∪∞sqrtfacpi"), max_size=30))
@settings(max_examples=300, deadline=None)
def test_the_ladder_ends_in_a_verdict_or_too_big(text):
    try:
        assert equivalent("x^2+1", text) in (True, False)
    except TooBig:
        pass


@pytest.mark.parametrize(
    "text", [r"4\sqrt", r"4\foo{2}", "4 5", "(4", "4)", "4+", r"\frac{1}", "4?", "x^"]
)
def test_the_parser_drops_nothing(text):
    with pytest.raises(Unreadable):
        read(clean(text))


@pytest.mark.parametrize(
    "text",
    ["9^{9^{9^9}}", "((5!)!)!", r"\sin(10^{10^{10}})", "10^{10^{10}}-10^{10^{10}}+4",
     "exp(exp(exp(exp(9))))", "1e999999999", r"\binom{10^{12}}{10^{11}}!"],
)  # fmt: skip
def test_towers_give_no_verdict_without_being_computed(text):
    with pytest.raises(TooBig):
        trees_equal(read("4"), read(clean(text)))


def test_functions_are_compared_where_both_are_real():
    same = lambda a, b: trees_equal(read(clean(a)), read(clean(b)))  # noqa: E731
    assert same(r"\frac{1}{\sqrt{n}}", r"\sqrt{1/n}")
    assert same(r"\sqrt{a}\sqrt{b}", r"\sqrt{ab}")
    assert not same(r"\sqrt{x^2}", "x")
    assert not same(r"\lfloor 2n/5 \rfloor", r"\lfloor (2n-1)/5 \rfloor")


def test_control_and_direction_characters_are_no_answer():
    for text in ("4\x002", "\u202e24\u202c", "4\u200b2", "4\ud800"):
        assert is_equivalent("42", text) is False


@pytest.mark.parametrize(
    "text, yes",
    [("17+5", True), (r"7 \cdot 8", True), (r"\sqrt{4}", True), ("2^5", True), ("22", False),
     ("-22", False), ("22.5", False), (r"\frac{44}{2}", False), ("x+1", False), ("1, 2", False)],
)  # fmt: skip
def test_share_of_unevaluated_boxes_counts_arithmetic_only(text, yes):
    assert looks_unevaluated(text) is yes
