"""The embedded task and question files."""

import json
import random
from collections import Counter

import pytest

from data import (
    LARGEST,
    DataError,
    Problem,
    Question,
    arithmetic,
    draw_problem,
    draw_questions,
    number_words,
    read_jsonl,
    split_held_out,
)


def problem_of(question):
    return question.id.rsplit("/", 1)[0]


def test_no_problem_is_in_both_splits_whatever_its_wording():
    for seed in range(3):
        train, test = arithmetic("train", 2048, seed), arithmetic("test", 512, seed)
        assert not {problem_of(q) for q in train} & {problem_of(q) for q in test}
        assert len({q.question for q in train}) == 2048
        assert len({q.question for q in test}) == 512


def test_asking_for_more_questions_than_there_are_ends_in_an_error_not_a_hang():
    with pytest.raises(DataError, match="try fewer"):
        arithmetic("test", 100_000)
    assert len(arithmetic("train", 2048, one_step=True)) == 2048


def test_same_seed_same_questions_other_seed_others():
    assert arithmetic("train", 50, 1) == arithmetic("train", 50, 1)
    assert arithmetic("train", 50, 1) != arithmetic("train", 50, 2)


def test_answers_are_those_of_the_numbers():
    """By the operation's name and by Python, over many drawn problems."""
    rng, seen = random.Random(0), Counter()
    for _ in range(500):
        p = draw_problem(rng)
        seen[p.kind] += 1
        sign = {"add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}"}
        text = sign.get(p.kind, "{} + {} - {}").format(*p.numbers)
        assert p.phrasings()[0] == f"What is {text}?"
        a, b, *c = p.numbers
        expected = {"add": a + b, "subtract": a - b, "multiply": a * b}.get(p.kind)
        assert p.answer == (a + b - c[0] if expected is None else expected)
        assert p.answer >= 0
    assert set(seen) == set(LARGEST) and min(seen.values()) > 80


def test_each_question_has_five_other_phrasings_in_words_symbols_and_other_order():
    symbols, words, givens, command, story, asked_first = Problem("subtract", (42, 17)).phrasings()
    assert symbols == "What is 42 - 17?"
    assert words == "What is forty-two minus seventeen?"
    assert "x = 42, y = 17" in givens
    assert command == "Subtract 17 from 42."  # the second number comes first
    assert story.index("42") < story.index("17") and asked_first.index("17") < asked_first.index(
        "42"
    )
    for q in arithmetic("train", 200):
        assert len({q.question, *q.rephrasings}) == 6


def test_any_phrasing_can_be_the_original():
    shapes = Counter(q.question.split()[0] for q in arithmetic("train", 1000))
    assert {"What", "Given:", "How"} <= set(shapes)
    share = sum(q.question.startswith("Given") for q in arithmetic("train", 1000)) / 1000
    assert 0.1 < share < 0.24  # one in six


@pytest.mark.parametrize(
    "n, text",
    [(0, "zero"), (13, "thirteen"), (40, "forty"), (42, "forty-two"), (100, "one hundred"),
     (144, "one hundred forty-four")],
)  # fmt: skip
def test_number_words(n, text):
    assert number_words(n) == text


def write(tmp_path, text):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_of_questions_is_read_with_answers_as_text(tmp_path):
    rows = [
        {"question": "What is 1 + 1?", "answer": 2},
        {"question": "Half?", "answer": "\\frac{1}{2}", "id": "x", "rephrasings": ["a", "b"]},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)) + "\n\n")
    assert read_jsonl(path) == [
        Question("1", "What is 1 + 1?", "2"),
        Question("x", "Half?", "\\frac{1}{2}", ("a", "b")),
    ]


def test_a_line_separator_inside_a_text_does_not_split_the_line(tmp_path):
    line = json.dumps({"question": "a\u2028b", "answer": "1"}, ensure_ascii=False)
    assert read_jsonl(write(tmp_path, line))[0].question == "a\u2028b"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "no questions"),
        ("\n\n", "no questions"),
        ('{"question": "q", "answer": "1"}\n{oops', "line 2: not JSON"),
        ('{"question": "q"}', "line 1: lacks 'answer'"),
        ('{"problem": "q", "solution": "1"}', "lacks 'question' (found 'problem', 'solution')"),
        ('["q", "1"]', "line 1: expected an object"),
        ('{"question": " ", "answer": "1"}', "line 1: 'question'"),
        ('{"question": "q", "answer": ""}', "line 1: 'answer' is empty"),
        ('{"question": "q", "answer": null}', "line 1: 'answer' must be"),
        ('{"question": "q", "answer": true}', "line 1: 'answer' must be"),
        ('{"question": "q", "answer": "1", "rephrasings": "r"}', "'rephrasings' must be"),
        ('{"question": "q", "answer": NaN}', "not a finite number"),
        ('{"question": "q", "answer": 1e999}', "not a finite number"),
        ('{"question": "q\\ud800", "answer": "1"}', "half a character"),
        (b"\xff\xfe\x00", "cannot be read as UTF-8"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_its_line_number(tmp_path, text, said):
    with pytest.raises(DataError) as caught:
        read_jsonl(write(tmp_path, text))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_jsonl(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match="folder"):
        read_jsonl(tmp_path)


def test_questions_do_not_repeat_within_a_step_or_an_epoch():
    questions = [Question(str(i), f"q{i}", "0") for i in range(50)]
    for epoch in range(3):
        drawn = [
            q.id for step in range(1, 4) for q in draw_questions(questions, 7, 3 * epoch + step, 16)
        ]
        assert len(drawn) == len(set(drawn)) == 48


def test_a_steps_questions_depend_on_seed_and_step_only():
    questions = [Question(str(i), f"q{i}", "0") for i in range(50)]
    later = draw_questions(questions, 0, 30, 8)
    assert draw_questions(questions, 0, 30, 8) == later
    assert draw_questions(questions, 0, 31, 8) != later
    assert draw_questions(questions, 1, 30, 8) != later


def test_fewer_questions_than_a_step_needs_are_used_again():
    questions = [Question(str(i), f"q{i}", "0") for i in range(3)]
    drawn = Counter(q.id for q in draw_questions(questions, 0, 5, 8))
    assert sum(drawn.values()) == 8 and set(drawn.values()) == {2, 3}


def test_held_out_questions_are_not_trained_on_even_when_a_text_comes_twice():
    questions = [Question(str(i), f"q{i % 40}", "0") for i in range(80)]
    train, held_out = split_held_out(questions, 0, at_most=100)
    assert len({q.question for q in held_out}) == 4
    assert not {q.question for q in train} & {q.question for q in held_out}
    assert len(train) + len(held_out) == 80
    with pytest.raises(DataError, match="--eval-data"):
        split_held_out(questions[:1], 0, at_most=10)
