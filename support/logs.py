"""Logs of training runs, read for one question: which groups carried no gradient?

Three kinds are read: a run folder of train.py; a log history of TRL (trainer_state.json, or the
same entries as JSON lines); and any CSV or JSON lines with one reward a sample, or a list of them a
group. What a log cannot tell is part of what is read from it: `missing`. A sample counts as right
when its reward is above 0, as in acr.py.

A run of train.py tells more where it has groups.jsonl, a line a step with one entry for each group
that was normalised: `step`, `right` and `scored` (samples), `tokens` (of its completions), `live`
(1 where some sample has an advantage that is not 0).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from acr import collapse_report
from data import DataError, read_text

COLUMNS = "acr acr_all_wrong acr_all_right acr_group acr_after reward dead_share".split()
# names under which other programs write these columns
REWARD = ("reward", "rewards", "score", "scores", "rewards/mean", "total_reward")
GROUP = ("group", "group_id", "prompt_id", "uid", "question_id", "problem_id", "index", "id",
         "prompt", "question")  # fmt: skip
STEP = ("step", "global_step", "training_step", "iteration", "global_steps")


@dataclass
class CollapseLog:
    """ACR by step, and, where the log has them, the groups themselves."""

    name: str
    kind: str
    steps: list[int]
    columns: dict[str, list[float]]  # of COLUMNS, NaN where empty; a missing key was not logged
    dead_is: str = "samples"  # what dead_share is a share of
    groups: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # (right, samples)
    missing: list[str] = field(default_factory=list)


def read_log(path: str, reward: str = "", group: str = "", step: str = "") -> CollapseLog:
    """The log at `path`. reward, group, step: columns, where the usual names do not fit.

    Raises DataError, one line, for what cannot be read.
    """
    place = Path(path)
    if not place.exists():
        raise DataError(f"{path}: no such file or folder")
    if place.is_dir():
        if (place / "metrics.csv").is_file():
            return read_run(place)
        states = sorted(place.rglob("trainer_state.json"), key=lambda p: p.stat().st_mtime)
        if not states:
            raise DataError(f"{path}: a folder with neither metrics.csv nor trainer_state.json")
        place = states[-1]
    rows = _rows(place)
    keys = {key for row in rows for key in row if key is not None}  # None: cells beyond the header
    if not (reward or group) and "frac_reward_zero_std" in keys:
        return _read_trl(str(place), rows)
    if place.name == "metrics.csv" and {"step", "acr"} <= keys:
        return read_run(place.parent)
    return _read_samples(str(place), rows, keys, reward, group, step)


def _rows(path: Path) -> list[dict]:
    """Rows of a CSV, of JSON lines, or of a JSON file that holds a list or a `log_history`."""
    text = read_text(path)
    if path.suffix == ".csv":
        csv.field_size_limit(1 << 28)  # whole completions may stand in a field
        try:
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
        except csv.Error as error:
            raise DataError(f"{path}: not a CSV ({error})") from None
    else:
        try:
            whole = json.loads(text)
            rows = whole.get("log_history", [whole]) if isinstance(whole, dict) else whole
        except ValueError:
            rows = []
            for number, line in enumerate(text.split("\n"), 1):
                try:
                    rows += [json.loads(line)] if line.strip() else []
                except ValueError:
                    raise DataError(f"{path}, line {number}: not JSON") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise DataError(f"{path}: holds no rows of a log")
    return rows


def _number(value: object) -> float:
    """A float; NaN for what is empty or no number."""
    try:
        return math.nan if value in (None, "") else float(value)
    except (TypeError, ValueError):
        return math.nan


def read_options(folder: Path) -> dict:
    """The options in a run's config.json; empty where it does not tell them."""
    try:
        options = json.loads((folder / "config.json").read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return options if isinstance(options, dict) else {}


def read_metrics(folder: Path, needed: Iterable[str] = ("acr",)) -> tuple[CollapseLog, list[dict]]:
    """metrics.csv of a run: its columns, and the rows as they stand. Raises DataError."""
    path = folder / "metrics.csv"
    # what stands after the last newline is still being written, or was never finished
    text = read_text(path).rpartition("\n")[0]
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV ({error})") from None
    rows = [row for row in rows if row.get("step")]
    if not rows:
        raise DataError(f"{path}: holds no step yet; try again when the run has done one")
    for key in needed:
        if key not in rows[0]:
            raise DataError(f"{path}: has no column '{key}'; is it a run of train.py?")
    for row in rows:
        if not (row["step"].isascii() and row["step"].isdigit() and len(row["step"]) < 10):
            raise DataError(f"{path}: a step '{row['step'][:20]}' is no number; cut that line out")
    log = CollapseLog(str(folder), "run of train.py", [int(r["step"]) for r in rows], {})
    for key in COLUMNS:
        if key in rows[0]:
            log.columns[key] = [_number(row[key]) for row in rows]
    return log, rows


def _group_rows(path: Path) -> list[dict]:
    """The whole lines of groups.jsonl, none where there is no such file. Raises DataError."""
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(read_text(path).split("\n")[:-1], 1):  # the last is not finished
        try:
            row = json.loads(line)
            lists = [row[key] for key in ("right", "scored", "tokens", "live")]
            whole = all(type(v) is int and v >= 0 for v in [row["step"], *sum(lists, [])])
            sizes = len(set(map(len, lists))) == 1
            if not (whole and sizes and all(r <= s < 10**5 for r, s in zip(*lists[:2]))):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}, line {number}: is damaged; remove this line") from None
        rows.append(row)
    return rows


