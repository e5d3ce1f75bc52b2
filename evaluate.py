"""How good is a policy, and what goes on inside its groups: one command measures any model folder.

    python evaluate.py --model M --benchmark math500 aime24 --samples 32 --k 1 8 16 32 --out DIR
    python evaluate.py compare DIR_A DIR_B          # paired, question by question; or two runs
    python evaluate.py collapse RUN_OR_LOG          # ACR over time, of TRL's and other logs too
    python evaluate.py collapse --model M --data D  # expected ACR of a checkpoint
    python evaluate.py select --model M --data D --between 0.3 0.5 --out FILE
    python evaluate.py inspect --data arithmetic --model tiny    # do rephrasings change success?

    pass@k = 1 - C(n - c, k) / C(n, k)        from c right among n samples, unbiased
                                              (arXiv 2107.03374, eq. 1)
    no gradient, one phrasing:  p^G + (1-p)^G               acr.expected_acr_from_counts
    no gradient, pooled:        prod_f p_f^G + prod_f (1-p_f)^G     (arXiv 2601.22478)
    diversity of a group = mean over pairs i < j of 1 - cos(e_i, e_j)

An accuracy without an interval is not a result: questions differ far more than samples do, so the
intervals here resample questions. Two policies are compared question by question, as most of the
noise is in the questions and cancels in the difference. Rates estimated from n samples are never
put into a power: every probability above has an unbiased estimate from counts.

Choices. e is the mean of the last hidden states of the frozen starting model over a completion's
tokens, read alone, after a start token that is not averaged (models put an outsized state there);
the papers do not say. A question's samples depend on (seed, question) only, so that two models
are compared on the same draws and a call that was killed goes on where it was.

Shapes: _Q questions · _F phrasings · _G groups or samples of a phrasing · _M samples of a group ·
_H hidden size.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb, nan, prod
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from acr import expected_acr_from_counts
from data import DataError, Problem, Question, stable_seed
from reward import extract_answer, score
from rollout import sample, uniforms
from support import benchmarks, figures, logs, setup
from support.completions import CompletionFile, fingerprint
from support.evaluation_options import parse_options
from support.evaluation_report import (
    curve,
    describe_inspection,
    describe_log,
    describe_results,
)
from support.options import OptionError
from support.policy import Policy, PolicyError, load_policy

# ------------------------------------------------------------------------------- estimates


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right; 1 <= k <= n."""
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"need 1 <= k <= n and 0 <= c <= n, got n={n}, c={c}, k={k}")
    # 1 - C(n - c, k) / C(n, k), in whole numbers up to the one division: exact for any n
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def bootstrap_interval(
    values_Q: Sequence[float], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the mean over questions, resampling questions. Too narrow for few
    questions (under 100). Raises ValueError for none."""
    values_Q = torch.as_tensor(values_Q, dtype=torch.float64)
    if not len(values_Q):
        raise ValueError("no values to resample")
    generator = torch.Generator().manual_seed(stable_seed("bootstrap", seed))
    rows = max(1, min(resamples, 1_000_000 // len(values_Q)))  # at a time, to bound the memory
    means = torch.cat([
        values_Q[torch.randint(len(values_Q), (part, len(values_Q)), generator=generator)].mean(1)
        for part in [rows] * (resamples // rows) + [resamples % rows] * (resamples % rows > 0)
    ])  # fmt: skip
    tail = (1 - level) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def paired_difference(
    before_Q: Sequence[float], after_Q: Sequence[float]
) -> tuple[float, float, float]:
    """(mean, low, high) of after - before, question by question, 95 % interval."""
    difference: Tensor = torch.tensor(after_Q, dtype=torch.float64) - torch.tensor(
        before_Q, dtype=torch.float64
    )
    return float(difference.mean()), *bootstrap_interval(difference)


def zero_gradient_from_counts(
    scored_F: Sequence[int], right_F: Sequence[int], G: int
) -> float | None:
    """Unbiased estimate of prod_f p_f^G + prod_f (1-p_f)^G: the chance that G samples of each of F
    phrasings, pooled into one group, are all right or all wrong. None if a phrasing has fewer than
    G verdicts, as then no unbiased estimate exists.

        prod_f C(c_f, G) / C(n_f, G)  +  prod_f C(n_f - c_f, G) / C(n_f, G)

    C(c, G) / C(n, G) is the chance that G of the n samples, drawn without replacement, are all
    right; its mean is p^G. The samples of different phrasings are independent, so the mean of the
    product is the product of the means. F = 1 is `acr.expected_acr_from_counts`.
    """
    if G < 1 or not len(scored_F) == len(right_F) >= 1:
        raise ValueError("need G >= 1 and as many counts as numbers of samples")
    if min(scored_F) < G:
        return None
    right = prod(comb(c, G) / comb(n, G) for n, c in zip(scored_F, right_F))
    return right + prod(comb(n - c, G) / comb(n, G) for n, c in zip(scored_F, right_F))


def chance_of_moving(n: int, a: int, m: int, b: int, by: float = 0.25) -> float:
    """The chance that rates a/n and b/m differ by `by` or more when both texts are equally hard:
    the a + b right samples dealt at random (hypergeometric) to n and m."""
    total, ways = comb(n + m, a + b), 0
    for x in range(max(0, a + b - m), min(n, a + b) + 1):
        if moved(n, x, m, a + b - x, by):
            ways += comb(n, x) * comb(m, a + b - x)
    return ways / total


def moved(n: int, a: int, m: int, b: int, by: float = 0.25) -> bool:
    """Whether rates a/n and b/m differ by `by` or more (rounding aside)."""
    return abs(b * n - a * m) >= by * n * m - 1e-9


# ------------------------------------------------------------------------------- diversity


def cosine_distance(embeddings_GMH: Tensor) -> Tensor:
    """Mean cosine distance over the pairs of each group. (G, M, H) -> (G,), from 0 to 2.

    Exactly 0 where all embeddings of a group are the same. NaN for groups of one.
    """
    unit_GMH = torch.nn.functional.normalize(embeddings_GMH.double(), dim=-1)
    i, j = torch.triu_indices(*[embeddings_GMH.shape[1]] * 2, offset=1)
    # 1 - cos = |u - v|^2 / 2, which has no rounding left where u = v
    return torch.stack([((u[i] - u[j]) ** 2).sum(-1).mean() / 2 for u in unit_GMH])


def distinct_answers(answers: Sequence[str | None]) -> float:
    """(different answers - 1) / (answers - 1): 0 where all agree, 1 where no two do.

    None, no answer, is left out; NaN with fewer than two answers. Compared as texts, spaces aside.
    """
    there = ["".join(a.split()) for a in answers if a is not None]
    return (len(set(there)) - 1) / (len(there) - 1) if len(there) > 1 else nan


@torch.no_grad()
def embed(embedder: Policy, texts: Sequence[str], batch_tokens: int = 8192) -> Tensor:
    """Mean last hidden state over the tokens of each text, read alone. (texts, H), float32, CPU.

    A start token comes first and is not averaged, unless there is nothing else. Equal texts are
    read once, so they have equal embeddings.
    """
    start = embedder.tokenizer.bos_token_id
    start = embedder.end_ids[0] if start is None else start
    ids = {t: [start, *embedder.tokenizer(t, add_special_tokens=False)["input_ids"]] for t in texts}
    batch, found, longest = [], {}, 0
    for text in sorted(ids, key=lambda t: -len(ids[t])):
        longest = longest or len(ids[text])
        batch.append(text)
        if (len(batch) + 1) * longest > batch_tokens:
            found |= _embed_batch(embedder, batch, ids)
            batch, longest = [], 0
    if batch:
        found |= _embed_batch(embedder, batch, ids)
    return torch.stack([found[text] for text in texts])


def _embed_batch(embedder: Policy, batch: list[str], ids: dict) -> dict[str, Tensor]:
    rows = [torch.tensor(ids[text]) for text in batch]
    pad = torch.nn.utils.rnn.pad_sequence
    ids_BT = pad(rows, batch_first=True, padding_value=embedder.pad_id).to(embedder.model.device)
    mask_BT = pad([torch.ones_like(row) for row in rows], batch_first=True).to(ids_BT)
    with embedder.autocast():
        states_BTH = embedder.model.base_model(
            input_ids=ids_BT, attention_mask=mask_BT
        ).last_hidden_state.float()
    pooled_BT = mask_BT.clone()
    pooled_BT[mask_BT.sum(dim=1) > 1, 0] = 0
    mean_BH = (states_BTH * pooled_BT[..., None]).sum(1) / pooled_BT.sum(1, keepdim=True)
    return dict(zip(batch, mean_BH.cpu()))


def diversity(embedder: Policy, texts: Sequence[str], group_size: int) -> dict[str, float]:
    """`diversity` (mean cosine distance inside a group) and `distinct_answers`, over the groups.

    embedder: the frozen starting model. texts: completions, all of a group next to each other; for
    TA-GRPO a group is all samples of all phrasings. No random number is drawn.
    """
    groups = [texts[i : i + group_size] for i in range(0, len(texts), group_size)]
    distance_G = cosine_distance(embed(embedder, texts).view(len(groups), group_size, -1))
    answers_G = torch.tensor([distinct_answers([extract_answer(t) for t in g]) for g in groups])
    return {"diversity": float(distance_G.mean()), "distinct_answers": float(answers_G.nanmean())}


# ------------------------------------------------------------------------------- one policy


@dataclass
class Evaluation:
    """What `evaluate_policy` found: right answers a question, and how the completions looked."""

    right_Q: list[int]
    scored_Q: list[int]  # samples with a verdict
    samples: int
    mean_length: float
    truncated: float  # share
    diversity: dict[str, float] | None = None  # where an embedder was given

    def rates(self) -> list[float]:
        """pass@1 of each question that has a verdict."""
        return [c / n for c, n in zip(self.right_Q, self.scored_Q) if n]

    def row(self) -> dict[str, float]:
        """A line of eval.csv: pass@k with its interval, for k = 1 and all samples."""
        row: dict[str, float] = {"questions": len(self.right_Q), "samples": self.samples}
        for k in sorted({1, self.samples}):
            values = [pass_at_k(n, c, k) for c, n in zip(self.right_Q, self.scored_Q) if n >= k]
            if values:
                row[f"pass@{k}"] = sum(values) / len(values)
                row[f"pass@{k}_low"], row[f"pass@{k}_high"] = bootstrap_interval(values)
        return row | (self.diversity or {})


def evaluate_policy(
    policy,
    questions: Sequence[Question],
    samples: int,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
    chunk_tokens: int | None = None,
    embedder: Policy | None = None,
) -> Evaluation:
    """`samples` completions of every question, scored. The random numbers depend on the seed only:
    two policies are compared on the same draws, and training's own are never touched.
    embedder: the frozen starting model; with it, the diversity of the completions is measured too.
    """
    prompts = [policy.encode(q.question) for q in questions]
    with policy.autocast():
        rollout = sample(
            policy.model,
            prompts,
            samples,
            uniforms(stable_seed(seed, "evaluation"), len(questions), 1, samples, max_new_tokens),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            end_ids=policy.end_ids,
            pad_id=policy.pad_id,
            chunk_tokens=chunk_tokens,
        )
    texts = [policy.decode(ids[mask].tolist()) for ids, mask in rollout.rows()]
    golds = [q.answer for q in questions for _ in range(samples)]
    rewards_QS = torch.tensor(score(texts, golds, rollout.truncated_B.tolist())).view(-1, samples)
    return Evaluation(
        right_Q=(rewards_QS == 1).sum(dim=1).tolist(),
        scored_Q=(~rewards_QS.isnan()).sum(dim=1).tolist(),
        samples=samples,
        mean_length=float(rollout.lengths_B.float().mean()),
        truncated=float(rollout.truncated_B.float().mean()),
        diversity=diversity(embedder, texts, samples) if embedder else None,
    )


# ------------------------------------------------------------------------------- on disk, resumable


def complete(
    cfg: argparse.Namespace,
    policy: Policy,
    questions: list[Question],
    file: CompletionFile,
    reader: str = "maths",
) -> tuple[list[dict], str]:
    """Samples and judges whatever `file` lacks. Returns its lines, one a question, with lists of
    `completions`, `rewards`, `lenient`, `boxed`, `lengths` and `truncated`; and the fingerprint of
    the weights."""
    weights = fingerprint(policy.model)
    file.start(weights)
    bar = tqdm(
        total=len(questions), initial=len(file.lines), desc=file.settings["model"], disable=None
    )
    with bar:
        while len(file.lines) < len(questions):
            done = len(file.lines)
            batch = questions[done : done + file.per_batch]
            file.append(_complete_batch(cfg, policy, batch, reader))
            bar.update(len(batch))
    return file.lines, weights


def _complete_batch(cfg, policy: Policy, batch: list[Question], reader: str) -> list[dict]:
    S, T = cfg.samples, cfg.max_new_tokens
    draws = [uniforms(stable_seed(cfg.seed, "evaluation", q.question), 1, 1, S, T) for q in batch]
    with policy.autocast():
        rollout = sample(
            policy.model,
            [policy.encode(q.question) for q in batch],
            S,
            torch.cat(draws),
            max_new_tokens=T,
            temperature=cfg.temperature,
            end_ids=policy.end_ids,
            pad_id=policy.pad_id,
        )
    texts = [policy.decode(ids[mask].tolist()) for ids, mask in rollout.rows()]
    truncated = rollout.truncated_B.tolist()
    golds = [q.answer for q in batch for _ in range(S)]
    strict, lenient, boxed = benchmarks.judge(reader, texts, golds, truncated)
    columns = {
        "completions": texts,
        "rewards": [None if r != r else r for r in strict],
        "lenient": [None if r != r else r for r in lenient],
        "boxed": boxed,
        "lengths": rollout.lengths_B.tolist(),
        "truncated": truncated,
    }
    return [
        {"id": q.id, "question": q.question, "answer": q.answer}
        | {key: values[i * S : (i + 1) * S] for key, values in columns.items()}
        for i, q in enumerate(batch)
    ]


def counts(lines: Sequence[dict], part: slice = slice(None)) -> list[tuple[int, int]]:
    """(verdicts n, right c) of each question; part: of which of its samples."""
    rewards_Q = [[r for r in line["rewards"][part] if r is not None] for line in lines]
    return [(len(rewards), sum(r == 1 for r in rewards)) for rewards in rewards_Q]


def summary(lines: Sequence[dict], ks: Sequence[int]) -> dict[str, float]:
    """A line of results.csv: pass@k with intervals, and how the completions look."""
    flat = {
        key: [v for line in lines for v in line[key]]
        for key in ("rewards", "lenient", "boxed", "lengths", "truncated")
    }
    row: dict[str, float] = {"questions": len(lines), "samples": len(lines[0]["rewards"])}
    for k in ks:
        values = [pass_at_k(n, c, k) for n, c in counts(lines) if n >= k]
        row[f"pass@{k}"] = sum(values) / len(values) if values else nan
        low, high = bootstrap_interval(values) if values else (nan, nan)
        row[f"pass@{k}_low"], row[f"pass@{k}_high"] = low, high
    for name, key in (("strict", "rewards"), ("lenient", "lenient")):
        judged = [r for r in flat[key] if r is not None]
        row[name] = sum(judged) / len(judged) if judged else nan
    many = len(flat["boxed"])
    return row | {
        "no_box": 1 - sum(flat["boxed"]) / many,
        "no_verdict": sum(r is None for r in flat["rewards"]) / many,
        "truncated": sum(flat["truncated"]) / many,
        "mean_length": sum(flat["lengths"]) / many,
    }


# ------------------------------------------------------------------------------- the commands


def ready_policy(cfg: argparse.Namespace, name: str) -> Policy:
    """The model of that name, prompted and computed with as the options say."""
    device = setup.pick_device(cfg.device)
    policy = load_policy(name, device)
    policy.thinking, policy.examples = cfg.thinking, cfg.examples
    policy.dtype = setup.pick_dtype(cfg.dtype, device, policy.num_parameters)
    return policy


def opened(cfg: argparse.Namespace, path: Path | None, questions: list[Question]) -> CompletionFile:
    """The file that `complete` fills; every option that decides a sample is kept beside it."""
    keys = "model samples temperature max_new_tokens seed batch_rows examples thinking dtype"
    settings = {key: getattr(cfg, key) for key in keys.split()}
    per_batch = max(1, cfg.batch_rows // cfg.samples)
    return CompletionFile(path, questions, settings, per_batch, cfg.overwrite)


def run_benchmarks(cfg: argparse.Namespace) -> None:
    """pass@k and the rest, a line a benchmark."""
    named = {benchmarks.check_benchmark(b)[0]: b for b in cfg.benchmark}
    if len(named) < len(cfg.benchmark):
        raise OptionError("--benchmark: two of the same name")
    out = Path(cfg.out)
    if out.exists() and not out.is_dir():
        raise OptionError(f"--out {out}: is a file, not a folder")
    sets = {name: benchmarks.load_benchmark(b, cfg.max_questions) for name, b in named.items()}
    files = {name: opened(cfg, out / f"{name}.jsonl", asked) for name, asked in sets.items()}
    policy = ready_policy(cfg, cfg.model)
    embedder = ready_policy(cfg, cfg.embed_with) if cfg.embed_with else None
    rows, curves = [], {}
    for name, questions in sets.items():
        reader = benchmarks.reader_of(name)
        lines, weights = complete(cfg, policy, questions, files[name], reader)
        row = {"benchmark": name, "temperature": cfg.temperature, **summary(lines, cfg.k)}
        if embedder:
            texts = [text for line in lines for text in line["completions"]]
            row |= {"embedder": cfg.embed_with, **diversity(embedder, texts, cfg.samples)}
        files[name].finish(weights, row)
        rows.append(row)
        curves[name] = {cfg.model: curve(row, cfg.k)}
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    figures.plot_pass_at_k(curves, out / "pass_at_k.png")
    for row in rows:
        print(describe_results(row, cfg.k))
    print(f"written to {out}")


def run_compare(cfg: argparse.Namespace) -> None:
    """Evaluations paired by question, the first against each other; or training curves."""
    folders = [Path(name) for name in cfg.folders]
    if all((folder / "metrics.csv").is_file() for folder in folders):
        read = [logs.read_run(folder) for folder in folders]
        for log in read:
            for key in [k for k in ("reward", "acr") if k in log.columns]:
                first, last, n = figures.ends(log.columns[key])
                print(f"{log.name}: {key} {first:.3f} -> {last:.3f} (first and last {n} steps)")
        print(f"figure: {figures.plot_training(read, Path(cfg.figure))}")
        return
    found = [read_evaluation(folder) for folder in folders]
    shared = [name for name in found[0] if all(name in other for other in found)]
    if not shared:
        raise DataError("these folders have no benchmark in common")
    curves: dict[str, dict] = {}
    for name in shared:
        kept = [_settings(folder / f"{name}.json") for folder in folders]
        for key in kept[0]:
            values = [str(settings.get(key)) for settings in kept]
            if key not in ("model", "questions", "questions_hash") and len(set(values)) > 1:
                print(f"{name}: not measured alike, --{key.replace('_', '-')} {', '.join(values)}")
        counts_AQ = [other[name] for other in found]
        common = [q for q in counts_AQ[0] if all(q in other for other in counts_AQ)]
        if not common:
            raise DataError(f"{name}: these folders have no question in common")
        least = min(n for other in counts_AQ for n, _ in (other[q] for q in common))
        ks = [k for k in cfg.k or [2**i for i in range(least.bit_length())] if k <= least]
        if not ks:
            raise OptionError(f"--k: {name} has {least} samples with a verdict on some question")
        values_AKQ = [
            [[pass_at_k(*other[q], k) for q in common] for k in ks] for other in counts_AQ
        ]
        print(f"\n{name}, {len(common)} questions of all")
        if len(common) < 100:
            print("  under 100 questions: such intervals are too narrow")
        curves[name] = {}
        for label, values_KQ in zip(cfg.folders, values_AKQ):
            intervals = [bootstrap_interval(values) for values in values_KQ]
            means = [sum(values) / len(values) for values in values_KQ]
            curves[name][label] = {
                k: (mean, *interval) for k, mean, interval in zip(ks, means, intervals)
            }
            shown = "   ".join(f"pass@{k} {mean:.3f}" for k, mean in zip(ks, means))
            print(f"  {label}: {shown}")
        for label, values_KQ in zip(cfg.folders[1:], values_AKQ[1:]):
            for k, before, after in zip(ks, values_AKQ[0], values_KQ):
                change, low, high = paired_difference(before, after)
                print(
                    f"  {label} - {cfg.folders[0]}, pass@{k:<4} {100 * change:+.1f} points, 95 % "
                    f"interval {100 * low:+.1f} to {100 * high:+.1f}"
                )
    print(f"figure: {figures.plot_pass_at_k(curves, Path(cfg.figure))}")


def _settings(record: Path) -> dict:
    try:
        settings = json.loads(record.read_text(encoding="utf-8"))["settings"]
        if not isinstance(settings, dict):
            raise TypeError
        return settings
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{record}: is damaged") from None


def read_evaluation(folder: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """benchmark -> question -> (verdicts, right), of a folder that an evaluation wrote."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        if not path.with_suffix(".json").is_file():
            continue
        try:
            lines = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
            found[path.stem] = dict(zip((line["question"] for line in lines), counts(lines)))
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: is no file of completions, or is damaged") from None
    if not found:
        raise DataError(f"{folder}: neither an evaluation's folder nor, like all others, a run's")
    return found


def run_collapse(cfg: argparse.Namespace) -> None:
    """ACR of logs over time, or expected ACR of a checkpoint."""
    if cfg.model:
        if cfg.logs or not cfg.data:
            raise OptionError("collapse: either logs, or --model with --data")
        return expected_collapse(cfg)
    if not cfg.logs:
        raise OptionError("collapse: name a run's folder or a log, or --model with --data")
    read = [
        logs.read_log(name, cfg.reward_column, cfg.group_column, cfg.step_column)
        for name in cfg.logs
    ]
    for i, log in enumerate(read):
        print(describe_log(log))
        name = f"collapse-{i + 1}.png" if len(read) > 1 else "collapse.png"
        print(f"  figure: {figures.plot_collapse(log, Path(cfg.out or '.') / name)}")


def expected_collapse(cfg: argparse.Namespace) -> None:
    """Of a checkpoint on training questions: the ACR that its next step should have."""
    questions = benchmarks.load_data(cfg.data, cfg.max_questions, cfg.seed)
    file = opened(cfg, Path(cfg.out) / "collapse.jsonl" if cfg.out else None, questions)
    lines, weights = complete(cfg, ready_policy(cfg, cfg.model), questions, file)
    G, usable = cfg.group_size, [(n, c) for n, c in counts(lines) if n >= cfg.group_size]
    if not usable:
        raise DataError(f"no question has {G} samples with a verdict")
    dead_Q = [expected_acr_from_counts(n, c, G) for n, c in usable]
    wrong_Q = [comb(n - c, G) / comb(n, G) for n, c in usable]
    low, high = bootstrap_interval(dead_Q)
    acr, wrong = sum(dead_Q) / len(dead_Q), sum(wrong_Q) / len(wrong_Q)
    results = {"group_size": G, "questions": len(usable), "expected_acr": acr}
    results |= {"low": low, "high": high, "all_wrong": wrong, "all_right": acr - wrong}
    file.finish(weights, results)
    print(
        f"{cfg.model} on {cfg.data}: {len(usable)} questions x {cfg.samples} samples\n"
        f"  success       {sum(c for _, c in usable) / sum(n for n, _ in usable):.3f}\n"
        f"  expected ACR  {acr:.3f}   95 % interval {low:.3f} to {high:.3f}   (groups of {G})\n"
        f"    all wrong   {wrong:.3f}\n"
        f"    all right   {acr - wrong:.3f}\n"
        f"  uniform in all {cfg.samples} samples: "
        f"{sum(c in (0, n) for n, c in usable) / len(usable):.3f} of questions"
    )


def run_select(cfg: argparse.Namespace) -> None:
    """Questions of medium difficulty, chosen on one half of the samples, reported on the other."""
    low, high = cfg.between
    if not 0 <= low <= high <= 1:
        raise OptionError(f"--between {low} {high}: two rates, the lower first")
    if cfg.samples < 2 or cfg.samples % 2:
        raise OptionError(f"--samples {cfg.samples}: must be even, as one half chooses")
    out = Path(cfg.out)
    if out.suffix != ".jsonl" or out.is_dir():
        raise OptionError(f"--out {out}: must be a file, NAME.jsonl")
    if out.exists() and not cfg.overwrite and not out.with_suffix(".samples.jsonl").exists():
        raise OptionError(f"--out {out}: exists already; add --overwrite")
    questions = benchmarks.load_data(cfg.data, cfg.max_questions, cfg.seed)
    file = opened(cfg, out.with_suffix(".samples.jsonl"), questions)
    lines, weights = complete(cfg, ready_policy(cfg, cfg.model), questions, file)
    half = cfg.samples // 2
    choosing, reporting = counts(lines, slice(half)), counts(lines, slice(half, None))
    picked = [
        (q, *reporting[i])
        for i, q in enumerate(questions)
        if choosing[i][0] and low <= choosing[i][1] / choosing[i][0] <= high and reporting[i][0]
    ]
    if not picked:
        raise DataError(f"no question has a success rate between {low} and {high}")
    with out.open("w", encoding="utf-8") as target:
        for q, n, c in picked:
            row = {"id": q.id, "question": q.question, "answer": q.answer, "success": c / n}
            row |= {"rephrasings": q.rephrasings} if q.rephrasings else {}
            row |= {key: value for key in ("level", "subject") if (value := getattr(q, key))}
            target.write(json.dumps(row, ensure_ascii=False) + "\n")
    rates = [c / n for _, n, c in picked]
    ends = bootstrap_interval(rates)
    dead = [expected_acr_from_counts(n, c, 8) for _, n, c in picked if n >= 8]
    stay = sum(low <= rate <= high for rate in rates) / len(rates)
    results = {"chosen": len(picked), "success": sum(rates) / len(rates), "between_again": stay}
    file.finish(weights, results)
    print(
        f"chosen: {len(picked)} of {len(questions)} questions, success between {low:g} and "
        f"{high:g} in {half} samples\n"
        f"in the other {half}: success {sum(rates) / len(rates):.3f}, 95 % interval {ends[0]:.3f} "
        f"to {ends[1]:.3f}; {100 * stay:.0f} % of them are between {low:g} and {high:g} again"
        + (f"\nexpected ACR of groups of 8: {sum(dead) / len(dead):.3f}" if dead else "")
        + f"\nwritten to {out}"
    )


def phrasings_of(cfg: argparse.Namespace) -> list[tuple[Question, list[tuple[str, str]]]]:
    """Each question with its rephrasings as (kind, text), N at most. Raises DataError."""
    # with a file: all questions, as its phrasings may belong to any (rephrase.py takes 2048)
    many = 2048 if cfg.data == "arithmetic" else 0
    many = many if cfg.rephrasings else cfg.max_questions
    questions = benchmarks.load_data(cfg.data, many, cfg.seed)
    kinds: dict[str, str] = {}
    if cfg.rephrasings:
        from rephrase import join_rephrasings, read_rephrasings

        questions, _ = join_rephrasings(questions, cfg.rephrasings)
        rows = read_rephrasings(cfg.rephrasings)
        kinds = {row["question"]: str(row.get("kind") or "other") for row in rows}
        questions = [q for q in questions if q.rephrasings][: cfg.max_questions or None]
    found = []
    for q in questions:
        if cfg.data in benchmarks.EMBEDDED and not cfg.rephrasings:
            kinds = embedded_kinds(q)
        texts = q.rephrasings[: cfg.num_rephrasings]
        if texts:
            found.append((q, [(kinds.get(text, "other"), text) for text in texts]))
    if not found:
        raise DataError(f"{cfg.data}: no question brings rephrasings; give --rephrasings FILE")
    return found


# in the order of data.Problem.phrasings
EMBEDDED_KINDS = ("symbols", "number words", "givens", "command", "story", "question first")


def embedded_kinds(q: Question) -> dict[str, str]:
    """text -> kind for the phrasings of an embedded question, whose id tells its numbers."""
    kind, numbers, _ = q.id.split("/")
    texts = Problem(kind, tuple(map(int, numbers.split("-")))).phrasings()
    return dict(zip(texts, EMBEDDED_KINDS))


def run_inspect(cfg: argparse.Namespace) -> None:
    """TA-GRPO's premise, measured: does success change with the phrasing, and what does pooling do
    to the chance of a group without gradient?"""
    if cfg.samples < cfg.group_size:
        raise OptionError(
            f"--samples {cfg.samples}: needs --group-size ({cfg.group_size}) or more, "
            "or nothing unbiased can be said"
        )
    asked = phrasings_of(cfg)
    flat = [
        replace(q, id=f"{q.id}#{kind}", question=text, rephrasings=())
        for q, others in asked
        for kind, text in [("original", q.question), *others]
    ]
    file = opened(cfg, Path(cfg.out) / "inspect.jsonl" if cfg.out else None, flat)
    lines, weights = complete(cfg, ready_policy(cfg, cfg.model), flat, file)
    found, left = [], counts(lines)
    for _, others in asked:
        found.append([*zip(["original", *(kind for kind, _ in others)], left)])
        left = left[1 + len(others) :]
    results = inspect_counts(found, cfg.group_size, cfg.num_rephrasings)
    file.finish(weights, results)
    print(describe_inspection(results, cfg))


def inspect_counts(found: list[list[tuple[str, tuple[int, int]]]], G: int, N: int) -> dict:
    """What `inspect` reports, from (kind, (verdicts, right)) of each phrasing of each question, the
    original first. Estimates with intervals are triples (mean, low, high)."""

    def estimate(values: list[float]) -> tuple[float, float, float] | None:
        return (sum(values) / len(values), *bootstrap_interval(values)) if values else None

    kinds = sorted({kind for phrasings in found for kind, _ in phrasings[1:]})
    rows = {}
    for kind in [*kinds, "all rephrasings"]:
        pairs_Q = [  # (n, a, m, b): a of n right on the original, b of m on the rephrasing
            [
                (*first, *other)
                for name, other in others
                if kind in (name, "all rephrasings") and first[0] and other[0]
            ]
            for (_, first), *others in found
        ]
        if not any(pairs_Q):
            continue

        def by_question(value, pairs_Q=pairs_Q) -> list[float]:
            return [sum(value(*p) for p in pairs) / len(pairs) for pairs in pairs_Q if pairs]

        chance_Q = by_question(chance_of_moving)
        rows[kind] = {
            "questions": len(chance_Q),
            "success": estimate(by_question(lambda n, a, m, b: b / m)),
            "shift": estimate(by_question(lambda n, a, m, b: b / m - a / n)),
            "moved": estimate(by_question(moved)),
            "moved_by_chance": sum(chance_Q) / len(chance_Q),
        }
    before, pooled, control = [], [], []
    for phrasings in found:
        scored_F, right_F = zip(*(count for _, count in phrasings))
        together = zero_gradient_from_counts(scored_F, right_F, G)
        if len(phrasings) == N + 1 and together is not None:
            before.append(zero_gradient_from_counts(scored_F[:1], right_F[:1], G))
            pooled.append(together)
            larger = zero_gradient_from_counts(scored_F[:1], right_F[:1], G * (N + 1))
            control += [larger] if larger is not None else []
    return {
        "questions": len(found),
        "original": estimate([c / n for (_, (n, c)), *_ in found if n]),
        "kinds": rows,
        "complete": len(pooled),  # questions with all N rephrasings and enough verdicts
        "zero_gradient_before": estimate(before),
        "zero_gradient_pooled": estimate(pooled),
        "zero_gradient_group_of_all": estimate(control) if len(control) == len(pooled) else None,
    }


# ------------------------------------------------------------------------------- command line


COMMANDS = {
    "": run_benchmarks,
    "compare": run_compare,
    "collapse": run_collapse,
    "select": run_select,
    "inspect": run_inspect,
}


def main(argv: list[str] | None = None) -> int:
    """Exit status 0; 2 with one line on stderr for anything the user can mend."""
    try:
        cfg = parse_options(sys.argv[1:] if argv is None else list(argv))
        COMMANDS[cfg.command](cfg)
        return 0
    except (OptionError, PolicyError, DataError, figures.RunError) as error:
        print(f"evaluate.py: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that is not ours
        print(f"evaluate.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("evaluate.py: error: interrupted; the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
