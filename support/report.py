"""What train.py says: before a run, after its first step, at its end; and one step explained."""

from __future__ import annotations

import math
import platform
from collections import Counter

import torch
from torch import Tensor

import avspo
import grpo
from acr import advantage_collapse_rate, collapsed
from evaluate import paired_difference
from reward import last_report
from rollout import token_logprobs
from support.options import Config, OptionError
from support.policy import Policy
from support.run_files import RunFolder, read_csv


def describe(cfg: Config, policy: Policy, train_set: list, held_out: list) -> str:
    """What is about to run, with the first prompt as the model sees it."""
    prompt = policy.tokenizer.decode(policy.encode(train_set[0].question))
    F, filled = "", ""
    if cfg.phrasings > 1:
        N = cfg.num_rephrasings
        F = f" x {cfg.phrasings} phrasings"
        have = Counter(min(N, len(q.rephrasings)) for q in train_set)
        found = ", ".join(f"{many} questions with {n}" for n, many in sorted(have.items()))
        filled = f"rephrasings: {found}; the original is sampled again for each that is missing\n"
    return (
        f"{cfg.algo}: {cfg.model} ({policy.num_parameters / 1e6:.2f} M parameters) on {cfg.data}, "
        f"{len(train_set)} questions, {len(held_out)} held out\n"
        f"a step: {cfg.prompts_per_step} questions{F} x {cfg.group_size} samples, "
        f"{cfg.max_new_tokens} tokens at most\n"
        f"{filled}"
        f"first prompt: {prompt!r}"
    )


def explain(policy: Policy, batch, groups_PM: Tensor, advantages_PM: Tensor, cfg: Config) -> None:
    """Prints one of everything: a group from its prompt to its loss."""
    acr = advantage_collapse_rate(groups_PM)
    mixed = (~collapsed(groups_PM)).nonzero()[:, 0].tolist()
    p = mixed[0] if mixed else 0  # a group with something to learn, if there is one
    M = groups_PM.shape[1]
    rows, rollout = torch.arange(p * M, (p + 1) * M), batch.rollout
    weights_B = grpo.row_weights(rollout.lengths_B, cfg.loss_agg, cfg.max_new_tokens)
    mask_BT = rollout.mask_BT[rows].to(policy.model.device)
    with torch.no_grad():
        new_BT = token_logprobs(
            policy.model,
            [batch.anchored_prompts[i] for i in rows],
            rollout.completions_BT[rows],
            rollout.mask_BT[rows],
            temperature=cfg.temperature,
            pad_id=policy.pad_id,
        )
    group_advantages = advantages_PM[p].to(new_BT)
    loss = grpo.clipped_loss(
        new_BT, new_BT, group_advantages, mask_BT, weights_B[rows].to(new_BT),
        cfg.clip_eps, cfg.clip_eps_high,
    )  # fmt: skip
    print(
        f"\ngroup {p} of {len(groups_PM)}, gold answer "
        f"{batch.questions[p * M // batch.rewards_PFG[0].numel()].answer!r}"
    )
    shown: list[int] = []
    for i in rows.tolist():
        if rollout.prompts[i] != shown:
            shown = rollout.prompts[i]
            print(f"\nsampled from {policy.tokenizer.decode(shown)!r}\n  ids {shown}")
            anchor = batch.anchored_prompts[i]
            if anchor != shown:
                print(f"  scored under {policy.tokenizer.decode(anchor)!r} (the anchor)")
        m = i - p * M
        print(
            f"  row {i}: {batch.texts[i]!r}\n"
            f"    ids {rollout.completions_BT[i].tolist()}\n"
            f"    mask {rollout.mask_BT[i].int().tolist()}\n"
            f"    log-probabilities {[round(x, 3) for x in new_BT[m][mask_BT[m]].tolist()]}\n"
            f"    reward {float(groups_PM[p, m]):g}   advantage {float(group_advantages[m]):+.4f}"
        )
    print(
        f"\nrewards   {groups_PM[p].tolist()}\n"
        f"mean {float(groups_PM[p].nanmean()):.4f}, "
        f"std (1/M) {float(groups_PM[p].std(correction=0)):.4f}\n"
        f"ACR of the step {acr:.3f}; "
        f"AVSPO's gate {'open' if cfg.uses_avspo and acr > cfg.tau else 'shut'}\n"
        f"this group's part of the loss {float(loss):+.6f}: the ratio is 1 at the first update, so "
        "its\nvalue is only the advantages' weighted sum; the gradient is what trains"
    )


