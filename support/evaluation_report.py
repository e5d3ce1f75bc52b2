"""What evaluate.py says, as text."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from support.figures import ends
from support.logs import CollapseLog


def curve(row: dict, ks: Sequence[int]) -> dict[int, tuple[float, float, float]]:
    return {k: tuple(row[f"pass@{k}{end}"] for end in ("", "_low", "_high")) for k in ks}


def describe_results(row: dict, ks: Sequence[int]) -> str:
    lines = [f"\n{row['benchmark']}: {row['questions']} questions x {row['samples']} samples"]
    for k, (value, low, high) in curve(row, ks).items():
        lines.append(f"  pass@{k:<4} {value:.3f}   95 % interval {low:.3f} to {high:.3f}")
    if row["questions"] < 100:
        lines.append("  under 100 questions: such intervals are too narrow")
    lines.append(
        f"  accuracy  strict {row['strict']:.3f}, lenient {row['lenient']:.3f}; "
        f"no box {row['no_box']:.3f}, no verdict {row['no_verdict']:.3f}\n"
        f"  length    {row['mean_length']:.1f} tokens, truncated {row['truncated']:.3f}"
    )
    if "diversity" in row:
        lines.append(
            f"  diversity {row['diversity']:.4f} cosine distance, "
            f"distinct answers {row['distinct_answers']:.3f}"
        )
    return "\n".join(lines)


def describe_log(log: CollapseLog) -> str:
    lines = [f"\n{log.name}: {log.kind}, {len(log.steps)} steps"]
    names = {
        "acr": "ACR, original alone" if "acr_group" in log.columns else "ACR",
        "acr_all_wrong": "  of it all wrong",
        "acr_all_right": "  of it all right",
        "acr_group": "ACR, normalised groups",
        "acr_after": "ACR, after algorithm",
        "reward": "reward",
        "dead_share": f"{log.dead_is} without gradient",
    }
    for key, text in names.items():
        values = [v for v in log.columns.get(key, []) if v == v]
        if values:
            first, last, n = ends(log.columns[key])
            mean = sum(values) / len(values)
            lines.append(
                f"  {text:<26}{mean:.3f}   {first:.3f} -> {last:.3f} (first and last {n} steps)"
            )
    first_100 = [v for v in log.columns["acr"][:100] if v == v]
    if first_100:
        lines.append(f"  {'ACR_100':<26}{sum(first_100) / len(first_100):.3f}")
    if log.groups:
        shares = _by_number_right(group for groups in log.groups.values() for group in groups)
        lines.append(f"  groups by number right: {shares}")
    lines += [f"  cannot tell: {what}" for what in log.missing]
    return "\n".join(lines)


def _by_number_right(groups) -> str:
    groups = list(groups)
    found: dict[int, int] = {}
    for right, _ in groups:
        found[right] = found.get(right, 0) + 1
    return "  ".join(f"{c}: {found[c] / len(groups):.2f}" for c in sorted(found))


def describe_inspection(results: dict, cfg: argparse.Namespace) -> str:
    def span(value: tuple[float, float, float], sign: str = "") -> str:
        return f"{value[0]:{sign}.3f} [{value[1]:{sign}.3f}, {value[2]:{sign}.3f}]"

    G, F = cfg.group_size, cfg.num_rephrasings + 1
    lines = [
        f"{cfg.model} on {cfg.data}: {results['questions']} questions, {cfg.samples} samples of "
        "each phrasing",
        "shift: success minus the original's; moved: share whose rate differs by .25 or more, and",
        "what chance alone would give were both phrasings equally hard; 95 % intervals",
        "",
        f"{'phrasing':<17}{'asked':>5}  {'success':<23}{'shift':<26}{'moved':<23}by chance",
    ]
    if results["original"]:
        lines.append(f"{'original':<17}{results['questions']:>5}  {span(results['original'])}")
    for kind, row in results["kinds"].items():
        lines.append(
            f"{kind[:16]:<17}{row['questions']:>5}  {span(row['success']):<23}"
            f"{span(row['shift'], '+'):<26}{span(row['moved']):<23}{row['moved_by_chance']:.3f}"
        )
    lines.append("")
    if not results["complete"]:
        lines.append(f"no question has all {F - 1} rephrasings: nothing to say of pooling")
        return "\n".join(lines)
    lines += [
        f"chance of no gradient, over {results['complete']} questions with all {F - 1} rephrasings",
        f"  group of {G}, original alone           {span(results['zero_gradient_before'])}",
        f"  group of {F} x {G}, pooled phrasings      {span(results['zero_gradient_pooled'])}",
    ]
    control = results["zero_gradient_group_of_all"]
    lines.append(
        f"  group of {F * G}, original alone          "
        + (span(control) if control else f"needs --samples {F * G} or more")
    )
    return "\n".join(lines)
