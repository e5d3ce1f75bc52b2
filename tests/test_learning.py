"""The embedded task is learnt: the default run of one algorithm and one seed."""

import csv

import pytest

import train


@pytest.fixture(scope="module")
def default_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("learning") / "grpo"
    assert train.main(["--algo", "grpo", "--out", str(out)]) == 0
    return out


def column(path, key):
    with path.open() as file:
        return [float(row[key]) for row in csv.DictReader(file)]


def test_grpo_learns_the_embedded_task(default_run):
    """On 512 held-out questions x 4 samples; see results/tiny for three seeds of each algorithm."""
    accuracy = column(default_run / "eval.csv", "pass@1")
    low = column(default_run / "eval.csv", "pass@1_low")
    assert accuracy[-1] - accuracy[0] >= 0.07
    assert low[-1] > accuracy[0]


def test_the_gain_is_not_one_of_format(default_run):
    """Answers were boxed and ended in time from the first step on."""
    assert max(column(default_run / "metrics.csv", "truncated")) < 0.02
    lengths = column(default_run / "metrics.csv", "mean_length")
    assert max(lengths) - min(lengths) < 1
