"""The options of evaluate.py and its commands, checked before anything expensive."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from support import benchmarks, setup
from support.options import OneLineParser, OptionError, flag_of
from support.policy import check_model_name

COMMANDS = {
    "": "Measure a model on benchmarks.",
    "compare": "Compare evaluations question by question, or runs.",
    "collapse": "Which groups carried no gradient, or will carry none.",
    "select": "Choose questions by difficulty.",
    "inspect": "What rephrasings do to success and to collapse.",
}


def parse_options(argv: list[str]) -> argparse.Namespace:
    """The checked options; `command` is '' for benchmarks. Raises OptionError or PolicyError."""
    command = argv[0] if argv and argv[0] in COMMANDS else ""
    cfg = _parser(command).parse_args(argv[1:] if command else argv)
    _check(cfg, command)
    cfg.command = command
    return cfg


def _sampling_options(parser: argparse.ArgumentParser, samples: int, temperature: float) -> None:
    add = parser.add_argument
    add("--model", default="", help="tiny (embedded), a folder, or a hub id")
    add("--samples", type=int, default=samples, help=f"completions a question [{samples}]")
    add("--temperature", type=float, default=temperature, help=f"0: greedy [{temperature:g}]")
    add(
        "--max-new-tokens",
        type=int,
        help="longest completion [tiny, trained or not, 16; else 1024]",
    )
    add("--max-questions", type=int, default=0, help="the first so many; 0: all (embedded: 256)")
    add("--seed", type=int, default=0, help="of the samples [0]")
    add("--batch-rows", type=int, default=256, help="completions sampled at once [256]")
    add("--examples", type=int, default=0, help="worked examples before each question, 0 to 3 [0]")
    add("--thinking", action="store_true", help="let models think that have such a mode")
    add("--device", default="auto", help="auto, cpu, cuda or mps")
    add("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    add("--overwrite", action="store_true", help="start again instead of going on")


def _parser(command: str) -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=f"evaluate.py {command}".strip(),
        description=COMMANDS[command],
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    if command == "":
        _sampling_options(parser, 32, 0.7)
        add("--benchmark", nargs="+", required=True, help="NAME, FILE.jsonl, or NAME=FILE.jsonl")
        add("--k", type=int, nargs="+", help="of pass@k [1, 8, 16, 32, as far as --samples goes]")
        add("--out", required=True, help="folder; the same command goes on where it stopped")
        add("--embed-with", default="", help="the starting model: measure diversity with it")
        parser.epilog = (
            benchmarks.table() + "\n\nother commands: compare, collapse, select, inspect"
        )
    elif command == "compare":
        add("folders", nargs="+", help="folders of evaluations, or of runs; A first")
        add("--k", type=int, nargs="+", help="of pass@k [powers of 2]")
        add("--figure", default="compare.png", help="where the figure goes [compare.png]")
    elif command == "collapse":
        _sampling_options(parser, 64, 1.0)
        add("logs", nargs="*", help="run folders, TRL's trainer_state.json, CSV or JSON lines")
        add("--data", default="", help="with --model: training questions, as in train.py")
        add("--group-size", type=int, default=8, help="with --model: samples of a group [8]")
        add("--out", default="", help="folder for the figure, or for the completions [.]")
        for name in ("reward", "group", "step"):
            add(f"--{name}-column", default="", help=f"the log's column of the {name}")
    elif command == "select":
        _sampling_options(parser, 64, 1.0)
        add("--data", required=True, help="training questions, as in train.py")
        add("--between", type=float, nargs=2, default=[0.3, 0.5], help="success rates [0.3 0.5]")
        add("--out", required=True, help="file of JSON lines, to give to train.py --data")
    else:
        _sampling_options(parser, 16, 1.0)
        add("--data", default="arithmetic", help="questions with answers, as in train.py")
        add("--rephrasings", default="", help="file of rephrase.py [those the questions bring]")
        add("--num-rephrasings", type=int, default=3, help="of a question, at most [3]")
        add("--group-size", type=int, default=8, help="samples of a phrasing in training [8]")
        add("--out", default="", help="folder for completions and table; empty: nothing is kept")
    return parser


def _check(cfg: argparse.Namespace, command: str) -> None:
    """Raises OptionError or PolicyError for the first wrong value, before anything is read."""
    for name, low in (
        ("samples", 1), ("max_new_tokens", 1), ("max_questions", 0), ("batch_rows", 1),
        ("seed", 0), ("examples", 0), ("group_size", 1), ("num_rephrasings", 1),
    ):  # fmt: skip
        value = getattr(cfg, name, None)
        if value is not None and value < low:
            raise OptionError(f"{flag_of(name)} {value}: must be {low} or more")
    if any(k < 1 for k in getattr(cfg, "k", None) or ()):
        raise OptionError("--k: must be 1 or more")
    if command == "compare":
        for folder in cfg.folders:
            if not Path(folder).is_dir():
                raise OptionError(f"{folder}: no such folder")
        return
    if command == "collapse" and not cfg.model:
        return
    if cfg.examples > 3:
        raise OptionError(f"--examples {cfg.examples}: there are 3")
    if cfg.temperature != 0 and not 0.05 <= cfg.temperature < float("inf"):
        raise OptionError(f"--temperature {cfg.temperature}: 0 (greedy), or 0.05 or more")
    if cfg.temperature == 0 and cfg.samples > 1:
        raise OptionError("--temperature 0 is greedy: every sample is the same, so --samples 1")
    if not cfg.model:
        raise OptionError("--model is missing: tiny, a folder, or a hub id")
    if getattr(cfg, "group_size", 1) > cfg.samples:
        raise OptionError(f"--samples {cfg.samples}: fewer than --group-size {cfg.group_size}")
    check_model_name(cfg.model)
    if getattr(cfg, "embed_with", ""):
        check_model_name(cfg.embed_with)
    setup.pick_device(cfg.device)
    if cfg.max_new_tokens is None:
        cfg.max_new_tokens = 16 if _is_tiny(cfg.model) else 1024
    if command == "":
        usual = sorted({1, cfg.samples, *(k for k in (8, 16, 32) if k <= cfg.samples)})
        cfg.k = sorted(set(cfg.k or usual))
        if cfg.k[-1] > cfg.samples:
            raise OptionError(f"--k {cfg.k[-1]}: more than --samples {cfg.samples}")


def _is_tiny(model: str) -> bool:
    """The embedded model or a folder that was trained from it: told by its context of 256."""
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
        return config.get("max_position_embeddings") == 256
    except (OSError, ValueError):
        return model == "tiny"
