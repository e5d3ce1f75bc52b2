"""A stand-in for an OpenAI-compatible server, for `test_rephrase.py` and `benchmarks/rephrase.py`.

    python tests/rephrase_server.py DELAY_S        prints its port, then serves until stdin closes

`Server(decide)` runs it in a thread. `decide(request, nth)` says what to do with the nth request
for the same question and kind: an `Answer`. It speaks HTTP itself, so that it can break it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rephrase import KINDS

LEADS = {"wording": "Kindly answer this.", "format": "A small task:", "order": "Your turn now:"}


@dataclass
class Request:
    """What was asked, read back out of the prompt."""

    model: str
    messages: list[dict]
    question: str
    kind: str
    at: float = 0.0


@dataclass
class Answer:
    """text: of the reply. Everything else is what can go wrong."""

    text: str | None = None
    finish: str = "stop"
    refusal: str | None = None
    status: int = 200
    headers: dict = field(default_factory=dict)
    body: object = None  # instead of a chat completion; bytes are sent as they are
    drop: bool = False  # close the connection in the middle of the reply
    delay: float = 0.0
    usage: bool = True


def good(request: Request) -> str:
    """A rephrasing that passes the checks."""
    end = " Thank you very much indeed." if len(request.question) > 38 else ""
    return f"<rephrased>\n{LEADS[request.kind]} {request.question}{end}\n</rephrased>"


def read_request(body: bytes) -> Request:
    fields = json.loads(body)
    prompt = fields["messages"][0]["content"]
    kind = next((k for k, (how, _) in KINDS.items() if how in prompt), "solve")
    return Request(
        fields["model"], fields["messages"], prompt.rpartition("to rewrite:\n")[2], kind
    )  # fmt: skip


class Server:
    """Serves in a thread between `with` and its end; `requests` are those that came."""

    def __init__(self, decide: Callable[[Request, int], Answer] | None = None, delay: float = 0.0):
        self.decide = decide or (lambda request, nth: Answer(good(request), delay=delay))
        self.requests: list[Request] = []
        self.seen: Counter = Counter()

    def __enter__(self) -> Server:
        started = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main(started)), daemon=True)
        self.thread.start()
        assert started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.done.set)
        self.thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def main(self, started: threading.Event) -> None:
        self.loop, self.done = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self.done.wait()
        server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = int(head.partition("content-length:")[2].split("\r\n")[0] or 0)
                request = read_request(await reader.readexactly(length))
                request.at = self.loop.time()
                self.requests.append(request)
                self.seen[request.question, request.kind] += 1
                answer = self.decide(request, self.seen[request.question, request.kind])
                await asyncio.sleep(answer.delay)
                writer.write(self.encode(request, answer))
                await writer.drain()
                if answer.drop:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def encode(self, request: Request, answer: Answer) -> bytes:
        message = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
        body = answer.body
        if body is None:
            body = {
                "id": "x", "object": "chat.completion", "created": 0, "model": request.model,
                "choices": [{"index": 0, "message": message, "finish_reason": answer.finish}],
            }  # fmt: skip
            if answer.usage:
                usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
                body["usage"] = usage
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = {"content-type": "application/json", "content-length": len(payload)} | answer.headers
        lines = [f"HTTP/1.1 {answer.status} x", *(f"{k}: {v}" for k, v in head.items()), "", ""]
        whole = "\r\n".join(lines).encode() + payload
        return whole[: len(whole) // 2] if answer.drop else whole


if __name__ == "__main__":
    with Server(delay=float(sys.argv[1])) as running:
        print(running.port, flush=True)
        sys.stdin.read()
