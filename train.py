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

import dataclasses
import math
import sys
import time
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor
from tqdm import tqdm

import avspo
import data
import grpo
import tagrpo
from acr import CollapseMonitor, collapse_report, collapsed, scorable
from evaluate import Evaluation, evaluate_policy
from reward import score
from rollout import Rollout, micro_batches, sample, token_logprobs, uniforms
from support import report, setup
from support.figures import plot_curves
from support.options import Config, OptionError, parse_options, shown
from support.policy import Policy, PolicyError, check_model_name, load_policy
from support.run_files import METRICS, RunError, RunFolder, StopRequest

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
    with policy.autocast():
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
    policy: Policy,
    optimizer,
    step: Step,
    advantages_B: Tensor,
    cfg: Config,
    reference,
    skip_dead: bool = True,
) -> dict[str, float]:
    """`updates_per_rollout` optimizer steps on one rollout; returns what is logged of them.

    skip_dead: leave out the rows without gradient (False to measure what that saves).
    """
    model, rollout = policy.model, step.rollout
    weights_B = grpo.row_weights(rollout.lengths_B, cfg.loss_agg, cfg.max_new_tokens)
    # A row with advantage 0 has no gradient, unless the KL term gives it one. Leaving it out is
    # exact: it stays in the weights above, and the optimizer steps even where nothing is left.
    every_row = cfg.kl_beta > 0 or not skip_dead
    live = torch.arange(len(advantages_B)) if every_row else advantages_B.nonzero()[:, 0]
    prompt_lengths_B = torch.tensor([len(p) for p in step.anchored_prompts])
    batches = [
        live[rows]
        for rows in micro_batches((prompt_lengths_B + rollout.lengths_B)[live],
                                  cfg.micro_batch_tokens)
    ]  # fmt: skip

    def logprobs(net, rows: Tensor) -> Tensor:
        T = int(rollout.lengths_B[rows].max())
        with policy.autocast():
            return token_logprobs(
                net,
                [step.anchored_prompts[i] for i in rows],
                rollout.completions_BT[rows, :T],
                rollout.mask_BT[rows, :T],
                temperature=cfg.temperature,
                pad_id=policy.pad_id,
            )

    with torch.no_grad():
        ref = [logprobs(reference, rows) if reference else None for rows in batches]
    old: list[Tensor | None] = [None] * len(batches)
    sums = dict.fromkeys(("loss", "grad_norm", "gap", "gap_tokens", "skipped"), 0.0)
    for update in range(cfg.updates_per_rollout):
        for parameter in model.parameters():  # zeros, not None: momentum and decay go on regardless
            parameter.grad = torch.zeros_like(parameter)
        for i, (rows, ref_BT) in enumerate(zip(batches, ref)):
            new_BT = logprobs(model, rows)
            if update == 0:  # before the first optimizer step pi is pi_old: no forward of its own
                old[i] = new_BT.detach()
            old_BT = old[i]
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


def what_is_left(groups_PM: Tensor, advantages_PM: Tensor) -> dict[str, float]:
    """`acr_after` and its two parts, as `collapse_report`: groups whose real samples all have
    advantage 0 once the algorithm is done, of those with two verdicts."""
    able_P = scorable(groups_PM)
    dead_P = able_P & (advantages_PM == 0).all(dim=1)
    wrong_P = dead_P & (groups_PM.nan_to_num(nan=-math.inf).amax(dim=1) <= 0)
    able, dead, wrong = (int(x.sum()) for x in (able_P, dead_P, wrong_P))
    if not able:
        return dict.fromkeys(("acr", "acr_all_wrong", "acr_all_right"), math.nan)
    return {
        "acr": dead / able,
        "acr_all_wrong": wrong / able,
        "acr_all_right": (dead - wrong) / able,
    }


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
        """Raises KeyError, TypeError or ValueError where it is not what `state` wrote."""
        last = state["last_reward"]
        numbers = [state["tau"], *([] if last is None else [last]), *state["first_rates"]]
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("a number is not finite")
        self.step = state["step"]
        self.threshold.tau, self.threshold.last_reward = state["tau"], last
        self.skipped_in_a_row = int(state["skipped_in_a_row"])
        self.recent_collapses.clear()
        self.recent_collapses.extend(map(bool, state["recent_collapses"]))
        self.first_rates = list(state["first_rates"])


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


