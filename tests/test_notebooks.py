"""Every notebook runs top to bottom, offline; its outputs are committed, small and clean."""

import json
import re
import time
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
# a path of the machine it was made on, Windows' too
ABSOLUTE = re.compile(r"(?<![\w./])/(home|Users|tmp|work|root|usr|opt|mnt|private)/|[A-Z]:\\\\")


def cells(name):
    return json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]


def code_cells(name):
    return [cell for cell in cells(name) if cell["cell_type"] == "code"]


def test_the_notebooks_of_the_readme_are_there():
    assert len(NAMES) == 5 and NAMES[-1] == "exercises.ipynb"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_top_to_bottom(name, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="pip install nbclient")
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient")
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(variable, "1")
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    started = time.perf_counter()
    client = nbclient.NotebookClient(
        notebook,
        timeout=600,  # a cell; a hang, not a slow machine
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )
    client.execute()  # raises where a cell does
    print(f"{name}: {time.perf_counter() - started:.0f} s")
    ran = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    for before, after in zip(code_cells(name), ran):
        kinds = [{output["output_type"] for output in c["outputs"]} for c in (before, after)]
        assert kinds[0] == kinds[1], f"other outputs than those committed: {after['source'][:60]}"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_committed_with_outputs_that_are_small_and_clean(name):
    path = NOTEBOOKS / name
    assert path.stat().st_size < 300_000
    ran = [cell["execution_count"] for cell in code_cells(name)]
    assert ran == list(range(1, len(ran) + 1)), "not run once, from top to bottom"
    for cell in code_cells(name):
        text = json.dumps(cell["outputs"])
        assert not ABSOLUTE.search(text), ABSOLUTE.search(text)
        assert "Traceback" not in text and "Warning" not in text
        assert all(output.get("name") != "stderr" for output in cell["outputs"])


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_imports_the_projects_functions_and_never_copies_them(name):
    defined = set()
    for path in NOTEBOOKS.parent.glob("*.py"):
        defined |= set(re.findall(r"^def (\w+)", path.read_text(encoding="utf-8"), re.M))
    source = "\n".join("".join(cell["source"]) for cell in code_cells(name))
    if name != "exercises.ipynb":  # there the learner writes some of them
        assert not defined & set(re.findall(r"^def (\w+)", source, re.M)) - {"main"}
    links = re.findall(r"\]\((?!https?:|attachment:)([^)#]+)", "\n".join(
        "".join(cell["source"]) for cell in cells(name) if cell["cell_type"] == "markdown"
    ))  # fmt: skip
    for target in links:
        assert (NOTEBOOKS / target).exists(), target
