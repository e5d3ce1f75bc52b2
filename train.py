"""Train a small language model on maths questions with GRPO, AVSPO, TA-GRPO or both at once.

    python train.py --algo avspo

With no other option this runs the embedded model on the embedded task, on a CPU, offline. The
loop in `train` reads like the papers' algorithm boxes: draw questions, sample, score, normalise
inside groups, update, adapt. The algorithms share it; what a paper changes is in `avspo.py` and
`tagrpo.py`, and this file only says where it acts.

Shapes: _P questions of a step · _F phrasings of a question, the original first · _G samples of a
phrasing · _M samples of a group · _B rows (P*F*G) · _T tokens.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import platform
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor
from tqdm import tqdm

import avspo
import data
import grpo
import tagrpo
from acr import CollapseMonitor, collapse_report, collapsed, scorable
from evaluate import Evaluation, evaluate_policy, paired_difference
from reward import score
from rollout import Rollout, micro_batches, sample, token_logprobs, uniforms
from support.policy import Policy, PolicyError, check_model_name, load_policy
from support.run_files import METRICS, RunError, RunFolder, StopRequest, plot_curves, read_csv

ALGORITHMS = ("grpo", "avspo", "tagrpo", "tagrpo+avspo")


class OptionError(ValueError):
    """A wrong option; the message is one line for the user."""


def option(default: object, text: str, **limits: object):
    """A field of Config: its default, its --help text, and what values it takes."""
    return field(default=default, metadata={"help": text, **limits})


@dataclass
class Config:
    """Every option of a run. `--name-with-dashes VALUE` on the command line."""

    algo: str = option("", "the algorithm", choices=ALGORITHMS)
    model: str = option("tiny", "tiny (embedded), a folder, or a hub id")
    data: str = option("arithmetic", "arithmetic (embedded), or a file of JSON lines")
    eval_data: str = option("", "held-out questions, a file; empty: a part of --data is kept aside")
    out: str = option("", "folder of the run; empty: runs/ALGO-seedSEED")
    overwrite: bool = option(False, "remove an earlier run in the folder first")
    resume: bool = option(False, "go on from the folder's last checkpoint")
    seed: int = option(0, "seed of questions and samples", low=0)
    steps: int = option(200, "training steps (rollouts)", low=1)
    stop_after: int = option(
        0, "stop after this step, without changing the schedule; 0: off", low=0
    )
    prompts_per_step: int = option(32, "questions a step (P)", low=1)
    group_size: int = option(8, "samples of a phrasing (G)", low=2)
    num_rephrasings: int = option(3, "rephrasings of a question (N), for tagrpo", low=0)
    max_new_tokens: int | None = option(None, "longest completion, tokens [16 for tiny, else 256]")
    max_prompt_tokens: int = option(512, "longer prompts are reported and left out", low=1)
    temperature: float = option(1.0, "sampling temperature", low=0.05)
    lr: float | None = option(None, "learning rate of AdamW [5e-5 for tiny, else 1e-6]")
    lr_schedule: str = option("constant", "after the warm-up", choices=("constant", "cosine"))
    warmup_steps: int = option(0, "steps of linear warm-up", low=0)
    weight_decay: float = option(0.01, "weight decay of AdamW", low=0.0)
    grad_clip: float = option(1.0, "largest gradient norm", low=0.0)
    kl_beta: float = option(0.0, "weight of the KL term (beta)", low=0.0)
    clip_eps: float = option(0.2, "lower, and without --clip-eps-high upper, clip range", low=0.0)
    clip_eps_high: float | None = option(None, "upper clip range [--clip-eps]")
    updates_per_rollout: int = option(1, "optimizer steps on each rollout (mu)", low=1)
    loss_agg: str = option("sequence", "what the loss averages over", choices=grpo.AGGREGATIONS)
    tau: float = option(0.5, "AVSPO: threshold on ACR where the gate opens, at the start", low=0.0)
    fixed_tau: bool = option(False, "AVSPO: never move the threshold")
    eta: float = option(0.01, "AVSPO: step size of the threshold", low=0.0)
    alpha: float = option(0.5, "AVSPO: exponent of ACR in the number of virtual rewards", low=1e-9)
    virtual_k: str = option("adaptive", "AVSPO: virtual rewards a group, adaptive or a number")
    virtual_rule: str = option("stratified", "AVSPO: virtual rewards", choices=avspo.RULES)
    rescue: str = option("both", "AVSPO: which collapsed groups", choices=avspo.GROUPS)
    acr_window: int = option(0, "AVSPO: read ACR over the last so many groups; 0: this step", low=0)
    no_anchor: bool = option(False, "TA-GRPO: score completions under the phrasing they came from")
    no_pool: bool = option(False, "TA-GRPO: normalise each phrasing by itself")
    eval_every: int = option(50, "steps between evaluations; 0: at start and end only", low=0)
    eval_questions: int | None = option(None, "held-out questions [512 for arithmetic, else 32]")
    eval_samples: int | None = option(None, "samples a held-out question [4 for tiny, else 1]")
    save_every: int = option(50, "steps between checkpoints; 0: at the end only", low=0)
    micro_batch_tokens: int | None = option(
        None, "tokens, padding included, in one forward and backward [16384 for tiny, else 4096]"
    )
    chunk_tokens: int = option(65536, "tokens, padding included, in one call of generate", low=1)
    device: str = option("auto", "auto, cpu, cuda or mps")
    explain: bool = option(False, "print one step in full, write nothing, and stop")

    @property
    def uses_avspo(self) -> bool:
        return "avspo" in self.algo

    @property
    def phrasings(self) -> int:
        """F = N + 1 for TA-GRPO, else 1."""
        return self.num_rephrasings + 1 if "tagrpo" in self.algo else 1

    def check(self) -> None:
        """Fills in what depends on other options. Raises OptionError for the first wrong value."""
        tiny = self.model == "tiny"
        arithmetic = self.data == "arithmetic"
        defaults = {
            "out": f"runs/{self.algo}-seed{self.seed}",
            "max_new_tokens": 16 if tiny else 256,
            "lr": 5e-5 if tiny else 1e-6,
            "clip_eps_high": self.clip_eps,
            "eval_questions": 512 if arithmetic else 32,
            "eval_samples": 4 if tiny else 1,
            "micro_batch_tokens": 16384 if tiny else 4096,
        }
        for name, value in defaults.items():
            if getattr(self, name) in (None, ""):
                setattr(self, name, value)
        for f in dataclasses.fields(self):
            value, flag = getattr(self, f.name), "--" + f.name.replace("_", "-")
            choices, low = f.metadata.get("choices"), f.metadata.get("low", 0)
            if choices and value not in choices:
                raise OptionError(f"{flag} {value or 'is missing'}: one of {', '.join(choices)}")
            if isinstance(value, (int, float)) and not (math.isfinite(value) and value >= low):
                raise OptionError(f"{flag} {value}: must be {low} or more")
        for name in (
            "max_new_tokens",
            "lr",
            "eval_questions",
            "eval_samples",
            "micro_batch_tokens",
        ):
            if getattr(self, name) <= 0:
                raise OptionError(f"--{name.replace('_', '-')} must be above 0")
        if self.clip_eps >= 1:
            raise OptionError(f"--clip-eps {self.clip_eps}: must be below 1")
        if not self.fixed_tau and not 0.1 <= self.tau <= 0.9:
            raise OptionError(f"--tau {self.tau}: outside [0.1, 0.9] it needs --fixed-tau")
        if self.virtual_k != "adaptive" and not (
            self.virtual_k.isascii() and self.virtual_k.isdigit() and int(self.virtual_k) >= 1
        ):
            raise OptionError(f"--virtual-k {self.virtual_k}: adaptive, or a number of 1 or more")
        if self.overwrite and self.resume:
            raise OptionError("--overwrite and --resume exclude each other")


# ------------------------------------------------------------------------------- one step's parts


@dataclass
class Step:
    """What was sampled and what it was worth."""

    questions: list[data.Question]
    rollout: Rollout
    anchored_prompts: list[list[int]]  # the prompt each row is trained under
    rephrased_B: Tensor  # True where a row was sampled from a rephrasing
    rewards_PFG: Tensor
    texts: list[str]


def sample_step(policy: Policy, questions: list[data.Question], step: int, cfg: Config) -> Step:
    """Samples G completions of each phrasing of each question, and scores them."""
    P, F, G = len(questions), cfg.phrasings, cfg.group_size
    texts_PF = [tagrpo.fill_phrasings(q.question, q.rephrasings, F - 1) for q in questions]
    prompts_PF = [[policy.encode(text) for text in row] for row in texts_PF]
    rollout = sample(
        policy.model,
        [prompt for row in prompts_PF for prompt in row],
        G,
        uniforms(data.stable_seed(cfg.seed, "training", step), P, F, G, cfg.max_new_tokens),
        max_new_tokens=cfg.max_new_tokens,
        temperature=cfg.temperature,
        end_ids=policy.end_ids,
        pad_id=policy.pad_id,
        chunk_tokens=cfg.chunk_tokens,
    )
    texts = [policy.decode(ids[mask].tolist()) for ids, mask in rollout.rows()]
    golds = [q.answer for q in questions for _ in range(F * G)]
    rewards_B = torch.tensor(score(texts, golds, rollout.truncated_B.tolist()))
    anchored_PF = tagrpo.anchored_prompts(prompts_PF, anchor=not cfg.no_anchor)
    return Step(
        questions,
        rollout,
        [prompt for row in anchored_PF for prompt in row for _ in range(G)],
        torch.tensor([t != row[0] for row in texts_PF for t in row for _ in range(G)]),
        rewards_B.view(P, F, G),
        texts,
    )


def update_policy(
    policy: Policy, optimizer, step: Step, advantages_B: Tensor, cfg: Config, reference
) -> dict[str, float]:
    """`updates_per_rollout` optimizer steps on one rollout; returns what is logged of them."""
    model, rollout = policy.model, step.rollout
    weights_B = grpo.row_weights(rollout.lengths_B, cfg.loss_agg, cfg.max_new_tokens)
    # A row with advantage 0 has no gradient, unless the KL term gives it one. Leaving it out is
    # exact: it stays in the weights above, and the optimizer steps even where nothing is left.
    live = torch.arange(len(advantages_B)) if cfg.kl_beta > 0 else advantages_B.nonzero()[:, 0]
    prompt_lengths_B = torch.tensor([len(p) for p in step.anchored_prompts])
    batches = [
        live[rows]
        for rows in micro_batches((prompt_lengths_B + rollout.lengths_B)[live],
                                  cfg.micro_batch_tokens)
    ]  # fmt: skip

    def logprobs(net, rows: Tensor) -> Tensor:
        T = int(rollout.lengths_B[rows].max())
        return token_logprobs(
            net,
            [step.anchored_prompts[i] for i in rows],
            rollout.completions_BT[rows, :T],
            rollout.mask_BT[rows, :T],
            temperature=cfg.temperature,
            pad_id=policy.pad_id,
        )

    with torch.no_grad():
        # one update: pi_old is pi, no second forward needed
        many = cfg.updates_per_rollout > 1
        old = [logprobs(model, rows) if many else None for rows in batches]
        ref = [logprobs(reference, rows) if reference else None for rows in batches]
    sums = dict.fromkeys(("loss", "grad_norm", "gap", "gap_tokens", "skipped"), 0.0)
    for update in range(cfg.updates_per_rollout):
        for parameter in model.parameters():  # zeros, not None: momentum and decay go on regardless
            parameter.grad = torch.zeros_like(parameter)
        for rows, old_BT, ref_BT in zip(batches, old, ref):
            new_BT = logprobs(model, rows)
            old_BT = new_BT.detach() if old_BT is None else old_BT
            mask_BT = rollout.mask_BT[rows, : new_BT.shape[1]].to(new_BT.device)
            advantages = advantages_B[rows].to(new_BT)
            weights = weights_B[rows].to(new_BT)
            loss = grpo.clipped_loss(
                new_BT, old_BT, advantages, mask_BT, weights,
                cfg.clip_eps, cfg.clip_eps_high, cfg.kl_beta, ref_BT,
            )  # fmt: skip
            loss.backward()
            sums["loss"] += float(loss.detach())
            found = grpo.ratio_diagnostics(
                new_BT, old_BT, advantages, mask_BT, cfg.clip_eps, cfg.clip_eps_high, ref_BT
            )
            if update == 0 and not cfg.no_anchor:
                mine_BT = mask_BT & step.rephrased_B[rows, None].to(mask_BT.device)
                sampled_BT = rollout.logprobs_BT[rows, : new_BT.shape[1]].to(new_BT)
                found["gap"] = float((sampled_BT - new_BT.detach())[mine_BT].sum())
                found["gap_tokens"] = float(mine_BT.sum())
            for key, value in found.items():
                sums[key] = sums.get(key, 0.0) + value
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        sums["grad_norm"] += float(norm)
        if math.isfinite(float(norm)) and math.isfinite(sums["loss"]):
            optimizer.step()
        else:
            sums["skipped"] += 1
    tokens = sums.get("tokens", 0.0)

    def per_token(key: str) -> float | None:
        return sums[key] / tokens if tokens and key in sums else None

    return {
        "loss": sums["loss"] / cfg.updates_per_rollout,
        "grad_norm": sums["grad_norm"] / cfg.updates_per_rollout,
        "ratio_mean": per_token("ratio"),
        "clip_frac": per_token("clipped"),
        "kl": per_token("kl"),
        "anchor_gap": sums["gap"] / sums["gap_tokens"] if sums["gap_tokens"] else None,
        "live_rows": len(live),
        "skipped": sums["skipped"],
    }


def share_without_gradient(groups_PM: Tensor, advantages_PM: Tensor) -> float:
    """`acr_after`: groups whose real samples all have advantage 0, of those with two verdicts."""
    able_P = scorable(groups_PM)
    dead_P = able_P & (advantages_PM == 0).all(dim=1)
    return int(dead_P.sum()) / int(able_P.sum()) if able_P.any() else math.nan


def learning_rate(cfg: Config, step: int) -> float:
    """Linear warm-up, then constant, or a cosine down to 0 at the last step."""
    if step <= cfg.warmup_steps:
        return cfg.lr * step / cfg.warmup_steps
    if cfg.lr_schedule == "constant":
        return cfg.lr
    progress = (step - cfg.warmup_steps) / max(1, cfg.steps - cfg.warmup_steps)
    return cfg.lr * 0.5 * (1 + math.cos(math.pi * progress))


# ------------------------------------------------------------------------------- the loop


@dataclass
class Progress:
    """Everything that training changes beside weights and optimizer; a checkpoint holds it."""

    threshold: avspo.AdaptiveThreshold
    step: int = 0
    skipped_in_a_row: int = 0
    recent_collapses: deque = field(default_factory=deque)  # of the last --acr-window groups
    first_rates: list[float] = field(default_factory=list)  # pass@1 a question before training

    def state(self) -> dict:
        return {
            "tau": self.threshold.tau,
            "last_reward": self.threshold.last_reward,
            "skipped_in_a_row": self.skipped_in_a_row,
            "recent_collapses": list(self.recent_collapses),
            "first_rates": self.first_rates,
        }

    def restore(self, state: dict) -> None:
        self.step = state["step"]
        self.threshold.tau = state["tau"]
        self.threshold.last_reward = state["last_reward"]
        self.skipped_in_a_row = state["skipped_in_a_row"]
        self.recent_collapses.extend(state["recent_collapses"])
        self.first_rates = state["first_rates"]


def read_acr(groups_PM: Tensor, progress: Progress, cfg: Config) -> float:
    """The ACR that gate, K and threshold read: this step's, or that of the last W groups."""
    if not cfg.acr_window:
        return collapse_report(groups_PM)["acr"]
    progress.recent_collapses.extend(collapsed(groups_PM)[scorable(groups_PM)].tolist())
    recent = progress.recent_collapses
    return sum(recent) / len(recent) if recent else math.nan