def after_first_step(cfg: Config, policy: Policy, acr: float, seconds: float) -> str:
    """How long the rest will take, how large a checkpoint is, and how often AVSPO's gate will open
    if groups go on collapsing as they did in the first step."""
    size = 3 * 4 * policy.num_parameters / 1e6  # weights and AdamW's two moments, float32
    left = seconds * (cfg.steps - 1) / 60
    lines = [
        f"first step {seconds:.1f} s: about {left:.0f} min to the end, evaluations aside; "
        f"a checkpoint takes {size:,.0f} MB"
    ]
    if cfg.uses_avspo and acr == acr:
        groups = cfg.acr_window or cfg.groups_per_step
        share = avspo.gate_open_probability(groups, acr, cfg.tau)
        lines.append(
            f"ACR {acr:.2f} in the first step: with {groups} groups and tau = {cfg.tau:g} "
            f"the gate opens in about {100 * share:.0f} % of steps"
        )
    seen = last_report()
    if seen["no_box"] > seen["scored"] / 2:
        lines.append(
            f"{seen['no_box']} of {seen['scored']} completions have no box and earn nothing; "
            "--examples or a larger --max-new-tokens may help (see samples.jsonl)"
        )
    return "\n".join(lines)


def summary(
    run: RunFolder, first_rates: list[float], last_rates: list[float], groups: int, peak: float
) -> str:
    """The table at the end, read back from the run's own files.

    first_rates, last_rates: pass@1 of each held-out question. groups: normalised ones a step.
    peak: memory, gigabytes.
    """
    metrics, evals = read_csv(run.path / "metrics.csv"), read_csv(run.path / "eval.csv")
    lines = [""]
    if len(evals) > 1:
        first, last = evals[0], evals[-1]
        lines.append(
            f"held-out pass@1    {float(first['pass@1']):.3f} -> {float(last['pass@1']):.3f}"
            f"   at {last['questions']} questions x {last['samples']} samples"
        )
    if len(last_rates) == len(first_rates) and last_rates:
        change, low, high = paired_difference(first_rates, last_rates)
        lines.append(
            f"change             {100 * change:+.1f} points, 95 % interval "
            f"{100 * low:+.1f} to {100 * high:+.1f} (paired by question)"
        )

    def mean(key: str, rows: list[dict]) -> float:
        values = [float(row[key]) for row in rows if row[key]]
        return sum(values) / len(values) if values else math.nan

    n = min(10, len(metrics))
    head, tail = metrics[:n], metrics[-n:]
    for key, text in (
        ("acr", "ACR, original alone"),
        ("acr_group", "ACR, normalised groups"),
        ("acr_after", "ACR, after algorithm"),
    ):
        lines.append(
            f"{text:<23}{mean(key, head):.2f} -> {mean(key, tail):.2f}   (first and last {n} steps)"
        )
    if any(row["tau"] for row in metrics):
        rescued = (mean("acr_group", metrics) - mean("acr_after", metrics)) * groups
        lines.append(f"gate open              {100 * mean('gate_open', metrics):.0f} % of steps")
        lines.append(f"rescued groups         {rescued:.1f} a step")
    lines.append(f"time a step            {mean('step_s', metrics):.2f} s")
    lines.append(f"peak memory            {peak:.2f} GB") if peak == peak else None
    lines.append(f"plot                   {run.path / 'curves.png'}")
    return "\n".join(lines)


def tensorboard_writer(cfg: Config):
    """The SummaryWriter class for --report-to tensorboard, else None. Raises OptionError."""
    if cfg.report_to != "tensorboard":
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise OptionError("--report-to tensorboard: pip install tensorboard") from None
    return SummaryWriter


def versions() -> dict[str, str]:
    import transformers

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "platform": platform.platform(),
    }
