"""What the README says about files and lines is so."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\|.*`(?P<key>.+)` \| \[(?P<f>\S+):(?P<n>\d+)\]\((?P<link>\S+)\) \|"
                 r" \[(?P<test>\w+)\]\((?P<file>\S+)\) \|$", re.M)  # fmt: skip


def test_each_linked_line_names_its_equation_and_each_linked_test_is_there():
    rows = list(ROW.finditer(README))
    assert len(rows) >= 14
    for row in rows:
        assert row["link"] == f"{row['f']}#L{row['n']}"
        line = (ROOT / row["f"]).read_text(encoding="utf-8").split("\n")[int(row["n"]) - 1]
        assert row["key"].replace("\\|", "|") in line, f"{row['f']}:{row['n']} is {line!r}"
        assert f"def {row['test']}(" in (ROOT / row["file"]).read_text(encoding="utf-8")


def test_links_to_files_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_every_column_of_the_metrics_is_explained():
    from support.run_files import METRICS

    for column in METRICS:
        assert column == "step" or f"`{column}`" in README, column


def test_the_two_commands_are_those_that_ci_runs():
    assert "pip install -r requirements.txt && python train.py --algo avspo" in README
    assert "pip install -r requirements-dev.txt && python -m pytest" in README
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "requirements-dev.txt" in ci and "python -m pytest" in ci


def test_the_lines_for_your_own_trainer_run_as_they_stand():
    section = README[README.index("## ACR and AVSPO in your own trainer") :]
    code = re.search(r"```python\n(.+?)```", section, re.S)[1]
    rewards_PM = torch.tensor([[1.0] * 4, [0.0] * 4, [1.0] * 4, [1.0, 0.0, 0.0, 0.0]])
    found = {"rewards_PM": rewards_PM}
    exec(code, found)
    assert found["report"]["acr"] == 0.75
    assert (found["advantages_PM"] != 0).all(), "three groups of four collapse: the gate is open"
    assert found["threshold"].last_reward == rewards_PM.mean()


def test_every_option_that_the_readme_names_is_one():
    import dataclasses

    from support.options import Config

    named = set(re.findall(r"`(--[a-z][a-z-]+)", README))
    real = {"--" + f.name.replace("_", "-") for f in dataclasses.fields(Config)}
    real |= {"--benchmark", "--help"}  # evaluate.py's, everybody's
    assert named <= real, named - real
