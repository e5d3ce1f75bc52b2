"""Child processes: clocks, memory, order, restarts, threads; and golds checked once a file."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support import verifier_process
from support.verifier_process import VerifierPool, check_golds, readable_golds

ROOT = Path(__file__).resolve().parents[1]
HANGING = r"\sum_{k=1}^{99999} \frac{1}{k^3+k+1}"  # sympy adds these up for minutes

HOSTILE = {
    "power tower": "9^{9^{9^9}}",
    "tower of five": "10^{10^{10^{10^{10}}}}",
    "python tower": "9**9**9**9**9",
    "Math-Verify issue 65": r"\dfrac{5^{(5^{(5^{(5^5)})} - 4)} - 5}{16}",
    "tower of the question": "2003^{2002^{2001}}",
    "towers that cancel": "10^{10^{10}}-10^{10^{10}}+4",
    "tiny tower": "2^{-2^{-2^{9^9}}}",
    "imaginary tower": "i^{i^{i^{9^{9^9}}}}",
    "factorial of factorial": "(10!)!",
    "factorials": "((5!)!)!",
    "exclamation": "9!!!!!!!!",
    "factorial of a big number": "99999999999!",
    "binomial": r"\binom{\binom{99}{49}}{\binom{88}{44}}",
    "sine of a tower": r"\sin(10^{10^{10}})",
    "exponentials": "exp(exp(exp(exp(9))))",
    "root of a tower": r"\sqrt[10^{10^{10}}]{2}",
    "sum": HANGING,
    "sum of towers": r"\sum_{n=1}^{9^{9^{9}}} \left(10!\right)!^{n}",
    "product": r"\prod_{n=1}^{99999} n^n",
    "tower modulo": r"7^{7^{7^7}} \mod 10",
    "gcd of a tower": r"\gcd(10^{10^9},3)",
    "open braces": "{" * 100_000,
    "100 kB of braces": "{" * 50_000 + "}" * 50_000,
    "boxes": r"\boxed{" * 20_000,
    "parentheses": "(" * 30_000 + "4" + ")" * 30_000,
    "deep brackets": "[" * 500 + "1" + "]" * 500,
    "deep fractions": r"\frac{1}{1+" * 300 + "1" + "}" * 300,
    "deep roots": r"\sqrt{" * 200 + "2" + "}" * 200,
    "deep powers": "2^{" * 100 + "2" + "}" * 100,
    "minus signs": "-" * 50_000 + "4",
    "huge matrix": r"\begin{pmatrix}"
    + r"\\".join("&".join("1" * 300) for _ in range(300))
    + r"\end{pmatrix}",
    "matrix power": r"\begin{pmatrix}1&1\\1&0\end{pmatrix}^{10^{9}}",
    "NUL": "4\x002",
    "control characters": "".join(map(chr, range(1, 32))) + "4",
    "right-to-left": "\u202e24\u202c",
    "zero width": "4\u200b2",
    "lone surrogate": "4\ud800",
    "emoji": "\U0001f600" * 1000,
    "combining marks": "4" + "\u0301" * 5000,
    "arabic digits": "\u0664\u0662",
    "os.system": "__import__('os').system('touch PWNED')",
    "eval": "eval(compile('import os;os.system(\"touch PWNED\")','','exec'))",
    "write18": r"\immediate\write18{touch PWNED}",
    "subclasses": "(lambda: [x for x in ().__class__.__base__.__subclasses__()])()",
    "input": r"\input{/etc/passwd}",
    "endless macro": r"\def\x{\x\x}\x",
    "long integer": "7" * 90_000,
    "long decimal": "0." + "3" * 90_000,
    "huge exponent": "1e999999999",
    "many terms": "+".join(["x"] * 5000),
    "many commas": ",".join(["1"] * 20_000),
    "many signs": r"\pm 1" * 30,
    "units": "4 " + "cm " * 500 + "!",
    "dollars": "$" * 1000,
    "backslashes": "\\" * 9999,
    "equals signs": "=" * 5000,
    "comparisons": "<" * 5000,
    "unions": r"\cup" * 3000,
    "long tuple": "(" + ",".join(map(str, range(3000))) + ")",
    "bars": "|" * 4000,
    "expansion": "(x+y+z+w+1)^{500}",
    "mixed radicals": "+".join(rf"\sqrt{{{p}}}" for p in range(2, 400)),
    "division by zero": "1/0",
    "zero to the zero": "0^{0^{0}}",
    "logarithm of zero": r"\ln 0",
    "not a number": "nan",
}


@pytest.fixture(scope="module")
def pool():
    pool = VerifierPool(workers=2, limit_s=3)
    yield pool
    pool.close()


@pytest.mark.parametrize("gold", ["4", r"\sqrt{2}", "x^2+1"])
def test_hostile_strings_end_without_harm(pool, gold):
    assert len(HOSTILE) >= 40
    pool.judge([("x+1", "1+x"), ("x+2", "2+x")])  # workers up
    start = time.monotonic()
    verdicts, why = pool.judge([(gold, text) for text in HOSTILE.values()])
    # two strings run into the limit, two workers share them; the rest is fast
    assert time.monotonic() - start < 4 * pool.limit_s + 10
    assert not any(verdicts)
    assert all((v is None) == (w is not None) for v, w in zip(verdicts, why))
    assert pool.judge([("x+1", "1+x"), ("x+1", "x")])[0] == [True, False]
    assert not list(ROOT.rglob("PWNED")) and not Path("PWNED").exists()


def test_a_hang_costs_its_limit_and_no_other_verdict():
    pool = VerifierPool(workers=2, limit_s=1)
    pairs = [(f"{k}x", f"{k}*x") for k in range(2, 40)]
    pairs[5:5] = [("x+1", HANGING), ("y+1", HANGING)]
    pool.judge(pairs[:2])
    start = time.monotonic()
    verdicts, why = pool.judge(pairs)
    assert time.monotonic() - start < 8  # two limits at most, and two restarts
    assert verdicts == [True] * 5 + [None] * 2 + [True] * 33
    assert why.count("timeouts") == 2
    pool.close()


def test_time_in_the_queue_is_not_on_the_clock():
    pool = VerifierPool(workers=1, limit_s=1.5)
    verdicts, _ = pool.judge([(f"x+{k}", f"{k}+x") for k in range(3000)])
    assert verdicts == [True] * 3000
    pool.close()


def test_results_stay_in_input_order_and_equal_pairs_are_judged_once(pool):
    tasks = []
    run = pool._run
    pool._run = lambda jobs: tasks.extend(jobs) or run(jobs)
    pairs = [("x", "x"), ("x", "y"), ("2x", "x+x"), ("x", "y"), ("x", "x")]
    try:
        assert pool.judge(pairs)[0] == [True, False, True, False, True]
    finally:
        pool._run = run
    assert len(tasks) == 3


def test_verdicts_from_threads(pool):
    found = {}

    def work(k):
        found[k] = pool.judge([(f"{k}x", f"x*{k}"), (f"{k}x", "x+1000")])[0]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[k] == [True, False] for k in range(2, 8))


def test_a_worker_that_was_killed_is_replaced(pool):
    pool.judge([("x+1", "1+x")])
    for worker in pool.workers:
        worker.process.kill()
    time.sleep(0.2)
    assert pool.judge([("x+1", "1+x"), ("x+1", "x")])[0] == [True, False]


def test_too_little_memory_is_no_verdict():
    pytest.importorskip("resource")
    if sys.platform != "linux":
        pytest.skip("address space is limited on Linux only")
    pool = VerifierPool(workers=1, limit_s=30, memory_mb=300)
    # sympy builds these sums; math-verify swallows the MemoryError and would say False
    verdicts, why = pool.judge([("x+1", r"\sum_{k=1}^{99999} k^{k}"), ("x+1", "1+x")])
    pool.close()
    assert verdicts == [None, True]
    assert why[0] in ("memory", "crashes", "timeouts")


def test_the_child_works_from_any_folder_and_ends_with_its_input(tmp_path):
    (tmp_path / "support").mkdir()
    (tmp_path / "support" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import reward\n"
        "print(reward.is_equivalent('x+1', '1+x'))\n"
        "from support.verifier_process import shared_pool\n"
        "print(*[w.process.pid for w in shared_pool().workers])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    verdict, pids = done.stdout.split("\n")[:2]
    assert verdict == "True", done.stderr
    for pid in map(int, pids.split()):  # no worker outlives its parent
        with pytest.raises(OSError):
            for _ in range(50):
                os.kill(pid, 0)
                time.sleep(0.1)


def test_an_orphan_sees_the_end_of_its_input():
    child = subprocess.Popen(
        [sys.executable, "-m", "support.verifier_process"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert json.loads(child.stdout.readline()) == {"ready": True}
    child.stdin.close()
    assert child.wait(timeout=20) == 0
    child.stdout.close()


def test_a_pool_that_cannot_start_says_so(monkeypatch):
    monkeypatch.setattr(verifier_process, "ROOT", Path("/"))
    pool = VerifierPool(workers=1)
    with pytest.raises(RuntimeError, match="does not start"):
        pool.judge([("x", "y")])


# --- golds ------------------------------------------------------------------------------------

GOLDS = ["7", r"\frac{3}{4}", r"\sqrt{2}", r"\text{Even}", "(1,2)", r"\oops{", "7"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGRPO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_unreadable_golds_are_found(cache):
    assert readable_golds(GOLDS) == [True] * 5 + [False, True]
    assert not cache.exists()


def test_golds_are_judged_once_a_file(cache, monkeypatch):
    first = readable_golds(GOLDS, file_hash="abc")
    monkeypatch.setattr(verifier_process, "shared_pool", lambda: pytest.fail("judged again"))
    assert readable_golds(GOLDS, file_hash="abc") == first
    with pytest.raises(pytest.fail.Exception):
        readable_golds(GOLDS, file_hash="another file")


def test_a_damaged_cache_is_ignored_and_mended(cache):
    first = readable_golds(GOLDS, file_hash="abc")
    (file,) = cache.iterdir()
    for damage in ("", "{", "[1]", '{"x": 3}'):
        file.write_text(damage)
        assert readable_golds(GOLDS, file_hash="abc") == first
    assert len(json.loads(file.read_text())) >= 4 and len(list(cache.iterdir())) == 1


def test_a_cache_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TAGRPO_CACHE", str(tmp_path / "file" / "below"))
    assert readable_golds([r"\sqrt{2}"], file_hash="abc") == [True]


def test_unreadable_golds_are_listed_with_their_line(cache):
    keep, complaints = check_golds(["1"] * 40 + [r"\oops{"], lines=list(range(100, 141)))
    assert keep == [True] * 40 + [False]
    assert complaints == [r"line 140: the answer '\\oops{' cannot be judged, question left out"]


def test_more_than_5_percent_unreadable_golds_are_refused(cache):
    with pytest.raises(ValueError, match="2 of 22 answers cannot be judged"):
        check_golds(["1"] * 20 + [r"\oops{", r"\oops}"])
