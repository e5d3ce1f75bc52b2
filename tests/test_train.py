"""The loop: what the algorithms share, what it writes, and what it refuses."""

import copy
import csv
import json
import math
import sys

import pytest
import torch

import train
from data import arithmetic, number_words
from support.options import ALGORITHMS
from support.policy import load_policy
from support.run_files import TIMING

SMALL = (
    "--steps 4 --prompts-per-step 6 --group-size 4 --eval-questions 8 --eval-samples 2 "
    "--eval-every 2 --save-every 2"
).split()


def run(out, *options):
    """Runs train.py in this process; returns the rows of metrics.csv."""
    assert train.main([*SMALL, "--out", str(out), *map(str, options)]) == 0
    return rows_of(out)


def rows_of(out, name="metrics.csv"):
    with (out / name).open() as file:
        return list(csv.DictReader(file))


def comparable(out, *aside):
    """metrics.csv as bytes, without the timing columns and those put aside."""
    lines = [
        ",".join("" if key in (*TIMING, *aside) else value for key, value in row.items())
        for row in rows_of(out)
    ]
    return "\n".join(lines).encode()


# ------------------------------------------------------------------ equal runs


def test_same_seed_same_file(tmp_path):
    for name in "ab":
        run(tmp_path / name, "--algo", "tagrpo+avspo", "--num-rephrasings", 2)
    assert comparable(tmp_path / "a") == comparable(tmp_path / "b")
    assert (tmp_path / "a/eval.csv").read_bytes() == (tmp_path / "b/eval.csv").read_bytes()
    assert (tmp_path / "a/samples.jsonl").read_bytes() == (
        tmp_path / "b/samples.jsonl"
    ).read_bytes()


def test_tagrpo_without_rephrasings_is_grpo(tmp_path):
    run(tmp_path / "grpo", "--algo", "grpo")
    run(tmp_path / "tagrpo", "--algo", "tagrpo", "--num-rephrasings", 0)
    assert comparable(tmp_path / "grpo") == comparable(tmp_path / "tagrpo")


def test_avspo_with_its_gate_shut_is_grpo(tmp_path):
    run(tmp_path / "grpo", "--algo", "grpo")
    run(tmp_path / "avspo", "--algo", "avspo", "--tau", "1.0", "--fixed-tau")
    aside = ("tau", "virtual_k")
    assert comparable(tmp_path / "grpo", *aside) == comparable(tmp_path / "avspo", *aside)


def test_every_algorithm_sees_the_same_questions_and_first_samples(tmp_path):
    rewards = set()
    for algo in ALGORITHMS:
        out = tmp_path / algo
        first = run(out, "--algo", algo, "--num-rephrasings", 2)[0]
        rewards.add((first["reward"], first["acr"]))
    assert len(rewards) == 1


# ------------------------------------------------------------------ what is logged


def test_avspo_rescues_every_collapsed_group_when_the_gate_is_open_and_none_when_shut(tmp_path):
    # a window of one group's worth of noise around tau = .5 opens and shuts the gate
    rows = run(tmp_path, "--algo", "avspo", "--steps", 16, "--prompts-per-step", 3)
    assert {row["gate_open"] for row in rows} == {"0", "1"}, "the test wants to see both"
    for row in rows:
        if row["gate_open"] == "1":
            assert float(row["acr_group"]) > float(row["tau"])
            assert float(row["acr_after"]) == 0 and 1 <= int(row["virtual_k"]) <= 4
        else:
            assert row["acr_after"] == row["acr_group"] and row["virtual_k"] == ""


def test_the_three_rates_agree_for_grpo_and_columns_that_do_not_apply_are_empty(tmp_path):
    for row in run(tmp_path, "--algo", "grpo"):
        assert row["acr"] == row["acr_group"] == row["acr_after"]
        assert math.isclose(
            float(row["acr"]),
            float(row["acr_all_wrong"]) + float(row["acr_all_right"]),
            abs_tol=1e-5,
        )
        for key in ("tau", "virtual_k", "anchor_gap", "kl"):
            assert row[key] == ""