def advantages(groups_PM: Tensor, tau: float, acr: float, step: int, cfg: Config) -> Tensor:
    """GRPO's advantages, or AVSPO's. TA-GRPO's are GRPO's of the pooled groups."""
    if not cfg.uses_avspo:
        return grpo.group_advantages(groups_PM)
    return avspo.avspo_advantages(
        groups_PM,
        tau,
        acr,
        alpha=cfg.alpha,
        virtual_k=None if cfg.virtual_k == "adaptive" else int(cfg.virtual_k),
        rule=cfg.virtual_rule,
        groups=cfg.rescue,
        generator=torch.Generator().manual_seed(data.stable_seed(cfg.seed, "virtual", step)),
    )


def virtual_k(groups_PM: Tensor, acr: float, cfg: Config) -> int:
    """The K that is logged: that of a group whose samples all have a verdict."""
    if cfg.virtual_k != "adaptive":
        return int(cfg.virtual_k)
    return avspo.num_virtual(groups_PM.shape[1], acr, cfg.alpha)


def rollout_metrics(batch: Step, groups_PM: Tensor) -> dict[str, float]:
    """The columns that describe what was sampled."""
    rollout = batch.rollout
    return {
        "reward": float(batch.rewards_PFG[:, 0].nanmean()),
        "reward_group": float(groups_PM.nanmean()),
        "entropy": rollout.mean_entropy,
        "mean_length": float(rollout.lengths_B.float().mean()),
        "truncated": float(rollout.truncated_B.float().mean()),
    }


