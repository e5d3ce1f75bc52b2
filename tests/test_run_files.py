"""What a run leaves behind survives kills, full disks and damage."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import train
from support import figures, run_files
from support.run_files import RunError, RunFolder

ROOT = Path(__file__).parent.parent


def trained(seed=0):
    """A small model and its AdamW after two steps."""
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.rand(4, 3, generator=generator)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def equal_optimizers(a, b):
    pairs = zip(a.param_groups[0]["params"], b.param_groups[0]["params"])
    return all(
        torch.equal(torch.as_tensor(a.state[x][k]), torch.as_tensor(b.state[y][k]))
        for x, y in pairs
        for k in ("step", "exp_avg", "exp_avg_sq")
    )


def test_a_checkpoint_gives_back_weights_moments_and_state(tmp_path):
    run = RunFolder(tmp_path)
    model, optimizer = trained()
    run.save_checkpoint(7, model, optimizer, {"tau": 0.5})
    other, other_optimizer = trained(seed=1)
    state = run.load_checkpoint(other, other_optimizer)
    assert state == {"tau": 0.5, "step": 7}
    assert torch.equal(model.weight, other.weight)
    assert equal_optimizers(optimizer, other_optimizer)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    run = RunFolder(tmp_path)
    for step in (5, 10, 15):
        run.save_checkpoint(step, *trained(), {})
    assert [p.name for p in run.checkpoints()] == ["step-0000010", "step-0000015"]


@pytest.mark.parametrize("name", ["state.json", "weights.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("damage", [b"", b"\x00" * 64, None], ids=["cut", "zeros", "missing"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, name, damage, capsys):
    run = RunFolder(tmp_path)
    model, optimizer = trained()
    for step in (5, 10):
        run.save_checkpoint(step, model, optimizer, {})
    path = tmp_path / "checkpoint/step-0000010" / name
    path.unlink() if damage is None else path.write_bytes(damage)
    other, other_optimizer = trained(seed=1)
    assert run.load_checkpoint(other, other_optimizer)["step"] == 5
    assert torch.equal(model.weight, other.weight)
    assert equal_optimizers(optimizer, other_optimizer)
    assert "trying the one before" in capsys.readouterr().out


def test_when_no_checkpoint_can_be_read_the_run_is_not_started_afresh(tmp_path):
    run = RunFolder(tmp_path)
    run.save_checkpoint(5, *trained(), {})
    (tmp_path / "checkpoint/step-0000005/state.json").write_text("{")
    with pytest.raises(RunError, match="no checkpoint"):
        run.load_checkpoint(*trained())


def test_a_checkpoint_that_a_kill_left_half_written_is_not_seen(tmp_path):
    run = RunFolder(tmp_path)
    (tmp_path / "checkpoint/step-0000005.tmp").mkdir(parents=True)
    assert run.load_checkpoint(*trained()) is None


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    import safetensors.torch

    run = RunFolder(tmp_path)
    run.save_checkpoint(5, *trained(), {})

    def full(*a):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(RunError, match="No space left"):
        run.save_checkpoint(10, *trained(), {})
    assert [p.name for p in run.checkpoints()] == ["step-0000005"]
    assert run.load_checkpoint(*trained())["step"] == 5


def test_logs_are_cut_back_to_the_checkpoint_and_a_half_line_goes(tmp_path):
    run = RunFolder(tmp_path)
    head = ",".join(run_files.METRICS)
    (tmp_path / "metrics.csv").write_text(f"{head}\n1,0.5\n2,0.5\n3,0.5\n4,0.")
    (tmp_path / "samples.jsonl").write_text('{"step": 2}\n{"step": 3}\n{"ste')
    (tmp_path / "eval.csv").write_text("step,que")
    run.cut_logs(2)
    assert (tmp_path / "metrics.csv").read_text() == f"{head}\n1,0.5\n2,0.5\n"
    assert (tmp_path / "samples.jsonl").read_text() == '{"step": 2}\n'
    assert (tmp_path / "eval.csv").read_text() == ""
    run.cut_logs(-1)
    assert (tmp_path / "metrics.csv").read_text() == f"{head}\n"


def test_numbers_that_do_not_apply_are_empty_in_a_csv(tmp_path):
    run = RunFolder(tmp_path)
    run.append_csv("m.csv", {"a": 1, "b": None, "c": float("nan"), "d": 1 / 3}, "abcde")
    assert (tmp_path / "m.csv").read_text() == "a,b,c,d,e\n1,,,0.333333,\n"


def test_a_plot_is_drawn_from_any_run_however_short(tmp_path):
    for rows in (0, 1, 30):
        with (tmp_path / "metrics.csv").open("w") as file:
            writer = csv.DictWriter(file, run_files.METRICS)
            writer.writeheader()
            writer.writerows(
                {k: "0.5" for k in run_files.METRICS} | {"step": i} for i in range(rows)
            )
        assert figures.plot_curves(tmp_path).stat().st_size > 10_000


# ------------------------------------------------------------------ whole runs

SMALL = (
    "--algo avspo --steps 4 --prompts-per-step 4 --group-size 4 --eval-questions 4 "
    "--eval-samples 1 --eval-every 2 --save-every 2"
).split()


def test_resume_of_a_finished_run_ends_well_and_changes_nothing(tmp_path):
    options = [*SMALL, "--out", str(tmp_path)]
    assert train.main(options) == 0
    before = (tmp_path / "metrics.csv").read_bytes()
    assert train.main([*options, "--resume"]) == 0
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_resume_where_nothing_was_saved_starts_afresh(tmp_path):
    options = [*SMALL, "--out", str(tmp_path), "--resume"]
    assert train.main(options) == 0
    with (tmp_path / "metrics.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]


def test_a_full_disk_ends_the_run_in_one_line(tmp_path, monkeypatch, capsys):
    import safetensors.torch

    def full(*a):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    assert train.main([*SMALL, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "No space left" in said and said.count("\n") == 1


def test_a_loss_that_is_not_finite_is_skipped_counted_and_stops_the_third_time(
    tmp_path, monkeypatch, capsys
):
    good = train.grpo.clipped_loss
    calls = []

    def broken(*a, **k):
        calls.append(1)
        return good(*a, **k) * (float("nan") if len(calls) > 2 else 1.0)

    monkeypatch.setattr(train.grpo, "clipped_loss", broken)
    options = [*SMALL, "--steps", "9", "--out", str(tmp_path)]
    assert train.main(options) == 2
    assert "not finite" in capsys.readouterr().err
    with (tmp_path / "metrics.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 5  # two good steps, three bad ones
    run, policy = RunFolder(tmp_path, resume=True), train.load_policy("tiny")
    state = run.load_checkpoint(policy.model, torch.optim.AdamW(policy.model.parameters()))
    assert state["step"] == 2, "the last good one"
    assert all(bool(p.isfinite().all()) for p in policy.model.parameters())


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM to a process on Windows")
def test_sigterm_finishes_the_step_saves_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, str(ROOT / "train.py"), *SMALL, "--steps", "100000", "--out"]
    process = subprocess.Popen(
        [*command, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    metrics, deadline = tmp_path / "metrics.csv", time.time() + 120
    while time.time() < deadline and not (
        metrics.exists() and metrics.read_text().count("\n") >= 4
    ):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "go on with --resume" in out
    last = metrics.read_text().splitlines()[-1].split(",")[0]
    newest = RunFolder(tmp_path, resume=True).checkpoints()[-1]
    assert json.loads((newest / "state.json").read_text())["step"] == int(last)


@pytest.mark.skipif(os.name == "nt", reason="no kill -9 on Windows")
@pytest.mark.parametrize("algo", ["avspo", "tagrpo"])
def test_a_run_killed_with_9_ends_as_if_nothing_had_happened(tmp_path, algo):
    """Two kills here; benchmarks/kill_and_resume.py does many more."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from functools import partial

    from kill_and_resume import command, outcome

    command = partial(command, steps=8, save_every=2)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(algo, whole), check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen(command(algo, killed), stdout=subprocess.DEVNULL)
    metrics, deadline = killed / "metrics.csv", time.time() + 120
    while time.time() < deadline and not (
        metrics.exists() and metrics.read_text().count("\n") >= 6
    ):
        time.sleep(0.02)
    process.kill()
    process.wait()
    subprocess.run(command(algo, killed, "--resume"), check=True, stdout=subprocess.DEVNULL)
    assert outcome(killed) == outcome(whole)


def test_drawing_a_run_leaves_a_notebooks_way_of_showing_figures_alone(tmp_path):
    code = (
        "import matplotlib; matplotlib.use('svg'); import matplotlib.pyplot as plt\n"
        "from support.figures import plot_poster\n"
        "from pathlib import Path\n"
        f"plot_poster(Path('results/tiny'), Path({str(tmp_path / 'poster.png')!r}))\n"
        "assert matplotlib.get_backend() == 'svg' and not plt.get_fignums()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert (tmp_path / "poster.png").stat().st_size > 10_000
