"""`evaluate.py collapse` on logs: of train.py, of TRL, and of anything with a reward a sample."""

import csv
import json
import math

import pytest

from data import DataError
from evaluate import main
from support.logs import read_log


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sample_rows(groups, step=1):
    return [
        {"step": step, "group": name, "reward": reward}
        for name, rewards in groups.items()
        for reward in rewards
    ]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_groups_of_six_times_015_are_all_collapsed(tmp_path, suffix):
    rows = [row for step in (1, 2) for row in sample_rows({g: [0.15] * 6 for g in "abcd"}, step)]
    write = write_csv if suffix == "csv" else write_jsonl
    log = read_log(str(write(tmp_path / f"log.{suffix}", rows)))
    assert log.steps == [1, 2] and log.columns["acr"] == [1.0, 1.0]


def test_groups_are_counted_by_number_right_and_by_step(tmp_path):
    rows = sample_rows({"a": [0, 0, 0], "b": [1, 1, 1], "c": [1, 0, 0]}, 3)
    rows += sample_rows({"a": [1, 0, 1]}, 10)
    log = read_log(str(write_csv(tmp_path / "log.csv", rows)))
    assert log.columns["acr"] == pytest.approx([2 / 3, 0])
    assert log.columns["acr_all_wrong"] == pytest.approx([1 / 3, 0])
    assert log.columns["acr_all_right"] == pytest.approx([1 / 3, 0])
    assert log.groups == {3: [(0, 3), (3, 3), (1, 3)], 10: [(2, 3)]}


def test_a_missing_reward_is_no_verdict_and_lonely_samples_are_told(tmp_path):
    rows = sample_rows({"a": [1, ""], "b": [0, 0, ""], "c": [1, 0]})
    log = read_log(str(write_csv(tmp_path / "log.csv", rows)))
    assert log.columns["acr"] == [0.5]
    assert any("fewer than two" in what for what in log.missing)


def test_a_line_break_in_a_completion_does_not_cut_the_row(tmp_path):
    rows = [{"prompt": "a\nb", "completion": 'x "y"\nz', "reward": r} for r in (0, 1)]
    log = read_log(str(write_csv(tmp_path / "log.csv", rows)))
    assert log.groups == {1: [(1, 2)]}
    assert any("no such column" in what for what in log.missing)  # steps


def test_rewards_may_be_listed_a_group(tmp_path):
    rows = [{"step": 1, "rewards": [0, 0]}, {"step": 1, "rewards": [0, 1]}]
    log = read_log(str(write_jsonl(tmp_path / "log.jsonl", rows)))
    assert log.columns["acr"] == [0.5]


def test_columns_can_be_named(tmp_path, capsys):
    rows = [{"when": 1, "task": "a", "points": p} for p in (1, 1)]
    path = write_csv(tmp_path / "log.csv", rows)
    assert main(["collapse", str(path), "--out", str(tmp_path)]) == 2
    assert "--reward-column" in capsys.readouterr().err
    words = ["--reward-column", "points", "--group-column", "task", "--step-column", "when"]
    assert main(["collapse", str(path), *words, "--out", str(tmp_path)]) == 0
    assert "ACR                       1.000" in capsys.readouterr().out
    assert main(["collapse", str(path), "--reward-column", "nope"]) == 2
    assert "no column 'nope'" in capsys.readouterr().err


TRL = [
    {"step": 5, "reward": 0.2, "frac_reward_zero_std": 0.5, "loss": 0.0},
    {"step": 10, "reward": 0.4, "frac_reward_zero_std": 0.25, "loss": 0.0},
    {"step": 10, "train_runtime": 3.0},
]