def test_a_run_writes_the_files_of_the_design_and_a_model_that_loads(tmp_path):
    rows = run(tmp_path, "--algo", "tagrpo", "--num-rephrasings", 1)
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {
        "config.json", "metrics.csv", "eval.csv", "samples.jsonl", "groups.jsonl", "curves.png",
        "checkpoint",
        "model",
    }  # fmt: skip
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    assert list(rows[0]) == list(train.METRICS)
    assert [row["step"] for row in rows_of(tmp_path, "eval.csv")] == ["0", "2", "4"]
    sample = json.loads((tmp_path / "samples.jsonl").read_text().splitlines()[0])
    assert {"step", "prompt", "gold", "completion", "reward", "advantage"} <= set(sample)
    assert json.loads((tmp_path / "config.json").read_text())["options"]["lr"] == 1e-4
    trained, start = load_policy(str(tmp_path / "model")), load_policy("tiny")
    assert trained.encode("What is 1 + 1?") == start.encode("What is 1 + 1?")
    assert any(
        not torch.equal(a, b) for a, b in zip(trained.model.parameters(), start.model.parameters())
    )


def test_explain_prints_one_of_everything_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "run"
    assert train.main([*SMALL, "--algo", "tagrpo", "--explain", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for word in ("ids [", "mask [", "\\boxed{", "reward", "advantage", "loss", "the anchor"):
        assert word in said
    assert not out.exists()


# ------------------------------------------------------------------ the update


def one_step(**changes):
    cfg = train.Config(algo="grpo", prompts_per_step=24, group_size=4, **changes)
    cfg.check()
    policy = load_policy("tiny")
    batch = train.sample_step(policy, arithmetic("train", 24), 1, cfg)
    groups = train.tagrpo.pool_phrasings(batch.rewards_PFG)
    return cfg, policy, batch, train.grpo.group_advantages(groups).reshape(-1)


def gradient_of(policy, batch, advantages, cfg):
    """The first step's gradient, before clipping, as one vector; weights are left alone."""
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    train.update_policy(policy, optimizer, batch, advantages, cfg, None)
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_micro_batches_do_not_change_the_gradient(aggregation):
    cfg, policy, batch, advantages = one_step(loss_agg=aggregation, grad_clip=1e9)
    whole = gradient_of(policy, batch, advantages, cfg)
    assert whole.norm() > 0
    for tokens in (1, 200, 700):
        cfg.micro_batch_tokens = tokens
        parts = gradient_of(policy, batch, advantages, cfg)
        assert (whole - parts).norm() <= 1e-4 * whole.norm()


def test_leaving_dead_groups_out_changes_no_gradient():
    """Against the plain loss over every row, in float64."""
    cfg, policy, batch, advantages = one_step(grad_clip=1e9)
    policy.model.double()
    dead = int((advantages == 0).sum())
    assert 0 < dead < len(advantages)
    skipped = gradient_of(policy, batch, advantages, cfg)
    policy.model.zero_grad()
    rollout = batch.rollout
    logprobs = train.token_logprobs(
        policy.model, batch.anchored_prompts, rollout.completions_BT, rollout.mask_BT,
        temperature=1.0, pad_id=policy.pad_id,
    )  # fmt: skip
    weights = train.grpo.row_weights(rollout.lengths_B, "sequence", cfg.max_new_tokens)
    train.grpo.clipped_loss(
        logprobs, logprobs.detach(), advantages, rollout.mask_BT, weights
    ).backward()
    plain = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
    assert (plain - skipped).norm() <= 1e-6 * plain.norm()


def test_a_fully_dead_step_still_steps_the_optimizer():
    """AdamW's momentum and decay go on, exactly as with zero gradients."""
    cfg, policy, batch, advantages = one_step()
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3, weight_decay=0.1)
    train.update_policy(policy, optimizer, batch, advantages, cfg, None)
    twin = load_policy("tiny").model
    twin.load_state_dict(policy.model.state_dict())
    other = torch.optim.AdamW(twin.parameters(), lr=1e-3, weight_decay=0.1)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # or they share tensors
    logged = train.update_policy(policy, optimizer, batch, torch.zeros_like(advantages), cfg, None)
    assert logged["live_rows"] == 0 and logged["grad_norm"] == 0
    for p in twin.parameters():
        p.grad = torch.zeros_like(p)
    other.step()
    for mine, expected in zip(policy.model.parameters(), twin.parameters()):
        assert torch.equal(mine, expected)


def test_a_rewarded_sample_becomes_likelier():
    cfg, policy, batch, advantages = one_step()
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-4)

    def mean_logprob(rows):
        with torch.no_grad():
            logprobs = train.token_logprobs(
                policy.model, [batch.anchored_prompts[i] for i in rows],
                batch.rollout.completions_BT[rows], batch.rollout.mask_BT[rows],
                temperature=1.0, pad_id=policy.pad_id,
            )  # fmt: skip
        return float(logprobs[batch.rollout.mask_BT[rows]].mean())

    good, bad = (advantages > 0).nonzero()[:, 0], (advantages < 0).nonzero()[:, 0]
    before = mean_logprob(good), mean_logprob(bad)
    logged = train.update_policy(policy, optimizer, batch, advantages, cfg, None)
    assert mean_logprob(good) > before[0] and mean_logprob(bad) < before[1]
    assert abs(logged["loss"]) < 1e-4 < logged["grad_norm"]
    assert logged["ratio_mean"] == 1.0 and logged["clip_frac"] == 0.0


