"""Between the options and the loop: device, questions that can be used, memory that will be needed.

All of it runs before anything expensive, and says in one line what is wrong.
"""

from __future__ import annotations

import hashlib
import math
import sys
from pathlib import Path

import torch

import data
from data import DataError, Question
from reward import check_golds
from support.options import Config, OptionError, flag_of
from support.policy import TINY, Policy, PolicyError


def pick_device(name: str) -> str:
    """`auto` is the first that is there of cuda, mps, cpu. Raises OptionError."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    there["cpu"] = True
    if name == "auto":
        return next(device for device, is_there in there.items() if is_there)
    kind, _, number = name.partition(":")
    if not there.get(kind) or (number and not number.isdigit()):
        raise OptionError(f"--device {name}: not on this machine; one of auto, cpu, cuda, mps")
    return name


def pick_dtype(name: str, device: str, parameters: int) -> torch.dtype:
    """What the forward computes in; the weights stay float32. `auto` takes bfloat16 where it pays:
    on GPUs that have it, and on CPUs with bfloat16 units for models that are not tiny."""
    if name != "auto":
        return getattr(torch, name)
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    has_units = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    if device == "cpu" and parameters > 20e6 and has_units():
        return torch.bfloat16
    return torch.float32


def refuse_own_input(cfg: Config) -> None:
    """Raises OptionError where the run would write over what it reads."""
    out = Path(cfg.out).resolve()
    for name in ("model", "data", "eval_data", "rephrasings"):
        path = Path(getattr(cfg, name) or "/").resolve()
        if path == out or (path.parent == out and path.is_file()):
            raise OptionError(f"--out {cfg.out}: {flag_of(name)} is read from there")


# ------------------------------------------------------------------------------- questions


def load_questions(cfg: Config) -> tuple[list[Question], list[Question]]:
    """(training questions, held-out questions), disjoint. Raises DataError."""
    if cfg.data in ("arithmetic", "one-step"):
        for name in ("eval_data", "level", "subject", "rephrasings"):
            if getattr(cfg, name):
                raise OptionError(f"{flag_of(name)}: the embedded task has none; give --data FILE")
        count = cfg.max_questions or 4096
        one_step = cfg.data == "one-step"
        return (
            data.arithmetic("train", count, cfg.seed, one_step),
            data.arithmetic("test", cfg.eval_questions, cfg.seed, one_step),
        )
    named = cfg.data in data.NAMED
    questions = data.load_named(cfg.data) if named else data.read_jsonl(cfg.data)
    questions = data.select(questions, cfg.level, cfg.subject)
    if cfg.max_questions:
        questions = questions[: cfg.max_questions]
    if cfg.rephrasings and cfg.phrasings > 1:
        from rephrase import join_rephrasings

        questions, _ = join_rephrasings(questions, cfg.rephrasings)
    if cfg.eval_data:
        held_out = data.read_jsonl(cfg.eval_data)[: cfg.eval_questions]
        asked = {q.question for q in held_out}
        train_set = [q for q in questions if q.question not in asked]
        if not train_set:
            raise DataError("every question of --data is in --eval-data: nothing to train on")
        return train_set, held_out
    return data.split_held_out(questions, cfg.seed, cfg.eval_questions)


def short_enough(
    questions: list[Question], policy: Policy, cfg: Config, what: str
) -> list[Question]:
    """Questions whose prompts, rephrasings included, keep the limit; says how many do not.

    Raises DataError when none does, and PolicyError for prompts that the model cannot take.
    """

    def prompts(q: Question) -> list[list[int]]:
        return [policy.encode(text) for text in (q.question, *q.rephrasings[: cfg.phrasings - 1])]

    prompts_Q = list(map(prompts, questions))
    longest_Q = [max(map(len, asked)) for asked in prompts_Q]
    kept = [q for q, longest in zip(questions, longest_Q) if longest <= cfg.max_prompt_tokens]
    if len(kept) < len(questions):
        print(f"left out: {len(questions) - len(kept)} {what} questions over --max-prompt-tokens")
    if not kept:
        raise DataError(f"no {what} question is within --max-prompt-tokens")
    rows = policy.model.get_input_embeddings().num_embeddings
    if max(max(ids) for asked in prompts_Q for ids in asked) >= rows:
        raise PolicyError(f"--model {cfg.model}: its tokenizer has ids that its {rows} rows lack")
    config = policy.model.config
    places = getattr(config, "max_position_embeddings", None) or math.inf
    longest = max(n for n in longest_Q if n <= cfg.max_prompt_tokens)
    if longest + cfg.max_new_tokens > places:
        raise PolicyError(
            f"--model {cfg.model} has {places} positions, and a prompt of {longest} tokens with "
            f"--max-new-tokens {cfg.max_new_tokens} needs more; a smaller --max-prompt-tokens "
            "leaves long questions out"
        )
    return kept


def judgeable(
    train_set: list[Question], held_out: list[Question], cfg: Config
) -> tuple[list[Question], list[Question]]:
    """Both without the questions whose gold the verifier cannot read, of those this run will use.

    Says which. Raises DataError when more than 5 % of them cannot be read.
    """
    path = Path(cfg.data)
    file_hash = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None

    def keep(questions: list[Question]) -> list[Question]:
        try:
            names = [q.id for q in questions]
            good, said = check_golds([q.answer for q in questions], names, file_hash=file_hash)
        except ValueError as error:
            raise DataError(" ".join(str(error).split())) from None
        if said:
            print("\n".join(said))
        return [q for q, is_good in zip(questions, good) if is_good]

    held_out = keep(held_out)
    if cfg.steps * cfg.prompts_per_step >= len(train_set):
        return keep(train_set), held_out
    while True:
        drawn = [
            q
            for step in range(1, cfg.steps + 1)
            for q in data.draw_questions(train_set, cfg.seed, step, cfg.prompts_per_step)
        ]
        out = set(map(id, drawn)) - set(map(id, keep(drawn)))
        if not out:
            return train_set, held_out
        # without them other questions are drawn, so look again
        train_set = [q for q in train_set if id(q) not in out]


# ------------------------------------------------------------------------------- memory


def memory_estimate(model: str, cfg: Config, device: str) -> tuple[int, dict[str, float]]:
    """(number of parameters, gigabytes by what they are for), from the model's config alone.

    Weights, gradients and AdamW's two moments are float32: 16 bytes a parameter, 4 more with a
    reference model. Activations and cache are rough. Raises PolicyError.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(str(TINY) if model == "tiny" else model)
        with torch.device("meta"):
            parameters = AutoModelForCausalLM.from_config(config).num_parameters()
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        hint = "" if Path(model).exists() else " (offline? give --model a folder instead)"
        raise PolicyError(f"--model {model}: cannot be loaded{hint}: {reason}") from None
    width = 2 if pick_dtype(cfg.dtype, device, parameters) == torch.bfloat16 else 4
    layers, hidden = getattr(config, "num_hidden_layers", 1), getattr(config, "hidden_size", 1)
    attention_heads = getattr(config, "num_attention_heads", 1)
    heads = getattr(config, "num_key_value_heads", None) or attention_heads
    head = getattr(config, "head_dim", None) or hidden // attention_heads
    # 20 to 27 hidden-sized tensors a layer were counted in the backward pass of Llamas; 1 with
    # checkpointing, and those of the layer that is being computed again
    kept = layers * (1 if cfg.gradient_checkpointing else 27) + 27
    # logits and their gradients exist for 512 tokens at a time (`rollout.token_logprobs`)
    logits = 3 * 4 * config.vocab_size * min(512, cfg.micro_batch_tokens)
    copies = 2 * parameters if width == 2 else 0  # of the weights, by autocast
    rows = cfg.prompts_per_step * cfg.phrasings * cfg.group_size
    cached = min(cfg.chunk_tokens, rows * (cfg.max_new_tokens + cfg.max_prompt_tokens))
    parts = {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "reference": 4 * parameters if cfg.kl_beta > 0 or cfg.diversity else 0,
        "activations": cfg.micro_batch_tokens * kept * hidden * width + logits + copies,
        "cache": 2 * cached * layers * heads * head * width,
    }
    return parameters, {name: size / 1e9 for name, size in parts.items()}


def peak_memory(device: str) -> float:
    """Most gigabytes held so far: by torch on a GPU, else by this process, libraries included."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:  # Linux: of this program alone; what getrusage says includes the one that started it
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 1e9 if sys.platform == "darwin" else used * 1024 / 1e9


def check_memory(cfg: Config, device: str) -> str:
    """The estimate as a line. Raises PolicyError when the GPU is too small for it."""
    _, parts = memory_estimate(cfg.model, cfg, device)
    # the cache is gone when the backward pass needs its activations
    fixed = sum(v for name, v in parts.items() if name not in ("activations", "cache"))
    total = fixed + max(parts["activations"], parts["cache"])
    line = f"memory, estimated: {total:.1f} GB (" + ", ".join(
        f"{name} {size:.1f}" for name, size in parts.items() if size > 0
    )
    if device.startswith("cuda"):
        there = torch.cuda.get_device_properties(device).total_memory / 1e9
        if total > there:
            raise PolicyError(
                f"{cfg.model} needs about {total:.0f} GB and the GPU has {there:.0f} GB: smaller "
                "--micro-batch-tokens or --chunk-tokens, --gradient-checkpointing, or a smaller "
                "--model"
            )
    return line + ")"
