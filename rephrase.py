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
An empty `question` is a phrasing that is missing.

`join_rephrasings` gives the trainer its questions back, each with its phrasings.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import os
import random
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from tqdm import tqdm

import data
from data import DataError, Question
from support.rephrase_checks import last_box, same_words, why_not
from support.verifier_process import shared_pool

try:
    import fcntl
except ImportError:  # Windows: two calls at once on one file are not noticed
    fcntl = None

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
TRIES = 6  # a request, when the server is busy or away
LONGEST_WAIT_S = 120.0  # a server that asks for more is out of order for us
PUBLIC_SET, PUBLIC_CONFIG = "lhkhiem28/TA-GRPO-datasets", "MATH-A9-U"


class RephraseError(ValueError):
    """What ends a run; the message is one line for the user."""


# ---------------------------------------------------------------- what a reply is worth


@dataclass
class Reply:
    """One answer of a model, as far as it can be trusted: `problem` says why it is none."""

    text: str
    problem: str | None
    tokens_in: int | None
    tokens_out: int | None


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


# ---------------------------------------------------------------- the file


class ReplyFile:
    """An append-only file of JSON lines: locked while open, and mended after a kill."""

    START = b'{"key": '

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise RephraseError(f"--out {path}: {error.strerror}") from None
        try:
            self._lock()
            self.lines = self._read()
        except BaseException:
            os.close(self.handle)
            raise
        self.dirty, self.syncing = False, None

    def _lock(self) -> None:
        try:
            if fcntl:
                fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RephraseError(f"--out {self.path}: another call is writing to it") from None

    def _read(self) -> list[dict]:
        """All lines. A last one that a kill cut in half goes; whatever else is foreign is refused
        and left alone: the file may be something of the user's."""
        content = self.path.read_bytes()
        whole, _, tail = content.rpartition(b"\n")
        lines = []
        for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
            try:
                row = json.loads(line)
                if not isinstance(row, dict) or not isinstance(row["key"], str):
                    raise ValueError
            except (ValueError, KeyError, RecursionError):
                where = f"--out {self.path}, line {number}"
                raise RephraseError(f"{where}: not written by this program") from None
            lines.append(row)
        if tail:
            if tail[: len(self.START)] != self.START[: len(tail)]:
                raise RephraseError(f"--out {self.path}: its last line is not of this program")
            os.ftruncate(self.handle, len(content) - len(tail))
        return lines

    def append(self, line: dict) -> None:
        """One line, written before this returns: a kill loses nothing. It is synced while the next
        request is under way: a power cut may lose the last milliseconds. Waiting for the disk here
        would let it, not the server, set the pace."""
        # backslashreplace turns half a surrogate pair into its JSON escape
        encoded = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace")
        self._write(encoded + b"\n")
        self.dirty = True
        if self.syncing is None or self.syncing.done():
            self.syncing = asyncio.ensure_future(self._sync())

    async def _sync(self) -> None:
        while self.dirty:
            self.dirty = False
            await asyncio.to_thread(os.fsync, self.handle)

    def _write(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self.handle, line) :]
        except OSError as error:
            raise RephraseError(f"--out {self.path}: {error.strerror}") from None

    def close(self) -> None:
        """Syncs what is left, and lets go of the lock."""
        try:
            os.fsync(self.handle)
        except OSError as error:
            raise RephraseError(f"--out {self.path}: {error.strerror}") from None
        finally:
            os.close(self.handle)


# ---------------------------------------------------------------- asking


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


