"""What the README says about files and lines is so."""

import re
from pathlib import Path

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
