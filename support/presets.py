"""Named settings: plain dictionaries over the defaults of `support.options`. Flags still win.

`python train.py --preset NAME --show` prints one in full. Each says how long completions may be,
whether the model thinks first, and what to expect. Those for a GPU hold the papers' constants and
have not been run on one here.
"""

from __future__ import annotations

_AVSPO_PAPER = dict(
    algo="avspo",
    model="Qwen/Qwen2.5-Math-1.5B",
    data="math",
    max_questions=600,  # 500 to train on, 100 held out
    prompts_per_step=1,
    group_size=8,
    steps=500,
    max_new_tokens=1024,
    temperature=1.0,
    lr=1e-6,
    weight_decay=0.01,
    grad_clip=1.0,
    clip_eps=0.2,
    kl_beta=0.0,
    tau=0.5,
    alpha=0.5,
    eta=0.01,
    eval_questions=100,
    eval_samples=4,
    eval_every=100,
    save_every=100,
    micro_batch_tokens=4096,
    gradient_checkpointing=True,
)
_TAGRPO_PAPER = dict(
    algo="tagrpo",
    model="Qwen/Qwen3-1.7B",
    thinking=False,
    data="math",
    num_rephrasings=3,
    prompts_per_step=128,
    group_size=8,
    steps=174,  # 3 epochs of 7,498 problems less those held out, 128 a step
    max_new_tokens=1024,
    temperature=1.0,
    lr=1e-6,
    kl_beta=0.01,
    clip_eps=0.2,
    eval_questions=100,
    eval_samples=4,
    eval_every=25,
    save_every=10,
    micro_batch_tokens=8192,
    gradient_checkpointing=True,
)

PRESETS: dict[str, dict] = {
    "tiny": {
        "about": (
            "The embedded model on the embedded task, offline, on a CPU, in minutes. "
            "Completions of 16 tokens at most, no thinking. Two groups of three collapse at the "
            "start; held-out accuracy rises by about ten points with grpo and avspo."
        ),
        "options": dict(model="tiny", data="arithmetic"),
    },
    "smollm2-cpu": {
        "about": (
            "SmolLM2-135M-Instruct on one-step sums and word problems, for a laptop's CPU. "
            "Completions of 48 tokens at most, no thinking, three worked examples before each "
            "question. Two groups of three collapse at the start, nearly all of them all wrong. "
            "Without a hub, name the model's folder with --model."
        ),
        "options": dict(
            model="HuggingFaceTB/SmolLM2-135M-Instruct",
            data="one-step",
            examples=3,
            prompts_per_step=6,
            group_size=8,
            steps=30,
            max_new_tokens=48,
            lr=1e-5,
            eval_questions=48,
            eval_samples=2,
            eval_every=0,
            save_every=10,
            micro_batch_tokens=2048,
        ),
    },
    "gsm8k-0.5b": {
        "about": (
            "Qwen2.5-0.5B-Instruct on GSM8K, for one GPU of 24 GB. Completions of 300 tokens at "
            "most, no thinking. 32 questions x 200 steps are .9 of an epoch. Easy and hard "
            "questions both collapse here: look at acr_all_wrong and acr_all_right."
        ),
        "options": dict(
            model="Qwen/Qwen2.5-0.5B-Instruct",
            data="gsm8k",
            prompts_per_step=32,
            group_size=8,
            steps=200,
            max_new_tokens=300,
            lr=1e-6,
            eval_questions=200,
            eval_samples=1,
            eval_every=50,
            micro_batch_tokens=8192,
            gradient_checkpointing=True,
        ),
    },
    "avspo-paper": {
        "about": (
            "The AVSPO paper's setting (arXiv 2605.21125): one group of 8 a step, 500 steps, 500 "
            "MATH problems and 100 held out. Completions of 1,024 tokens at most, no thinking. The "
            "paper trains on problems of success .3 to .5; make 600 of them with "
            "`python evaluate.py select` and give them with --data. Such problems have an expected "
            "ACR of only about .05 at the start: AVSPO acts once training has sharpened the "
            "rates. 1 question x 500 steps is one epoch of 500, as in the paper."
        ),
        "options": _AVSPO_PAPER,
    },
    "tagrpo-paper": {
        "about": (
            "The TA-GRPO paper's setting (arXiv 2601.22478): 128 questions x 4 phrasings x 8 "
            "samples a step, 174 steps for 3 epochs of MATH, completions of 1,024 tokens at most, "
            "thinking off. Give --rephrasings FILE; a question without any is sampled 4 times as "
            "often itself. Far fewer groups collapse than with the original alone where phrasings "
            "differ in difficulty; anchor_gap says how well they agree. For one GPU of 80 GB."
        ),
        "options": _TAGRPO_PAPER,
    },
    "tagrpo-24gb": {
        "about": (
            "TA-GRPO on one GPU of 24 GB: Qwen3-0.6B, 8 questions x 4 phrasings x 8 samples a "
            "step, completions of 1,024 tokens at most, thinking off. 900 steps are one epoch of "
            "MATH, against the paper's three. Give --rephrasings FILE."
        ),
        "options": _TAGRPO_PAPER
        | dict(model="Qwen/Qwen3-0.6B", prompts_per_step=8, steps=900, micro_batch_tokens=4096),
    },
}
