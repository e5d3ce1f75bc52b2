"""Requests to an OpenAI-compatible server, for `rephrase.py`: several at once, again when the
server is busy, and within --max-cost. A stop waits for those in flight, as they are paid for."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from tqdm import tqdm

from support.rephrase_file import ReplyFile
from support.rephrase_options import RephraseError

TRIES = 6  # a request, when the server is busy or away
LONGEST_WAIT_S = 120.0  # a server that asks for more is out of order for us


@dataclass
class Reply:
    """One answer of a model, as far as it can be trusted: `problem` says why it is none."""

    text: str
    problem: str | None
    tokens_in: int | None
    tokens_out: int | None


class Requests:
    """All requests of a call: `concurrency` workers, one file, one stop.

    `read_reply` makes a Reply of what the server sent; its ValueError is one more failed try.
    """

    def __init__(
        self,
        cfg: argparse.Namespace,
        client,
        file: ReplyFile,
        read_reply: Callable[[object], Reply],
    ):
        self.cfg, self.client, self.file, self.read_reply = cfg, client, file, read_reply
        self.accepted = 0  # phrasings, counted by the caller for the progress line
        self.reasons: Counter = Counter()
        self.answered = self.tokens_in = self.tokens_out = 0
        self.dearest = 0.0  # cost of the dearest reply
        for line in file.lines:
            self.count(line)
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

    async def run(self, jobs: list, do: Callable[..., Awaitable[None]], total: int) -> None:
        """`do(job)` for all jobs, what is left of `total`; returns early when stopped. Raises
        RephraseError."""
        start = time.perf_counter()
        self.bar = tqdm(total=total, initial=total - len(jobs), unit="phrasing", disable=None)
        left = iter(jobs)  # shared: each worker takes the next one
        with self.bar:
            self.show()
            await asyncio.gather(*(self.work(left, do) for _ in range(self.cfg.concurrency)))
        self.seconds = time.perf_counter() - start
        if self.error:
            raise self.error

    async def work(self, jobs: Iterator, do: Callable[..., Awaitable[None]]) -> None:
        # A worker that fails stops the others after the request they have in flight: it is paid for
        try:
            for job in jobs:
                await do(job)
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

    def stop_on_signals(self) -> None:
        """Ctrl-C and a polite kill wait for the requests in flight."""
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            self.stop("interrupted")
            for number in (signal.SIGINT, signal.SIGTERM):  # a second one is not held up
                loop.remove_signal_handler(number)

        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, interrupt)
        except (NotImplementedError, RuntimeError, ValueError):
            pass  # Windows, or not the main thread

    # --- one request

    async def ask(self, key: str, model: str, messages: list[dict]) -> Reply | None:
        """One reply, through busy and broken servers; None when stopped or after TRIES tries: then
        `no_reply` says why, under this key.

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
                return self.read_reply(completion)
            except openai.APIStatusError as error:
                if _is_filtered(error):
                    return Reply("", "refused: by the model or a filter", 0, 0)
                if not _may_pass(error):
                    raise RephraseError(f"{error.status_code}: {one_line(error)}") from None
                wait, why = _retry_after(error.response.headers), f"{error.status_code}"
            except openai.APIConnectionError as error:  # timeouts are among them
                wait, why = None, one_line(error.__cause__ or error) or type(error).__name__
            except RephraseError:  # not this API at all: asking again would change nothing
                raise
            except (openai.OpenAIError, ValueError) as error:  # a reply that cannot be read
                wait, why = None, one_line(error)
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
        self.no_reply[key] = why
        self.failed_in_a_row += 1
        if not self.new or self.failed_in_a_row >= max(3, self.cfg.concurrency):
            raise RephraseError(f"no reply after {TRIES} tries: {why}")
        return None

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
            self.answered += 1
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

    def report(self) -> str:
        """The end of the table at the end: what was turned down, what it took."""
        rows = []
        if self.reasons:
            rows.append("replies turned down, by reason")
            rows += [f"  {reason:<16}{n:>6}" for reason, n in self.reasons.most_common()]
        rows.append(
            f"requests {self.answered} ({self.new} now), tokens {self.tokens_in} in, "
            f"{self.tokens_out} out"
            + (f", cost {self.cost:.4f}" if self.cfg.price_in is not None else "")
            + f"; in {self.seconds:.1f} s"
        )
        return "\n".join(rows)


def make_client(cfg: argparse.Namespace):
    """The package's client, with its own retries off: those of `Requests.ask` know the quota."""
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
        raise RephraseError(one_line(error)) from None
    except Exception as error:  # what class it has depends on the HTTP package that openai uses
        url = cfg.base_url or os.environ.get("OPENAI_BASE_URL", "")
        text = f"--base-url {one_line(url)[:80]}: is no address ({one_line(error)})"
        raise RephraseError(text) from None


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


def one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
