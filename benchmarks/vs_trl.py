"""One GRPO step here and in TRL's GRPOTrainer, and here with each piece of the speed left out.

    python benchmarks/vs_trl.py --model FOLDER [--rounds 3] [--steps 3] [--sides trl,here,…]

Equal work: the same model, prompts, group size, completion length, optimizer, reward and number of
steps. Every side runs in a process of its own, in turns, round after round, and its first step is
not counted. Of TRL both precisions are tried (float32 weights under bfloat16 autocast, bfloat16
weights), and the better one is what we compare with. Completions are sampled, so their lengths and
the share of dead groups differ a little from side to side: both are shown.

Sides: trl, trl-bf16 · here, all-rows (groups without gradient are not left out) · no-sharing (of
prompts), no-dropping (of finished rows), no-sorting (of micro-batches by length), all-logits (at
once), no-cast (of weights while sampling), plain (all of these off).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from support.options import OneLineParser, OptionError, flag_of  # noqa: E402

SAMPLING = {
    "no-sharing": {"share_prompts": False},
    "no-dropping": {"segment": None},
    "no-cast": {"cast_weights": False},
}
SCORING = {"no-sharing": {"share_prompts": False}, "all-logits": {"logits_at_once": None}}
OWN = ("here", "all-rows", *SAMPLING, "no-sorting", "all-logits", "plain")
TRL = ("trl", "trl-bf16")


def all_of(pieces: dict[str, dict], side: str) -> dict:
    """The keywords that switch off what `side` does without."""
    off = pieces if side == "plain" else {side: pieces.get(side, {})}
    return {key: value for options in off.values() for key, value in options.items()}


class Clock:
    """Adds up the time spent in functions that it wraps."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function):
        def wrapped(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

        return wrapped


def setting(options):
    """(policy, questions of every step): the first step is the warm-up."""
    import data
    from support.policy import load_policy
    from support.setup import pick_device, pick_dtype

    device = pick_device("auto")
    policy = load_policy(options.model, device)
    tiny = options.model == "tiny"
    policy.examples = 0 if tiny else 3
    policy.dtype = pick_dtype("auto", device, policy.num_parameters)
    count = options.prompts * (options.steps + 1)
    questions = data.arithmetic("train", count, options.seed, one_step=not tiny)
    return policy, [questions[i : i + options.prompts] for i in range(0, count, options.prompts)]


def run_here(options) -> list[dict]:
    """Seconds and counts of each step, the first included."""
    import torch

    import train
    from grpo import group_advantages
    from rollout import micro_batches, sample, token_logprobs

    policy, steps = setting(options)
    side, clock = options.side, Clock()
    cfg = train.Config(
        algo="grpo",
        model=options.model,
        group_size=options.group,
        prompts_per_step=options.prompts,
        max_new_tokens=options.tokens,
        micro_batch_tokens=options.micro_batch_tokens,
        lr=1e-6,
    )
    cfg.check()
    train.sample = clock.timed("sampling", partial(sample, **all_of(SAMPLING, side)))
    train.score = clock.timed("scoring", train.score)
    train.token_logprobs = partial(token_logprobs, **all_of(SCORING, side))
    if side in ("no-sorting", "plain"):

        def shuffled(lengths_B, budget):
            order = list(range(len(lengths_B)))
            random.Random(0).shuffle(order)
            per_batch = max(1, budget // int(lengths_B.max()))
            return [order[i : i + per_batch] for i in range(0, len(order), per_batch)]

        train.micro_batches = shuffled
    else:
        train.micro_batches = micro_batches
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=cfg.lr, weight_decay=0.01)
    rows = []
    for number, questions in enumerate(steps, 1):
        clock.seconds, start = {}, time.perf_counter()
        batch = train.sample_step(policy, questions, number, cfg)
        advantages_PM = group_advantages(batch.rewards_PFG[:, 0])
        middle = time.perf_counter()
        found = train.update_policy(
            policy,
            optimizer,
            batch,
            advantages_PM.reshape(-1),
            cfg,
            None,
            skip_dead=side not in ("all-rows", "plain"),
        )
        end = time.perf_counter()
        rows.append(
            {
                **clock.seconds,
                "update": end - middle,
                "step": end - start,
                "arithmetic": arithmetic(batch.rewards_PFG[:, 0]),
                "tokens": int(batch.rollout.mask_BT.sum()),
                "live": found["live_rows"] / len(batch.rollout.prompts),
            }
        )
    return rows


def arithmetic(rewards_PM) -> float:
    """Seconds that ACR and AVSPO's advantages take on a step's rewards, all collapsed groups
    rescued: a median of 21."""
    from acr import collapse_report
    from avspo import avspo_advantages

    took = []
    for _ in range(21):
        start = time.perf_counter()
        collapse_report(rewards_PM)
        avspo_advantages(rewards_PM, tau=-1.0)
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def run_trl(options) -> list[dict]:
    """The same in TRL's trainer. Its micro-batches hold the rows that the token budget allows."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from reward import score

    policy, steps = setting(options)
    prompts = [[policy.encode(q.question) for q in questions] for questions in steps]
    longest = max(len(ids) for step in prompts for ids in step) + options.tokens
    rows, total = options.prompts * options.group, 1
    while rows % (2 * total) == 0 and rows // total * longest > options.micro_batch_tokens:
        total *= 2  # micro-batches of equal size
    dataset = Dataset.from_list(
        [
            {"prompt": policy.tokenizer.decode(ids), "answer": q.answer}
            for step, questions in zip(prompts, steps)
            for ids, q in zip(step, questions)
        ]
    )
    clock, found, state = Clock(), [], {}

    def reward(completions, answer, completion_ids, **_):
        ended = [bool(set(ids) & set(policy.end_ids)) for ids in completion_ids]
        rewards = score(completions, answer, [not e for e in ended])
        groups = [set(rewards[i : i + options.group]) for i in range(0, rows, options.group)]
        state["live"] = sum(len(group) > 1 for group in groups) / len(groups)
        state["tokens"] = sum(map(len, completion_ids))
        return rewards

    class Times(TrainerCallback):
        def on_step_begin(self, *_, **__):
            state["start"], clock.seconds = time.perf_counter(), {}

        def on_step_end(self, *_, **__):
            step = time.perf_counter() - state["start"]
            parts = {key: clock.seconds[key] for key in ("sampling", "scoring")}
            update = step - sum(parts.values())
            counted = {key: state[key] for key in ("live", "tokens")}
            found.append({**parts, "update": update, "step": step, **counted})

    half = policy.dtype == torch.bfloat16
    model = policy.model.to(torch.bfloat16) if options.side == "trl-bf16" else policy.model
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            processing_class=policy.tokenizer,
            train_dataset=dataset,
            callbacks=[Times()],
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=rows // total,
                gradient_accumulation_steps=total,
                num_generations=options.group,
                max_completion_length=options.tokens,
                max_steps=len(steps),
                learning_rate=1e-6,
                lr_scheduler_type="constant",
                weight_decay=0.01,
                loss_type="grpo",
                temperature=1.0,
                shuffle_dataset=False,
                gradient_checkpointing=False,
                bf16=half and options.side == "trl",
                use_cpu=policy.model.device.type == "cpu",
                report_to="none",
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                dataloader_pin_memory=False,
                seed=options.seed,
            ),
        )
        trainer._generate_single_turn = clock.timed("sampling", trainer._generate_single_turn)
        trainer._calculate_rewards = clock.timed("scoring", trainer._calculate_rewards)
        trainer.train()
    return found


def child(options) -> None:
    """One side, in this process: a line of JSON."""
    import torch

    from support.setup import peak_memory, pick_device

    torch.manual_seed(options.seed)
    rows = (run_trl if options.side in TRL else run_here)(options)
    peak = peak_memory(pick_device("auto"))
    print("RESULT " + json.dumps({"rows": rows[1:], "peak": peak}))


def measure(side: str, number: int, options) -> dict:
    """Runs a side in a process of its own. Every round draws other questions."""
    command = [sys.executable, __file__, "--side", side, "--seed", str(options.seed + number - 1)]
    for name in ("model", "steps", "prompts", "group", "tokens", "micro_batch_tokens"):
        command += ["--" + name.replace("_", "-"), str(getattr(options, name))]
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | offline)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    if done.returncode == 2:  # what the user can mend is the last line
        said = done.stderr.strip().rpartition("\n")[2].removeprefix("vs_trl.py: error: ")
        raise OptionError(f"{side}: {said[-300:]}")
    raise SystemExit(f"vs_trl.py: {side} failed:\n{done.stderr[-3000:]}")


def table(found: dict[str, list[dict]], rows_a_step: int) -> None:
    """A line a side: medians over the rounds of the mean step."""
    medians = {}
    print(f"\n{'':13}{'step s':>8}{'sampling':>9}{'scoring':>9}{'update':>8}{'tokens/s':>10}"
          f"{'length':>8}{'live':>6}{'peak GB':>9}")  # fmt: skip
    for side, rounds in found.items():

        def median(key, rounds=rounds):
            means = [statistics.mean(row[key] for row in r["rows"]) for r in rounds]
            return statistics.median(means)

        step, tokens = median("step"), median("tokens")
        medians[side] = step
        print(f"{side:13}{step:8.2f}{median('sampling'):9.2f}{median('scoring'):9.2f}"
              f"{median('update'):8.2f}{tokens / step:10.0f}{tokens / rows_a_step:8.1f}"
              f"{median('live'):6.2f}{max(r['peak'] for r in rounds):9.2f}")  # fmt: skip
    trl = [medians[side] for side in TRL if side in medians]
    for side in ("here", "all-rows"):
        if trl and side in medians:
            name = "dead groups left out" if side == "here" else "every row trained on"
            print(f"\nTRL / here, {name}: {min(trl) / medians[side]:.2f}", end="")
    print()
    if "here" in medians:
        for side in OWN[1:]:
            if side in medians:
                print(f"{side:13} {medians[side] / medians['here']:.2f} times the step")
        took = statistics.median(row["arithmetic"] for r in found["here"] for row in r["rows"])
        print(f"AVSPO's and ACR's own arithmetic: {1000 * took:.2f} ms, "
              f"{took / medians['here']:.4%} of the step")  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """0; 2 with one line on stderr for what the user can mend."""
    from support.policy import PolicyError

    try:
        options = parse_options(argv)
        child(options) if options.side else measure_all(options)
        return 0
    except (OptionError, PolicyError) as error:
        print(f"vs_trl.py: error: {error}", file=sys.stderr)
        return 2


def parse_options(argv: list[str] | None) -> argparse.Namespace:
    """The checked options, `sides` as a list. Raises OptionError or PolicyError."""
    from support.policy import check_model_name

    parser = OneLineParser(
        prog="vs_trl.py", description=__doc__.split("\n\n")[0], allow_abbrev=False
    )
    parser.add_argument("--model", default="tiny", help="a folder, or tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="counted steps a round")
    parser.add_argument("--prompts", type=int, help="questions a step [8, tiny 32]")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, help="longest completion [64, tiny 16]")
    parser.add_argument("--micro-batch-tokens", type=int, help="[4096, tiny 16384]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sides", default="trl,trl-bf16,here,all-rows", help="or: own, all")
    parser.add_argument("--side", help=argparse.SUPPRESS)  # set in the children
    options = parser.parse_args(argv)
    tiny = options.model == "tiny"
    usual = {"prompts": (8, 32), "tokens": (64, 16), "micro_batch_tokens": (4096, 16384)}
    for name, values in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, values[tiny])
    limits = {"rounds": 1, "steps": 1, "group": 2, "seed": 0} | dict.fromkeys(usual, 1)
    for name, low in limits.items():
        value = getattr(options, name)
        if value < low or (value > 10**6 and name != "seed"):
            raise OptionError(f"{flag_of(name)} {value}: must be {low} to 1000000")
    check_model_name(options.model)
    groups = {"own": list(OWN), "all": [*TRL, *OWN]}
    sides = groups.get(options.sides) or options.sides.split(",")
    if unknown := [side for side in sides if side not in TRL + OWN]:
        raise OptionError(f"--sides {','.join(unknown)}: no such; there are {', '.join(TRL + OWN)}")
    if find_spec("trl") is None and set(sides) & set(TRL):
        if set(sides) - set(TRL):
            print("trl is not installed (pip install trl): only this project is measured")
        sides = [side for side in sides if side not in TRL]
    if not sides:
        raise OptionError("--sides: nothing can be measured without trl; pip install trl")
    options.sides = sides
    return options


def measure_all(options: argparse.Namespace) -> None:
    """Every side in every round, then the table."""
    sides = options.sides
    print(f"{options.model}: {options.prompts} questions x {options.group} samples, at most "
          f"{options.tokens} tokens; {options.steps} steps, {options.rounds} rounds; "
          f"{platform.machine()}, {os.cpu_count()} cores")  # fmt: skip
    found: dict[str, list[dict]] = {side: [] for side in sides}
    for number in range(1, options.rounds + 1):
        for side in sides:
            found[side].append(measure(side, number, options))
            last = found[side][-1]
            mean = statistics.mean(row["step"] for row in last["rows"])
            print(
                f"round {number}  {side:13}{mean:8.2f} s a step, {last['peak']:.2f} GB", flush=True
            )
    table(found, options.prompts * options.group)


if __name__ == "__main__":
    sys.exit(main())
