"""The figures of train.py, of evaluate.py and of the README. Titles say what is seen; colours are
safe for the colour-blind, and lines differ in style too.

    python -m support.figures results/tiny --out results/tiny/poster.png
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from data import DataError
from support.logs import CollapseLog, read_metrics, read_options
from support.options import OneLineParser, OptionError
from support.run_files import RunError, read_csv

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"
KINDS = ("png", "pdf", "svg", "jpg", "jpeg", "webp", "tif", "tiff", "eps")  # of pictures


def _pyplot():
    import matplotlib

    if "matplotlib.pyplot" not in sys.modules:  # not in a notebook, which has chosen its own
        matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(figure, path: Path, rect=(0, 0, 1, 1)) -> Path:
    """Written beside its place and renamed: a figure is whole or not there. Raises RunError."""
    place = Path(os.path.realpath(path))  # a link stays, what it leads to is written
    beside = place.with_name(place.name + ".tmp")
    kind = path.suffix[1:].lower() or "png"
    try:
        if kind not in KINDS:
            raise RunError(f"{path}: no kind of picture; the name may end in .{', .'.join(KINDS)}")
        if place.exists() and not place.is_file():  # renaming would replace even a device
            raise RunError(f"{path}: is not a file that can be replaced; name a new one")
        place.parent.mkdir(parents=True, exist_ok=True)
        figure.tight_layout(rect=rect)
        try:
            figure.savefig(beside, dpi=120, format=kind)
            os.replace(beside, place)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        _pyplot().close(figure)
    return path


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Mean of the last `window` values that are there."""
    means = []
    for i in range(len(values)):
        part = [v for v in values[max(0, i - window + 1) : i + 1] if v == v]
        means.append(sum(part) / len(part) if part else math.nan)
    return means