def some_samples(batch: Step, advantages_PM: Tensor, step: int, count: int = 4) -> list[dict]:
    """A few completions for samples.jsonl: one each of the first questions."""
    rows_per_question = batch.rewards_PFG[0].numel()
    rewards_B, advantages_B = batch.rewards_PFG.reshape(-1), advantages_PM.reshape(-1)
    return [
        {
            "step": step,
            "id": question.id,
            "prompt": question.question,
            "gold": question.answer,
            "completion": batch.texts[p * rows_per_question],
            "reward": none_if_nan(float(rewards_B[p * rows_per_question])),
            "advantage": float(advantages_B[p * rows_per_question]),
        }
        for p, question in enumerate(batch.questions[:count])
    ]


def none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def evaluate_and_log(
    policy: Policy, held_out: list[data.Question], step: int, run: RunFolder, cfg: Config
) -> Evaluation:
    """pass@k on the held-out questions, as a line of eval.csv."""
    result = evaluate_policy(
        policy,
        held_out,
        cfg.eval_samples,
        max_new_tokens=cfg.max_new_tokens,
        temperature=cfg.temperature,
        seed=cfg.seed,
        chunk_tokens=cfg.chunk_tokens,
    )
    row = {"step": step, **result.row()}
    run.append_csv("eval.csv", row, list(row))
    return result


