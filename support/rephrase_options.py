"""The command line of `rephrase.py`: its options, checked before anything is asked, and the error
that ends a run with one line."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable


class RephraseError(ValueError):
    """What ends a run; the message is one line for the user."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise RephraseError(message)


def parse_options(argv: list[str] | None, kinds: Iterable[str]) -> argparse.Namespace:
    """The checked options. Raises RephraseError for the first wrong one."""
    kinds = list(kinds)
    parser = Parser(
        prog="rephrase.py",
        description="Get and check rephrasings of questions from any OpenAI-compatible server.",
        epilog="The key and, without --base-url, the address come from OPENAI_API_KEY and "
        "OPENAI_BASE_URL.",
    )
    add = parser.add_argument
    add("--data", required=True, help="arithmetic, a file of JSON lines, or a known name")
    add("--model", required=True, help="name of the model at the server")
    add("--out", required=True, help="file of JSON lines; what is in it is not asked again")
    add("--num", type=int, default=3, help=f"phrasings a question: {', '.join(kinds)} [3]")
    add("--base-url", help="address of the server, such as http://localhost:8000/v1")
    add("--concurrency", type=int, default=8, help="requests at once [8]")
    add("--limit", type=int, help="the first so many questions only")
    add("--seed", type=int, default=0, help="seed of --data arithmetic, as in train.py [0]")
    add("--timeout", type=float, default=120.0, help="longest wait for a reply, s [120]")
    add("--backoff", type=float, default=1.0, help="first wait before another try, s [1]")
    add("--max-cost", type=float, help="stop before the whole file has cost more; wants prices")
    add("--price-in", type=float, help="price of a million prompt tokens")
    add("--price-out", type=float, help="price of a million reply tokens")
    add("--verify-with", metavar="MODEL", help="drop phrasings whose answer this model changes")
    add("--verify-samples", type=int, default=3, help="its answers a phrasing [3]")
    add("--extra", default="{}", help="more fields of a request: '{\"temperature\": 0.7}'")
    cfg = parser.parse_args(argv)
    for name, low in (
        ("num", 1), ("concurrency", 1), ("limit", 1), ("verify_samples", 1), ("timeout", 0.01),
        ("backoff", 0), ("max_cost", 1e-9), ("price_in", 0), ("price_out", 0),
    ):  # fmt: skip
        value = getattr(cfg, name)
        if value is not None and not low <= value < math.inf:
            raise RephraseError(f"--{name.replace('_', '-')} {value}: must be at least {low:g}")
    if cfg.num > len(kinds):
        raise RephraseError(f"--num {cfg.num}: there are {len(kinds)} kinds ({', '.join(kinds)})")
    if (cfg.price_in is None) != (cfg.price_out is None):
        raise RephraseError("--price-in and --price-out go together")
    if cfg.max_cost and not (cfg.price_in or cfg.price_out):
        raise RephraseError("--max-cost needs --price-in and --price-out")
    if cfg.base_url and not re.match(r"https?://[^/]", cfg.base_url):
        raise RephraseError(f"--base-url {cfg.base_url}: must start with http:// or https://")
    try:
        cfg.extra = json.loads(cfg.extra)
    except ValueError:
        cfg.extra = None
    if not isinstance(cfg.extra, dict):
        raise RephraseError("--extra: must be a JSON object")
    return cfg
