"""The promises of the layout: who imports whom, how little each variant changes, how short the loop
is. Design, section 1."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PURE = {  # what a pure module may import from the project; from elsewhere only torch and Python's
    "acr": set(),
    "grpo": {"acr"},
    "avspo": {"acr", "grpo"},
    "tagrpo": {"grpo"},
}
PROJECT = {path.stem for path in ROOT.glob("*.py")} | {"support", "tests"}
# a file of the design's table that is not there yet is held to it once it is
TABLE = {
    **PURE,
    "reward": {"support"},
    "rollout": set(),
    "rephrase": {"data", "support"},
    "data": {"support"},
    "evaluate": {*PURE, "reward", "rollout", "rephrase", "data", "support"},
}
VARIANTS = ["AVSPO", "TA-GRPO"]


def imported(name):
    """Top-level packages that a module of the project imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / f"{name}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}.py, line {node.lineno}: a relative import"
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("name", [n for n in TABLE if (ROOT / f"{n}.py").exists()])
def test_module_imports_only_the_ideas_it_builds_on(name):
    extra = (imported(name) & PROJECT) - TABLE[name]
    assert not extra, f"{name}.py imports {', '.join(sorted(extra))}"


@pytest.mark.parametrize("name", PURE)
def test_pure_module_can_be_lifted_into_another_trainer(name):
    foreign = imported(name) - PURE[name] - {"torch"} - set(sys.stdlib_module_names)
    assert not foreign, f"{name}.py imports {', '.join(sorted(foreign))}"


# ------------------------------------------------------------------------------- marked changes


def markers(variant):
    """(number, of how many, file, line) of each marker of a variant, in the order of the files."""
    pattern = re.compile(rf"^\s*# {re.escape(variant)}, change (\d+) of (\d+)\b")
    files = [*sorted(ROOT.glob("*.py")), *sorted((ROOT / "support").rglob("*.py"))]
    return [
        (int(match[1]), int(match[2]), path, number)
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines())
        if (match := pattern.match(line))
    ]


def block(path, start):
    """The marker and the lines after it, up to a blank line or one that is indented less."""
    lines = path.read_text(encoding="utf-8").splitlines()
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start
    while end < len(lines) and lines[end].strip():
        if len(lines[end]) - len(lines[end].lstrip()) < indent:
            break
        end += 1
    return lines[start:end]


@pytest.mark.parametrize("variant", VARIANTS)
def test_changes_are_numbered_in_order_and_none_is_missing(variant):
    found = markers(variant)
    assert found, f"no '# {variant}, change i of n'"
    total = found[0][1]
    assert [(i, n) for i, n, _, _ in found] == [(i, total) for i in range(1, total + 1)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_changes_at_most_twenty_lines(variant):
    blocks = [block(path, line) for _, _, path, line in markers(variant)]
    assert all(len(lines) >= 2 for lines in blocks), "a marker with nothing below it"
    assert sum(map(len, blocks)) <= 20, "\n\n".join("\n".join(lines) for lines in blocks)


# ------------------------------------------------------------------------------- the loop


def test_loop_fits_on_a_page():
    """At most 60 lines of code: blank lines and lines that are only a comment do not count."""
    source = (ROOT / "train.py").read_text(encoding="utf-8")
    train = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "train"
    )
    loop = next(
        node
        for node in ast.walk(train)
        if isinstance(node, ast.While) and "progress.step < last" in ast.unparse(node.test)
    )
    lines = source.splitlines()[loop.body[0].lineno - 1 : loop.body[-1].end_lineno]
    code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 60, f"{len(code)} lines"
