"""The exercises check what they say: every checker takes the right answer and refuses each wrong
one, the notebook's starting code among them, with a sentence and never a traceback."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))  # a folder of notebooks and their helpers, not a package

from checker import CHECKERS, check, verdict  # noqa: E402
from solutions import SOLUTIONS, WRONG  # noqa: E402

import acr  # noqa: E402
import avspo  # noqa: E402
import evaluate  # noqa: E402
import grpo  # noqa: E402
import rollout  # noqa: E402
import tagrpo  # noqa: E402

CELLS = json.loads((NOTEBOOKS / "exercises.ipynb").read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
SOURCES = ["".join(cell["source"]) for cell in CODE]
CHECK = re.compile(r'check\("(\w+)", (\w+)\)')
NAMES = [CHECK.fullmatch(source)[1] for source in SOURCES if CHECK.fullmatch(source)]
# of the bugs, what the sentence about the starting code must speak of
BUGS = {
    "advantages": "constant group are not 0",
    "rewards_by_question": "whose gold answer",
    "kl_loss": "away from the reference",
    "end_mask": "end token at position 2",
    "scored_logprobs": "at temperature 0.6",
    "position_ids": "at position 3, not 0",
    "k3": "over tokens drawn from pi",
    "clipped_objective": "a bad action that grew",
    "rollout_loss": "cut into two",
}
VERSIONS = [(name, what) for name in WRONG for what in WRONG[name]]


def starting_code(name):
    """The function as the notebook has it."""
    (source,) = [source for source in SOURCES if re.search(rf"^def {name}\(", source, re.M)]
    scope = {"torch": torch}
    exec(source, scope)
    return scope[name]


def is_a_sentence(reason):
    return isinstance(reason, str) and 20 < len(reason) < 400 and "\n" not in reason


def refuses(name, answer):
    reason = verdict(name, answer)
    assert is_a_sentence(reason), f"{name}: {reason!r}"
    return reason


# ------------------------------------------------------------------------------- completeness


def test_every_exercise_has_a_checker_a_solution_and_wrong_versions():
    assert len(NAMES) >= 10 and len(set(NAMES)) == len(NAMES)
    assert NAMES == list(CHECKERS) == list(SOLUTIONS) == list(WRONG)
    assert all(len(versions) >= 2 for versions in WRONG.values())
    assert len(VERSIONS) == len(set(VERSIONS))


def test_every_exercise_is_said_begun_and_checked_in_that_order():
    for at, source in enumerate(SOURCES):
        if found := CHECK.fullmatch(source):
            assert found[1] == found[2], "check the function of that name"
            cell = CELLS.index(CODE[at])
            said, begun = ("".join(CELLS[i]["source"]) for i in (cell - 2, cell - 1))
            assert all(part in said for part in ("*Known.*", "*To do.*", "*Hint.*"))
            assert f"def {found[1]}(" in begun


# ------------------------------------------------------------------------------- right and wrong


@pytest.mark.parametrize("name", SOLUTIONS)
def test_right_answer_is_accepted(name, capsys):
    assert verdict(name, SOLUTIONS[name]) is None
    check(name, SOLUTIONS[name])
    assert capsys.readouterr().out == f"right: {name}\n"


@pytest.mark.parametrize("name, what", VERSIONS)
def test_known_wrong_version_is_refused(name, what):
    refuses(name, WRONG[name][what])


@pytest.mark.parametrize("name", NAMES)
def test_starting_code_is_refused_with_its_own_reason(name):
    reason = refuses(name, starting_code(name))
    assert BUGS.get(name, "nothing is written yet") in reason


@pytest.mark.parametrize(
    "name, function",
    [
        ("pass_at_k", evaluate.pass_at_k),
        ("expected_acr", acr.expected_acr_from_counts),
        ("advantages", lambda rewards_M, eps: grpo.group_advantages(rewards_M[None], eps)[0]),
        ("end_mask", lambda ids_BT, end, pad: rollout.completion_mask(ids_BT, [end])[0]),
        ("position_ids", rollout._positions),
        ("virtual_count", avspo.num_virtual),
        ("virtual_rewards", lambda r_M, K, low: avspo.virtual_rewards(r_M, K, r_anchor=low)),
        ("joint_advantages", tagrpo.joint_advantages),
        ("k3", grpo.kl_k3),
        ("gate_probability", avspo.gate_open_probability),
        # right as well, in the usual words
        ("kl_loss", lambda objective, k3, beta: -(objective - beta * k3).mean()),
        ("clipped_objective",
         lambda ratio, A, eps: torch.min(ratio * A, ratio.clamp(1 - eps, 1 + eps) * A)),
        ("scored_logprobs",
         lambda logits, tokens, T: -cross_entropy(logits / T, tokens, reduction="none")),
    ],
)  # fmt: skip
def test_other_right_answer_is_accepted_the_projects_own_among_them(name, function):
    assert verdict(name, function) is None


# ------------------------------------------------------------------------------- clumsy answers


def crashes(*inputs):
    raise KeyError("no\nsuch\nkey")


@pytest.mark.parametrize("name", CHECKERS)
def test_clumsy_answer_gets_a_sentence(name):
    assert "itself" in refuses(name, None) and "itself" in refuses(name, 0.5)
    assert "KeyError" in refuses(name, crashes)
    assert "returns None" in refuses(name, lambda *inputs: None)
    assert "TypeError" in refuses(name, lambda: 0)
    refuses(name, lambda *inputs: "8")
    refuses(name, lambda *inputs: True)
    refuses(name, lambda *inputs: [])
    refuses(name, lambda *inputs: torch.zeros(3, 7, 2))
    refuses(name, lambda *inputs: float("nan"))
    refuses(name, lambda *inputs: SOLUTIONS[name](*inputs) * float("nan"))


class Own(BaseException):
    """An error that is no Exception."""


@pytest.mark.parametrize("error", [SystemExit, SystemExit(3), GeneratorExit, Own("mine")])
def test_an_answer_that_leaves_by_another_door_gets_a_sentence(error):
    def leaves(*inputs):
        raise error

    kind = error if isinstance(error, type) else type(error)
    assert kind.__name__ in refuses("k3", leaves)


def test_an_answer_can_be_interrupted():
    def waits(*inputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verdict("k3", waits)


@pytest.mark.parametrize("name", [[], {}, None, 5, torch.zeros(3, 3), SOLUTIONS["k3"]])
def test_what_is_no_name_is_refused_in_one_line(name, capsys):
    check(name, crashes)
    said = capsys.readouterr().out
    assert said.startswith("not yet: there is no exercise ") and said.count("\n") == 1


@pytest.mark.parametrize("mode", [True, False])
def test_an_answer_that_switches_gradients_off_spoils_no_check(mode):
    def spoils(*inputs):
        result = SOLUTIONS["k3"](*inputs)
        torch.set_grad_enabled(False)
        return result

    before = torch.is_grad_enabled()
    torch.set_grad_enabled(mode)
    try:
        for answer in (spoils, SOLUTIONS["k3"]):
            assert verdict("k3", answer) is None
            assert torch.is_grad_enabled() is mode
    finally:
        torch.set_grad_enabled(before)


@pytest.mark.parametrize("name", CHECKERS)
def test_answer_that_changes_its_input_is_refused(name):
    touched = []

    def spoils(*inputs):
        result = SOLUTIONS[name](*inputs)
        for value in inputs:
            if isinstance(value, torch.Tensor) and not value.requires_grad:
                touched.append(value.add_(1))
            elif isinstance(value, list):
                touched.append(value.reverse())
        return result

    reason = verdict(name, spoils)
    assert ("changes its input" in reason) if touched else (reason is None)


def test_unknown_exercise_is_named_not_raised(capsys):
    check("clip", crashes)
    assert capsys.readouterr().out.startswith("not yet: there is no exercise 'clip'; there are ")


# ------------------------------------------------------------------------------- the notebook


def test_notebook_runs_as_committed_and_prints_what_it_shows(capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    scope = {}
    for cell, source in zip(CODE, SOURCES):
        exec(source, scope)
        said = capsys.readouterr().out
        shown = "".join("".join(output["text"]) for output in cell["outputs"])
        # numbers aside: another processor may round another way
        assert re.sub(r"[\d.e+-]+", "#", said) == re.sub(r"[\d.e+-]+", "#", shown)
        if CHECK.fullmatch(source):
            assert said.startswith("not yet: ") and said.count("\n") == 1


def test_notebook_runs_through_once_every_exercise_is_solved(capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    scope = {}
    for source in SOURCES:
        found = re.search(r"^def (\w+)\(", source, re.M)
        exec(source, scope) if not found else scope.update({found[1]: SOLUTIONS[found[1]]})
    assert capsys.readouterr().out.splitlines() == [f"right: {name}" for name in NAMES]
