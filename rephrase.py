r"""Rephrasings of questions from a language model: the first half of TA-GRPO (arXiv 2601.22478).

    python rephrase.py --data gsm8k --model gpt-4-turbo --out rephrasings.jsonl
    python rephrase.py --data FILE.jsonl --model NAME --base-url http://localhost:8000/v1 --out …

TA-GRPO wants N other phrasings of each question with the same answer. The paper uses GPT-4 and
does not publish how replies were checked. Chosen here:

- Three kinds, one each for N = 3: `wording`, `format` (prose and lists of givens, words and
  symbols) and `order` of the information.
- The reply is plain text between markers. LaTeX inside JSON is silently damaged: in "\frac" the
  first two characters are a form feed.
- Every reply is checked (`support/rephrase_checks.py`). What fails is asked again once, with the
  reason; then the phrasing is missing, and the trainer samples the original in its place. A wrong
  phrasing costs more than a missing one.
- `--verify-with MODEL`: a solver answers each phrasing k times; it is dropped unless the gold is
  the most frequent answer.

What has been paid for is kept. Each reply is one line of the file, written at once, with a key of
(question, kind, model, prompt). The same command goes on where it stopped: no reply that arrived is
asked for again; at most `--concurrency` requests in flight are lost. The last line of a key counts.
An empty `question` is a phrasing that is missing. (Plumbing: `support/rephrase_requests.py` for
retries and costs, `support/rephrase_file.py` for the file.)

`join_rephrasings` gives the trainer its questions back, each with its phrasings.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import data
from data import DataError, Question
from support.rephrase_checks import last_box, same_words, why_not
from support.rephrase_file import ReplyFile
from support.rephrase_options import RephraseError, parse_options
from support.rephrase_requests import Reply, Requests, make_client, one_line
from support.verifier_process import shared_pool

KINDS = {  # what to do, and what then becomes of EXAMPLE
    "wording": (
        "Say it in other words: other verbs, other sentences, the facts in the same order.",
        "Lee gets 4 pens, each of which is priced at $2. What does he have to pay?",
    ),
    "format": (
        "Change its form. If it is prose, list what is given, one fact a line after a dash, and "
        "then ask the question. If it is a list or mostly symbols, write prose.",
        "- Number of pens that Lee buys: 4\n- Price of each pen: $2\nHow much does he pay?",
    ),
    "order": (
        "Change the order of the information: for instance, first the question and then the facts, "
        "the last one first where that makes sense.",
        "How much does Lee pay if pens cost $2 each and he buys 4 of them?",
    ),
}
EXAMPLE = "Lee buys 4 pens at $2 each. How much does he pay?"
PROMPT = """Rewrite a mathematics problem so that it stays the very same problem. {how}
Keep every number, unit and condition, every formula, and what is said about the form of the \
answer. Keep LaTeX as it is and copy any [asy] drawing unchanged. Add nothing: no hint, no step, \
no answer, no remark. Write the new text between <rephrased> and </rephrased>.

For example, this problem:
{example}
becomes:
<rephrased>
{result}
</rephrased>

