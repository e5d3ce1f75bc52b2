"""Verdicts in child processes: a wall clock that always works, and a memory limit.

A model can write anything into a box: a power tower, a factorial of a factorial, 100 kB of
braces. `signal.alarm` reaches neither threads nor arithmetic inside C code, so each slow verdict
is made by a worker, `python -m support.verifier_process`, that reads one JSON line a job on
stdin and writes one JSON line an answer on stdout (works from threads and notebooks, on Linux,
macOS and Windows). What was chosen:

- The clock starts when a worker that is ready (imports done) gets the job: neither start-up nor
  waiting in the queue counts. A worker over `limit_s` is killed and replaced.
- Address space is limited where the system has RLIMIT_AS. A CPU limit, moved forward at each
  job, ends a worker that lost its parent in the middle of a hang; otherwise end-of-file on
  stdin ends it.
- No verdict (None) has a reason: 'timeouts', 'crashes', 'memory', 'too_big'.
- Results come in input order; equal pairs are judged once.
- No random number is drawn here.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 5.0  # wall clock of one verdict; the median is about a millisecond
MEMORY_MB = 2048  # address space of one worker, not memory in use
START_LIMIT_S = 120.0  # imports on a cold, busy disk; not part of any verdict's clock
MAX_UNREADABLE = 0.05  # share of golds in use
CACHE_VERSION = 1  # raise when the verifier reads golds differently


class Worker:
    """One child process. A thread moves its lines into the pool's inbox."""

    def __init__(self, inbox: queue.Queue, limit_s: float, memory_mb: int):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        ), PYTHONIOENCODING="utf-8")  # fmt: skip
        # Own session: Ctrl-C in the parent's terminal is the parent's business.
        detach = (
            {"start_new_session": True}
            if os.name == "posix"
            else {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.verifier_process", str(limit_s), str(memory_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,  # a folder named `support` where the user stands must not be picked up
            env=env,
            **detach,
        )
        self.ready = False
        self.job: int | None = None
        self.deadline = time.monotonic() + START_LIMIT_S
        threading.Thread(target=self._read, args=(inbox,), daemon=True).start()

    def _read(self, inbox: queue.Queue) -> None:
        for line in self.process.stdout:
            inbox.put((self, json.loads(line)))
        inbox.put((self, None))  # the process is gone

    def send(self, job: int, task: dict, limit_s: float) -> None:
        self.job, self.deadline = job, time.monotonic() + limit_s
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it died while idle; its end-of-file is in the inbox

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        try:
            self.process.stdin.close()
        except OSError:
            pass  # a job was still in the pipe


class VerifierPool:
    """A few workers, started when first needed and kept.

    workers: processes at most (default: one a core, 4 at most). limit_s: seconds of wall clock a
    verdict. memory_mb: address space a worker. Safe to call from several threads (one batch at a
    time). After `judge`, `reasons` counts the pairs that got no verdict, by reason.
    """

    def __init__(self, workers: int | None = None, limit_s=LIMIT_S, memory_mb=MEMORY_MB):
        self.size = workers or min(4, os.cpu_count() or 1)
        self.limit_s, self.memory_mb = limit_s, memory_mb
        self.workers: list[Worker] = []
        self.inbox: queue.Queue = queue.Queue()
        self.lock = threading.Lock()
        self.pid = os.getpid()

    def judge(self, pairs, string_path: bool = True) -> tuple[list[bool | None], list[str | None]]:
        """Verdicts for (gold, prediction) pairs, in their order, and why there is none.

        string_path=False leaves out the comparison of the two texts. Raises RuntimeError when
        no worker can be started.
        """
        pairs = list(pairs)
        if not pairs:
            return [], []
        unique = list(dict.fromkeys(pairs))
        tasks = [{"gold": g, "prediction": p, "string_path": string_path} for g, p in unique]
        with self.lock:
            try:
                answers = dict(zip(unique, self._run(tasks)))
            finally:  # also on Ctrl-C: a worker with a job in hand would answer it later
                for worker in [w for w in self.workers if w.job is not None]:
                    self._drop(worker)
        return [answers[p][0] for p in pairs], [answers[p][1] for p in pairs]

    def close(self) -> None:
        """End all workers; the next `judge` starts new ones."""
        for worker in list(self.workers):
            self._drop(worker)

    def _drop(self, worker: Worker) -> None:
        self.workers.remove(worker)
        if self.pid == os.getpid():  # after a fork the workers belong to the other process
            worker.kill()

    def _run(self, tasks: list[dict]) -> list[tuple[bool | None, str | None]]:
        results: list = [(None, "crashes")] * len(tasks)
        waiting, busy, failed_starts = deque(range(len(tasks))), 0, 0
        while waiting or busy:
            while len(self.workers) < min(self.size, len(waiting) + busy):
                self.workers.append(Worker(self.inbox, self.limit_s, self.memory_mb))
            for worker in self.workers:
                idle = worker.ready and worker.job is None and worker.process.poll() is None
                if waiting and idle:
                    job = waiting.popleft()
                    worker.send(job, tasks[job], self.limit_s)
                    busy += 1
            # Answers first, deadlines second: a verdict that has arrived is never thrown away.
            clocks = [w.deadline for w in self.workers if w.job is not None or not w.ready]
            try:
                wait = max(0.0, min(clocks, default=time.monotonic() + 1) - time.monotonic())
                worker, message = self.inbox.get(timeout=wait)
            except queue.Empty:
                late = [w for w in self.workers if w.job is not None or not w.ready]
                for worker in [w for w in late if w.deadline <= time.monotonic()]:
                    if worker.job is None:
                        raise RuntimeError("a verifier process did not start in time") from None
                    results[worker.job] = (None, "timeouts")
                    busy -= 1
                    self._drop(worker)
                continue
            if worker not in self.workers:
                continue  # last words of a worker that was killed
            if message is None:  # crashed: at a job, while idle, or already at its start
                failed_starts += not worker.ready
                busy -= worker.job is not None
                self._drop(worker)
                if failed_starts > 2:
                    raise RuntimeError(
                        "verifier process does not start; try python -m support.verifier_process"
                    )
            elif not worker.ready:
                worker.ready = True
            else:
                results[worker.job] = (message["equal"], message["why"])
                worker.job = None
                busy -= 1
                if message["why"] == "memory":
                    self._drop(worker)  # what it holds it may not give back
        return results


_pool: VerifierPool | None = None
_pool_lock = threading.Lock()


def shared_pool() -> VerifierPool:
    """The pool of this process, made on first use and closed at exit. A fork gets its own."""
    global _pool
    with _pool_lock:
        if _pool is None or _pool.pid != os.getpid():
            _pool = VerifierPool()
            atexit.register(_pool.close)
        return _pool


def configure(workers: int | None = None, limit_s=LIMIT_S, memory_mb=MEMORY_MB) -> VerifierPool:
    """Replace the shared pool by one with other limits."""
    global _pool
    with _pool_lock:
        if _pool is not None:
            _pool.close()
        _pool = VerifierPool(workers, limit_s, memory_mb)
        atexit.register(_pool.close)
        return _pool


# --- golds, checked once a file -------------------------------------------------------------


def cache_folder() -> Path:
    """TAGRPO_CACHE, else ~/.cache/tagrpo."""
    return Path(os.environ.get("TAGRPO_CACHE") or Path.home() / ".cache" / "tagrpo")


def readable_golds(golds: list[str], file_hash: str | None = None) -> list[bool]:
    """Which golds can be judged at all: each must equal itself with the string path off.

    golds: those in use, not the whole file. file_hash: any string that names the content of the
    file they come from (its sha256); with it, results are kept in the cache folder. A cache that
    cannot be read or written is ignored. Plain numbers never start a process. Returns one bool a
    gold; a gold without a verdict (time, memory) is False and is not remembered.
    """
    from support.answer_text import read_literal

    known = _load(file_hash)
    todo = [g for g in dict.fromkeys(golds) if g not in known and read_literal(g) is None]
    fresh: dict[str, bool | None] = {}
    if todo:
        verdicts, _ = shared_pool().judge([(g, g) for g in todo], string_path=False)
        fresh = dict(zip(todo, verdicts))
        _save(file_hash, known | {g: v for g, v in fresh.items() if v is not None})
    known = known | fresh
    return [bool(known.get(g, read_literal(g) is not None)) for g in golds]


def check_golds(
    golds: list[str], lines: list[int] | None = None, file_hash: str | None = None
) -> tuple[list[bool], list[str]]:
    """Which golds to keep, and one sentence for each that must go.

    lines: where each stands in its file (1, 2, ... by default). Raises ValueError, with the same
    sentences, when more than 5 % of them are unreadable: then the file or its `answer` field is
    the trouble.
    """
    keep = readable_golds(golds, file_hash)
    where = lines or range(1, len(golds) + 1)
    bad = [
        f"line {n}: the answer {g[:80]!r} cannot be judged, question left out"
        for n, g, ok in zip(where, golds, keep)
        if not ok
    ]
    if len(bad) > MAX_UNREADABLE * len(golds):
        raise ValueError(
            f"{len(bad)} of {len(golds)} answers cannot be judged (more than "
            f"{MAX_UNREADABLE:.0%}):\n" + "\n".join(bad[:10])
        )
    return keep, bad


def _cache_file(file_hash: str) -> Path:
    name = hashlib.sha256(file_hash.encode()).hexdigest()[:24]
    return cache_folder() / f"golds-v{CACHE_VERSION}-{name}.json"


def _load(file_hash: str | None) -> dict[str, bool]:
    if file_hash is None:
        return {}
    try:
        known = json.loads(_cache_file(file_hash).read_text(encoding="utf-8"))
        return {k: v for k, v in known.items() if isinstance(v, bool)}
    except (OSError, ValueError, AttributeError):
        return {}


def _save(file_hash: str | None, known: dict[str, bool]) -> None:
    if file_hash is None:
        return
    try:
        path = _cache_file(file_hash)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Write aside and rename: a reader never sees half a file.
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8"
        ) as file:
            json.dump(known, file)
        os.replace(file.name, path)
    except OSError:
        pass


