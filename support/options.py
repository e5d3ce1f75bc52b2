"""The options of train.py: one dataclass, each field a flag with its unit, default and limits."""

from __future__ import annotations

import argparse
import dataclasses
import math
from dataclasses import dataclass, field
from typing import NoReturn

from avspo import GROUPS, RULES
from grpo import AGGREGATIONS
from support.presets import PRESETS

ALGORITHMS = ("grpo", "avspo", "tagrpo", "tagrpo+avspo")


class OptionError(ValueError):
    """A wrong option; the message is one line for the user."""


def option(default: object, text: str, **limits: object):
    """A field of Config: its default, its --help text, and what values it takes."""
    return field(default=default, metadata={"help": text, **limits})


@dataclass
class Config:
    """Every option of a run. `--name-with-dashes VALUE` on the command line."""

    algo: str = option("", "the algorithm", choices=ALGORITHMS)
    preset: str = option("tiny", "named settings that other flags override", choices=tuple(PRESETS))
    show: bool = option(False, "print the resolved options and stop")
    model: str = option("tiny", "tiny (embedded), a folder, or a hub id")
    data: str = option(
        "arithmetic", "arithmetic or one-step (embedded), gsm8k or math (hub), or a file"
    )
    eval_data: str = option("", "held-out questions, a file; empty: a part of --data is kept aside")
    rephrasings: str = option("", "TA-GRPO: a file of rephrasings (see rephrase.py)")
    max_questions: int = option(0, "use the first so many questions; 0: all", low=0)
    level: str = option("", "questions of these levels only, comma-separated")
    subject: str = option("", "questions of these subjects only, comma-separated")
    out: str = option("", "folder of the run; empty: runs/ALGO-seedSEED")
    overwrite: bool = option(False, "remove an earlier run in the folder first")
    resume: bool = option(False, "go on from the folder's last checkpoint")
    seed: int = option(0, "seed of questions and samples", low=0)
    steps: int = option(300, "training steps (rollouts)", low=1)
    stop_after: int = option(0, "stop after this step, schedule unchanged; 0: off", low=0)
    prompts_per_step: int = option(32, "questions a step (P)", low=1)
    group_size: int = option(8, "samples of a phrasing (G)", low=2)
    num_rephrasings: int = option(3, "TA-GRPO: rephrasings of a question (N)", low=0)
    max_new_tokens: int | None = option(
        None, "longest completion, tokens [tiny 16, else 128]", low=1
    )
    max_prompt_tokens: int = option(512, "longer prompts are reported and left out", low=1)
    thinking: bool = option(False, "let models think that have such a mode (Qwen3)")
    examples: int = option(0, "worked examples before each question, 0 to 3", low=0)
    temperature: float = option(1.0, "sampling temperature", low=0.05)
    lr: float | None = option(None, "learning rate of AdamW [tiny 1e-4, else 1e-6]", low=1e-12)
    lr_schedule: str = option(
        "", "after the warm-up [tiny cosine, else constant]", choices=("constant", "cosine")
    )
    warmup_steps: int = option(0, "steps of linear warm-up", low=0)
    weight_decay: float = option(0.01, "weight decay of AdamW", low=0.0)
    grad_clip: float = option(1.0, "largest gradient norm", low=1e-12)
    kl_beta: float = option(0.0, "weight of the KL term (beta)", low=0.0)
    clip_eps: float = option(0.2, "clip range, the lower one if --clip-eps-high is given", low=0.0)
    clip_eps_high: float | None = option(None, "upper clip range [--clip-eps]", low=0.0)
    updates_per_rollout: int = option(1, "optimizer steps on each rollout (mu)", low=1)
    loss_agg: str = option("sequence", "what the loss averages over", choices=AGGREGATIONS)
    tau: float = option(0.5, "AVSPO: threshold on ACR, at the start", low=0.0)
    fixed_tau: bool = option(False, "AVSPO: never move the threshold")
    eta: float = option(0.01, "AVSPO: step size of the threshold", low=0.0)
    alpha: float = option(0.5, "AVSPO: exponent of ACR in the number of virtual rewards", low=1e-9)
    virtual_k: str = option("adaptive", "AVSPO: virtual rewards a group, adaptive or a number")
    virtual_rule: str = option("stratified", "AVSPO: virtual rewards", choices=RULES)
    rescue: str = option("both", "AVSPO: which collapsed groups", choices=GROUPS)
    acr_window: int = option(0, "AVSPO: ACR over the last so many groups; 0: this step's", low=0)
    no_anchor: bool = option(False, "TA-GRPO: score completions under the phrasing they came from")
    no_pool: bool = option(False, "TA-GRPO: normalise each phrasing by itself")
    eval_every: int = option(100, "steps between evaluations; 0: at start and end only", low=0)
    eval_questions: int | None = option(None, "held-out questions [tiny 512, else 32]", low=1)
    eval_samples: int | None = option(None, "samples a held-out question [tiny 4, else 1]", low=1)
    diversity: bool | None = option(
        None, "measure how much completions differ, at each evaluation [tiny yes, else no]"
    )
    save_every: int = option(100, "steps between checkpoints; 0: at the end only", low=0)
    micro_batch_tokens: int | None = option(
        None, "tokens, padding included, in a forward and backward [tiny 16384, else 4096]", low=1
    )
    chunk_tokens: int = option(65536, "tokens, padding included, in a call of generate", low=1)
    gradient_checkpointing: bool = option(False, "less memory, a quarter more time")
    dtype: str = option(
        "auto",
        "of the computation, over float32 weights; auto: bfloat16 where the processor has it",
        choices=("auto", "float32", "bfloat16"),
    )
    device: str = option("auto", "auto, cpu, cuda or mps")
    report_to: str = option("none", "besides the CSV files", choices=("none", "tensorboard"))
    explain: bool = option(False, "print one step in full, write nothing, and stop")

    @property
    def uses_avspo(self) -> bool:
        return "avspo" in self.algo

    @property
    def phrasings(self) -> int:
        """F = N + 1 for TA-GRPO, else 1."""
        return self.num_rephrasings + 1 if "tagrpo" in self.algo else 1

    @property
    def groups_per_step(self) -> int:
        return self.prompts_per_step * (self.phrasings if self.no_pool else 1)

    def check(self) -> None:
        """Fills in what depends on other options. Raises OptionError for the first wrong value."""
        tiny = self.model == "tiny"
        defaults = {
            "out": f"runs/{self.algo}-seed{self.seed}",
            "max_new_tokens": 16 if tiny else 128,
            "lr": 1e-4 if tiny else 1e-6,
            "lr_schedule": "cosine" if tiny else "constant",
            "clip_eps_high": self.clip_eps,
            "eval_questions": 512 if tiny else 32,
            "eval_samples": 4 if tiny else 1,
            "diversity": tiny,
            "micro_batch_tokens": 16384 if tiny else 4096,
        }
        for name, value in defaults.items():
            if getattr(self, name) in (None, ""):
                setattr(self, name, value)
        for f in dataclasses.fields(self):
            value, flag = getattr(self, f.name), flag_of(f.name)
            choices, low = f.metadata.get("choices"), f.metadata.get("low")
            if choices and value not in choices:
                raise OptionError(f"{flag} {value or 'is missing'}: one of {', '.join(choices)}")
            if low is not None and not (math.isfinite(value) and value >= low):
                raise OptionError(f"{flag} {value}: must be {low} or more")
            if isinstance(value, int) and f.name != "seed" and value > 10**6:
                raise OptionError(f"{flag} {value}: must be 1000000 or less")
        if self.examples and tiny:
            raise OptionError("--examples: the embedded model has not learnt to read any")
        if self.examples > 3:
            raise OptionError(f"--examples {self.examples}: there are 3")
        if self.clip_eps >= 1:
            raise OptionError(f"--clip-eps {self.clip_eps}: must be below 1")
        if not self.fixed_tau and not 0.1 <= self.tau <= 0.9:
            raise OptionError(f"--tau {self.tau}: outside [0.1, 0.9] it needs --fixed-tau")
        if self.virtual_k != "adaptive" and not (
            self.virtual_k.isascii()
            and self.virtual_k.isdigit()
            and len(self.virtual_k) < 7
            and int(self.virtual_k) >= 1
        ):
            raise OptionError(f"--virtual-k {self.virtual_k}: adaptive, or a number of 1 or more")
        if self.overwrite and self.resume:
            raise OptionError("--overwrite and --resume exclude each other")


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