class Asker:
    """Gets the phrasings of all questions: `concurrency` workers, one file, one stop."""

    def __init__(self, cfg: argparse.Namespace, questions: list[Question], file: ReplyFile, client):
        self.cfg, self.file, self.client = cfg, file, client
        self.jobs = {}
        self.siblings = defaultdict(list)  # the jobs of one question
        for q in questions:
            for kind in list(KINDS)[: cfg.num]:
                key = job_key(q.question, kind, cfg.model)
                if key not in self.jobs:  # a question that comes twice is asked once
                    self.jobs[key] = Job(q, kind, key)
                    self.siblings[q.question].append(self.jobs[key])
        self.reasons: Counter = Counter()
        self.requests = self.tokens_in = self.tokens_out = 0
        self.dearest = 0.0  # cost of the dearest reply
        for line in file.lines:
            self.count(line)
            if line["key"] in self.jobs:
                self.jobs[line["key"]].read(line)
        self.accepted = sum(bool(job.text) for job in self.jobs.values())
        self.in_flight = 0
        self.failed_in_a_row = 0
        self.no_reply: dict[str, str] = {}  # key -> why
        self.new = 0  # replies of this call
        self.seconds = 0.0  # of asking
        self.not_before = 0.0  # a Retry-After holds for all workers
        self.why_stopped = ""  # the user's wish or the budget
        self.error: RephraseError | None = None
        self.stopping = asyncio.Event()

    # --- the workers

    def todo(self, job: Job) -> bool:
        solver = self.cfg.verify_with
        return job.wants_text or bool(solver and job.text and solver not in job.verified)

    async def run(self) -> None:
        """All that is left to do; returns early when stopped. Raises RephraseError."""
        todo = [job for job in self.jobs.values() if self.todo(job)]
        start = time.perf_counter()
        self.bar = tqdm(
            total=len(self.jobs), initial=len(self.jobs) - len(todo), unit="phrasing", disable=None
        )
        jobs = iter(todo)  # shared: each worker takes the next one
        with self.bar:
            self.show()
            await asyncio.gather(*(self.work(jobs) for _ in range(self.cfg.concurrency)))
        self.seconds = time.perf_counter() - start
        if self.error:
            raise self.error

    async def work(self, jobs: Iterable[Job]) -> None:
        # A worker that fails stops the others after the request they have in flight: it is paid for
        try:
            for job in jobs:
                while job.wants_text and await self.rephrase(job):
                    pass
                if self.cfg.verify_with and job.text and not self.stopping.is_set():
                    await self.verify(job)
                if self.stopping.is_set():
                    return
                self.bar.update(job.key not in self.no_reply)
                self.show()
        except RephraseError as error:
            self.error = self.error or error
            self.stopping.set()
        except BaseException:
            self.stopping.set()
            raise

    async def rephrase(self, job: Job) -> bool:
        """One request for a phrasing and its line in the file; False without a reply."""
        reply = await self.ask(job, self.cfg.model, job.messages())
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
        self.accepted += bool(job.text)
        job.replies, job.last = job.replies + 1, reply.text[:20_000]
        kept = {"reply": job.last} if reason else {}
        self.add(job.line(self.cfg.model, **kept), reply)
        return True

    async def verify(self, job: Job) -> None:
        """Is the gold what a solver finds most often? If not, the phrasing is dropped."""
        solver, prompt = self.cfg.verify_with, SOLVE.format(question=job.text)
        answers = job.solved[solver]
        while len(answers) < self.cfg.verify_samples:
            reply = await self.ask(job, solver, [{"role": "user", "content": prompt}])
            if reply is None:
                return
            answers.append("" if reply.problem else last_box(reply.text)[:1000])
            self.add({"key": job.key, "solver": solver, "answer": answers[-1]}, reply)
        golds = [(job.question.answer, a) for a in answers if a]
        try:
            verdicts, _ = await asyncio.to_thread(shared_pool().judge, golds)
        except RuntimeError as error:
            raise RephraseError(f"--verify-with: {error}") from None
        right = sum(v is True for v in verdicts)
        wrong = Counter(a for (_, a), v in zip(golds, verdicts) if v is not True)
        if right <= max(wrong.values(), default=0):
            job.text, self.accepted = "", self.accepted - 1
            job.reason = f"solver: the gold in {right} of {len(answers)} answers"
        job.verified.add(solver)
        line = job.line(self.cfg.model, verified=solver, right=right, of=len(answers))
        self.add(line, None)

    # --- the file and the figures

    def add(self, line: dict, reply: Reply | None) -> None:
        if reply:
            line |= {"tokens_in": reply.tokens_in, "tokens_out": reply.tokens_out}
        self.count(line)
        self.new += reply is not None
        self.file.append(line)
        if reply and self.cfg.max_cost and None in (reply.tokens_in, reply.tokens_out):
            raise RephraseError("the server reports no token counts: --max-cost cannot be kept")

    def count(self, line: dict) -> None:
        if line.get("rejected"):
            self.reasons[str(line["rejected"]).split(":")[0]] += 1
        if "tokens_in" in line:
            tokens = [
                t if isinstance(t := line.get(n), int) else 0 for n in ("tokens_in", "tokens_out")
            ]
            self.requests += 1
            self.tokens_in += tokens[0]
            self.tokens_out += tokens[1]
            self.dearest = max(self.dearest, self.price(*tokens))

    def price(self, tokens_in: int, tokens_out: int) -> float:
        return (
            tokens_in * (self.cfg.price_in or 0) + tokens_out * (self.cfg.price_out or 0)
        ) / 1e6  # fmt: skip

    @property
    def cost(self) -> float:
        return self.price(self.tokens_in, self.tokens_out)

    def show(self) -> None:
        if self.bar.disable:
            return
        figures = {
            "accepted": self.accepted,
            "rejected": sum(self.reasons.values()),
        }
        if self.cfg.price_in is not None:
            figures["cost"] = f"{self.cost:.2f}"
        self.bar.set_postfix(figures, refresh=False)

    # --- one request

    async def ask(self, job: Job, model: str, messages: list[dict]) -> Reply | None:
        """One reply, through busy and broken servers; None when stopped or after TRIES tries.

        Raises RephraseError for what no second try can mend.
        """
        import openai

        for attempt in range(TRIES):
            if await self.pause():
                return None
            # what is in flight may cost as much as the dearest reply so far
            ahead = self.cost + (self.in_flight + 1) * self.dearest
            if self.cfg.max_cost and (ahead > self.cfg.max_cost or self.cost >= self.cfg.max_cost):
                self.stop(f"--max-cost {self.cfg.max_cost:g} reached")
                return None
            self.in_flight += 1
            try:
                completion = await self.client.chat.completions.create(
                    model=model, messages=messages, extra_body=self.cfg.extra or None
                )
                self.failed_in_a_row = 0
                return read_reply(completion)
            except openai.APIStatusError as error:
                if _is_filtered(error):
                    return Reply("", "refused: by the model or a filter", 0, 0)
                if not _may_pass(error):
                    raise RephraseError(f"{error.status_code}: {_one_line(error)}") from None
                wait, why = _retry_after(error.response.headers), f"{error.status_code}"
            except openai.APIConnectionError as error:  # timeouts are among them
                wait, why = None, _one_line(error.__cause__ or error) or type(error).__name__
            except (openai.OpenAIError, ValueError) as error:  # a reply that cannot be read
                wait, why = None, _one_line(error)
            finally:
                self.in_flight -= 1
            if wait is not None and wait > LONGEST_WAIT_S:
                raise RephraseError(f"the server asks to wait {wait:.0f} s; try again later")
            if wait is not None:
                self.not_before = max(self.not_before, time.monotonic() + wait)
            # full jitter, so that workers that failed together do not return together
            backoff = self.cfg.backoff * 2**attempt * random.uniform(0.5, 1)
            if await self.pause(min(30.0, backoff) if wait is None else 0.1 * backoff):
                return None
        self.no_reply[job.key] = why
        self.failed_in_a_row += 1
        if not self.new or self.failed_in_a_row >= max(3, self.cfg.concurrency):
            raise RephraseError(f"no reply after {TRIES} tries: {why}")
        return None

    async def pause(self, seconds: float = 0.0) -> bool:
        """Waits, also for a Retry-After that another worker got. True when all is to stop."""
        until = time.monotonic() + seconds
        while not self.stopping.is_set():
            left = max(until, self.not_before) - time.monotonic()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self.stopping.wait(), left)
            except asyncio.TimeoutError:
                pass
        return True

    def stop(self, why: str) -> None:
        self.why_stopped = self.why_stopped or why
        self.stopping.set()

    # --- the end

    def report(self) -> str:
        """The table at the end."""
        rows = [f"{'kind':<12}{'accepted':>10}{'missing':>10}{'not asked':>11}"]
        left = {key for key, job in self.jobs.items() if job.wants_text}
        for kind in list(KINDS)[: self.cfg.num]:
            jobs = [j for j in self.jobs.values() if j.kind == kind]
            open_ = sum(j.key in left for j in jobs)
            good = sum(bool(j.text) for j in jobs)
            rows.append(f"{kind:<12}{good:>10}{len(jobs) - good - open_:>10}{open_:>11}")
        counts = Counter(sum(bool(j.text) for j in jobs) for jobs in self.siblings.values())
        rows.append("questions    " + describe_counts(counts))
        if self.reasons:
            rows.append("replies turned down, by reason")
            rows += [f"  {reason:<16}{n:>6}" for reason, n in self.reasons.most_common()]
        rows.append(
            f"requests {self.requests} ({self.new} now), tokens {self.tokens_in} in, "
            f"{self.tokens_out} out"
            + (f", cost {self.cost:.4f}" if self.cfg.price_in is not None else "")
            + f"; in {self.seconds:.1f} s"
        )
        return "\n".join(rows)