def train(
    cfg: Config,
    run: RunFolder,
    policy: Policy,
    train_set: list[data.Question],
    held_out: list[data.Question],
) -> tuple[Progress, list[float]]:
    """Trains `policy` in place and logs every step; returns where it stopped, and pass@1 of each
    held-out question at the last evaluation (empty if there was none)."""
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay
    )
    progress = Progress(
        avspo.AdaptiveThreshold(cfg.tau, 0.0 if cfg.fixed_tau else cfg.eta),
        recent_collapses=deque(maxlen=cfg.acr_window or None),
    )
    # the reference of the KL term is the policy as it was at step 0
    reference = load_policy(cfg.model, str(policy.model.device)).model if cfg.kl_beta > 0 else None
    state = run.load_checkpoint(policy.model, optimizer) if cfg.resume else None
    if state is not None:
        progress.restore(state)
    run.cut_logs(progress.step if state is not None else -1)
    last = min(cfg.steps, cfg.stop_after or cfg.steps)
    monitor, rates = CollapseMonitor(), []
    if state is None:
        progress.first_rates = evaluate_and_log(policy, held_out, 0, run, cfg).rates()
    bar = tqdm(total=cfg.steps, initial=progress.step, desc=cfg.algo, disable=None)
    with StopRequest() as stop, bar:
        while progress.step < last and not stop.asked:
            step, started = progress.step + 1, time.perf_counter()
            questions = data.draw_questions(train_set, cfg.seed, step, cfg.prompts_per_step)
            batch = sample_step(policy, questions, step, cfg)

            # groups of GRPO are (P, G); TA-GRPO's hold every phrasing's samples: (P, F*G)
            groups_PM = tagrpo.pool_phrasings(batch.rewards_PFG, pool=not cfg.no_pool)
            report = collapse_report(groups_PM)
            acr_read = read_acr(groups_PM, progress, cfg)
            tau = progress.threshold.tau
            gate_open = cfg.uses_avspo and acr_read > tau
            advantages_PM = advantages(groups_PM, tau, acr_read, step, cfg)

            for parameters in optimizer.param_groups:
                parameters["lr"] = learning_rate(cfg, step)
            logged = update_policy(
                policy, optimizer, batch, advantages_PM.reshape(-1), cfg, reference
            )
            if cfg.uses_avspo:
                progress.threshold.update(acr_read, float(groups_PM.nanmean()))

            raw = collapse_report(batch.rewards_PFG[:, 0])  # what plain GRPO would have seen
            logged |= {"step": step, **raw, **rollout_metrics(batch, groups_PM)}
            logged |= {"acr_group": report["acr"], "unscorable": report["unscorable"]}
            logged["acr_after"] = share_without_gradient(groups_PM, advantages_PM)
            logged["tau"] = tau if cfg.uses_avspo else None
            logged["gate_open"] = int(gate_open)
            logged["virtual_k"] = virtual_k(groups_PM, acr_read, cfg) if gate_open else None
            logged["step_s"] = time.perf_counter() - started
            logged["tokens_per_s"] = int(batch.rollout.mask_BT.sum()) / logged["step_s"]
            run.append_csv("metrics.csv", logged, METRICS)
            run.append_jsonl("samples.jsonl", some_samples(batch, advantages_PM, step))
            if step == 1 and cfg.uses_avspo:
                tqdm.write(gate_note(len(groups_PM), acr_read, cfg))
            progress.step = step
            progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if logged["skipped"] else 0
            bar.update()
            bar.set_postfix(
                reward=f"{logged['reward']:.2f}", ACR=f"{raw['acr']:.2f}", tau=f"{tau:.2f}"
            )
            if sentence := monitor.update(raw, logged["reward"]):
                tqdm.write(f"step {step}: {sentence}")
            if progress.skipped_in_a_row == 3:
                raise RunError(f"loss or gradient not finite in 3 steps running, up to step {step}")
            if step == cfg.steps or (cfg.eval_every and step % cfg.eval_every == 0):
                rates = evaluate_and_log(policy, held_out, step, run, cfg).rates()
            due = step == last or (cfg.save_every and step % cfg.save_every == 0)
            if (due or stop.asked) and not progress.skipped_in_a_row:
                run.save_checkpoint(step, policy.model, optimizer, progress.state())
    return progress, rates