The problem to rewrite:
{question}"""
AGAIN = "That text cannot be used ({reason}). Write it once more, between the same markers."
SOLVE = "{question}\n\nPut the final answer, with nothing else, inside \\boxed{{}}."
PROMPT_VERSION = hashlib.sha256(json.dumps([KINDS, EXAMPLE, PROMPT, AGAIN]).encode()).hexdigest()[
    :8
]

REPLIES = 2  # a phrasing: the first and one retry
PUBLIC_SET, PUBLIC_CONFIG = "lhkhiem28/TA-GRPO-datasets", "MATH-A9-U"


# ---------------------------------------------------------------- what is asked


@dataclass
class Job:
    """One phrasing to get: a question and a kind, and what the file knows of it so far."""

    question: Question
    kind: str
    key: str
    replies: int = 0
    text: str = ""  # the accepted phrasing
    reason: str = ""  # why the last reply was turned down
    last: str = ""  # the last reply, for the retry
    solved: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    verified: set[str] = field(default_factory=set)  # solvers with a verdict

    def read(self, line: dict) -> None:
        """Takes in a line of the file."""
        if "solver" in line:
            self.solved[line["solver"]].append(str(line.get("answer", "")))
            return
        self.text = str(line.get("question") or "")
        self.reason = str(line.get("rejected") or "")
        if line.get("verified"):
            self.verified.add(line["verified"])
        else:
            self.replies += 1
            self.last = str(line.get("reply") or "")

    @property
    def wants_text(self) -> bool:
        return not self.text and not self.verified and self.replies < REPLIES

    def messages(self) -> list[dict]:
        how, result = KINDS[self.kind]
        prompt = PROMPT.format(
            how=how, example=EXAMPLE, result=result, question=self.question.question
        )
        messages = [{"role": "user", "content": prompt}]
        if self.replies and self.last:
            messages.append({"role": "assistant", "content": self.last})
            messages.append({"role": "user", "content": AGAIN.format(reason=self.reason)})
        return messages

    def line(self, source: str, **more: object) -> dict:
        """A line of the file; `id`, `question`, `kind` and `source` are what readers need."""
        return {
            "key": self.key,
            "id": self.question.id,
            "question": self.text,
            "kind": self.kind,
            "source": source,
            "original": self.question.question,
            **({"rejected": self.reason} if self.reason else {}),
            **more,
        }


def job_key(question: str, kind: str, model: str) -> str:
    """What makes two requests the same."""
    return hashlib.sha256(
        json.dumps([question, kind, model, PROMPT_VERSION]).encode()
    ).hexdigest()[:24]  # fmt: skip


# ---------------------------------------------------------------- what a reply is worth


def read_reply(completion: object) -> Reply:
    """A chat completion, whatever the server put into it. Only finish_reason 'stop' is complete."""
    choices = getattr(completion, "choices", None)
    if not isinstance(choices, list):
        raise RephraseError("the server does not answer like the OpenAI API; is --base-url right?")
    message = getattr(choices[0], "message", None) if choices else None
    text, refusal = getattr(message, "content", None), getattr(message, "refusal", None)
    finish = getattr(choices[0], "finish_reason", None) if choices else None
    usage = getattr(completion, "usage", None)
    tokens = [getattr(usage, f"{name}_tokens", None) for name in ("prompt", "completion")]
    tokens = [t if isinstance(t, int) and t >= 0 else None for t in tokens]
    problem = None
    if refusal or finish == "content_filter":
        problem = "refused: by the model or a filter"
    elif finish == "length":
        problem = "truncated: the reply was cut off"
    elif not isinstance(text, str) or not text.strip():
        problem = "empty: no text in the reply"
    elif finish != "stop":
        problem = f"unfinished: finish_reason {str(finish)[:20]!r}"
    text = text if isinstance(text, str) else ""
    # half a surrogate pair cannot be sent back with the retry; U+FFFD can, and fails the checks
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return Reply(text, problem, *tokens)


def extract(text: str) -> str | None:
    """What stands between the first pair of markers, outside <think>; None without a pair. Small
    models go on after it, with a problem of their own."""
    text = re.sub(r"<think>.*?(?:</think>|$)", "", text, flags=re.DOTALL)
    _, start, rest = text.partition("<rephrased>")
    inside, end, _ = rest.partition("</rephrased>")
    return inside.strip() if start and end else None


class Rephraser:
    """Gets the phrasings of all questions: at most REPLIES requests for each, then the solver's."""

    def __init__(self, cfg: argparse.Namespace, questions: list[Question], requests: Requests):
        self.cfg, self.requests = cfg, requests
        self.jobs = {}
        self.siblings = defaultdict(list)  # the jobs of one question
        for q in questions:
            for kind in list(KINDS)[: cfg.num]:
                key = job_key(q.question, kind, cfg.model)
                if key not in self.jobs:  # a question that comes twice is asked once
                    self.jobs[key] = Job(q, kind, key)
                    self.siblings[q.question].append(self.jobs[key])
        for line in requests.file.lines:
            if line["key"] in self.jobs:
                self.jobs[line["key"]].read(line)
        requests.accepted = sum(bool(job.text) for job in self.jobs.values())

    async def run(self) -> None:
        """All that is left to do; returns early when stopped. Raises RephraseError."""
        todo = [job for job in self.jobs.values() if self.todo(job)]
        await self.requests.run(todo, self.finish, len(self.jobs))

    def todo(self, job: Job) -> bool:
        solver = self.cfg.verify_with
        return job.wants_text or bool(solver and job.text and solver not in job.verified)

    async def finish(self, job: Job) -> None:
        """Everything for one phrasing: request, second chance, solver."""
        while job.wants_text and await self.rephrase(job):
            pass
        if self.cfg.verify_with and job.text and not self.requests.stopping.is_set():
            await self.verify(job)

    async def rephrase(self, job: Job) -> bool:
        """One request for a phrasing and its line in the file; False without a reply."""
        reply = await self.requests.ask(job.key, self.cfg.model, job.messages())
        if reply is None:
            return False
        text = extract(reply.text)
        others = tuple(j.text for j in self.siblings[job.question.question] if j.text)
        reason = reply.problem
        if reason is None and text is None:
            reason = "markers: no text between <rephrased> and </rephrased>"
        if reason is None:
            reason = why_not(job.question.question, text, job.question.answer, others)
        job.text, job.reason = ("", reason) if reason else (text, "")
        self.requests.accepted += bool(job.text)
        job.replies, job.last = job.replies + 1, reply.text[:20_000]
        kept = {"reply": job.last} if reason else {}
        self.requests.add(job.line(self.cfg.model, **kept), reply)
        return True

    async def verify(self, job: Job) -> None:
        """Is the gold what a solver finds most often? If not, the phrasing is dropped."""
        solver, prompt = self.cfg.verify_with, SOLVE.format(question=job.text)
        answers = job.solved[solver]
        while len(answers) < self.cfg.verify_samples:
            reply = await self.requests.ask(job.key, solver, [{"role": "user", "content": prompt}])
            if reply is None:
                return
            answers.append("" if reply.problem else last_box(reply.text)[:1000])
            self.requests.add({"key": job.key, "solver": solver, "answer": answers[-1]}, reply)
        golds = [(job.question.answer, a) for a in answers if a]
        try:
            verdicts, _ = await asyncio.to_thread(shared_pool().judge, golds)
        except RuntimeError as error:
            raise RephraseError(f"--verify-with: {error}") from None
        right = sum(v is True for v in verdicts)
        wrong = Counter(a for (_, a), v in zip(golds, verdicts) if v is not True)
        if right <= max(wrong.values(), default=0):
            job.text = ""
            self.requests.accepted -= 1
            job.reason = f"solver: the gold in {right} of {len(answers)} answers"
        job.verified.add(solver)
        line = job.line(self.cfg.model, verified=solver, right=right, of=len(answers))
        self.requests.add(line, None)

    def report(self) -> str:
        """The table at the end: each kind, then how many questions have how many phrasings."""
        rows = [f"{'kind':<12}{'accepted':>10}{'missing':>10}{'not asked':>11}"]
        left = {key for key, job in self.jobs.items() if job.wants_text}
        for kind in list(KINDS)[: self.cfg.num]:
            jobs = [j for j in self.jobs.values() if j.kind == kind]
            open_ = sum(j.key in left for j in jobs)
            good = sum(bool(j.text) for j in jobs)
            rows.append(f"{kind:<12}{good:>10}{len(jobs) - good - open_:>10}{open_:>11}")
        counts = Counter(sum(bool(j.text) for j in jobs) for jobs in self.siblings.values())
        have = ", ".join(f"{counts[n]} with {n}" for n in sorted(counts))
        rows.append(f"questions    {have} phrasings")
        return "\n".join([*rows, self.requests.report()])