def describe_counts(counts: dict[int, int]) -> str:
    """'3 with 0, 5 with 1, 42 with 3 phrasings'."""
    return ", ".join(f"{counts[n]} with {n}" for n in sorted(counts)) + " phrasings"


def _may_pass(error) -> bool:
    """Is it worth another try? An exhausted quota is a 429 too, and no waiting mends it."""
    if "insufficient_quota" in (error.code, error.type) or "insufficient_quota" in str(error.body):
        return False
    return error.status_code in (408, 409, 429) or error.status_code >= 500


def _is_filtered(error) -> bool:
    """Some hosts refuse one question with a 400."""
    return error.status_code == 400 and "content_filter" in (error.code, error.type)


def _retry_after(headers) -> float | None:
    """Seconds, or a date, or nothing that can be read."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if not math.isnan(seconds) else None


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]


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
        raise DataError(f"{PUBLIC_SET} cannot be loaded: {_one_line(error)}") from None
    groups = defaultdict(list)
    try:
        for split, table in splits.items():
            for row in table:
                if (row["question"] or "").strip():
                    groups[split, row["index"]].append((row["sub_index"], row["question"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{PUBLIC_SET} has changed its columns: {_one_line(error)}") from None
    return [
        {"question": text, "kind": f"public {sub}", "source": PUBLIC_SET, "original": original}
        for group in groups.values()
        for (_, original), *others in [sorted(group)]
        for sub, text in others
    ]


# ---------------------------------------------------------------- the command line


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise RephraseError(message)


def parse_options(argv: list[str] | None) -> argparse.Namespace:
    """The checked options. Raises RephraseError for the first wrong one."""
    parser = Parser(
        prog="rephrase.py",
        description="Get and check rephrasings of questions from any OpenAI-compatible server.",
        epilog="The key and, without --base-url, the address come from OPENAI_API_KEY and "
        "OPENAI_BASE_URL.",
    )
    add = parser.add_argument
    add("--data", required=True, help="arithmetic, a file of JSON lines, or a known name")
    add("--model", required=True, help="name of the model at the server")
    add("--out", required=True, help="file of JSON lines; what is in it is not asked again")
    add("--num", type=int, default=3, help="phrasings a question: wording, format, order [3]")
    add("--base-url", help="address of the server, such as http://localhost:8000/v1")
    add("--concurrency", type=int, default=8, help="requests at once [8]")
    add("--limit", type=int, help="the first so many questions only")
    add("--seed", type=int, default=0, help="seed of --data arithmetic, as in train.py [0]")
    add("--timeout", type=float, default=120.0, help="longest wait for a reply, s [120]")
    add("--backoff", type=float, default=1.0, help="first wait before another try, s [1]")
    add("--max-cost", type=float, help="stop before the whole file has cost more; wants prices")
    add("--price-in", type=float, help="price of a million prompt tokens")
    add("--price-out", type=float, help="price of a million reply tokens")
    add("--verify-with", metavar="MODEL", help="drop phrasings whose answer this model changes")
    add("--verify-samples", type=int, default=3, help="its answers a phrasing [3]")
    add("--extra", default="{}", help="more fields of a request: '{\"temperature\": 0.7}'")
    cfg = parser.parse_args(argv)
    for name, low in (
        ("num", 1), ("concurrency", 1), ("limit", 1), ("verify_samples", 1), ("timeout", 0.01),
        ("backoff", 0), ("max_cost", 1e-9), ("price_in", 0), ("price_out", 0),
    ):  # fmt: skip
        value = getattr(cfg, name)
        if value is not None and not low <= value < math.inf:
            raise RephraseError(f"--{name.replace('_', '-')} {value}: must be at least {low:g}")
    if cfg.num > len(KINDS):
        raise RephraseError(f"--num {cfg.num}: there are {len(KINDS)} kinds ({', '.join(KINDS)})")
    if (cfg.price_in is None) != (cfg.price_out is None):
        raise RephraseError("--price-in and --price-out go together")
    if cfg.max_cost and not (cfg.price_in or cfg.price_out):
        raise RephraseError("--max-cost needs --price-in and --price-out")
    if cfg.base_url and not re.match(r"https?://[^/]", cfg.base_url):
        raise RephraseError(f"--base-url {cfg.base_url}: must start with http:// or https://")
    try:
        cfg.extra = json.loads(cfg.extra)
    except ValueError:
        cfg.extra = None
    if not isinstance(cfg.extra, dict):
        raise RephraseError("--extra: must be a JSON object")
    return cfg


def load_questions(cfg: argparse.Namespace) -> list[Question]:
    """The questions of --data: for arithmetic those that train.py trains on."""
    if cfg.data == "arithmetic":
        questions = data.arithmetic("train", 2048, cfg.seed)
    elif Path(cfg.data).is_file() or cfg.data.endswith((".jsonl", ".json")) or "/" in cfg.data:
        questions = data.read_jsonl(cfg.data)
    else:
        questions = data.load_named(cfg.data)
    return questions[: cfg.limit]


def make_client(cfg: argparse.Namespace):
    """The package's client, with its own retries off: those of `Asker.ask` know the quota."""
    try:
        import openai
    except ImportError:
        raise RephraseError("needs the 'openai' package: pip install openai") from None
    try:
        return openai.AsyncOpenAI(base_url=cfg.base_url, timeout=cfg.timeout, max_retries=0)
    except openai.OpenAIError as error:
        if not os.environ.get("OPENAI_API_KEY"):
            text = "OPENAI_API_KEY is not set (for a local server any text will do)"
            raise RephraseError(text) from None
        raise RephraseError(_one_line(error)) from None


async def run(cfg: argparse.Namespace, questions: list[Question], file: ReplyFile) -> Asker:
    """Asks for everything that is missing in the file. Raises RephraseError."""
    async with make_client(cfg) as client:
        asker = Asker(cfg, questions, file, client)
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            asker.stop("interrupted")
            for number in (signal.SIGINT, signal.SIGTERM):  # a second one is not held up
                loop.remove_signal_handler(number)

        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, interrupt)
        except (NotImplementedError, RuntimeError, ValueError):
            pass  # Windows, or not the main thread
        try:
            await asker.run()
        finally:
            print(asker.report())
        return asker


def main(argv: list[str] | None = None) -> int:
    """0 when nothing is left to ask, or at a clean stop; 2 with one line on stderr otherwise."""
    try:
        cfg = parse_options(argv)
        questions = load_questions(cfg)
        file = ReplyFile(cfg.out)
        try:
            asker = asyncio.run(run(cfg, questions, file))
        finally:
            file.close()
        if asker.why_stopped:
            print(f"stopped: {asker.why_stopped}; the same command goes on from here")
        elif asker.no_reply:
            n, why = len(asker.no_reply), next(iter(asker.no_reply.values()))
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
