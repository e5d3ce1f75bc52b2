"""Kill a run with -9 at random moments, resume it, and compare with a run left alone.

    python benchmarks/kill_and_resume.py --algo avspo --algo tagrpo --kills 20

Each round starts a run of the embedded model in its own process, kills it once (before the first
checkpoint, between two, while one is written, after the end: the moments are spread over the run's
length and a little beyond), resumes it, and compares metrics.csv, timing columns aside, with the
uninterrupted run's, and the final weights byte for byte.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from support.options import ALGORITHMS, OneLineParser, OptionError  # noqa: E402
from support.run_files import TIMING  # noqa: E402

OPTIONS = (
    "--prompts-per-step 8 --group-size 4 --num-rephrasings 1 --eval-questions 8 "
    "--eval-samples 1 --eval-every 4"
).split()


def command(algo: str, out: Path, *more: str, steps: int = 60, save_every: int = 5) -> list[str]:
    """Of a run of which training is about half, starting Python and loading the other."""
    return [sys.executable, str(ROOT / "train.py"), "--algo", algo, "--out", str(out), *OPTIONS,
            "--steps", str(steps), "--save-every", str(save_every), *more]  # fmt: skip


def outcome(out: Path) -> tuple[list, bytes]:
    """metrics.csv without timing, and the trained weights."""
    with (out / "metrics.csv").open() as file:
        rows = [[v for k, v in row.items() if k not in TIMING] for row in csv.DictReader(file)]
    return rows, (out / "model" / "model.safetensors").read_bytes()


def kill_once(algo: str, out: Path, after: float) -> str:
    """Starts a run, kills it after so many seconds, and says how far it had come."""
    process = subprocess.Popen(
        command(algo, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(timeout=after)
        return "after its end"
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    saved = sorted(p.name for p in out.glob("checkpoint/*"))
    metrics = out / "metrics.csv"
    steps = metrics.read_text().count("\n") - 1 if metrics.exists() else 0
    return f"at step {max(steps, 0)}, checkpoints {', '.join(saved) or 'none'}"


def main(argv: list[str] | None = None) -> int:
    """0 when all runs ended alike, 1 when not, 2 with one line for what the user can mend."""
    parser = OneLineParser(
        prog="kill_and_resume.py", description=__doc__.split("\n\n")[0], allow_abbrev=False
    )
    parser.add_argument("--algo", action="append", required=True, choices=ALGORITHMS)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    try:
        options = parser.parse_args(argv)
        if options.kills < 1:
            raise OptionError(f"--kills {options.kills}: must be 1 or more")
        return kill_all(options)
    except OptionError as error:
        print(f"kill_and_resume.py: error: {error}", file=sys.stderr)
        return 2


def kill_all(options: argparse.Namespace) -> int:
    """1 if some run ended otherwise. Raises OptionError when the run left alone fails."""
    rng, failures = random.Random(options.seed), 0
    for algo in options.algo:
        with tempfile.TemporaryDirectory() as place:
            whole = Path(place) / "whole"
            started = time.perf_counter()
            alone = subprocess.run(command(algo, whole), capture_output=True, text=True)
            if alone.returncode:
                said = alone.stderr.strip().rpartition("\n")[2]
                raise OptionError(f"{algo}: the run left alone failed ({said[-200:]})")
            length = time.perf_counter() - started
            expected = outcome(whole)
            print(f"{algo}: the run left alone took {length:.1f} s", flush=True)
            for kill in range(options.kills):
                out = Path(place) / f"kill-{kill}"
                # one moment in each equal part of the run and 10 % beyond it
                after = length * 1.1 * (kill + rng.random()) / options.kills
                where = kill_once(algo, out, after)
                done = subprocess.run(
                    command(algo, out, "--resume"), capture_output=True, text=True
                )
                same = done.returncode == 0 and outcome(out) == expected
                failures += not same
                verdict = "same" if same else f"DIFFERENT {done.stderr[-200:]}"
                print(f"{algo}: killed at {after:5.1f} s {where}: {verdict}", flush=True)
                shutil.rmtree(out, ignore_errors=True)
    print("all runs ended alike" if not failures else f"{failures} runs ended otherwise")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