# ---------------------------------------------------------------- joining


def join_rephrasings(
    questions: list[Question], path: str | Path
) -> tuple[list[Question], dict[int, int]]:
    """The questions with the phrasings of a file, and how many have 0, 1, 2, … of them.

    path: JSON lines with `id`, `question` (the rephrased text), `kind`, `source`, or the name of
    the authors' public set. A line belongs to the question whose text is its `original`, or, when
    it has none, to the question with its `id`. Lines with an empty question are missing phrasings.
    Phrasings that a question brought along are replaced. Of each question one phrasing of each
    kind comes first, in the order of KINDS, whatever the order in which they arrived.
    """
    by_text, by_id = defaultdict(list), defaultdict(list)
    for row in read_rephrasings(path):
        known = isinstance(row.get("original"), str)
        (by_text[_spaced(row["original"])] if known else by_id[str(row.get("id"))]).append(row)
    joined = []
    for q in questions:
        rows = by_text.get(_spaced(q.question), []) + by_id.get(q.id, [])
        joined.append(replace(q, rephrasings=tuple(_in_order(q.question, rows))))
    counts = dict(sorted(Counter(len(q.rephrasings) for q in joined).items()))
    if not any(counts.get(n) for n in counts if n):
        raise DataError(f"{path}: none of its phrasings belongs to these questions")
    return joined, counts


def read_rephrasings(path: str | Path) -> list[dict]:
    """The phrasings of a file, or of the authors' public set: dicts with `question`, `kind` and
    `original` or `id`. Missing ones are left out. Raises DataError."""
    rows = load_public_rephrasings() if str(path) == PUBLIC_SET else _read_rows(Path(path))
    final = {row.get("key", number): row for number, row in enumerate(rows)}  # the last one counts
    return [row for row in final.values() if row["question"].strip()]


