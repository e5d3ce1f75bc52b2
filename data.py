"""Questions with checkable answers: an embedded arithmetic task, or any JSON-lines file.

A reader should take away two things. A question is a text, a gold answer and, for TA-GRPO, other
phrasings of the same text; nothing else of it reaches the trainer. And which questions a step sees
is a function of (seed, step) alone, so every algorithm trains on the same ones and a resumed run
goes on where it stopped.

The embedded task is made for seeing advantage collapse on a laptop: sums, differences, products
and three-number chains, each in six phrasings that differ in wording, in format (digits, number
words, a list of givens) and in the order of the information. The embedded model
(`support/tiny/`) is fluent in some of the phrasings and clumsy in others, so that groups are
often all right or all wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path

NUM_PHRASINGS = 6

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_NAMES = ("Ana", "Ben", "Mia", "Tom")
_THINGS = ("apples", "books", "coins", "shells")


class DataError(ValueError):
    """A question source that cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class Question:
    """One question. `rephrasings` say the same in other words; they may be empty."""

    id: str
    question: str
    answer: str
    rephrasings: tuple[str, ...] = ()
    level: str | int | None = None
    subject: str | None = None


def stable_seed(*parts: object) -> int:
    """A 63-bit seed from any printable parts: the same on every machine and Python version."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


# ---------------------------------------------------------------- the embedded task


def number_words(n: int) -> str:
    """0 … 999 in English: 42 -> 'forty-two'."""
    if n >= 100:
        rest = f" {number_words(n % 100)}" if n % 100 else ""
        return f"{_ONES[n // 100]} hundred{rest}"
    if n < 20:
        return _ONES[n]
    return _TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else "")


@dataclass(frozen=True)
class Problem:
    """The arithmetic under a question: a kind and its numbers, without any wording."""

    kind: str
    numbers: tuple[int, ...]

    @property
    def answer(self) -> int:
        a, b, *rest = self.numbers
        if self.kind == "add":
            return a + b
        if self.kind == "subtract":
            return a - b
        if self.kind == "multiply":
            return a * b
        return a + b - rest[0]

    def phrasings(self) -> tuple[str, ...]:
        """The six phrasings, always in the same order:
        symbols, number words, list of givens, command, story, story with the question first."""
        a, b, *rest = self.numbers
        pick = random.Random(stable_seed(self.kind, self.numbers))
        who, what = pick.choice(_NAMES), pick.choice(_THINGS)
        A, B, *R = map(number_words, self.numbers)
        if self.kind == "add":
            return (
                f"What is {a} + {b}?",
                f"What is {A} plus {B}?",
                f"Given: x = {a}, y = {b}. Find x + y.",
                f"Add {b} to {a}.",
                f"{who} has {a} {what} and gets {b} more. How many {what} does {who} have now?",
                f"How many {what} does {who} have after getting {b} more, if there were {a}?",
            )
        if self.kind == "subtract":
            return (
                f"What is {a} - {b}?",
                f"What is {A} minus {B}?",
                f"Given: x = {a}, y = {b}. Find x - y.",
                f"Subtract {b} from {a}.",
                f"{who} has {a} {what} and loses {b}. How many {what} does {who} have now?",
                f"How many {what} does {who} have after losing {b}, if there were {a}?",
            )
        if self.kind == "multiply":
            return (
                f"What is {a} * {b}?",
                f"What is {A} times {B}?",
                f"Given: x = {a}, y = {b}. Find x * y.",
                f"Multiply {b} by {a}.",
                f"{who} has {a} bags of {b} {what}. How many {what} does {who} have now?",
                f"How many {what} does {who} have in bags of {b}, if there were {a} bags?",
            )
        c, C = rest[0], R[0]
        return (
            f"What is {a} + {b} - {c}?",
            f"What is {A} plus {B} minus {C}?",
            f"Given: x = {a}, y = {b}, z = {c}. Find x + y - z.",
            f"Subtract {c} from the sum of {b} and {a}.",
            f"{who} has {a} {what}, gets {b} more and loses {c}. "
            f"How many {what} does {who} have now?",
            f"How many {what} does {who} have after getting {b} more and losing {c}, "
            f"if there were {a}?",
        )


# the largest number of a problem, at each of three difficulties
LARGEST = {"add": (6, 10, 15), "subtract": (6, 10, 15), "multiply": (5, 9, 12), "chain": (3, 6, 9)}
LARGEST_ONE_STEP = {"add": (9, 20, 50), "subtract": (9, 20, 50)}


def draw_problem(rng: random.Random, largest: dict[str, tuple[int, ...]] = LARGEST) -> Problem:
    """One problem: the kinds alike often, at one of three difficulties each."""
    kind, level = rng.choice(list(largest)), rng.randint(1, 3)
    top = largest[kind][level - 1]
    a, b = rng.randint(1, top), rng.randint(1, top)
    if kind == "subtract":
        a, b = max(a, b), min(a, b)
    if kind == "chain":
        return Problem(kind, (a, b, rng.randint(1, min(top, a + b))))
    return Problem(kind, (a, b))


def is_held_out(problem: Problem, seed: int) -> bool:
    """One problem in five is held out, by a hash: the two sides cannot meet for a seed."""
    return stable_seed("split", seed, problem) % 5 == 0


def arithmetic(split: str, count: int, seed: int = 0, one_step: bool = False) -> list[Question]:
    """`count` different questions of the embedded task; `split` is 'train' or 'test'.

    No problem (numbers and operation, in whatever wording) is in both splits of a seed. Which of
    the phrasings is the original is drawn at random; the others follow in random order.
    one_step: sums and differences only, asked in symbols or as a story (for SmolLM2). Raises
    DataError when the task has not so many questions.
    """
    rng = random.Random(stable_seed("arithmetic", split, seed))
    questions: dict[str, Question] = {}
    misses = 0
    while misses < 20_000:
        misses += 1
        problem = draw_problem(rng, LARGEST_ONE_STEP if one_step else LARGEST)
        first, *others = rng.sample(problem.phrasings(), NUM_PHRASINGS)
        if one_step and first not in (problem.phrasings()[0], problem.phrasings()[4]):
            continue
        if first not in questions and is_held_out(problem, seed) == (split == "test"):
            name = f"{problem.kind}/{'-'.join(map(str, problem.numbers))}/{len(questions)}"
            questions[first] = Question(name, first, str(problem.answer), tuple(others))
            misses = 0
        if len(questions) == count:
            return list(questions.values())
    raise DataError(f"the embedded task has no {count} different questions; try fewer")


# ---------------------------------------------------------------- files


def read_text(path: Path) -> str:
    """A file the user named, as UTF-8 text. Raises DataError, one line."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from None


