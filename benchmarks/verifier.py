r"""How right and how fast the verifier is on real question sets.

    python benchmarks/verifier.py --data FOLDER [--only golds,unequal,integers,mixed,hang]

FOLDER holds JSON lines files with an `answer` (the final answer only); files named *mmlu* are
left out (their answers are letters). Parts:

- golds     every gold equals itself with the string path off, and equals rewritings of itself
- unequal   random pairs of golds of math_train.jsonl that differ numerically at 30 digits are
            called unequal; pairs without a number are left out and counted
- integers  verdicts a second on plain integers
- mixed     a batch of 1,024 MATH pairs against math-verify one by one in this process
- hang      what 5 hanging strings among 512 cost
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import reward
from support.answer_text import clean
from support.verifier_process import VerifierPool, shared_pool

HANGING = r"\sum_{k=1}^{99999} \frac{1}{k^3+k+1}"


def golds_of(folder: Path) -> dict[str, list[str]]:
    """File name -> answers, in file order."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        if "mmlu" not in path.name:
            with path.open(encoding="utf-8") as lines:  # splitlines would cut at U+2028
                found[path.name] = [str(json.loads(line)["answer"]) for line in lines]
    return found


def rewritings(gold: str) -> list[str]:
    r"""The same answer in another dress: \dfrac, spacing, \left ... \right."""
    plain = "\\frac" in gold
    dfrac = gold.replace("\\frac", "\\dfrac") if plain else gold.replace("dfrac", "frac")
    spaced = re.sub(r"(?<![\\a-zA-Z]) *([+=]) *", r" \1 ", gold).replace(", ", ",\\, ")
    sized = gold
    if not re.search(r"\\(?:left|right|big)|\\\{|\\\}|begin|text|[\[\]]", gold):
        sized = gold.replace("(", "\\left(").replace(")", "\\right)")
    return [dfrac, spaced, sized, f" {gold} ", f"${gold}$" if "$" not in gold else gold]


def check_golds(files: dict[str, list[str]]) -> None:
    for name, golds in files.items():
        unique = list(dict.fromkeys(golds))
        start = time.time()
        itself, why = shared_pool().judge([(g, g) for g in unique], string_path=False)
        pairs = [(g, r) for g in unique for r in rewritings(g)]
        other, why_other = shared_pool().judge(pairs, string_path=False)
        wrong = [(g, w) for g, v, w in zip(unique, itself, why) if v is not True]
        wrong_other = [(*p, w) for p, v, w in zip(pairs, other, why_other) if v is not True]
        print(
            f"{name}: {len(golds)} golds, {len(unique)} different; not equal to themselves "
            f"{len(wrong)}; {len(pairs)} rewritings, not equal {len(wrong_other)}"
            f" ({time.time() - start:.1f} s)"
        )
        for row in wrong + wrong_other[:20]:
            print("   ", *row, sep="  |  ")


def number(gold: str):
    """The gold as a number at 50 digits by math-verify and sympy, or None."""
    from math_verify import parse
    from sympy import Expr

    parsed = parse(f"$\\boxed{{{gold}}}$", parsing_timeout=None)
    try:
        value = parsed[0].doit() if parsed and isinstance(parsed[0], Expr) else None
        return value.evalf(50) if value is not None and value.is_number else None
    except Exception:
        return None


def check_unequal(files: dict[str, list[str]], wanted: int = 2000) -> None:
    golds, draw = files["math_train.jsonl"], random.Random(0)
    values, pairs, left_out, equal = {}, [], 0, 0
    while len(pairs) < wanted:
        pair = tuple(draw.sample(golds, 2))
        a, b = (values.setdefault(g, number(g)) if g not in values else values[g] for g in pair)
        if a is None or b is None:
            left_out += 1
        elif abs(a - b) <= abs(a) * 10**-30:
            equal += 1
        else:
            pairs.append(pair)
    verdicts, why = shared_pool().judge(pairs, string_path=False)
    counts = Counter(verdicts)
    print(
        f"unequal: {counts[False]} of {wanted} called unequal ({counts[False] / wanted:.4%}), "
        f"equal {counts[True]}, no verdict {counts[None]}; left out: {left_out} without a number, "
        f"{equal} equal"
    )
    for (g, p), v, w in zip(pairs, verdicts, why):
        if v is not False:
            print("    called", v, w, g, p, sep="  |  ")


def time_integers(count: int = 200_000) -> None:
    draw = random.Random(0)
    golds = [str(draw.randrange(-999, 10_000)) for _ in range(count)]
    completions = [
        f"{a} it is, so the answer is \\boxed{{{g if draw.random() < 0.5 else a}}}."
        for g, a in zip(golds, golds[1:] + golds[:1])
    ]
    start = time.perf_counter()
    reward.score(completions, golds)
    print(f"integers: {count / (time.perf_counter() - start):,.0f} verdicts a second")


def time_mixed(files: dict[str, list[str]], count: int = 1024) -> None:
    from math_verify import parse, verify

    golds, draw = files["math_train.jsonl"], random.Random(1)
    picked = [draw.choice(golds) for _ in range(count)]
    # Half right in another dress, half another question's answer
    answers = [rewritings(g)[0] if draw.random() < 0.5 else draw.choice(golds) for g in picked]
    reward.score(["\\boxed{x+1}"], ["x+2"])  # workers up
    clean.cache_clear()
    start = time.perf_counter()
    reward.score([f"\\boxed{{{a}}}" for a in answers], picked)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    for gold, answer in zip(picked, answers):
        verify(*(parse(f"$\\boxed{{{s}}}$") for s in (gold, answer)))
    theirs = time.perf_counter() - start
    print(f"mixed: {count} pairs {ours:.2f} s, math-verify {theirs:.2f} s: {theirs / ours:.1f} x")


def time_hang(limit_s: float = 2.0) -> None:
    plain = [(f"\\sqrt{{{k}}}", f"\\sqrt{{{k + k % 2}}}") for k in range(2, 509)]
    for workers in (1, 2, 4):
        pool = VerifierPool(workers, limit_s)
        pool.judge(plain[:workers])
        start = time.perf_counter()
        pool.judge(plain)
        without = time.perf_counter() - start
        pairs = list(plain)
        for k in range(5):
            pairs.insert(100 * k, (f"\\frac{{{k}}}{{x}}", f"{HANGING}+{k}"))
        start = time.perf_counter()
        verdicts, why = pool.judge(pairs)
        cost = time.perf_counter() - start - without
        pool.close()
        print(
            f"hang: W = {workers}, limit {limit_s} s: 5 hanging among 512 cost {cost:.1f} s more "
            f"({math.ceil(5 / workers)} limits are {math.ceil(5 / workers) * limit_s:.0f} s); "
            f"{why.count('timeouts')} timeouts, {verdicts.count(None)} without a verdict"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of JSON lines files")
    parser.add_argument("--only", default="golds,unequal,integers,mixed,hang", help="parts to run")
    options = parser.parse_args()
    files = golds_of(options.data)
    parts = options.only.split(",")
    if "golds" in parts:
        check_golds(files)
    if "unequal" in parts:
        check_unequal(files)
    if "integers" in parts:
        time_integers()
    if "mixed" in parts:
        time_mixed(files)
    if "hang" in parts:
        time_hang()


if __name__ == "__main__":
    main()