def group_counts(batch: Step, groups_PM: Tensor, advantages_PM: Tensor, step: int) -> dict:
    """A line of groups.jsonl: right answers, verdicts and tokens of each normalised group, and
    whether it has a gradient in the end."""
    tokens_PM = batch.rollout.lengths_B.view(groups_PM.shape)
    return {
        "step": step,
        "right": (groups_PM > 0).sum(dim=1).tolist(),
        "scored": (~groups_PM.isnan()).sum(dim=1).tolist(),
        "tokens": tokens_PM.sum(dim=1).tolist(),
        "live": (advantages_PM != 0).any(dim=1).int().tolist(),
    }


def none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def evaluate_and_log(
    policy: Policy,
    held_out: list[data.Question],
    step: int,
    run: RunFolder,
    cfg: Config,
    frozen: Policy | None,
) -> Evaluation:
    """pass@k on the held-out questions, as a line of eval.csv; with the frozen starting policy,
    the diversity of the completions too."""
    result = evaluate_policy(
        policy,
        held_out,
        cfg.eval_samples,
        max_new_tokens=cfg.max_new_tokens,
        temperature=cfg.temperature,
        seed=cfg.seed,
        chunk_tokens=cfg.chunk_tokens,
        embedder=frozen,
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
    # the policy as it was at step 0: the KL term's reference, and what diversity is measured with
    wanted = cfg.kl_beta > 0 or cfg.diversity
    frozen = load_policy(cfg.model, str(policy.model.device)) if wanted else None
    reference = frozen.model if cfg.kl_beta > 0 else None
    embedder = frozen if cfg.diversity else None
    state = None
    if cfg.resume:
        state = run.load_checkpoint(policy.model, optimizer, progress.restore)
    run.cut_logs(progress.step if state is not None else -1)
    last = min(cfg.steps, cfg.stop_after or cfg.steps)
    monitor, rates = CollapseMonitor(), []
    if state is None:
        progress.first_rates = evaluate_and_log(policy, held_out, 0, run, cfg, embedder).rates()
    if cfg.gradient_checkpointing:  # it acts in training mode only; there is no dropout left
        policy.model.activation_checkpointing_enable({"use_reentrant": False})
        policy.model.train()
    bar = tqdm(total=cfg.steps, initial=progress.step, desc=cfg.algo, disable=None)
    with StopRequest() as stop, bar:
        while progress.step < last and not stop.asked:
            step, started = progress.step + 1, time.perf_counter()
            questions = data.draw_questions(train_set, cfg.seed, step, cfg.prompts_per_step)
            batch = sample_step(policy, questions, step, cfg)

            # groups of GRPO are (P, G); TA-GRPO's hold every phrasing's samples: (P, F*G)
            groups_PM = tagrpo.pool_phrasings(batch.rewards_PFG, pool=not cfg.no_pool)
            joint = collapse_report(groups_PM)
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
            logged |= {"acr_group": joint["acr"], "unscorable": joint["unscorable"]}
            left = what_is_left(groups_PM, advantages_PM)
            logged["acr_after"] = left["acr"]
            logged["tau"] = tau if cfg.uses_avspo else None
            logged["gate_open"] = int(gate_open)
            logged["virtual_k"] = virtual_k(groups_PM, acr_read, cfg) if gate_open else None
            logged["step_s"] = time.perf_counter() - started
            logged["tokens_per_s"] = int(batch.rollout.mask_BT.sum()) / logged["step_s"]
            run.append_csv("metrics.csv", logged, METRICS)
            run.append_jsonl("samples.jsonl", some_samples(batch, advantages_PM, step))
            counts = group_counts(batch, groups_PM, advantages_PM, step)
            run.append_jsonl("groups.jsonl", [counts])
            if step == 1:
                tqdm.write(report.after_first_step(cfg, policy, acr_read, logged["step_s"]))
            progress.step = step
            progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if logged["skipped"] else 0
            bar.update()
            bar.set_postfix(
                reward=f"{logged['reward']:.2f}", ACR=f"{raw['acr']:.2f}", tau=f"{tau:.2f}"
            )
            if sentence := monitor.update(left, logged["reward"]):
                tqdm.write(f"step {step}: {sentence}")
            if progress.skipped_in_a_row == 3:
                raise RunError(f"loss or gradient not finite in 3 steps running, up to step {step}")
            if step == cfg.steps or (cfg.eval_every and step % cfg.eval_every == 0):
                rates = evaluate_and_log(policy, held_out, step, run, cfg, embedder).rates()
            due = cfg.save_every and step % cfg.save_every == 0
            if (due or step == last or stop.asked) and not progress.skipped_in_a_row:
                run.save_checkpoint(step, policy.model, optimizer, progress.state())
    return progress, rates


# ------------------------------------------------------------------------------- command line


def main(argv: list[str] | None = None) -> int:
    """Exit status 0; 2 with one line on stderr for anything the user can mend."""
    run = None
    try:
        cfg = parse_options(argv, __doc__.split("\n\n")[0])
        if cfg.show:
            print(shown(cfg))
            return 0
        device = setup.pick_device(cfg.device)
        check_model_name(cfg.model)
        # --explain writes nothing, so it does not mind a run that is there
        run = RunFolder(cfg.out, cfg.overwrite, cfg.resume or cfg.explain)
        if not cfg.explain:
            run.check_unchanged(dataclasses.asdict(cfg))
            setup.refuse_own_input(cfg)
        writer = report.tensorboard_writer(cfg)
        train_set, held_out = setup.load_questions(cfg)
        train_set, held_out = setup.judgeable(train_set, held_out, cfg)
        memory = setup.check_memory(cfg, device)
        policy = load_policy(cfg.model, device)
        policy.thinking, policy.examples = cfg.thinking, cfg.examples
        policy.dtype = setup.pick_dtype(cfg.dtype, device, policy.num_parameters)
        train_set = setup.short_enough(train_set, policy, cfg, "training")
        held_out = setup.short_enough(held_out, policy, cfg, "held-out")
        print(report.describe(cfg, policy, train_set, held_out), memory, sep="\n")
        if cfg.explain:
            questions = data.draw_questions(train_set, cfg.seed, 1, cfg.prompts_per_step)
            batch = sample_step(policy, questions, 1, cfg)
            groups_PM = tagrpo.pool_phrasings(batch.rewards_PFG, pool=not cfg.no_pool)
            acr = collapse_report(groups_PM)["acr"]
            explained = advantages(groups_PM, cfg.tau, acr, 1, cfg)
            report.explain(policy, batch, groups_PM, explained, cfg)
            return 0
        options = dataclasses.asdict(cfg)
        run.prepare({"options": options, "device": device, "versions": report.versions()})
        run.mirror = writer and writer(str(run.path / "tensorboard"))
        progress, rates = train(cfg, run, policy, train_set, held_out)
        if progress.step < cfg.steps:
            plot_curves(run.path)
            print(f"stopped after step {progress.step} of {cfg.steps}; go on with --resume")
            return 0
        run.save_model(policy)
        plot_curves(run.path)
        peak = setup.peak_memory(device)
        print(report.summary(run, progress.first_rates, rates, cfg.groups_per_step, peak))
        return 0
    except (OptionError, RunError, PolicyError, data.DataError) as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a name too long
        place = error.filename or f"{run.path} (--resume goes on once that is mended)"
        print(f"train.py: error: {error.strerror}: {str(place)[:80]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("train.py: interrupted; --resume goes on from the last checkpoint", file=sys.stderr)
        return 130
    finally:
        if run is not None:
            run.close()


if __name__ == "__main__":
    sys.exit(main())