def _in_order(original: str, rows: list[dict]) -> list[str]:
    """Different texts, one of each kind before the second of any."""
    kinds, seen, ranked = list(KINDS), [original], []
    nth: Counter = Counter()
    for row in rows:
        if not any(same_words(row["question"], text) for text in seen):
            seen.append(row["question"])
            kind = str(row.get("kind"))
            rank = kinds.index(kind) if kind in kinds else len(kinds)
            ranked.append((nth[kind], rank, len(ranked), row["question"]))
            nth[kind] += 1
    return [text for *_, text in sorted(ranked)]


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _read_rows(path: Path) -> list[dict]:
    lines = data.read_text(path).split("\n")
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines) and rows:
                break  # without its end: being written, or cut by a kill
            raise DataError(f"{path}, line {number}: not JSON") from None
        if isinstance(row, dict) and "solver" in row:
            continue
        if not isinstance(row, dict) or not isinstance(row.get("question"), str):
            raise DataError(f"{path}, line {number}: expected an object with a text 'question'")
        if "original" not in row and "id" not in row:
            raise DataError(f"{path}, line {number}: has neither 'id' nor 'original'")
        rows.append(row)
    if not rows:
        raise DataError(f"{path}: holds no rephrasings")
    return rows


def load_public_rephrasings() -> list[dict]:
    """The authors' public set on the hub, as rows like those of a rephrasing file.

    Its columns are question, answer, index, sub_index: a problem and its phrasings share `index`,
    the original has the lowest `sub_index`, and rows with an empty question are padding. Needs the
    `datasets` package and, the first time, the network. Raises DataError.
    """
    try:
        from datasets import load_dataset

        splits = load_dataset(PUBLIC_SET, PUBLIC_CONFIG)
    except ImportError:
        raise DataError(
            f"{PUBLIC_SET} needs the 'datasets' package: pip install datasets"
        ) from None
    except Exception as error:  # whatever the hub, the cache or the network may raise
        raise DataError(f"{PUBLIC_SET} cannot be loaded: {one_line(error)}") from None
    groups = defaultdict(list)
    try:
        for split, table in splits.items():
            for row in table:
                if (row["question"] or "").strip():
                    groups[split, row["index"]].append((row["sub_index"], row["question"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{PUBLIC_SET} has changed its columns: {one_line(error)}") from None
    return [
        {"question": text, "kind": f"public {sub}", "source": PUBLIC_SET, "original": original}
        for group in groups.values()
        for (_, original), *others in [sorted(group)]
        for sub, text in others
    ]


# ---------------------------------------------------------------- the command line


def load_questions(cfg: argparse.Namespace) -> list[Question]:
    """The questions of --data: for arithmetic those that train.py trains on."""
    if cfg.data == "arithmetic":
        questions = data.arithmetic("train", 2048, cfg.seed)
    elif Path(cfg.data).is_file() or cfg.data.endswith((".jsonl", ".json")) or "/" in cfg.data:
        questions = data.read_jsonl(cfg.data)
    else:
        questions = data.load_named(cfg.data)
    return questions[: cfg.limit]


async def ask_all(cfg: argparse.Namespace, questions: list[Question], file: ReplyFile) -> Requests:
    """Asks for everything that is missing in the file. Raises RephraseError."""
    async with make_client(cfg) as client:
        requests = Requests(cfg, client, file, read_reply)
        rephraser = Rephraser(cfg, questions, requests)
        requests.stop_on_signals()
        try:
            await rephraser.run()
        finally:
            print(rephraser.report())
        return requests


def main(argv: list[str] | None = None) -> int:
    """0 when nothing is left to ask, or at a clean stop; 2 with one line on stderr otherwise."""
    try:
        cfg = parse_options(argv, KINDS)
        questions = load_questions(cfg)
        file = ReplyFile(cfg.out)
        try:
            requests = asyncio.run(ask_all(cfg, questions, file))
        finally:
            file.close()
        if requests.why_stopped:
            print(f"stopped: {requests.why_stopped}; the same command goes on from here")
        elif requests.no_reply:
            n, why = len(requests.no_reply), next(iter(requests.no_reply.values()))
            raise RephraseError(f"{n} requests without a reply ({why}); run the command again")
        return 0
    except KeyboardInterrupt:
        print(
            "rephrase.py: error: interrupted; the same command goes on from here", file=sys.stderr
        )
        return 130
    except (RephraseError, DataError) as error:
        print(f"rephrase.py: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
