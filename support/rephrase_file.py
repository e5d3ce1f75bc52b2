"""The file of `rephrase.py`: JSON lines that are only ever appended, each as soon as its reply
is there, so that a kill loses nothing that has arrived."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from support.rephrase_options import RephraseError

try:
    import fcntl
except ImportError:  # Windows: two calls at once on one file are not noticed
    fcntl = None


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
