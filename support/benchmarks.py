r"""Benchmarks by name, and how an answer is read off a completion, strictly and leniently.

Every benchmark can be taken from the hub, or from a local file of JSON lines with `question` and
`answer` (`--benchmark aime24=FILE.jsonl`), so that nothing here needs a network.

Two readers. `maths`: the box, judged by reward.py. `choice`: a letter; the options are shuffled by
a seed that depends on the question alone, so everybody sees the same order, and the letter of the
original set is of no use to a model that has seen it.

The lenient reader is for one purpose: a gain in strict accuracy with none in lenient accuracy is a
gain in format. It takes what stands in a box, else after '####', else after 'answer is', else the
last number. It is generous to guesses, and no reward for training.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import data
from data import DataError, Question, stable_seed
from reward import extract_answer, score

LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Benchmark:
    """Where a set is, and how it is read. `questions`: how many there should be."""

    hub_id: str
    config: str | None
    split: str
    question: str  # columns
    answer: str
    questions: int
    licence: str  # as far as known; its card decides, and problems belong to their authors
    reader: str = "maths"
    options: str = ""  # choice: the column of the options, or the prefix of the wrong ones


BENCHMARKS = {
    "math500": Benchmark(
        "HuggingFaceH4/MATH-500", None, "test", "problem", "answer", 500, "MIT (problems)"
    ),
    "gsm8k": Benchmark("openai/gsm8k", "main", "test", "question", "answer", 1319, "MIT"),
    "amc12": Benchmark(
        "AI-MO/aimo-validation-amc", None, "train", "problem", "answer", 83, "Apache-2.0; MAA"
    ),
    "amc23": Benchmark(
        "math-ai/amc23", None, "test", "question", "answer", 40, "not stated; MAA"
    ),
    "aime24": Benchmark(
        "HuggingFaceH4/aime_2024", None, "train", "problem", "answer", 30, "not stated; MAA"
    ),
    "aime25": Benchmark(
        "math-ai/aime25", None, "test", "problem", "answer", 30, "not stated; MAA"
    ),
    "olympiadbench": Benchmark(
        "Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train", "question", "final_answer", 674,
        "Apache-2.0",
    ),
    # physics among it: answers are compared as exactly as everywhere, without a tolerance
    "minerva": Benchmark(
        "math-ai/minervamath", None, "test", "question", "answer", 272,
        "MIT; problems CC BY-NC-SA",
    ),
    # gated: its authors ask not to show its questions in plain text online
    "gpqa_diamond": Benchmark(
        "Idavidrein/gpqa", "gpqa_diamond", "train", "Question", "Correct Answer", 198,
        "CC BY 4.0, gated", "choice", "Incorrect Answer ",
    ),
    "mmlu_pro": Benchmark(
        "TIGER-Lab/MMLU-Pro", None, "test", "question", "answer", 12032, "MIT", "choice", "options"
    ),
}  # fmt: skip
EMBEDDED = ("arithmetic", "one-step")


def table() -> str:
    """The benchmarks as text, for --help."""
    rows = [f"{'name':<14}{'hub id':<28}{'questions':>9}  {'read as':<8}licence"]
    rows += [
        f"{name:<14}{b.hub_id:<28}{b.questions:>9}  {b.reader:<8}{b.licence}"
        for name, b in BENCHMARKS.items()
    ]
    rows.append(f"{', '.join(EMBEDDED)}: embedded, offline; NAME=FILE.jsonl: NAME from a file")
    return "\n".join(rows)


def check_benchmark(argument: str) -> tuple[str, str | None]:
    """(name, file or None) of `NAME`, `FILE.jsonl` or `NAME=FILE.jsonl`. Raises DataError."""
    name, _, file = argument.partition("=")
    if name in BENCHMARKS and file:
        return name, file
    if argument in BENCHMARKS or argument in EMBEDDED:
        return argument, None
    if Path(argument).is_file() or argument.endswith((".jsonl", ".json")):
        return Path(argument).stem, argument
    known = ", ".join((*BENCHMARKS, *EMBEDDED))
    raise DataError(f"--benchmark {argument}: not a file of JSON lines, nor one of {known}")


def reader_of(name: str) -> str:
    return BENCHMARKS[name].reader if name in BENCHMARKS else "maths"


def load_benchmark(argument: str, at_most: int = 0) -> list[Question]:
    """The questions of a benchmark (the first `at_most`; 0: all). Raises DataError, one line."""
    name, file = check_benchmark(argument)
    if file:
        questions = data.read_jsonl(file)
    elif name in EMBEDDED:
        questions = _embedded(name, "test", at_most)
    else:
        questions = _from_hub(name)
    return questions[: at_most or None]


def load_data(name: str, at_most: int = 0, seed: int = 0) -> list[Question]:
    """Training questions as `train.py --data` takes them. Raises DataError."""
    if name in EMBEDDED:
        return _embedded(name, "train", at_most, seed)
    questions = data.load_named(name) if name in data.NAMED else data.read_jsonl(name)
    return questions[: at_most or None]


def _embedded(name: str, split: str, at_most: int, seed: int = 0) -> list[Question]:
    one_step = name == "one-step"  # it has not many more questions
    return data.arithmetic(split, at_most or (128 if one_step else 256), seed, one_step)


def _from_hub(name: str) -> list[Question]:
    from datasets import load_dataset

    b = BENCHMARKS[name]
    try:
        rows = list(load_dataset(b.hub_id, b.config, split=b.split))
    except Exception as error:  # no network, no such set, a gate, a broken cache: many types
        reason = " ".join(str(error).split())[:160]
        raise DataError(
            f"{name}: {b.hub_id} cannot be loaded ({reason}); offline, give {name}=FILE.jsonl"
        ) from None
    try:
        questions = [_read_row(b, row, f"{name}/{i}") for i, row in enumerate(rows)]
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f"{name}: {b.hub_id} has other columns than expected ({error})") from None
    if len(questions) != b.questions:
        print(f"{name}: {len(questions)} questions, {b.questions} were expected")
    return questions


def _read_row(b: Benchmark, row: dict, id: str) -> Question:
    if b.reader == "choice":
        if b.options in row:  # a list of options, and the letter of the right one
            options = list(row[b.options])
            right = LETTERS.index(row[b.answer])
        else:  # the right one and three wrong ones
            options = [row[b.answer], *(row[f"{b.options}{i}"] for i in (1, 2, 3))]
            right = 0
        return multiple_choice(row[b.question], options, right, id)
    answer = row[b.answer]
    if isinstance(answer, (list, tuple)):  # several values
        answer = ", ".join(map(str, answer))
    answer = data.final_answer(str(answer)) or str(answer)
    answer = answer.strip().strip("$")
    return Question(id, row[b.question], re.sub(r"^(-?\d+)\.0$", r"\1", answer))


def multiple_choice(question: str, options: Sequence[str], right: int, id: str = "") -> Question:
    """A question with its options below it, shuffled, and the letter of the right one as answer.

    The order depends on the text of the question only. Raises ValueError for an impossible `right`.
    """
    if not 0 <= right < len(options) <= len(LETTERS):
        raise ValueError(f"option {right} of {len(options)}")
    order = list(range(len(options)))
    random.Random(stable_seed("options", question)).shuffle(order)
    lines = [f"{letter}. {str(options[i]).strip()}" for letter, i in zip(LETTERS, order)]
    text = "\n".join([question.strip(), *lines, "Answer with the letter of the right option."])
    return Question(id, text, LETTERS[order.index(right)])


# ------------------------------------------------------------------------------- verdicts

_NUMBER = re.compile(r"(?<![\w.])-?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?!\w)")
_SAID = re.compile(
    r"answer(?:\s+is|:)[\s:*$\\(\[]*((?:(?!\.(?:\s|$))[^\n])+)", re.IGNORECASE
)  # up to the end of the sentence
_LETTER = re.compile(r"\s*\(?([A-J])\)?(?:[\s.:,)].*)?", re.DOTALL)


def lenient_answer(completion: str) -> str | None:
    """The box, else what follows '####', else what follows 'answer is', else the last number."""
    if (answer := extract_answer(completion)) is not None:
        return answer
    if "####" in completion and (rest := completion.rsplit("####", 1)[1].split("\n")[0].strip()):
        return rest.strip("$. ")
    if said := _SAID.findall(completion):
        phrase = said[-1].strip(" *$.\\)]}")
        # '12 dollars', 'that she has 12': the number; 'x + 1', '\\frac{1}{2}': as it stands
        numbers = (
            _NUMBER.findall(phrase) if re.search(r"(?<![\\A-Za-z])[A-Za-z]{3}", phrase) else []
        )
        if phrase and not numbers:
            return phrase.replace("$", "")
        numbers = numbers[:1]
    else:
        numbers = _NUMBER.findall(completion)[-1:]
    return numbers[0].replace(",", "").replace("$", "") if numbers else None


def letter_of(answer: str | None) -> str | None:
    r"""'B' of 'B', '(B)', '\text{B}', 'B. 42'; None for anything else."""
    if answer is None:
        return None
    bare = re.sub(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}", r"\1", answer)
    match = _LETTER.fullmatch(bare.replace("$", ""))
    return match.group(1) if match else None


def judge(
    reader: str, completions: list[str], golds: list[str], truncated: list[bool]
) -> tuple[list[float], list[float], list[bool]]:
    """(strict rewards, lenient rewards, has a box) of completions. NaN: no verdict."""
    boxed = [extract_answer(c) is not None for c in completions]
    found = [lenient_answer(c) for c in completions]
    if reader == "choice":
        strict = [float(letter_of(extract_answer(c)) == g) for c, g in zip(completions, golds)]
        lenient = [float(letter_of(answer) == g) for answer, g in zip(found, golds)]
    else:
        strict = score(completions, golds, truncated)
        lenient = score([f"\\boxed{{{answer or ''}}}" for answer in found], golds)
    return strict, [max(s, x) if s == s else x for s, x in zip(strict, lenient)], boxed