def read_jsonl(path: str | Path) -> list[Question]:
    """Questions from JSON lines with `question`, `answer`, optionally `id` and `rephrasings`.

    Answers are kept as text. Raises DataError with the line number for what cannot be used.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; --data takes a file of JSON lines")
    text = read_text(path)
    # split("\n"), not splitlines(): U+2028 and its kin may stand inside a JSON string
    questions = [
        _parse_line(line, f"{path}, line {number}", str(number))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not questions:
        raise DataError(f"{path}: holds no questions")
    return questions


def _parse_line(line: str, where: str, default_id: str) -> Question:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from None
    except RecursionError:
        raise DataError(f"{where}: JSON nested too deep") from None
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: holds half a character (a lone surrogate)") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object with 'question' and 'answer'")
    for key in ("question", "answer"):
        if key not in row:
            found = ", ".join(map(repr, row)) or "no fields"
            raise DataError(f"{where}: lacks '{key}' (found {found})")
    question, answer = row["question"], row["answer"]
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{where}: 'question' must be a text that is not empty")
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        raise DataError(f"{where}: 'answer' must be a text or a number")
    if not str(answer).strip():
        raise DataError(f"{where}: 'answer' is empty")
    if isinstance(answer, float) and not math.isfinite(answer):
        raise DataError(f"{where}: 'answer' is not a finite number")
    rephrasings = row.get("rephrasings") or []
    if not isinstance(rephrasings, list) or not all(
        isinstance(r, str) and r.strip() for r in rephrasings
    ):
        raise DataError(f"{where}: 'rephrasings' must be a list of texts that are not empty")
    return Question(
        default_id if row.get("id") is None else str(row["id"]),
        question,
        str(answer).strip(),
        tuple(rephrasings),
        row.get("level"),
        row.get("subject"),
    )


# name -> (hub id, configuration, columns of question, answer, level, subject)
NAMED = {
    "gsm8k": ("openai/gsm8k", "main", ("question", "answer", None, None)),
    "math": (
        "DigitalLearningGmbH/MATH-lighteval",
        "default",
        ("problem", "solution", "level", "type"),
    ),
}


def final_answer(solution: str) -> str | None:
    """The answer of a worked solution: what follows `####`, else its boxes, joined by ', '.

    Several boxes are several values (MATH: 'list the points'), but a box that says again what one
    before it said, or whose question wants one of two, cannot be told apart by a rule.
    """
    if "####" in solution:
        return solution.rsplit("####", 1)[1].strip().replace(",", "") or None
    boxes = []
    for start in re.finditer(r"\\f?boxed *(?=[{\d])|\\fbox *(?={)", solution):
        rest, depth = solution[start.end() :], 0
        if rest[0] != "{":  # \boxed 5
            boxes.append(rest.split()[0].rstrip("$.,"))
            continue
        for i, character in enumerate(rest):
            if rest[i - 1 : i] == "\\":
                continue
            depth += (character == "{") - (character == "}")
            if depth == 0:
                boxes.append(rest[1:i].strip())
                break
    boxes = [box for box in dict.fromkeys(boxes) if box]
    return ", ".join(boxes) or None


def load_named(name: str, split: str = "train") -> list[Question]:
    """GSM8K or MATH from the hub through `datasets`. Raises DataError, one line, when offline and
    not cached. Questions whose solution has no answer are left out."""
    from datasets import load_dataset

    if name not in NAMED:
        raise DataError(f"{name}: not known; one of {', '.join(NAMED)}, or a file of JSON lines")
    hub_id, configuration, (question, answer, level, subject) = NAMED[name]
    try:
        rows = load_dataset(hub_id, configuration, split=split)
    except Exception as error:  # no network, no such set, a broken cache: many types
        reason = " ".join(str(error).split())[:160]
        raise DataError(
            f"{name}: cannot be loaded from the hub ({reason}); offline, give --data FILE.jsonl"
        ) from None
    questions = []
    for i, row in enumerate(rows):
        if (gold := final_answer(row[answer])) is not None:
            known = {"level": level and row[level], "subject": subject and row[subject]}
            questions.append(Question(f"{name}/{split}/{i}", row[question], gold, **known))
    return questions


def select(questions: list[Question], levels: str = "", subjects: str = "") -> list[Question]:
    """Those of the given levels and subjects: comma-separated, '' for all. Level 'Level 3' is '3'.

    Raises DataError when none is left, naming what there is.
    """
    for wanted, key in ((levels, "level"), (subjects, "subject")):
        if wanted:
            names = {part.strip().lower() for part in wanted.split(",")}
            there = {str(getattr(q, key)).lower().removeprefix("level ") for q in questions}
            questions = [
                q for q in questions if str(getattr(q, key)).lower().removeprefix("level ") in names
            ]
            if not questions:
                raise DataError(f"--{key} {wanted}: none; there are {', '.join(sorted(there))}")
    return questions


def split_held_out(
    questions: list[Question], seed: int, at_most: int
) -> tuple[list[Question], list[Question]]:
    """(training, held-out): a tenth of the questions, at most `at_most`, drawn at random.

    Equal question texts stay on one side. Raises DataError when nothing is left to train on.
    """
    texts = sorted({q.question for q in questions})
    random.Random(stable_seed("held out", seed)).shuffle(texts)
    aside = set(texts[: min(at_most, max(1, len(texts) // 10))])
    train = [q for q in questions if q.question not in aside]
    if not train:
        raise DataError("only one question: give held-out ones with --eval-data FILE")
    return train, [q for q in questions if q.question in aside]


# ---------------------------------------------------------------- which questions, when


def draw_questions(questions: list[Question], seed: int, step: int, count: int) -> list[Question]:
    """The questions of a step (step = 1, 2, …): epoch after epoch, each in its own random order.

    A function of (seed, step) only. No question comes twice in a step or an epoch, unless there
    are fewer questions than `count`; what does not fill a step at an epoch's end waits for the
    next epoch's shuffle.
    """
    n = len(questions)
    epoch, part = divmod(step - 1, max(1, n // count))
    order = list(range(n))
    random.Random(stable_seed("order", seed, epoch)).shuffle(order)
    return [questions[order[i % n]] for i in range(part * count, (part + 1) * count)]
