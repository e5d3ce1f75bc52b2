"""Completions of an evaluation on disk: NAME.jsonl, a line a question, and NAME.json beside it with
every setting that decides what the lines say, and the results once all lines are there.

Lines are appended a batch at a time and flushed. A call with the same settings goes on after the
last whole batch, so that batches, and with them every rounding, are those of an uninterrupted call.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from data import Question
from support.options import OptionError, flag_of
from support.run_files import write_atomically

LISTS = ("completions", "rewards", "lenient", "boxed", "lengths", "truncated")  # of each line


class CompletionFile:
    """Raises OptionError when the place holds completions of other settings, or cannot be used.

    path: of NAME.jsonl; None keeps everything in memory. per_batch: questions sampled at once.
    """

    def __init__(
        self,
        path: Path | None,
        questions: Sequence[Question],
        settings: dict,
        per_batch: int,
        overwrite: bool = False,
    ):
        self.path, self.per_batch = path, per_batch
        text = json.dumps([[q.id, q.question, q.answer] for q in questions])
        self.settings = settings | {
            "questions": len(questions),
            "questions_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        }
        self.lines: list[dict] = []
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(13, "not writable")
            if overwrite:
                path.unlink(missing_ok=True)
                self.record.unlink(missing_ok=True)
            self._check()
            self._read(len(questions))
        except OSError as error:
            raise OptionError(f"{path}: cannot be used ({error.strerror})") from None

    @property
    def record(self) -> Path:
        """NAME.json."""
        return self.path.with_suffix(".json")

    def _check(self) -> None:
        if not self.path.exists():
            return
        try:
            before = json.loads(self.record.read_text(encoding="utf-8"))["settings"]
            if not isinstance(before, dict):
                raise TypeError
        except (OSError, ValueError, KeyError, TypeError):
            raise OptionError(
                f"{self.path}: there is no {self.record.name} that says how it was made; "
                "--overwrite starts again"
            ) from None
        changed = [k for k, v in self.settings.items() if before.get(k) != v]
        if changed:
            names = ", ".join(
                f"{flag_of(k)} ({before.get(k)} -> {self.settings[k]})" for k in changed
            )
            raise OptionError(f"{self.path} was made with other settings: {names}; --overwrite")

    def _read(self, count: int) -> None:
        """Keeps whole batches only: what a kill left behind them is cut off."""
        if not self.path.exists():
            return
        whole = self.path.read_bytes().split(b"\n")[:-1]
        done = len(whole) if len(whole) == count else len(whole) // self.per_batch * self.per_batch
        try:
            self.lines = [json.loads(line) for line in whole[:done]]
            if not all(isinstance(line[key], list) for line in self.lines for key in LISTS):
                raise TypeError
            text = "".join(line.decode() + "\n" for line in whole[:done])
        except (ValueError, KeyError, TypeError):
            raise OptionError(f"{self.path}: is damaged; --overwrite starts again") from None
        write_atomically(self.path, text)

    def start(self, fingerprint: str) -> None:
        """Writes the settings, once the model is loaded. Raises OptionError if its weights are not
        those that the lines were sampled from."""
        if self.path is None:
            return
        if self.lines:
            before = json.loads(self.record.read_text(encoding="utf-8")).get("weights")
            if before != fingerprint:
                raise OptionError(
                    f"{self.path} was sampled from other weights than --model has now; --overwrite"
                )
        self.finish(fingerprint, None)

    def finish(self, fingerprint: str, results: dict | None) -> None:
        from support.report import versions  # it reads evaluate.py, which reads this file

        if self.path is None:
            return
        record = {"settings": self.settings, "weights": fingerprint, "versions": versions()}
        if results is not None:
            record["results"] = results
        write_atomically(self.record, json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    def append(self, lines: list[dict]) -> None:
        self.lines += lines
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())


def fingerprint(model) -> str:
    """16 hexadecimal digits that change when a weight does (in practice: from sums, not bytes)."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        values = parameter.detach().double()
        sums = f"{name} {tuple(values.shape)} {values.sum():.12g} {values.norm():.12g}"
        digest.update(sums.encode())
    return digest.hexdigest()[:16]