# ------------------------------------------------------------------------------- command line


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


def parse_options(argv: list[str] | None) -> Config:
    """Options given on the command line over the defaults. Raises OptionError."""
    parser = OneLineParser(
        prog="train.py",
        description=__doc__.split("\n\n")[0],
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    types = {"int": int, "float": float, "str": str, "int | None": int, "float | None": float}
    for f in dataclasses.fields(Config):
        flag, text = "--" + f.name.replace("_", "-"), f.metadata["help"]
        if f.type == "bool":
            parser.add_argument(flag, action="store_true", help=text)
            continue
        shown = "" if f.default in (None, "") else f" [{f.default}]"
        choices = f.metadata.get("choices")
        text += f": {', '.join(choices)}" if choices else ""
        parser.add_argument(flag, type=types[f.type], help=text + shown, metavar="X")
    cfg = Config(**vars(parser.parse_args(argv)))
    cfg.check()
    return cfg


def load_questions(cfg: Config) -> tuple[list[data.Question], list[data.Question]]:
    """(training questions, held-out questions), disjoint. Raises DataError."""
    if cfg.data == "arithmetic":
        return (
            data.arithmetic("train", 2048, cfg.seed),
            data.arithmetic("test", cfg.eval_questions, cfg.seed),
        )
    questions = data.read_jsonl(cfg.data)
    if cfg.eval_data:
        held_out = data.read_jsonl(cfg.eval_data)[: cfg.eval_questions]
        asked = {q.question for q in held_out}
        return [q for q in questions if q.question not in asked], held_out
    return data.split_held_out(questions, cfg.seed, cfg.eval_questions)


def pick_device(name: str) -> str:
    """`auto` is the first that is there of cuda, mps, cpu. Raises OptionError."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    there["cpu"] = True
    if name == "auto":
        return next(device for device, is_there in there.items() if is_there)
    if not there.get(name.split(":")[0]):
        raise OptionError(f"--device {name}: not on this machine; one of auto, cpu, cuda, mps")
    return name


def short_enough(
    questions: list[data.Question], policy: Policy, cfg: Config, what: str
) -> list[data.Question]:
    """Questions whose prompts, rephrasings included, keep the limit; says how many do not."""

    def longest(q: data.Question) -> int:
        texts = (q.question, *q.rephrasings[: cfg.phrasings - 1])
        return max(len(policy.encode(text)) for text in texts)

    kept = [q for q in questions if longest(q) <= cfg.max_prompt_tokens]
    if len(kept) < len(questions):
        print(f"left out: {len(questions) - len(kept)} {what} questions over --max-prompt-tokens")
    if not kept:
        raise data.DataError(f"no {what} question is within --max-prompt-tokens")
    return kept


def describe(cfg: Config, policy: Policy, train_set: list, held_out: list) -> str:
    """What is about to run, with the first prompt as the model sees it."""
    prompt = policy.tokenizer.decode(policy.encode(train_set[0].question))
    F = f" x {cfg.phrasings} phrasings" if cfg.phrasings > 1 else ""
    return (
        f"{cfg.algo}: {cfg.model} ({policy.num_parameters / 1e6:.2f} M parameters) on {cfg.data}, "
        f"{len(train_set)} questions, {len(held_out)} held out\n"
        f"a step: {cfg.prompts_per_step} questions{F} x {cfg.group_size} samples, "
        f"{cfg.max_new_tokens} tokens at most\n"
        f"first prompt: {prompt!r}"
    )


def explain(policy: Policy, questions: list[data.Question], cfg: Config) -> None:
    """Prints one of everything: a group from its prompt to its loss."""
    batch = sample_step(policy, questions, 1, cfg)
    groups_PM = tagrpo.pool_phrasings(batch.rewards_PFG, pool=not cfg.no_pool)
    acr = collapse_report(groups_PM)["acr"]
    advantages_PM = advantages(groups_PM, cfg.tau, acr, 1, cfg)
    mixed = (~collapsed(groups_PM)).nonzero()[:, 0].tolist()
    p = mixed[0] if mixed else 0  # a group with something to learn, if there is one
    M = groups_PM.shape[1]
    rows, rollout = torch.arange(p * M, (p + 1) * M), batch.rollout
    weights_B = grpo.row_weights(rollout.lengths_B, cfg.loss_agg, cfg.max_new_tokens)
    mask_BT = rollout.mask_BT[rows].to(policy.model.device)
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
        new_BT, new_BT.detach(), group_advantages, mask_BT, weights_B[rows].to(new_BT),
        cfg.clip_eps, cfg.clip_eps_high,
    )  # fmt: skip
    print(
        f"\ngroup {p} of {len(groups_PM)}, gold answer "
        f"{questions[p * M // batch.rewards_PFG[0].numel()].answer!r}"
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


def gate_note(groups: int, acr: float, cfg: Config) -> str:
    """How often AVSPO's gate will open if groups go on collapsing as in the first step."""
    count = min(cfg.acr_window, 10**4) or groups
    share = avspo.gate_open_probability(count, acr, cfg.tau)
    return (
        f"ACR {acr:.2f} in the first step: with {count} groups and tau = {cfg.tau:g} "
        f"the gate opens in about {100 * share:.0f} % of steps"
    )


def summary(run: RunFolder, progress: Progress, held_out_rates: list[float], groups: int) -> str:
    """The table at the end, read back from the run's own files. groups: normalised ones a step."""
    metrics, evals = read_csv(run.path / "metrics.csv"), read_csv(run.path / "eval.csv")
    lines = [""]
    if len(evals) > 1:
        first, last = evals[0], evals[-1]
        lines.append(
            f"held-out pass@1    {float(first['pass@1']):.3f} -> {float(last['pass@1']):.3f}"
            f"   at {last['questions']} questions x {last['samples']} samples"
        )
    if len(held_out_rates) == len(progress.first_rates) and held_out_rates:
        change, low, high = paired_difference(progress.first_rates, held_out_rates)
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
    lines.append(f"plot                   {run.path / 'curves.png'}")
    return "\n".join(lines)


def versions() -> dict[str, str]:
    import transformers

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "platform": platform.platform(),
    }


