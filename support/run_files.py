"""The files of a run: CSV logs, checkpoints that survive a kill, resuming.

Everything random in a run is a function of (seed, step), so a checkpoint needs only what training
changes: weights, optimizer moments, the threshold and a few counters. Nothing is pickled: arrays
are safetensors, the rest is JSON. A checkpoint is written beside its place and renamed into it, so
a kill leaves either the old one or the new one; the last two are kept.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from pathlib import Path

import torch
from safetensors import SafetensorError

METRICS = (
    "step reward reward_group acr acr_all_wrong acr_all_right acr_group acr_after tau gate_open "
    "virtual_k anchor_gap loss grad_norm ratio_mean clip_frac kl entropy mean_length truncated "
    "unscorable live_rows tokens_per_s step_s"
).split()
TIMING = ("tokens_per_s", "step_s")  # the only columns that differ between two equal runs
# options that a resumed run may give anew: they change no number
MAY_CHANGE = ("out", "overwrite", "resume", "stop_after", "save_every", "report_to", "show")
OWN_FILES = (
    "config.json",
    "metrics.csv",
    "eval.csv",
    "samples.jsonl",
    "groups.jsonl",
    "curves.png",
)
OWN_FOLDERS = ("checkpoint", "model", "tensorboard")


class RunError(ValueError):
    """A run folder that cannot be used; the message is one line for the user."""


def write_atomically(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def formatted(value: object) -> str:
    """How a number stands in a CSV: six digits; what does not apply (None, NaN) is empty."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a log of this project. Raises RunError."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None