def test_more_updates_per_rollout_leave_the_ratio_of_one():
    cfg, policy, batch, advantages = one_step(updates_per_rollout=4, lr=1e-2)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-2)
    logged = train.update_policy(policy, optimizer, batch, advantages, cfg, None)
    assert logged["clip_frac"] > 0 and logged["ratio_mean"] != 1.0


def test_the_kl_term_pulls_back_to_the_reference_even_in_dead_groups():
    cfg, policy, batch, advantages = one_step(kl_beta=1.0)
    reference = load_policy("tiny").model
    with torch.no_grad():
        for p in policy.model.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.02)
    zero = torch.zeros_like(advantages)
    kls = [
        train.update_policy(policy, optimizer, batch, zero, cfg, reference)["kl"] for _ in range(5)
    ]
    assert kls[-1] < kls[0]


def test_rephrased_completions_are_scored_under_the_original():
    cfg = train.Config(algo="tagrpo", prompts_per_step=4, group_size=2)
    cfg.check()
    policy, questions = load_policy("tiny"), arithmetic("train", 4)
    batch = train.sample_step(policy, questions, 1, cfg)
    F, rows = 4, 4 * 2
    for p, question in enumerate(questions):
        anchor = policy.encode(question.question)
        mine = range(p * rows, (p + 1) * rows)
        assert all(batch.anchored_prompts[i] == anchor for i in mine)
        sampled = [batch.rollout.prompts[i] for i in mine]
        expected = [question.question, *question.rephrasings[: F - 1]]
        assert sampled == [policy.encode(text) for text in expected for _ in range(2)]
        assert batch.rephrased_B[list(mine)].tolist() == [False] * 2 + [True] * 6
    cfg.no_anchor = True
    assert train.sample_step(policy, questions, 1, cfg).anchored_prompts == batch.rollout.prompts


def test_a_missing_phrasing_is_the_original_sampled_again():
    from data import Question

    cfg = train.Config(algo="tagrpo", prompts_per_step=1, group_size=2)
    cfg.check()
    policy = load_policy("tiny")
    question = Question("1", "What is 1 + 1?", "2", ("Add 1 to 1.",))
    batch = train.sample_step(policy, [question], 1, cfg)
    original, rephrased = policy.encode("What is 1 + 1?"), policy.encode("Add 1 to 1.")
    assert batch.rollout.prompts == [
        p for p in (original, rephrased, original, original) for _ in "ab"
    ]
    assert batch.rephrased_B.tolist() == [False, False, True, True] + [False] * 4


