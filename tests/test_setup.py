"""Options, presets, data by name, and what is checked before anything is loaded."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import data
from data import DataError, Question, final_answer, load_named, select
from support import setup
from support.options import ALGORITHMS, Config, OptionError, parse_options, shown
from support.presets import PRESETS
from train import learning_rate

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_real_options_and_passes_the_checks(name):
    cfg = parse_options(["--algo", "grpo", "--preset", name], "")
    assert cfg.algo == "grpo", "a flag wins over the preset"
    text = shown(cfg)
    about = PRESETS[name]["about"]
    assert about in text and f"--group-size {cfg.group_size}" in text
    # what it says is what it does: the longest completion, and thinking
    assert f"ompletions of {cfg.max_new_tokens:,} tokens at most" in about
    assert ("no thinking" in about or "thinking off" in about) and not cfg.thinking


def test_the_papers_presets_hold_the_papers_constants():
    avspo = parse_options(["--preset", "avspo-paper"], "")
    assert avspo.algo == "avspo" and avspo.model == "Qwen/Qwen2.5-Math-1.5B"
    got = (avspo.kl_beta, avspo.clip_eps, avspo.clip_eps_high, avspo.lr, avspo.weight_decay)
    assert got == (0.0, 0.2, 0.2, 1e-6, 0.01)
    assert (avspo.grad_clip, avspo.temperature, avspo.group_size, avspo.steps) == (1.0, 1.0, 8, 500)
    assert avspo.max_questions - avspo.eval_questions == 500 == avspo.steps, "one epoch"
    assert avspo.max_new_tokens == 1024 and (avspo.tau, avspo.alpha, avspo.eta) == (0.5, 0.5, 0.01)
    tagrpo = parse_options(["--preset", "tagrpo-paper"], "")
    assert (tagrpo.kl_beta, tagrpo.lr, tagrpo.num_rephrasings) == (0.01, 1e-6, 3)
    assert (tagrpo.prompts_per_step, tagrpo.group_size) == (128, 8)
    epochs = tagrpo.steps * tagrpo.prompts_per_step / 7498
    assert 2.9 < epochs < 3


def test_presets_switches_can_be_switched_off():
    assert parse_options(["--preset", "tagrpo-paper"], "").gradient_checkpointing
    cfg = parse_options(["--preset", "tagrpo-paper", "--no-gradient-checkpointing"], "")
    assert not cfg.gradient_checkpointing


def test_every_option_has_help_and_a_default_within_its_limits(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_options(["--help"], "what it is")
    assert caught.value.code == 0
    said = capsys.readouterr().out
    for name in Config.__dataclass_fields__:
        assert "--" + name.replace("_", "-") in said
    for algo in ALGORITHMS:
        Config(algo=algo).check()


def test_beta_is_zero_for_every_algorithm_unless_asked_for():
    for algo in ALGORITHMS:
        assert parse_options(["--algo", algo], "").kl_beta == 0


def test_learning_rate_warms_up_then_stays_or_follows_a_cosine_to_zero():
    cfg = Config(algo="grpo", lr=1.0, lr_schedule="constant", warmup_steps=4, steps=12)
    assert [learning_rate(cfg, s) for s in (1, 2, 4, 5, 12)] == [0.25, 0.5, 1, 1, 1]
    cfg.lr_schedule = "cosine"
    assert learning_rate(cfg, 8) == pytest.approx(0.5)
    assert learning_rate(cfg, 6) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rate(cfg, 12) == pytest.approx(0)


# ------------------------------------------------------------------ data by name


@pytest.mark.parametrize(
    "solution, answer",
    [
        ("She has 3 + 4 = 7.\n#### 7", "7"),
        ("#### 1,234", "1234"),
        (r"so $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"$\boxed{\left\{1, 2\right\}}$", r"\left\{1, 2\right\}"),
        (r"The points are $\boxed{(0,1)}$ and $\boxed{(2,3)}$.", "(0,1), (2,3)"),
        (r"$\boxed{5}$, that is $\boxed{5}$", "5"),
        (r"it is $\boxed 3$.", "3"),
        (r"\fbox{7}", "7"),
        (r"an empty $\boxed{}$", None),
        ("no answer", None),
        (r"\boxed{unclosed", None),
    ],
)
def test_the_answer_of_a_worked_solution(solution, answer):
    assert final_answer(solution) == answer


def test_gsm8k_and_math_are_read_through_datasets(monkeypatch):
    import datasets

    sets = {
        "openai/gsm8k": [{"question": "q1", "answer": "so\n#### 1,000"}],
        "DigitalLearningGmbH/MATH-lighteval": [
            {"problem": "p1", "solution": r"$\boxed{x+1}$", "level": "Level 3", "type": "Algebra"},
            {"problem": "p2", "solution": r"$\boxed{}$", "level": "Level 5", "type": "Geometry"},
        ],
    }
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, *a, **k: datasets.Dataset.from_list(sets[name])
    )
    assert load_named("gsm8k") == [Question("gsm8k/train/0", "q1", "1000")]
    assert load_named("math") == [
        Question("math/train/0", "p1", "x+1", level="Level 3", subject="Algebra")
    ]


def test_offline_and_not_cached_names_the_file_option():
    with pytest.raises(DataError) as caught:
        load_named("gsm8k")
    assert "--data FILE.jsonl" in str(caught.value) and "\n" not in str(caught.value)


def test_questions_are_selected_by_level_and_subject_and_nothing_left_says_what_there_is():
    questions = [
        Question("1", "a", "1", level="Level 3", subject="Algebra"),
        Question("2", "b", "1", level=5, subject="Geometry"),
    ]
    assert [q.id for q in select(questions, levels="3")] == ["1"]
    assert [q.id for q in select(questions, levels="3,5", subjects="geometry")] == ["2"]
    with pytest.raises(DataError, match="there are 3, 5"):
        select(questions, levels="4")


def config_for(path, **changes):
    cfg = Config(algo="grpo", data=str(path), steps=20, prompts_per_step=4, **changes)
    cfg.check()
    return cfg


def write(tmp_path, rows):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_questions_over_the_prompt_limit_are_left_out_and_counted_never_cut(tiny, capsys):
    cfg = Config(algo="grpo", max_prompt_tokens=12)
    cfg.check()
    questions = [Question("1", "What is 1 + 1?", "2"), Question("2", "What is 1 + 1? " * 9, "2")]
    assert setup.short_enough(questions, tiny, cfg, "training") == questions[:1]
    assert "left out: 1 training questions" in capsys.readouterr().out
    with pytest.raises(DataError, match="no training question"):
        setup.short_enough(questions[1:], tiny, cfg, "training")


def test_answers_that_cannot_be_judged_are_named_and_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TAGRPO_CACHE", str(tmp_path / "cache"))
    rows = [{"question": f"q{i}", "answer": str(i)} for i in range(40)]
    rows.append({"question": "bad", "answer": "\\frac{1}{", "id": "bad"})
    cfg = config_for(write(tmp_path, rows))
    kept, _ = setup.judgeable(data.read_jsonl(cfg.data), [], cfg)
    assert len(kept) == 40 and "bad" in capsys.readouterr().out
    rows += [{"question": f"bad{i}", "answer": "\\frac{1}{"} for i in range(9)]
    with pytest.raises(DataError, match="5%"):
        setup.judgeable(data.read_jsonl(write(tmp_path, rows)), [], cfg)


def test_held_out_questions_of_a_second_file_are_never_trained_on(tmp_path):
    rows = [{"question": f"q{i}", "answer": str(i)} for i in range(10)]
    path = write(tmp_path, rows)
    other = tmp_path / "held.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    train_set, held_out = setup.load_questions(config_for(path, eval_data=str(other)))
    assert [q.question for q in held_out] == ["q0", "q1", "q2"] and len(train_set) == 7


# ------------------------------------------------------------------ device and memory


def test_a_device_that_is_not_there_is_refused():
    assert setup.pick_device("cpu") == "cpu"
    with pytest.raises(OptionError, match="not on this machine"):
        setup.pick_device("tpu")


def qwen_folder(tmp_path):
    """The config of a 1.7 B model; no weights."""
    (tmp_path / "config.json").write_text(
        json.dumps(
            dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], hidden_size=2048,
                 intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
                 num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True)
        )
    )  # fmt: skip
    return tmp_path


def test_a_model_of_1_7_billion_needs_27_gb_before_activations(tmp_path):
    cfg = parse_options(["--preset", "tagrpo-paper", "--kl-beta", "0"], "")
    parameters, parts = setup.memory_estimate(str(qwen_folder(tmp_path)), cfg, "cpu")
    assert 1.6e9 < parameters < 1.8e9
    assert 26 < parts["weights"] + parts["gradients"] + parts["optimizer"] < 28.5
    assert parts["reference"] == 0
    cfg.kl_beta = 0.01
    again = setup.memory_estimate(str(tmp_path), cfg, "cpu")[1]
    assert again["reference"] == pytest.approx(parts["weights"])
    cfg.micro_batch_tokens //= 2
    halved = setup.memory_estimate(str(tmp_path), cfg, "cpu")[1]
    assert halved["activations"] < parts["activations"], "but for logits and copies of the weights"


def test_a_gpu_that_is_too_small_is_refused_before_loading(tmp_path, monkeypatch):
    from types import SimpleNamespace

    monkeypatch.setattr(torch.cuda, "get_device_properties",
                        lambda d: SimpleNamespace(total_memory=24e9))  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    cfg = parse_options(["--preset", "tagrpo-paper"], "")
    cfg.model = str(qwen_folder(tmp_path))
    with pytest.raises(setup.PolicyError, match="the GPU has 24 GB"):
        setup.check_memory(cfg, "cuda")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read on Linux")
def test_half_the_micro_batch_takes_less_memory_and_the_run_says_how_much(tmp_path):
    # at temperature 5 completions are long and wrong, and with tau = 0 each of them is trained on
    options = "--algo avspo --tau 0 --fixed-tau --temperature 5 --max-new-tokens 64 --steps 1"
    options += " --eval-questions 1 --no-diversity --prompts-per-step 64"

    def peak(tokens):
        out = subprocess.run(
            [sys.executable, "train.py", *options.split(), "--out", str(tmp_path / str(tokens)),
             "--micro-batch-tokens", str(tokens)],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        return float(re.search(r"peak memory +([0-9.]+) GB", out)[1])

    assert peak(16384) < 0.9 * peak(32768)