def main(argv: list[str] | None = None) -> int:
    """Exit status 0; 2 with one line on stderr for anything the user can mend."""
    try:
        cfg = parse_options(argv)
        device = pick_device(cfg.device)
        check_model_name(cfg.model)
        run = RunFolder(cfg.out, cfg.overwrite, cfg.resume)
        train_set, held_out = load_questions(cfg)
        policy = load_policy(cfg.model, device)
        train_set = short_enough(train_set, policy, cfg, "training")
        held_out = short_enough(held_out, policy, cfg, "held-out")
        print(describe(cfg, policy, train_set, held_out))
        if cfg.explain:
            explain(policy, data.draw_questions(train_set, cfg.seed, 1, cfg.prompts_per_step), cfg)
            return 0
        config = {"options": dataclasses.asdict(cfg), "device": device, "versions": versions()}
        run.prepare(config, may_change=("out", "overwrite", "resume", "stop_after", "save_every"))
        progress, rates = train(cfg, run, policy, train_set, held_out)
        plot_curves(run.path)
        if progress.step < cfg.steps:
            print(f"stopped after step {progress.step} of {cfg.steps}; go on with --resume")
            return 0
        policy.model.save_pretrained(run.path / "model")
        policy.tokenizer.save_pretrained(run.path / "model")
        groups = cfg.prompts_per_step * (cfg.phrasings if cfg.no_pool else 1)
        print(summary(run, progress, rates, groups))
        return 0
    except (OptionError, RunError, PolicyError, data.DataError) as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
