"""How much of the time of `rephrase.py` is not the server's.

    python benchmarks/rephrase.py [--questions 1000] [--concurrency 16] [--delay 0.05]

A stub server in its own process answers each request after `delay` seconds. The ideal time is
requests x delay / concurrency; what comes on top is the client, the checks and the disk. At most
1.5 x the ideal time is the aim.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--num", type=int, default=3)
    options = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "rephrase_server.py"), str(options.delay)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = server.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable, str(ROOT / "rephrase.py"), "--data", "arithmetic",
                "--limit", str(options.questions), "--num", str(options.num), "--model", "stub",
                "--base-url", f"http://127.0.0.1:{port}/v1",
                "--concurrency", str(options.concurrency), "--out", f"{folder}/out.jsonl",
            ]  # fmt: skip
            start = time.perf_counter()
            done = subprocess.run(
                command, env=os.environ | {"OPENAI_API_KEY": "stub"}, text=True,
                capture_output=True,
            )  # fmt: skip
            whole = time.perf_counter() - start
        print(done.stdout, done.stderr, sep="", end="")
        found = re.search(r"requests (\d+).* in ([\d.]+) s", done.stdout, re.DOTALL)
        if done.returncode or not found:
            return 1
        requests, asking = int(found[1]), float(found[2])
        ideal = requests * options.delay / options.concurrency
        print(f"ideal {ideal:.2f} s; asking {asking:.2f} s = {asking / ideal:.2f} x")
        print(f"with start and end {whole:.2f} s = {whole / ideal:.2f} x; the aim is 1.5 x")
        return 0
    finally:
        server.stdin.close()
        server.wait(10)


if __name__ == "__main__":
    sys.exit(main())