class RunFolder:
    """One run's folder. Raises RunError when it cannot be used as asked.

    overwrite: remove an earlier run's files first (only files that a run writes). resume: go on
    from the last checkpoint, or start afresh where there is none yet.
    """

    def __init__(self, path: str | Path, overwrite: bool = False, resume: bool = False):
        self.path = Path(path)
        self.resume = resume
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"--out {self.path}: is a file, not a folder")
        try:
            held = [n for n in OWN_FILES + OWN_FOLDERS if (self.path / n).exists()]
        except OSError as error:
            raise RunError(f"--out {str(self.path)[:80]}: {error.strerror}") from None
        if held and not (overwrite or resume):
            raise RunError(f"--out {self.path}: holds a run already; add --overwrite or --resume")
        if held and overwrite and not self._is_run():
            message = f"--out {self.path}: {held[0]} there is not a run's; choose another folder"
            raise RunError(message)
        if resume and self.checkpoints() and not (self.path / "config.json").exists():
            raise RunError(f"--out {self.path}: has checkpoints but no config.json to compare with")
        self.overwrite = overwrite
        self.mirror = None  # a tensorboard SummaryWriter
        self.lock: int | None = None

    def close(self) -> None:
        """Gives the folder free for another run, and writes what tensorboard has not yet."""
        if self.mirror is not None:
            self.mirror.close()
            self.mirror = None
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _is_run(self) -> bool:
        """Is what stands there a run's? Only then may it be removed."""
        try:
            config = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
            return "options" in config and "versions" in config
        except (OSError, ValueError, TypeError):
            return (self.path / "metrics.csv").is_file()

    def _lock(self) -> None:
        """Two runs in one folder would mix their lines. The lock goes with the process."""
        try:
            import fcntl
        except ImportError:  # Windows: not noticed
            return
        self.lock = os.open(self.path, os.O_RDONLY)  # the folder itself: no file is left behind
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"--out {self.path}: another run is writing there") from None

    def prepare(self, config: dict) -> None:
        """Makes the folder, clears it where asked to, writes config.json."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock()
            if self.overwrite:
                self._clear()
            write_atomically(self.path / "config.json", json.dumps(config, indent=1) + "\n")
        except OSError as error:
            raise RunError(f"--out {self.path}: cannot be written ({error.strerror})") from None

    def _clear(self) -> None:
        for name in OWN_FILES:
            (self.path / name).unlink(missing_ok=True)
        for name in OWN_FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)

    def check_unchanged(self, options: dict) -> None:
        """On --resume: raises RunError naming the options that are not those of the run."""
        path = self.path / "config.json"
        if not (self.resume and path.exists()):
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))["options"]
            changed = [
                f"--{key.replace('_', '-')} ({before[key]} -> {value})"
                for key, value in options.items()
                if key not in MAY_CHANGE and before[key] != value
            ]
        except (OSError, ValueError, KeyError, TypeError):
            message = f"{path} is damaged or of another version; start again with --overwrite"
            raise RunError(message) from None
        if changed:
            raise RunError(f"--resume with other options than the run had: {', '.join(changed)}")

    # ------------------------------------------------------------------ logs

    def append_csv(self, name: str, row: dict, columns: list[str] | tuple[str, ...]) -> None:
        """Appends and flushes one row; writes the header first when the file is new."""
        path = self.path / name
        new = not path.exists() or path.stat().st_size == 0
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(columns)
            writer.writerow([formatted(row.get(column)) for column in columns])
        for key in columns if self.mirror else ():
            if key != "step" and formatted(row.get(key)):
                self.mirror.add_scalar(key, row[key], row["step"])

    def append_jsonl(self, name: str, rows: list[dict]) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    def cut_logs(self, step: int) -> None:
        """Removes every log line after `step`, and a last line that a kill left unfinished."""
        for name in ("metrics.csv", "eval.csv", "samples.jsonl", "groups.jsonl"):
            path = self.path / name
            if not path.exists():
                continue
            try:
                lines = path.read_text(encoding="utf-8").split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise RunError(f"{path}: cannot be read ({error})") from None
            whole = lines[:-1]  # what stands after the last newline was never finished
            if name == "metrics.csv" and whole and whole[0] != ",".join(METRICS):
                raise RunError(
                    f"{path}: its first line is not that of a run; --overwrite starts anew"
                )
            head, body = (whole[:1], whole[1:]) if name.endswith("csv") else ([], whole)
            kept = head + [line for line in body if self._step_of(name, line) <= step]
            write_atomically(path, "".join(line + "\n" for line in kept))

    @staticmethod
    def _step_of(name: str, line: str) -> float:
        try:
            return int(line.split(",")[0]) if name.endswith("csv") else json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            return float("inf")

    # ------------------------------------------------------------------ checkpoints

    def save_checkpoint(self, step: int, model, optimizer, state: dict) -> Path:
        """checkpoint/step-N: weights, optimizer moments, and `state` (JSON)."""
        from safetensors.torch import save_file

        place = self.path / "checkpoint" / f"step-{step:07d}"
        beside = place.with_suffix(".tmp")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir(parents=True)
            names = {id(p): name for name, p in model.named_parameters()}
            weights = {name: p.detach().contiguous() for name, p in model.named_parameters()}
            moments = {
                f"{names[id(p)]}|{key}": torch.as_tensor(value)
                for p, values in optimizer.state.items()
                for key, value in values.items()
            }
            save_file(weights, beside / "weights.safetensors")
            save_file(moments, beside / "optimizer.safetensors")
            write_atomically(beside / "state.json", json.dumps(state | {"step": step}))
            for file in beside.iterdir():
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
            if place.exists():  # the same step again, after a resume at the very end
                shutil.rmtree(place)
            os.replace(beside, place)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise RunError(f"checkpoint of step {step} could not be written: {error}") from None
        for old in self.checkpoints()[:-2]:
            shutil.rmtree(old, ignore_errors=True)
        return place

    def save_model(self, policy) -> None:
        """model/: the trained policy and its tokenizer, as safetensors, renamed into place."""
        place, beside = self.path / "model", self.path / "model.tmp"
        shutil.rmtree(beside, ignore_errors=True)
        try:
            policy.model.save_pretrained(beside)
            policy.tokenizer.save_pretrained(beside)
            shutil.rmtree(place, ignore_errors=True)
            os.replace(beside, place)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            message = f"model/ could not be written ({error}); --resume tries again"
            raise RunError(message) from None

    def checkpoints(self) -> list[Path]:
        return sorted(p for p in (self.path / "checkpoint").glob("step-*") if p.suffix != ".tmp")

    def load_checkpoint(self, model, optimizer, restore=lambda state: None) -> dict | None:
        """Restores the newest readable checkpoint; its state, or None where there is none yet.

        restore: takes the state; raises ValueError, KeyError or TypeError where it is damaged. A
        damaged checkpoint is passed over for the one before; raises RunError when none can be read.
        """
        from safetensors.torch import load_file

        found = self.checkpoints()
        for place in reversed(found):
            try:
                state = json.loads((place / "state.json").read_text(encoding="utf-8"))
                if place.name != f"step-{state['step']:07d}":
                    raise ValueError("its step is another")
                restore(state)
                weights = load_file(place / "weights.safetensors")
                moments = load_file(place / "optimizer.safetensors")
                parameters = dict(model.named_parameters())
                if set(weights) != set(parameters):
                    raise ValueError("it holds the weights of another model")
                with torch.no_grad():
                    for name, parameter in parameters.items():
                        parameter.copy_(weights[name])
                optimizer.state.clear()
                for key, value in moments.items():
                    name, _, slot = key.rpartition("|")
                    where = "cpu" if slot == "step" else parameters[name].device
                    optimizer.state[parameters[name]][slot] = value.to(where)
                return state
            except Exception as error:  # whatever is wrong with it, the one before may be right
                print(f"{place}: cannot be read ({error}); trying the one before")
        if found:
            raise RunError(f"no checkpoint in {self.path}/checkpoint can be read")
        return None


class StopRequest:
    """Ctrl-C and SIGTERM ask the run to finish its step; a second Ctrl-C ends it at once."""

    def __init__(self):
        self.asked = False

    def __enter__(self) -> StopRequest:
        self.before = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread, as in some notebooks
                pass
        return self

    def _ask(self, number, frame) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *exc) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