def read_run(folder: Path) -> CollapseLog:
    """A run of train.py. Raises DataError."""
    log, rows = read_metrics(folder)
    options = read_options(folder)
    if counted := _group_rows(folder / "groups.jsonl"):
        dead = {}
        for row in counted:
            if row["right"]:
                log.groups[row["step"]] = list(zip(row["right"], row["scored"]))
            live = sum(t for t, is_live in zip(row["tokens"], row["live"]) if is_live)
            dead[row["step"]] = 1 - live / max(1, sum(row["tokens"]))
        log.columns["dead_share"] = [dead.get(step, math.nan) for step in log.steps]
        log.dead_is = "tokens"
    else:
        log.missing.append("groups by number right (no groups.jsonl)")
        names = ("prompts_per_step", "group_size", "num_rephrasings")
        numbers = [v if type(v := options.get(name)) is int else 0 for name in names]
        phrasings = numbers[2] + 1 if "tagrpo" in str(options.get("algo")) else 1
        size = max(0, numbers[0] * numbers[1] * phrasings)
        if size and not options.get("kl_beta") and "live_rows" in rows[0]:
            log.columns["dead_share"] = [1 - _number(r["live_rows"]) / size for r in rows]
            log.missing.append("tokens spent on dead groups: shares of samples are shown")
        else:
            log.missing.append("tokens spent on dead groups")
    return log


def _read_trl(name: str, rows: list[dict]) -> CollapseLog:
    rows = [row for row in rows if "frac_reward_zero_std" in row]
    log = CollapseLog(
        name,
        "TRL's log history",
        [int(_number(row.get("step", i))) for i, row in enumerate(rows, 1)],
        {
            "acr": [_number(row["frac_reward_zero_std"]) for row in rows],
            "reward": [_number(row.get("reward")) for row in rows],
        },
        missing=[
            "whether dead groups were all wrong or all right",
            "groups by number right, and tokens spent on dead groups",
            "groups of equal rewards that are no binary fractions: frac_reward_zero_std tests a "
            "float32 deviation against 0 (six rewards of 0.15 may count as different), so ACR "
            "may be higher",
        ],
    )
    if len(log.steps) > 1 and log.steps[1] - log.steps[0] > 1:
        log.missing.append(f"single steps: each row is a mean of {log.steps[1] - log.steps[0]}")
    return log


def _read_samples(
    name: str, rows: list[dict], keys: set, reward: str, group: str, step: str
) -> CollapseLog:
    """One reward a row and a group column, or a list of rewards a row."""

    def column(given: str, usual: tuple[str, ...]) -> str | None:
        if given and given not in keys:
            raise DataError(f"{name}: no column '{given}'; there are {', '.join(sorted(keys))}")
        return given or next((key for key in usual if key in keys), None)

    reward, group, step = column(reward, REWARD), column(group, GROUP), column(step, STEP)
    listed = reward is not None and isinstance(rows[0].get(reward), list)
    if reward is None or (group is None and not listed):
        what = "rewards" if reward is None else "groups"
        raise DataError(
            f"{name}: no column of {what} found among {', '.join(sorted(keys))[:200]}; "
            "name them with --reward-column and --group-column"
        )
    found: dict[int, dict] = defaultdict(lambda: defaultdict(list))
    for i, row in enumerate(rows):
        when = _number(row.get(step)) if step else 1.0
        if when != when:
            raise DataError(f"{name}, row {i + 1}: '{step}' is no number")
        values = row[reward] if listed else [row.get(reward)]
        key = (i, row.get(group)) if listed else row.get(group)
        found[int(when)][str(key)] += [_number(value) for value in values]
    log = CollapseLog(name, "log with a reward a sample", sorted(found), {})
    reports = []
    for when in log.steps:
        rewards_PM = _rectangular(list(found[when].values()))
        reports.append(collapse_report(rewards_PM) | {"reward": float(rewards_PM.nanmean())})
        log.groups[when] = [
            (sum(v > 0 for v in values), sum(v == v for v in values))
            for values in found[when].values()
        ]
    for key in ("acr", "acr_all_wrong", "acr_all_right", "reward"):
        log.columns[key] = [report[key] for report in reports]
    if not step:
        log.missing.append("steps (no such column): all rows are taken as one step")
    if not listed:
        log.missing.append(f"two groups of one step with the same '{group}': they count as one")
    if lonely := sum(report["unscorable"] for report in reports):
        log.missing.append(f"{lonely} groups with fewer than two rewards: they are left out")
    log.missing.append("tokens spent on dead groups")
    return log


def _rectangular(groups: list[list[float]]) -> Tensor:
    """(P, M), float64: short groups are filled with NaN, which counts as no verdict."""
    M = max(map(len, groups))
    return torch.tensor([g + [math.nan] * (M - len(g)) for g in groups], dtype=torch.float64)