def parse_options(argv: list[str] | None, description: str) -> Config:
    """Flags over the preset over the defaults. Raises OptionError."""
    parser = OneLineParser(
        prog="train.py",
        description=description,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        epilog="presets: " + "; ".join(PRESETS),
    )
    types = {"int": int, "float": float, "str": str, "int | None": int, "float | None": float}
    for f in dataclasses.fields(Config):
        text, choices = f.metadata["help"], f.metadata.get("choices")
        if f.type.startswith("bool"):
            # a preset may switch these on, so there must be a way to switch them off
            both = f.name in ("thinking", "gradient_checkpointing", "diversity")
            action = argparse.BooleanOptionalAction if both else "store_true"
            parser.add_argument(flag_of(f.name), action=action, help=text)
            continue
        text += f": {', '.join(choices)}" if choices else ""
        text += "" if f.default in (None, "") else f" [{f.default}]"
        parser.add_argument(
            flag_of(f.name), type=types[f.type], help=text.replace("%", "%%"), metavar="X"
        )
    given = vars(parser.parse_args(argv))
    preset = PRESETS.get(given.get("preset", "tiny"), {"options": {}})
    cfg = Config(**preset["options"] | given)
    if cfg.show and not cfg.algo:
        cfg.algo = "grpo"
    cfg.check()
    return cfg


def shown(cfg: Config) -> str:
    """--show: the preset in words, then every option a line."""
    lines = [f"# {PRESETS[cfg.preset]['about']}"]
    for f in dataclasses.fields(cfg):
        if f.name not in ("show", "explain", "overwrite", "resume"):
            lines.append(f"{flag_of(f.name)} {getattr(cfg, f.name)}")
    return "\n".join(lines)