# ------------------------------------------------------------------ resume


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_resume_equals_uninterrupted(tmp_path, algo):
    options = ["--algo", algo, "--updates-per-rollout", 2, "--kl-beta", 0.05, "--steps", 6,
               "--num-rephrasings", 1, "--acr-window", 4, "--lr-schedule", "cosine"]  # fmt: skip
    run(tmp_path / "whole", *options)
    run(tmp_path / "parts", *options, "--stop-after", 3)
    assert len(rows_of(tmp_path / "parts")) == 3
    run(tmp_path / "parts", *options, "--resume")
    assert comparable(tmp_path / "whole") == comparable(tmp_path / "parts")
    for name in ("eval.csv", "samples.jsonl", "model/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


# ------------------------------------------------------------------ bad input


@pytest.fixture
def refused(capsys):
    def check(*options):
        capsys.readouterr()
        assert train.main([str(o) for o in options]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1, said
        assert said.err.startswith("train.py: error: ")
        return said.err

    return check


@pytest.mark.parametrize(
    "options, said",
    [
        ([], "--algo is missing"),
        (["--algo", "ppo"], "one of grpo, avspo"),
        (["--algo", "grpo", "--model", "no-such-model"], "neither 'tiny', nor a folder, nor a hub"),
        (["--algo", "grpo", "--model", "/no/such/folder"], "neither"),
        (["--algo", "grpo", "--group-size", "1"], "--group-size 1: must be 2 or more"),
        (["--algo", "grpo", "--steps", "-3"], "--steps -3: must be 1 or more"),
        (["--algo", "grpo", "--steps", "many"], "--steps"),
        (["--algo", "grpo", "--lr", "nan"], "--lr nan"),
        (["--algo", "grpo", "--lr", "-1"], "--lr -1"),
        (["--algo", "grpo", "--lr", "inf"], "--lr inf"),
        (["--algo", "grpo", "--temperature", "0"], "--temperature 0"),
        (["--algo", "grpo", "--clip-eps", "1"], "--clip-eps"),
        (["--algo", "avspo", "--tau", "0.05"], "needs --fixed-tau"),
        (["--algo", "avspo", "--tau", "1.0"], "needs --fixed-tau"),
        (["--algo", "avspo", "--virtual-k", "0"], "--virtual-k 0"),
        (["--algo", "avspo", "--virtual-k", "few"], "--virtual-k few"),
        (["--algo", "avspo", "--alpha", "0"], "--alpha 0"),
        (["--algo", "tagrpo", "--num-rephrasings", "-1"], "--num-rephrasings -1"),
        (["--algo", "grpo", "--loss-agg", "mean"], "--loss-agg mean: one of sequence"),
        (["--algo", "grpo", "--device", "tpu"], "--device tpu"),
        (["--algo", "grpo", "--data", "/no/such/file.jsonl"], "no such file"),
        (["--algo", "grpo", "--overwrite", "--resume"], "exclude each other"),
        (["--algo", "grpo", "--stepz", "3"], "--stepz"),
        (["--algo", "grpo", "--max-new-tokens", "0"], "--max-new-tokens"),
        (["--algo", "grpo", "--group-size", "10000000"], "1000000 or less"),
        (["--algo", "avspo", "--virtual-k", "9" * 5000], "--virtual-k"),
        (["--algo", "grpo", "--device", "cpu:abc"], "--device cpu:abc"),
        (["--algo", "grpo", "--level", "3"], "--level: the embedded task has none"),
        (["--algo", "grpo", "--eval-data", "f.jsonl"], "--eval-data: the embedded task"),
        (["--algo", "grpo", "--examples", "2"], "--examples"),
        (["--algo", "grpo", "--out", "x" * 300], "name too long"),
        (["--algo", "grpo", "--data", "x" * 300], "name too long"),
        (["--algo", "grpo", "--model", "x" * 300], "name too long"),
    ],
)  # fmt: skip
def test_a_wrong_option_ends_in_one_line_before_anything_is_loaded(
    refused, monkeypatch, tmp_path, options, said
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "load_policy", lambda *a: pytest.fail("a model was loaded"))
    assert said in refused(*options)
    assert not list(tmp_path.iterdir())


def test_a_bad_question_file_is_named_with_its_line(refused, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "q", "answer": "1"}\n{"question": "q"}\n')
    assert "line 2: lacks 'answer'" in refused("--algo", "grpo", "--data", path)


def test_a_folder_that_holds_a_run_is_not_written_over(refused, tmp_path):
    before = run(tmp_path, "--algo", "grpo", "--steps", 1)
    (tmp_path / "mine.txt").write_text("keep")
    assert "--overwrite or --resume" in refused("--algo", "grpo", "--out", tmp_path)
    assert rows_of(tmp_path) == before
    run(tmp_path, "--algo", "grpo", "--steps", 2, "--overwrite")
    assert len(rows_of(tmp_path)) == 2 and (tmp_path / "mine.txt").read_text() == "keep"


def test_resume_with_other_options_is_refused_by_name(refused, tmp_path):
    run(tmp_path, "--algo", "grpo", "--stop-after", 2)
    said = refused("--algo", "grpo", *SMALL, "--out", tmp_path, "--resume", "--lr", "0.1")
    assert "--lr (0.0001 -> 0.1)" in said


def test_overwrite_removes_nothing_that_is_not_a_runs(refused, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/precious").write_text("keep")
    said = refused("--algo", "grpo", *SMALL, "--out", tmp_path, "--overwrite")
    assert "not a run's" in said and (tmp_path / "model/precious").exists()


def test_a_run_does_not_write_over_what_it_reads(refused, tmp_path):
    data = tmp_path / "samples.jsonl"
    data.write_text('{"question": "q", "answer": "1"}\n')
    (tmp_path / "metrics.csv").write_text("step\n")
    options = ["--algo", "grpo", *SMALL, "--out", tmp_path, "--overwrite"]
    assert "--data is read from there" in refused(*options, "--data", data)
    assert data.exists()


def test_two_runs_at_once_in_one_folder_are_refused(refused, tmp_path):
    pytest.importorskip("fcntl", reason="file locks are not noticed on Windows")
    from support.run_files import RunFolder

    first = RunFolder(tmp_path)
    first.prepare({"options": {}, "versions": {}})
    (tmp_path / "config.json").unlink()
    assert train.main([*SMALL, "--algo", "grpo", "--out", str(tmp_path)]) == 2
    first.close()
    run(tmp_path, "--algo", "grpo", "--steps", 1)


def test_resume_without_the_options_of_the_run_is_refused(refused, tmp_path):
    run(tmp_path, "--algo", "grpo", "--stop-after", 2)
    (tmp_path / "config.json").unlink()
    assert "no config.json" in refused("--algo", "avspo", *SMALL, "--out", tmp_path, "--resume")


STATE = {"step": 2, "tau": 0.5, "last_reward": 0.5, "skipped_in_a_row": 0,
         "recent_collapses": [], "first_rates": [0.5]}  # fmt: skip


def test_a_checkpoint_whose_state_is_damaged_is_passed_over_for_the_one_before(tmp_path, capsys):
    rows = run(tmp_path, "--algo", "avspo")
    state = tmp_path / "checkpoint/step-0000004/state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"tau": "high"}))
    again = run(tmp_path, "--algo", "avspo", "--resume")
    assert "trying the one before" in capsys.readouterr().out
    assert [row["acr"] for row in again] == [row["acr"] for row in rows]


@pytest.mark.parametrize(
    "name, content",
    [("metrics.csv", b"\xff\xfe\n"), ("metrics.csv", b"step,reward\n1,0\n"), ("eval.csv", b"\xff"),
     ("state.json", b"[]"), ("state.json", b'{"step": 2}'), ("state.json", b'{"step": "x"}'),
     *(("state.json", json.dumps(STATE | damage).encode()) for damage in (
         {"step": -7}, {"step": 99}, {"tau": "nan"}, {"tau": math.nan}, {"last_reward": "hi"},
         {"first_rates": ["x"]}, {"recent_collapses": 3}))],
)  # fmt: skip
def test_resume_of_a_damaged_run_ends_in_one_line_or_goes_on(tmp_path, capsys, name, content):
    run(tmp_path, "--algo", "grpo", "--stop-after", 2)
    path = tmp_path / name if name.endswith("csv") else next(tmp_path.glob("checkpoint/*")) / name
    path.write_bytes(content)
    assert train.main([*SMALL, "--algo", "grpo", "--out", str(tmp_path), "--resume"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("train.py: error: ") and said.count("\n") == 1


def test_explain_works_in_a_folder_that_holds_a_run_and_leaves_it_alone(tmp_path, capsys):
    before = run(tmp_path, "--algo", "grpo", "--steps", 1)
    assert train.main([*SMALL, "--algo", "grpo", "--explain", "--out", str(tmp_path)]) == 0
    assert rows_of(tmp_path) == before


def test_show_needs_no_algorithm(capsys):
    assert train.main(["--preset", "gsm8k-0.5b", "--show"]) == 0
    assert "--model Qwen/Qwen2.5-0.5B-Instruct" in capsys.readouterr().out


def test_the_warning_about_collapse_speaks_of_what_the_algorithm_left(tmp_path, capsys):
    """AVSPO with its gate always open leaves no group without gradient."""
    options = ["--steps", 52, "--prompts-per-step", 2, "--eval-every", 0, "--tau", 0, "--fixed-tau"]
    rows = run(tmp_path, "--algo", "avspo", *options)
    assert all(float(row["acr_after"]) == 0 for row in rows)
    assert "carried no gradient" not in capsys.readouterr().out


def test_a_file_of_rephrasings_is_joined_and_used(tmp_path, capsys):
    questions, rephrasings = tmp_path / "q.jsonl", tmp_path / "r.jsonl"
    rows = [{"id": f"q{i}", "question": f"What is {i} + 2?", "answer": i + 2} for i in range(1, 9)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = [
        {"id": f"q{i}", "question": f"What is {number_words(i)} plus two?", "kind": "wording"}
        for i in range(1, 6)
    ]
    rephrasings.write_text("".join(json.dumps(row) + "\n" for row in said))
    options = ["--algo", "tagrpo", "--num-rephrasings", 1, "--data", questions]
    rows = run(tmp_path / "run", *options, "--rephrasings", rephrasings)
    out = capsys.readouterr().out
    assert "with 1" in out and "the original is sampled again for each that is missing" in out
    assert any(row["anchor_gap"] for row in rows), "rephrased completions were trained on"
    assert train.main([*SMALL, *map(str, options), "--rephrasings", str(tmp_path / "none")]) == 2


# ------------------------------------------------------------------ tensorboard


def test_tensorboard_gets_every_number_of_the_csv_files_and_is_closed(tmp_path, monkeypatch):
    class Writer:
        def __init__(self, folder):
            self.folder, self.scalars, self.closed = folder, {}, False
            written.append(self)

        def add_scalar(self, key, value, step):
            self.scalars[key, step] = value

        def close(self):
            self.closed = True

    written = []
    monkeypatch.setattr(train.report, "tensorboard_writer", lambda cfg: Writer)
    rows = run(tmp_path / "run", "--algo", "grpo", "--report-to", "tensorboard")
    (writer,) = written
    assert writer.closed and writer.folder == str(tmp_path / "run" / "tensorboard")
    for row in rows:
        for key, text in row.items():
            if text and key != "step":
                logged = writer.scalars[key, int(row["step"])]
                assert float(text) == pytest.approx(float(logged), rel=1e-5, abs=1e-12)
    assert ("pass@1", 4) in writer.scalars


def test_tensorboard_that_is_missing_is_said_before_anything_is_loaded(
    refused, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setattr(train, "load_policy", lambda *a: pytest.fail("a model was loaded"))
    asked = ("--algo", "grpo", "--report-to", "tensorboard", "--out", tmp_path / "run")
    assert "pip install tensorboard" in refused(*asked)
    assert not list(tmp_path.iterdir())