def ends(values: Sequence[float]) -> tuple[float, float, int]:
    """(mean of the first n, mean of the last n, n): n is a tenth of the values, 10 at most."""
    n = max(1, min(10, len(values) // 10))
    first, last = ([v for v in part if v == v] for part in (values[:n], values[-n:]))
    return _mean(first), _mean(last), n


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def plot_pass_at_k(curves: dict[str, dict[str, dict[int, tuple]]], path: Path) -> Path:
    """pass@k over k, a panel a benchmark. curves: benchmark -> name -> k -> (value, low, high)."""
    plt = _pyplot()
    figure, axes = plt.subplots(
        1, len(curves), figsize=(max(6.4, 4.8 * len(curves)), 4.6), squeeze=False
    )
    for panel, (benchmark, by_name) in zip(axes[0], curves.items()):
        for i, (name, curve) in enumerate(by_name.items()):
            ks = sorted(curve)
            mean, low, high = zip(*(curve[k] for k in ks))
            colour = COLOURS[i % len(COLOURS)]
            panel.plot(ks, mean, color=colour, marker=MARKERS[i % len(MARKERS)], label=name)
            if len(ks) > 1:
                panel.fill_between(ks, low, high, color=colour, alpha=0.15, linewidth=0)
            else:
                panel.vlines(ks, low, high, color=colour)
        ticks = sorted({k for curve in by_name.values() for k in curve})
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, [str(k) for k in ticks])
        panel.minorticks_off()
        panel.set_title(_pass_title(benchmark, by_name), fontsize=10)
        panel.set_xlabel("k (samples allowed)")
        panel.set_ylabel("pass@k, with 95 % interval")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    return _save(figure, path)


def _pass_title(benchmark: str, by_name: dict[str, dict[int, tuple]]) -> str:
    names = list(by_name)
    first, last = by_name[names[0]], by_name[names[-1]]
    ks = sorted(set(first) & set(last))
    if len(names) == 1 or not ks:
        ks = sorted(first)
        said = f"pass@{ks[0]} {first[ks[0]][0]:.2f}"
        return f"{benchmark}: {said}" + (
            f", pass@{ks[-1]} {first[ks[-1]][0]:.2f}" if len(ks) > 1 else ""
        )
    gain = [last[k][0] - first[k][0] for k in ks]
    if len(ks) == 1:
        return f"{benchmark}: {gain[0]:+.2f} at k = {ks[0]}"
    return f"{benchmark}: {gain[0]:+.2f} at k = {ks[0]}, {gain[-1]:+.2f} at k = {ks[-1]}"


def plot_training(logs: Sequence[CollapseLog], path: Path) -> Path:
    """Reward and ACR of several runs over their steps."""
    plt = _pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(10.5, 4.4))
    for panel, key, what in zip(panels, ("reward", "acr"), ("Reward", "ACR")):
        changes = []
        for i, log in enumerate(logs):
            values = log.columns.get(key, [])
            if not values:
                continue
            window = max(1, min(10, len(values) // 10))
            colour = COLOURS[i % len(COLOURS)]
            panel.plot(log.steps, values, color=colour, alpha=0.2, linewidth=0.7)
            panel.plot(log.steps, smooth(values, window), color=colour, label=log.name)
            first, last, _ = ends(values)
            changes.append(f"{first:.2f} to {last:.2f}")
        panel.set_title(f"{what}: {'; '.join(changes)}", fontsize=10)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8) if changes else None
    return _save(figure, path)


def plot_collapse(log: CollapseLog, path: Path) -> Path:
    """ACR over time with its two parts, and groups by number right where the log has them."""
    plt = _pyplot()
    panels = 2 if log.groups else 1
    figure, axes = plt.subplots(1, panels, figsize=(5.9 * panels, 4.5), squeeze=False)
    _draw_acr(axes[0][0], log)
    if log.groups:
        image = _draw_groups(axes[0][1], log)
        figure.colorbar(image, ax=axes[0][1], label="share of the step's groups")
    return _save(figure, path)


def _draw_acr(panel, log: CollapseLog) -> None:
    columns, steps = log.columns, log.steps
    window = max(1, min(10, len(steps) // 10))
    marker = "o" if len(steps) == 1 else None
    if "acr_all_right" in columns and any(v == v for v in columns.get("acr_all_wrong", [])):
        wrong = smooth(columns["acr_all_wrong"], window)
        both = [w + r for w, r in zip(wrong, smooth(columns["acr_all_right"], window))]
        if len(steps) > 1:
            panel.fill_between(steps, 0, wrong, color="#E69F00", alpha=0.35, label="all wrong")
            panel.fill_between(steps, wrong, both, color="#56B4E9", alpha=0.45, label="all right")
        else:
            panel.bar(steps, wrong, color="#E69F00", alpha=0.5, label="all wrong")
            right = [b - w for b, w in zip(both, wrong)]
            panel.bar(steps, right, bottom=wrong, color="#56B4E9", alpha=0.5, label="all right")
    for key, colour, style, label in (
        ("acr", "#000000", "-", "acr: the original's own samples"),
        ("acr_group", "#D55E00", "--", "acr_group: the groups normalised"),
        ("acr_after", "#0072B2", ":", "acr_after: without gradient at last"),
    ):
        if any(v == v for v in columns.get(key, [])):
            values = smooth(columns[key], window)
            panel.plot(steps, values, style, color=colour, label=label, marker=marker)
    first, last, n = ends(columns["acr"])
    if len(steps) > 1:
        counted = f"first and last {n} steps" if n > 1 else "first and last step"
        panel.set_title(f"Groups without gradient: ACR {first:.2f} to {last:.2f}\n({counted})")
    else:
        panel.set_title(f"Groups without gradient: ACR {first:.2f}")
    panel.title.set_fontsize(10)
    panel.set_ylim(0, 1.03)
    if len(steps) > 1:
        panel.set_xlim(steps[0], steps[-1])
    else:
        panel.set_xticks(steps)
    panel.set_xlabel("step")
    panel.set_ylabel("share of groups")
    panel.grid(alpha=0.3)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize=7)


def _draw_groups(panel, log: CollapseLog):
    """A column a step (or a mean of neighbours, 100 at most), a row for each number right."""
    import numpy as np

    top = max(size for groups in log.groups.values() for _, size in groups)
    steps = sorted(log.groups)
    columns = []
    for part in np.array_split(np.array(steps), min(100, len(steps))):
        counts = np.zeros(top + 1)
        for step in part.tolist():
            for right, _ in log.groups[step]:
                counts[right] += 1
        columns.append(counts / max(1, counts.sum()))
    shares = np.array(columns).T
    ends_share = shares[[0, -1]].sum(axis=0)
    image = panel.imshow(
        shares, origin="lower", aspect="auto", cmap="cividis", vmin=0, interpolation="nearest",
        extent=(steps[0] - 0.5, steps[-1] + 0.5, -0.5, top + 0.5),
    )  # fmt: skip
    n = max(1, min(10, len(columns) // 10))
    panel.set_title(
        f"Groups with none or all of {top} right: {ends_share[:n].mean():.2f} to "
        f"{ends_share[-n:].mean():.2f} of them",
        fontsize=10,
    )
    panel.set_xlabel("step")
    panel.set_ylabel("samples right in a group")
    panel.set_yticks(range(top + 1) if top <= 16 else range(0, top + 1, top // 8))
    if len(steps) == 1:
        panel.set_xticks(steps)
    return image


def plot_curves(folder: str | Path) -> Path:
    """curves.png of a run's folder, from its CSV files: reward, accuracy, ACR before and after, and
    tau, or without AVSPO the gradient's norm."""
    plt = _pyplot()
    folder = Path(folder)
    metrics = read_csv(folder / "metrics.csv")
    evals = read_csv(folder / "eval.csv") if (folder / "eval.csv").exists() else []

    def column(rows: list[dict], key: str) -> list[float]:
        return [float(row[key]) if row[key] else math.nan for row in rows]

    def from_to(values: Sequence[float]) -> str:
        first, last, _ = ends(values)
        return f"{first:.2f} to {last:.2f}"

    steps = column(metrics, "step")
    figure, ((reward, accuracy), (collapse, last)) = plt.subplots(2, 2, figsize=(10, 6.4))
    for key, colour, style, label in (
        ("reward", "#0072B2", "-", "original phrasing"),
        ("reward_group", "#E69F00", "--", "all samples of the group"),
    ):
        values = column(metrics, key)
        reward.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
        reward.plot(steps, smooth(values, 10), style, color=colour, label=label)
    reward.set_title(f"Reward of the training samples: {from_to(column(metrics, 'reward'))}")
    accuracy.set_title("No evaluation yet")
    if evals:
        x, y = column(evals, "step"), column(evals, "pass@1")
        low, high = column(evals, "pass@1_low"), column(evals, "pass@1_high")
        accuracy.fill_between(x, low, high, color="#009E73", alpha=0.2, label="95 % interval")
        accuracy.plot(x, y, color="#009E73", marker="o", label="pass@1, held-out questions")
        accuracy.set_title(f"Accuracy on held-out questions: {y[0]:.2f} to {y[-1]:.2f}")
    for key, colour, style, label in (
        ("acr", "#D55E00", "-", "acr: the original's own samples"),
        ("acr_group", "#CC79A7", "--", "acr_group: the groups normalised"),
        ("acr_after", "#000000", ":", "acr_after: without gradient at last"),
    ):
        collapse.plot(steps, smooth(column(metrics, key), 10), style, color=colour, label=label)
    collapse.set_title(
        f"ACR {from_to(column(metrics, 'acr'))}, after the algorithm "
        f"{from_to(column(metrics, 'acr_after'))}"
    )
    collapse.set_ylim(-0.03, 1.03)
    if any(row["tau"] for row in metrics):
        last.plot(steps, column(metrics, "tau"), color="#0072B2", label="tau")
        opened = [
            (s, t)
            for s, t, g in zip(steps, column(metrics, "tau"), column(metrics, "gate_open"))
            if g == 1
        ]
        last.plot(*zip(*opened), "|", color="#D55E00", label="gate open") if opened else None
        last.set_title(f"AVSPO's gate was open in {100 * len(opened) / len(steps):.0f} % of steps")
        last.set_ylabel("tau, the threshold on ACR")
    else:
        norm = column(metrics, "grad_norm")
        last.plot(steps, smooth(norm, 10), color="#0072B2", label="grad_norm")
        last.set_title(f"Gradient norm: {from_to(norm)}")
    for panel in (reward, accuracy, collapse, last):
        panel.title.set_fontsize(10)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=8)
    return _save(figure, folder / "curves.png")


def plot_poster(folder: Path, path: Path) -> Path:
    """ACR before and after each algorithm, from a folder of runs: mean and range over its seeds, a
    panel an algorithm. Raises RunError where there is no run to draw, DataError where one is
    damaged or has not begun."""
    by_algo: dict[str, list[CollapseLog]] = {}
    for config in sorted(folder.glob("*/config.json")):
        algo = read_options(config.parent).get("algo")
        if not isinstance(algo, str) or not algo:
            raise RunError(f"{config}: does not name an algorithm; repair it or move the run away")
        by_algo.setdefault(algo, []).append(read_metrics(config.parent, ("acr", "acr_after"))[0])
    if not by_algo:
        raise RunError(f"{folder}: no runs (folders with config.json and metrics.csv) there")
    plt = _pyplot()
    names = sorted(by_algo, key=lambda name: (len(name), name != "grpo"))
    figure, panels = plt.subplots(
        1, len(names), figsize=(3.3 * len(names) + 0.4, 3.7), sharey=True, squeeze=False
    )
    for panel, name in zip(panels[0], names):
        said = []
        for key, colour, style, label in (
            ("acr", "#D55E00", "-", "acr: as plain GRPO would see it"),
            ("acr_after", "#0072B2", "--", "acr_after: once the algorithm is done"),
        ):
            runs = [smooth(log.columns[key], 10) for log in by_algo[name]]
            steps = range(1, min(map(len, runs)) + 1)
            at_step = [[v for v in values if v == v] for values in zip(*runs)]
            mean = list(map(_mean, at_step))  # where no run has a value, a gap
            low, high = ([of(values, default=math.nan) for values in at_step] for of in (min, max))
            panel.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
            panel.plot(steps, mean, style, color=colour, label=label, linewidth=1.8)
            said.append(f"{key} {mean[min(9, len(mean) - 1)]:.2f} to {mean[-1]:.2f}")
        seeds = len(by_algo[name])
        panel.set_title(f"{name} ({seeds} seed{'s' * (seeds > 1)})\n" + "\n".join(said), fontsize=9)
        panel.set_ylim(-0.02, 1)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("share of groups without gradient")
    figure.suptitle("Groups without gradient: mean and range over the seeds", fontsize=11)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2, fontsize=9, frameon=False)
    return _save(figure, path, rect=(0, 0.06, 1, 1))


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(prog="python -m support.figures", description="the poster")
    parser.add_argument("folder", type=Path, help="a folder of runs")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    try:
        options = parser.parse_args(argv)
        print(plot_poster(options.folder, options.out))
    except (OptionError, RunError, DataError, OSError) as error:
        print(f"support.figures: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