# --- the child ------------------------------------------------------------------------------


def _limit_memory(memory_mb: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # Windows has none, macOS refuses some: the wall clock is left


def _memory_was_short(memory_mb: int) -> bool:
    try:
        with open("/proc/self/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmPeak"))
    except (OSError, StopIteration):
        return False
    return peak > 0.9 * memory_mb * 1024


def _limit_cpu(seconds: float) -> None:
    try:
        import resource

        used = time.process_time()
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 2, hard))
    except (ImportError, ValueError, OSError):
        pass


def main(limit_s: float = LIMIT_S, memory_mb: int = MEMORY_MB) -> None:
    """Read jobs from stdin until end-of-file, answer each on stdout."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not end up among the answers
    from support import equivalence

    equivalence.warm_up()
    _limit_memory(memory_mb)
    sys.setrecursionlimit(6000)  # a sum of n terms is a tree n deep
    print('{"ready": true}', file=answers, flush=True)
    for line in sys.stdin.buffer:
        task = json.loads(line)
        _limit_cpu(2 * limit_s)
        equal, why = None, None
        try:
            equal = equivalence.equivalent(task["gold"], task["prediction"], task["string_path"])
        except equivalence.TooBig:
            why = "too_big"
        except MemoryError:
            why = "memory"
        except Exception:
            why = "crashes"
        if equal is False and _memory_was_short(memory_mb):
            equal, why = None, "memory"  # libraries swallow MemoryError and answer False
        print(json.dumps({"equal": equal, "why": why}), file=answers, flush=True)


if __name__ == "__main__":
    main(*(kind(arg) for kind, arg in zip((float, int), sys.argv[1:])))