@pytest.mark.parametrize("form", ["folder", "state", "jsonl"])
def test_trl_history_is_read_and_its_limits_are_told(tmp_path, form, capsys):
    if form == "jsonl":
        path = write_jsonl(tmp_path / "history.jsonl", TRL)
    else:
        (tmp_path / "checkpoint-10").mkdir()
        path = tmp_path / "checkpoint-10" / "trainer_state.json"
        path.write_text(json.dumps({"log_history": TRL, "global_step": 10}))
        path = tmp_path if form == "folder" else path
    log = read_log(str(path))
    assert log.steps == [5, 10] and log.columns["acr"] == [0.5, 0.25]
    assert main(["collapse", str(path), "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for what in ("all wrong or all right", "0.15", "mean of 5", "number right"):
        assert what in out
    assert (tmp_path / "collapse.png").stat().st_size > 5000


def make_run(folder, groups=False):
    folder.mkdir()
    rows = [
        {"step": s, "reward": 0.5, "acr": 0.5, "acr_all_wrong": 0.25, "acr_all_right": 0.25,
         "acr_group": 0.5, "acr_after": 0.0 if s > 2 else 0.5, "tau": "", "live_rows": 8}
        for s in range(1, 5)
    ]  # fmt: skip
    write_csv(folder / "metrics.csv", rows)
    options = {"algo": "avspo", "prompts_per_step": 4, "group_size": 4, "kl_beta": 0.0}
    (folder / "config.json").write_text(json.dumps({"options": options}))
    if groups:
        write_jsonl(folder / "groups.jsonl", [
            {"step": s, "right": [0, 4, 1, 2], "scored": [4] * 4,
             "tokens": [10, 10, 20, 40], "live": [0, 0, 1, 1]}
            for s in range(1, 5)
        ])  # fmt: skip
    return folder


def test_own_run_without_group_counts_says_what_it_cannot_tell(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    log = read_log(str(folder))
    assert log.columns["dead_share"] == [0.5] * 4 and log.dead_is == "samples"
    assert main(["collapse", str(folder), "--out", str(tmp_path)]) == 0
    assert "cannot tell: groups by number right" in capsys.readouterr().out


def test_own_run_with_group_counts_tells_tokens_and_draws_groups(tmp_path, capsys):
    folder = make_run(tmp_path / "run", groups=True)
    log = read_log(str(folder / "metrics.csv"))
    assert log.columns["dead_share"] == [0.25] * 4 and log.dead_is == "tokens"
    assert main(["collapse", str(folder), str(folder), "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "groups by number right: 0: 0.25  1: 0.25  2: 0.25  4: 0.25" in out
    assert "ACR_100                   0.500" in out and "cannot tell" not in out
    assert (tmp_path / "collapse-2.png").stat().st_size > 5000


def test_training_curves_of_runs_are_overlaid(tmp_path, capsys):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    figure = tmp_path / "figures" / "runs.png"
    assert main(["compare", str(a), str(b), "--figure", str(figure)]) == 0
    assert "reward 0.500 -> 0.500" in capsys.readouterr().out
    assert figure.stat().st_size > 5000


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("x.csv", "", "no rows"),
        ("x.jsonl", '{"a": 1}\n{oops', "line 2: not JSON"),
        ("x.jsonl", '{"reward": 1, "step": 1}\n', "no column of groups"),
        ("x.csv", "group,step\na,1\n", "no column of rewards"),
        ("x.csv", "group,reward,step\na,1,soon\n", "'step' is no number"),
        ("x.json", "[1, 2]", "no rows"),
    ],
)
def test_a_log_that_cannot_be_read_is_one_line(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said) as error:
        read_log(str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_empty_columns_are_not_averaged_as_zero(tmp_path):
    folder = make_run(tmp_path / "run")
    text = (folder / "metrics.csv").read_text().replace(",0.5,", ",,", 1)
    (folder / "metrics.csv").write_text(text)
    assert math.isnan(read_log(str(folder)).columns["reward"][0])


def damaged_run(folder, name, text):
    """A run with group counts, one of whose files holds something else."""
    make_run(folder, groups=True)
    before = (folder / name).read_text()
    (folder / name).write_text(text(before) if callable(text) else text)
    return folder


GROUPS = {"step": 1, "right": [1], "scored": [4], "tokens": [9], "live": [1]}


@pytest.mark.parametrize("command", ["collapse", "compare"])
@pytest.mark.parametrize(
    "name, text, said",
    [
        ("metrics.csv", "", "no step yet"),
        ("metrics.csv", "step,acr,reward\n", "no step yet"),
        ("metrics.csv", "step,acr,reward\nsoon,1,1\n", "'soon' is no number"),
        ("metrics.csv", "step,acr,reward\n" + "9" * 5000 + ",1,1\n", "is no number"),
        ("metrics.csv", "step,reward\n1,1\n", "'acr'"),
        ("groups.jsonl", "{}\n", "line 1"),
        ("groups.jsonl", "[]\n", "line 1"),
        ("groups.jsonl", "5\n", "line 1"),
        ("groups.jsonl", "{oops\n", "line 1"),
        ("groups.jsonl", lambda whole: whole + whole[: len(whole) // 8] + "\n", "line 5"),
        *(
            ("groups.jsonl", json.dumps(GROUPS | change) + "\n", "line 1")
            for change in (
                {"tokens": [None]}, {"right": [5]}, {"right": ["1"]}, {"right": [-1]},
                {"scored": None}, {"scored": []}, {"scored": 4}, {"step": "1"}, {"live": [0.5]},
            )
        ),
        ("groups.jsonl", '{"step": 1, "right": [1], "tokens": [9], "live": [1]}\n', "line 1"),
    ],
)  # fmt: skip
def test_a_damaged_run_is_one_line(tmp_path, capsys, command, name, text, said):
    folder = str(damaged_run(tmp_path / "run", name, text))
    where = ["--out", str(tmp_path)] if command == "collapse" else ["--figure", "none.png"]
    logs = [folder] if command == "collapse" else [folder, folder]
    assert main([command, *logs, *where]) == 2
    err = capsys.readouterr().err
    assert err.startswith("evaluate.py: error: ") and err.count("\n") == 1 and said in err
    assert "run" in err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"options": []}', '{"options": {"algo": 5, "group_size": "x"}}']
)
def test_a_run_whose_options_cannot_be_read_is_drawn_without_them(tmp_path, capsys, text):
    folder = damaged_run(tmp_path / "run", "config.json", text)
    (folder / "groups.jsonl").unlink()
    assert main(["collapse", str(folder), "--out", str(tmp_path)]) == 0
    assert "cannot tell: tokens spent on dead groups" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["groups.jsonl", "metrics.csv"])
def test_a_last_line_that_is_still_being_written_is_left_out(tmp_path, name):
    whole = read_log(str(make_run(tmp_path / "whole", groups=True)))
    half = damaged_run(tmp_path / "half", name, lambda text: text + text.splitlines()[-1][:-1])
    log = read_log(str(half))
    assert (log.steps, log.columns, log.groups) == (whole.steps, whole.columns, whole.groups)


def test_a_run_with_only_half_a_line_of_groups_has_none_yet(tmp_path, capsys):
    folder = damaged_run(tmp_path / "run", "groups.jsonl", '{"step": 1, "ri')
    assert main(["collapse", str(folder), "--out", str(tmp_path)]) == 0
    assert "cannot tell: groups by number right" in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["step,acr", "step,acr,acr_all_wrong", "step,acr,reward"])
def test_a_run_is_drawn_from_the_columns_that_are_there(tmp_path, columns):
    text = f"{columns}\n1,,\n"
    folder = str(damaged_run(tmp_path / "run", "metrics.csv", text))
    assert main(["collapse", folder, "--out", str(tmp_path)]) == 0
    assert main(["compare", folder, folder, "--figure", str(tmp_path / "a.png")]) == 0


def test_cells_beyond_the_header_do_not_hide_what_is_wrong(tmp_path):
    (tmp_path / "x.csv").write_text("reward,b\n1,2,3\n")
    with pytest.raises(DataError, match="no column of groups"):
        read_log(str(tmp_path / "x.csv"))


def test_a_figure_of_an_unknown_kind_is_one_line(tmp_path, capsys):
    folder = str(make_run(tmp_path / "run"))
    assert main(["compare", folder, folder, "--figure", str(tmp_path / "a.xyz")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("evaluate.py: error: ") and err.count("\n") == 1 and "a.xyz" in err


@pytest.mark.parametrize("record", ["[]", "5", "{}", '{"settings": 5}', '{"settings": []}'])
def test_compare_of_evaluations_with_a_damaged_record_is_one_line(tmp_path, capsys, record):
    (tmp_path / "a.jsonl").write_text('{"question": "1 + 1", "rewards": [1]}\n')
    (tmp_path / "a.json").write_text(record)
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "a.json" in err
