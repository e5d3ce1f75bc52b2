"""Load a policy: the embedded model by the name `tiny`, or any causal model by hub id or folder.

The embedded model is a Llama of 0.87 M parameters that knows arithmetic unevenly. In three of the
six phrasings all its lessons were right (`RELIABLE`); in the two stories most answers merely
repeated a number of the question; in number words nearly all did. So it is fluent, careless or
lost, depending on how it is asked, and many of its groups are all right or all wrong. That is the
situation both papers are about, and what it can do in one phrasing is there to be carried over.

    python -m support.policy --rebuild tiny      # train it again (2 to 3 minutes on 2 cores)
    python -m support.policy --profile tiny      # success by phrasing, box share, ACR
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from data import NUM_PHRASINGS, arithmetic, draw_problem, number_words

TINY = Path(__file__).parent / "tiny"
# Shown as earlier turns with --examples N: models too small to follow the instruction copy them.
EXAMPLES = (
    ("What is 3 + 4?", "3 + 4 = \\boxed{7}"),
    ("Tom has 9 books and loses 2. How many books does Tom have now?", "9 - 2 = \\boxed{7}"),
    ("What is 12 + 6?", "12 + 6 = \\boxed{18}"),
)
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


# --------------------------------------------------------------------------- the embedded model

SEED = 0
UPDATES, BATCH, PEAK_LR = 800, 128, 3e-3
# By phrasing, in the order of data.Problem.phrasings (symbols, number words, givens, command,
# story, story with the question first): the share of the supervised examples, and how many of
# them carry the right answer. The others repeat the question's last number.
EXPOSURE = (0.26, 0.08, 0.22, 0.18, 0.13, 0.13)
RELIABLE = (1.0, 0.04, 1.0, 1.0, 0.35, 0.35)
# A space belongs to the word after it, digits stand alone: decoding gives back the exact text.
SPLIT = r" ?\\boxed\{| ?[A-Za-z]+| ?[^\sA-Za-z0-9]|[0-9]| "
# The first line only: this model answers with a box and nothing else, it needs no instruction.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ m['content'].split('\n')[0] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ ' =' }}{% endif %}"
)


def build_tokenizer():
    """A word-level tokenizer over every word the embedded task can say."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    rng = random.Random(SEED)
    texts = ["\\boxed{0123456789} ="] + [number_words(n) for n in range(200)]
    texts += [" " + number_words(n) for n in range(200)]
    texts += [text for _ in range(3000) for text in draw_problem(rng).phrasings()]
    words = sorted({piece for t in texts for piece, _ in split.pre_tokenize_str(t)})
    specials = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {word: i for i, word in enumerate(specials + words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_model(tokenizer):
    """The untrained Llama, float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        initializer_range=0.06,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def supervised_batch(tokenizer, rng: random.Random, known: dict[str, list[int]]):
    """(ids, labels) of BATCH questions and answers; labels are -100 outside the answers.
    known: prompts encoded so far; it is added to."""
    prompts, answers = [], []
    for _ in range(BATCH):
        problem = draw_problem(rng)
        phrasing = rng.choices(range(NUM_PHRASINGS), EXPOSURE)[0]
        text, answer = problem.phrasings()[phrasing], problem.answer
        if rng.random() >= RELIABLE[phrasing]:
            answer = problem.numbers[-1]
        if text not in known:
            known[text] = encode_prompt(tokenizer, text)
        prompts.append(known[text])
        answers.append(tokenizer(f"\\boxed{{{answer}}}")["input_ids"] + [tokenizer.eos_token_id])
    rows = [torch.tensor(p + a) for p, a in zip(prompts, answers)]
    ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    labels = pad_sequence(rows, batch_first=True, padding_value=-100)
    for row, prompt in enumerate(prompts):
        labels[row, : len(prompt)] = -100
    return ids, labels


def rebuild_tiny(folder: Path = TINY) -> None:
    """Trains the embedded model with supervision and writes it (bfloat16) into `folder`."""
    torch.set_num_threads(2)  # sums in another order would give other bytes
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1, betas=(0.9, 0.98))
    rng, known = random.Random(SEED), {}
    bar = tqdm(range(UPDATES), disable=None, desc="tiny")
    for update in bar:
        rate = PEAK_LR * min(1.0, (update + 1) / 50) * (1 - update / UPDATES)
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels = supervised_batch(tokenizer, rng, known)
        # padding stands on the right, where a causal model never looks from an answer
        logits = model(input_ids=ids).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}")
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def profile(policy: Policy, count: int = 256, samples: int = 8, seed: int = 0) -> dict:
    """Success by phrasing over `count` problems, and the default run's first ACR and box share."""
    from acr import collapse_report
    from data import Question
    from evaluate import evaluate_policy
    from reward import last_report

    rng = random.Random(SEED + 1)
    problems = [draw_problem(rng) for _ in range(count)]
    by_phrasing = []
    for i in range(NUM_PHRASINGS):
        asked = [Question("", p.phrasings()[i], str(p.answer)) for p in problems]
        found = evaluate_policy(policy, asked, 1, max_new_tokens=16, seed=seed)
        by_phrasing.append(sum(found.right_Q) / count)
    questions = arithmetic("train", count, seed)
    found = evaluate_policy(policy, questions, samples, max_new_tokens=16, seed=seed)
    report = last_report()
    rewards_PM = torch.tensor([[1.0] * c + [0.0] * (samples - c) for c in found.right_Q])
    return {
        "by_phrasing": by_phrasing,
        "accuracy": float(rewards_PM.mean()),
        "boxed": 1 - report["no_box"] / report["scored"],
        **collapse_report(rewards_PM),
    }


# --------------------------------------------------------------------------- loading any policy


class PolicyError(ValueError):
    """A model that cannot be used; the message is one line for the user."""


@dataclass
class Policy:
    """A causal model with what sampling and prompting need to know of its tokenizer."""

    model: torch.nn.Module
    tokenizer: object
    end_ids: list[int]  # every id that ends a completion
    pad_id: int
    thinking: bool = False  # for templates that have such a mode
    examples: int = 0  # worked ones in front of every question
    dtype: torch.dtype = torch.float32  # of the computation; the weights are float32

    def encode(self, question: str) -> list[int]:
        """The prompt's ids: chat template where the tokenizer has one, one start token, and the
        instruction to box the answer."""
        return encode_prompt(self.tokenizer, question, self.thinking, self.examples)

    def autocast(self):
        """Context in which sampling and scoring compute: both the same, or the ratio drifts."""
        device = self.model.device.type
        return torch.autocast(device, self.dtype, enabled=self.dtype != torch.float32)

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


def encode_prompt(tokenizer, question: str, thinking: bool = False, examples: int = 0) -> list[int]:
    """Ids of a question as a prompt, with exactly one start token if the model has one.

    Chat models: a user turn, after `examples` worked ones. Base models: the plain template
    'Question: … Answer:'. thinking: for templates that have such a mode (Qwen3).
    """
    turns = []
    for asked, answered in (*EXAMPLES[:examples], (question, None)):
        turns.append({"role": "user", "content": f"{asked}\n{INSTRUCTION}"})
        turns.append({"role": "assistant", "content": answered})
    turns.pop()
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
    else:
        heads = {"user": "Question: ", "assistant": "Answer: "}
        text = "\n".join(heads[t["role"]] + t["content"] for t in turns) + "\nAnswer:"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    start = tokenizer.bos_token_id
    # templates differ in whether they write the start token; tokenizers in whether they want one
    if start is not None and ids[:1] != [start] and _adds_start_token(tokenizer):
        ids = [start, *ids]
    return ids


def _adds_start_token(tokenizer) -> bool:
    return tokenizer("x")["input_ids"][:1] == [tokenizer.bos_token_id]


def check_model_name(name: str) -> None:
    """Raises PolicyError for a name that cannot be a model, before anything is loaded."""
    folder = Path(name)
    if name == "tiny":
        if not (TINY / "model.safetensors").exists():
            raise PolicyError(
                "the embedded model is missing; python -m support.policy --rebuild tiny"
            )
    elif folder.exists():
        if not (folder / "config.json").is_file():
            raise PolicyError(f"--model {name}: no config.json there, so it is no model folder")
        if not list(folder.glob("*.safetensors")):
            raise PolicyError(
                f"--model {name}: no .safetensors file there (other formats are not read)"
            )
    elif name.count("/") != 1 or name.startswith((".", "/", "~")) or name.endswith("/"):
        raise PolicyError(
            f"--model {name}: neither 'tiny', nor a folder, nor a hub id (organisation/name)"
        )


def load_policy(name: str, device: str = "cpu") -> Policy:
    """The policy of that name, float32, in evaluation mode. Weights are read as safetensors only.

    name: `tiny`, a folder, or a hub id. Raises PolicyError with one line for the user.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what matters is said here, in one line
    check_model_name(name)
    source = str(TINY) if name == "tiny" else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
        # attention: torch's own (sdpa) in every model that has it, as the library takes by itself
        model, loaded = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
        if loaded["missing_keys"]:  # they would start at random
            raise ValueError(f"its files lack {sorted(loaded['missing_keys'])[0]} and so on")
    except Exception as error:  # the hub, the disk and the formats fail in dozens of ways
        reason = " ".join(str(error).split())[:300]
        hint = "" if Path(source).exists() else " (offline? give --model a folder instead)"
        raise PolicyError(f"--model {name}: cannot be loaded{hint}: {reason}") from None
    for module in model.modules():  # the ratio would be noise with dropout in one of two forwards
        for key, value in vars(module).items():
            if isinstance(value, float) and (key == "p" or "dropout" in key):
                setattr(module, key, 0.0)
    end_ids = {tokenizer.eos_token_id}
    for config in (model.generation_config, model.config):
        ids = getattr(config, "eos_token_id", None)
        end_ids |= set(ids) if isinstance(ids, (list, tuple)) else {ids}
    end_ids = sorted(i for i in end_ids if i is not None)
    if not end_ids:
        raise PolicyError(f"--model {name}: the tokenizer has no end token")
    try:
        prompt = encode_prompt(tokenizer, "What is 1 + 1?")
    except Exception as error:  # a chat template is a program, and may be broken
        reason = " ".join(str(error).split())[:200]
        raise PolicyError(f"--model {name}: its chat template fails: {reason}") from None
    if not prompt:
        raise PolicyError(f"--model {name}: its chat template makes empty prompts")
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end_ids[0]
    return Policy(model.to(device).eval(), tokenizer, end_ids, pad_id)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m support.policy", description="embedded model")
    parser.add_argument("--rebuild", choices=["tiny"], help="train the embedded model again")
    parser.add_argument("--profile", choices=["tiny"], help="show what the embedded model can do")
    options = parser.parse_args()
    if not (options.rebuild or options.profile):
        parser.error("nothing to do: --rebuild tiny or --profile tiny")
    if options.rebuild:
        rebuild_tiny()
    found = profile(load_policy("tiny"))
    names = "symbols, number words, givens, command, story, question first".split(", ")
    for name, rate in zip(names, found["by_phrasing"]):
        print(f"{name:<16}{rate:.2f}")
    for key in ("accuracy", "boxed", "acr", "acr_all_wrong", "acr_all_right"):
        print(f"{key:<16}{found[key]:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
