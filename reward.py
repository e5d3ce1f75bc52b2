r"""Is this completion right? 1.0, 0.0, or NaN where nobody can say.

1. The box. The last complete \boxed{...} or \fbox{...} is the answer; without one there is no
   reward. Tell the model in the prompt: one box, with all values in it (`\boxed{1, 2}`).
2. The exact path: equal texts, integers, decimals, fractions, without sympy or a process.
   When the gold is a plain number only an evaluated literal is paid (integer, decimal, fraction,
   mixed, scientific; a unit, a percent sign or a label such as `x =` may stand by it): 17+5 for 22
   earns 0, or the model learns to restate the question. 44/2 is a fraction, and paid.
3. The verdict. All else goes to support/equivalence.py, in a child process with a clock
   (support/verifier_process.py). No verdict is None here and NaN in the rewards, never a silent
   0 or 1: the trainer leaves such samples out of the group's mean and deviation.

Conventions: a percent sign is a unit (28% = 28), and 10% = 0.1 too; degrees and radians name the
same angle; order counts in a tuple, multiplicity in a list; 52_8 is not 52_9.
"""

from __future__ import annotations

import re
from collections import Counter

from support.answer_text import literals_equal, looks_unevaluated, read_literal, same_text
from support.verifier_process import check_golds, readable_golds, shared_pool  # noqa: F401

_TOKEN = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)  # \{ and \} count for nothing
_BESIDE = re.compile(r"(?:[\s$.,;:&]|\\[\s,;:!()\[\]\\]|\\q?quad|\\text\{[^{}]*\}|and|or)*")
_ECHO = re.compile(  # an empty box or a copied instruction; short, as the search is not linear
    r"(?=.{0,60}\Z)(?:\\text\w*\{)?[\s.…<\[(~]*"
    r"(?:\\[lc]?dots|your|the|my|final|answer|result|here|[\s_])*[\s.>\])]*\}?",
    re.IGNORECASE | re.DOTALL,
)
_report: Counter = Counter()


def extract_answer(completion: str) -> str | None:
    r"""The content of the last complete \boxed{} or \fbox{}, or None.

    None when there is no box, when the last one is empty, unclosed or a mere placeholder, when it
    stands inside a thinking tag that is never closed, or when a second, different box stands
    directly beside it (answers thrown at the grader).
    """
    start = completion.rfind("\\boxed{")
    if start >= 0 and completion.find("box") == start + 1 and "<" not in completion:
        end = completion.find("}", start)
        inner = completion[start + 7 : end]  # the common case: one box, no braces inside
        if end > 0 and "{" not in inner and "\\" not in inner:
            return inner.strip() if inner.isdecimal() or not _ECHO.fullmatch(inner) else None
    elif start < 0 and "box" not in completion:
        return None
    thinking = completion.find("<think", completion.rfind("</think") + 1)  # never closed
    completion = completion if thinking < 0 else completion[:thinking]
    boxes = _boxes(completion)
    if not boxes or boxes[-1][1] is None:
        return None
    answer = boxes[-1][2]
    for (_, end, before), (begin, _, _) in zip(boxes[-2::-1], boxes[::-1]):
        if not _BESIDE.fullmatch(completion, end, begin):
            break  # words stand between
        if before.split() != answer.split():
            return None
    if (nested := _boxes(answer)) and nested[-1][:2] == (0, len(answer)):
        answer = nested[-1][2]  # a box in a box
    return None if _ECHO.fullmatch(answer) else answer


def _boxes(text: str) -> list[tuple[int, int | None, str]]:
    """Outermost boxes as (start, end, content); a last one that is not closed has end None.

    One pass with a stack: 100 kB of braces cost no more than 100 kB of prose.
    """
    stack, found = [], []
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark[-1] == "{" and mark != "\\{":
            stack.append((token.start(), token.end(), len(mark) > 1))
        elif mark == "}" and stack:
            start, inside, is_box = stack.pop()
            if is_box:
                while found and found[-1][0] > start:
                    found.pop()  # it was inside this one
                found.append((start, token.end(), text[inside : token.start()].strip()))
    unclosed = [start for start, _, is_box in stack if is_box]
    if unclosed and (not found or unclosed[-1] > found[-1][0]):
        found.append((unclosed[-1], None, ""))
    return found


def _exact(gold: str, answer: str, paying: bool) -> bool | None:
    """The verdict where no algebra is needed, else None. paying: by the rule for plain numbers."""
    if gold == answer or not answer.strip():
        return bool(answer.strip())
    if gold.isdecimal() and answer.isdecimal():
        return gold.lstrip("0") == answer.lstrip("0")
    number = read_literal(gold)
    if number and (other := read_literal(answer, label=True)):
        return literals_equal(number, other)
    if paying and number and not (number.unit == "deg" and "pi" in answer):
        return False  # an expression, a word, a list: not an evaluated number
    return same_text(gold, answer) or None


def is_equivalent(gold: str, prediction: str) -> bool | None:
    """Do two answers, as they stand in a box, mean the same? None: no verdict. The order counts
    (the prediction may add a label); an unevaluated expression is equal to its value."""
    gold, prediction = str(gold), str(prediction)
    verdict = _exact(gold, prediction, paying=False)
    return shared_pool().judge([(gold, prediction)])[0][0] if verdict is None else verdict


def score(completions: list[str], golds: list[str], truncated: list[bool] | None = None) -> list:
    """Rewards of a batch in its order, as floats: 1.0, 0.0, or NaN for no verdict.

    truncated: which completions the length limit cut; they earn something only for a complete box
    with no other opened after it. Raises ValueError when lengths differ. A batch whose golds are
    plain numbers starts no process. `last_report()` tells what happened.
    """
    global _report
    cut = truncated or [False] * len(golds)
    if not len(completions) == len(golds) == len(cut):
        raise ValueError("completions, golds and truncated must have the same length")
    report = Counter(scored=len(completions), truncated=sum(map(bool, cut)))
    rewards, pending = [0.0] * len(completions), {}
    for i, (completion, gold) in enumerate(zip(completions, golds)):
        answer = extract_answer(completion)
        if answer is None:
            report["no_box"] += 1
        elif (verdict := _exact(gold, answer, paying=True)) is None:
            pending.setdefault((gold, answer), []).append(i)
        elif verdict:
            rewards[i] = 1.0
        elif not answer.isdecimal() and looks_unevaluated(answer) and read_literal(gold):
            report["unevaluated"] += 1
    for rows, verdict, why in zip(pending.values(), *shared_pool().judge(pending)):
        for i in rows:
            rewards[i] = float("nan") if verdict is None else float(verdict)
            report[why] += verdict is None
    _report = report
    return rewards


def math_reward(completion: str, gold: str) -> float:
    """`score` of one completion: 1.0 or 0.0; NaN for no verdict, which equals neither."""
    return score([completion], [gold])[0]


def last_report() -> dict[str, float]:
    """Counts of the last `score`; unevaluated: expressions given for a plain number."""
    names = "scored no_box truncated unevaluated timeouts crashes memory too_big".split()
    share = _report["unevaluated"] / max(1, _report["scored"])
    return {name: _report[name] for name in names} | {"unevaluated_share": share}
