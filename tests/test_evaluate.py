"""pass@k, intervals, diversity, evaluating a policy, and the command line."""

import csv
import importlib
import json
import math
import os
import random
import subprocess
import sys
import time
from fractions import Fraction
from itertools import combinations, product
from math import comb
from pathlib import Path

import pytest
import torch

from acr import expected_acr_from_counts
from data import Question, arithmetic
from evaluate import (
    bootstrap_interval,
    chance_of_moving,
    cosine_distance,
    distinct_answers,
    diversity,
    embed,
    evaluate_policy,
    inspect_counts,
    main,
    moved,
    paired_difference,
    pass_at_k,
    zero_gradient_from_counts,
)
from support import benchmarks

ROOT = Path(__file__).resolve().parent.parent

# ------------------------------------------------------------------------------- estimates


@pytest.mark.parametrize("n", range(1, 13))
def test_pass_at_k_equals_every_subset_drawn(n):
    for c in range(n + 1):
        right = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(combinations(right, k)) if n <= 9 or k in (1, 2, n) else None
            if subsets:
                expected = sum(map(any, subsets)) / len(subsets)
                assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", range(1, 13))
def test_expected_acr_from_counts_equals_every_subset_drawn(n):
    for c in range(n + 1):
        right = [True] * c + [False] * (n - c)
        for G in range(1, n + 1):
            agree = [len(set(subset)) == 1 for subset in combinations(right, G)]
            expected = sum(agree) / len(agree)
            assert expected_acr_from_counts(n, c, G) == pytest.approx(expected, abs=1e-12)


def falling_share(c, n, k):
    """C(c, k) / C(n, k), factor by factor in rational numbers."""
    share = Fraction(1)
    for i in range(k):
        share *= Fraction(max(0, c - i), n - i)
    return share


@pytest.mark.parametrize("c", [0, 1, 2, 5, 300, 2048, 4000, 4095, 4096])
@pytest.mark.parametrize("k", [1, 8, 32, 1024])
def test_estimates_from_4096_samples_lose_no_digit(c, k):
    n = 4096
    expected = 1 - falling_share(n - c, n, k)
    assert pass_at_k(n, c, k) == float(expected)  # not only close: small ones keep every digit
    alike = falling_share(c, n, k) + falling_share(n - c, n, k)
    assert expected_acr_from_counts(n, c, k) == pytest.approx(float(alike), rel=1e-14)


@pytest.mark.parametrize("questions, runs", [(100, 400), (500, 400)])
def test_interval_covers_the_truth_in_95_of_100_experiments(questions, runs):
    """Questions of every difficulty (many at 0 and 1, as in practice), four samples each."""
    generator = torch.Generator().manual_seed(questions)

    def experiment():
        p_Q = torch.rand(questions, generator=generator, dtype=torch.float64)
        p_Q = ((p_Q - 0.5) * 2 + 0.4).clamp(0, 1)
        draws_Q4 = torch.rand(questions, 4, generator=generator, dtype=torch.float64)
        return (draws_Q4 < p_Q[:, None]).double().mean(dim=1)

    # the mean of clamp(2u - 0.6, 0, 1): 0 below u = .3, 1 above u = .8
    truth = 0.25 + 0.2
    hits = 0
    for _ in range(runs):
        low, high = bootstrap_interval(experiment())
        hits += low <= truth <= high
    assert 0.92 <= hits / runs <= 0.98


@pytest.mark.parametrize("n, c, k", [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_impossible_counts_are_refused(n, c, k):
    with pytest.raises(ValueError, match="need"):
        pass_at_k(n, c, k)


def test_intervals_hold_the_mean_and_narrow_with_more_questions():
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(2, (50,), generator=generator).double()
    many = few.repeat(16)
    low, high = bootstrap_interval(few)
    assert low < few.mean() < high
    narrow = bootstrap_interval(many)
    assert 3 < (high - low) / (narrow[1] - narrow[0]) < 5  # one over the root of 16


def test_pairing_finds_a_small_gain_that_separate_intervals_would_miss():
    before = [0.0] * 100 + [1.0] * 100
    after = [0.1] * 100 + [1.0] * 100
    mean, low, high = paired_difference(before, after)
    assert mean == pytest.approx(0.05) and 0.03 < low < high < 0.07
    assert bootstrap_interval(before)[1] > bootstrap_interval(after)[0]


def test_no_values_are_refused():
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])


def test_pooled_zero_gradient_estimate_is_unbiased():
    """Averaged over every outcome of 3 phrasings x 4 samples it is the true probability."""
    p_F, n, G = (0.5, 0.9, 0.2), 4, 3
    mean = 0.0
    for right_F in product(range(n + 1), repeat=3):
        chance = math.prod(comb(n, c) * p**c * (1 - p) ** (n - c) for p, c in zip(p_F, right_F))
        mean += chance * zero_gradient_from_counts([n] * 3, right_F, G)
    assert mean == pytest.approx(
        math.prod(p**G for p in p_F) + math.prod((1 - p) ** G for p in p_F)
    )
    assert zero_gradient_from_counts([8], [3], 4) == expected_acr_from_counts(8, 3, 4)
    assert zero_gradient_from_counts([8, 3], [3, 3], 4) is None  # too few verdicts to say


def test_moves_by_chance_are_what_equally_hard_phrasings_show():
    generator = random.Random(0)
    n, m, seen, expected = 16, 12, 0, 0.0
    for _ in range(4000):
        a, b = (sum(generator.random() < 0.4 for _ in range(size)) for size in (n, m))
        seen += moved(n, a, m, b)
        expected += chance_of_moving(n, a, m, b)
    assert seen / 4000 == pytest.approx(expected / 4000, abs=0.02)
    assert moved(16, 4, 16, 8) and not moved(16, 4, 16, 7)  # .25 itself counts


def test_inspect_averages_over_questions_not_over_rephrasings():
    found = [
        [("original", (4, 0)), ("wording", (4, 4)), ("format", (4, 4)), ("order", (4, 4))],
        [("original", (4, 2)), ("wording", (4, 2))],
    ]
    results = inspect_counts(found, G=2, N=3)
    assert results["kinds"]["all rephrasings"]["shift"][0] == pytest.approx(0.5)
    assert results["kinds"]["wording"]["questions"] == 2
    assert results["kinds"]["order"]["moved"][0] == 1.0
    # one question has all three: p_0 = 0 and the others 1, so pooling always leaves a gradient
    assert results["complete"] == 1
    assert results["zero_gradient_before"][0] == 1.0
    assert results["zero_gradient_pooled"][0] == 0.0
    assert results["zero_gradient_group_of_all"] is None  # 8 samples of 4 cannot be drawn


# ------------------------------------------------------------------------------- diversity


def test_diversity_of_identical_completions_is_exactly_zero(tiny):
    texts = ["2 + 2 = \\boxed{4}"] * 6
    found = diversity(tiny, [*texts, *texts], 6)
    assert found == {"diversity": 0.0, "distinct_answers": 0.0}


def test_distance_is_that_of_all_pairs_and_ignores_length_of_vectors():
    generator = torch.Generator().manual_seed(0)
    e_GMH = torch.randn(3, 5, 7, generator=generator)
    cosine = torch.nn.functional.cosine_similarity
    for group, found in zip(e_GMH, cosine_distance(e_GMH)):
        pairs = [1 - float(cosine(a, b, dim=0)) for a, b in combinations(group, 2)]
        assert float(found) == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)
    assert torch.allclose(cosine_distance(e_GMH * 7), cosine_distance(e_GMH))
    opposite = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    assert cosine_distance(opposite).tolist() == [2.0]
    assert cosine_distance(e_GMH[:, :1]).isnan().all()


def test_embeddings_do_not_depend_on_what_else_is_in_the_batch(tiny):
    texts = ["\\boxed{4}", "What is 3 + 4? \\boxed{7}", "", "\\boxed{12}"]
    together = embed(tiny, texts)
    alone = torch.cat([embed(tiny, [text]) for text in texts])
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together, embed(tiny, texts, batch_tokens=1), atol=1e-5)


def test_distinct_answers_leaves_out_completions_without_an_answer():
    assert distinct_answers(["4", " 4", "4"]) == 0.0
    assert distinct_answers(["4", "5", "6"]) == 1.0
    assert distinct_answers(["4", "5", None, "4"]) == 0.5
    assert math.isnan(distinct_answers(["4", None]))


# ------------------------------------------------------------------------------- one policy


def test_evaluating_twice_gives_the_same_and_chunks_change_nothing(tiny):
    questions = arithmetic("test", 12)
    once = evaluate_policy(tiny, questions, 3, max_new_tokens=8)
    assert once == evaluate_policy(tiny, questions, 3, max_new_tokens=8, chunk_tokens=50)
    assert once != evaluate_policy(tiny, questions, 3, max_new_tokens=8, seed=1)
    row = once.row()
    assert row["pass@1"] == pytest.approx(sum(once.right_Q) / 36)
    assert row["pass@1"] <= row["pass@3"]


def test_a_question_is_scored_against_its_own_answer(tiny):
    """The golds of two easy questions swapped: nothing is right any more."""
    asked = [Question("1", "What is 2 + 2?", "4"), Question("2", "What is 5 + 3?", "8")]
    swapped = [Question("1", "What is 2 + 2?", "8"), Question("2", "What is 5 + 3?", "4")]
    right = sum(evaluate_policy(tiny, asked, 8, max_new_tokens=8).right_Q)
    wrong = sum(evaluate_policy(tiny, swapped, 8, max_new_tokens=8).right_Q)
    assert right >= 12 > 4 >= wrong


def test_evaluation_measures_diversity_when_an_embedder_is_given(tiny):
    questions = arithmetic("test", 12)
    found = evaluate_policy(tiny, questions, 4, max_new_tokens=8, embedder=tiny)
    assert 0 < found.row()["diversity"] < 1 and 0 <= found.row()["distinct_answers"] <= 1
    plain = evaluate_policy(tiny, questions, 4, max_new_tokens=8)
    assert plain.right_Q == found.right_Q and "diversity" not in plain.row()


# ------------------------------------------------------------------------------- reading answers


@pytest.mark.parametrize(
    "completion, answer",
    [
        ("so \\boxed{7}, not 8", "7"),
        ("She pays 3 * 4 = 12.\n#### 12", "12"),
        ("The answer is 1,234 dollars.", "1234"),
        ("The final answer is: **x + 1**", "x + 1"),
        ("First 3, then 4, so 7", "7"),
        ("It costs $3.50", "3.50"),
        ("no idea", None),
        ("", None),
    ],
)
def test_lenient_reader_finds_an_answer_outside_the_box(completion, answer):
    assert benchmarks.lenient_answer(completion) == answer


def test_gain_of_format_alone_does_not_show_in_lenient_accuracy():
    golds, cut = ["12", "12"], [False, False]
    before = benchmarks.judge("maths", ["It is 12.", "It is 11."], golds, cut)
    after = benchmarks.judge("maths", ["\\boxed{12}", "\\boxed{11}"], golds, cut)
    assert before == ([0.0, 0.0], [1.0, 0.0], [False, False])
    assert after == ([1.0, 0.0], [1.0, 0.0], [True, True])


@pytest.mark.parametrize("said", ["B", "(B)", "\\text{B}", "\\text{(B)}", "B. 42", "B) 42"])
def test_letters_are_read_however_they_are_dressed(said):
    assert benchmarks.letter_of(said) == "B"
    rewards, _, _ = benchmarks.judge("choice", [f"\\boxed{{{said}}}"] * 2, ["B", "C"], [False] * 2)
    assert rewards == [1.0, 0.0]


def test_options_are_shuffled_the_same_for_everybody():
    options = ["red", "green", "blue", "black"]
    orders = set()
    for i in range(40):
        q = benchmarks.multiple_choice(f"Which colour, {i}?", options, 2)
        assert q == benchmarks.multiple_choice(f"Which colour, {i}?", options, 2)
        assert f"{q.answer}. blue" in q.question
        orders.add(q.answer)
    assert orders == set("ABCD")


@pytest.mark.parametrize(
    "name, row, question, answer",
    [
        ("gsm8k", {"question": "q", "answer": "3+4\n#### 1,007"}, "q", "1007"),
        ("amc12", {"problem": "q", "answer": "142.0"}, "q", "142"),
        ("minerva", {"question": "q", "answer": "1.5"}, "q", "1.5"),
        ("olympiadbench", {"question": "q", "final_answer": ["$3$"]}, "q", "3"),
        ("math500", {"problem": "q", "answer": "\\frac{1}{2}"}, "q", "\\frac{1}{2}"),
    ],
)
def test_rows_of_the_hub_become_questions(name, row, question, answer):
    q = benchmarks._read_row(benchmarks.BENCHMARKS[name], row, "x")
    assert (q.question, q.answer) == (question, answer)


def test_both_multiple_choice_sets_go_through_one_reader():
    gpqa = {"Question": "q", "Correct Answer": "yes"} | {
        f"Incorrect Answer {i}": f"no {i}" for i in (1, 2, 3)
    }
    mmlu = {"question": "q", "options": ["no 1", "yes", "no 2", "no 3"], "answer": "B"}
    for name, row in (("gpqa_diamond", gpqa), ("mmlu_pro", mmlu)):
        q = benchmarks._read_row(benchmarks.BENCHMARKS[name], row, "x")
        assert f"{q.answer}. yes" in q.question


# ------------------------------------------------------------------------------- command line

TINY = ["--model", "tiny", "--device", "cpu", "--max-new-tokens", "8"]


def run(*words):
    return main([str(word) for word in words])


def measure(out, *more):
    return run(*TINY, "--benchmark", "arithmetic", "--max-questions", 24, "--samples", 4,
               "--batch-rows", 16, "--out", out, *more)  # fmt: skip


def test_benchmark_writes_everything_needed_to_repeat_it(tmp_path, capsys):
    assert measure(tmp_path, "--embed-with", "tiny") == 0
    lines = [json.loads(line) for line in (tmp_path / "arithmetic.jsonl").open()]
    record = json.loads((tmp_path / "arithmetic.json").read_text())
    (row,) = csv.DictReader((tmp_path / "results.csv").open())
    rewards = [r for line in lines for r in line["rewards"]]
    assert len(lines) == 24 and len(rewards) == 96
    assert float(row["pass@1"]) == pytest.approx(sum(rewards) / 96)
    assert float(row["pass@1_low"]) < float(row["pass@1"]) < float(row["pass@1_high"])
    assert float(row["lenient"]) >= float(row["strict"]) > 0
    assert record["results"]["pass@4"] == float(row["pass@4"])
    assert record["settings"]["seed"] == 0 and record["weights"] and record["versions"]
    assert {"truncated", "no_box", "mean_length", "diversity"} <= set(row)
    assert (tmp_path / "pass_at_k.png").stat().st_size > 5000
    assert "under 100 questions" in capsys.readouterr().out


def test_greedy_gives_one_answer_and_needs_no_random_number(tmp_path):
    for seed in (0, 1):
        words = ["--benchmark", "arithmetic", "--max-questions", 12, "--samples", 1]
        words += ["--temperature", 0, "--seed", seed, "--out", tmp_path / str(seed)]
        assert run(*TINY, *words) == 0
    a, b = ((tmp_path / str(seed) / "arithmetic.jsonl").read_text() for seed in (0, 1))
    assert a == b


def test_killed_in_the_middle_and_started_again_gives_the_same(tmp_path):
    assert measure(tmp_path / "whole") == 0
    command = [sys.executable, "evaluate.py", *TINY, "--benchmark", "arithmetic"]
    command += ["--max-questions", "24", "--samples", "4", "--batch-rows", "16"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "cut")],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    file = tmp_path / "cut" / "arithmetic.jsonl"
    for _ in range(6000):  # the first whole batch is on disk
        if process.poll() is not None or (file.exists() and file.stat().st_size):
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    # what a kill in the middle of a batch leaves: some of its lines, the last one half written
    lines = (tmp_path / "whole" / "arithmetic.jsonl").read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:6]) + lines[6][:50])
    assert measure(tmp_path / "cut") == 0
    for name in ("arithmetic.jsonl", "arithmetic.json", "results.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_going_on_with_other_settings_or_weights_is_refused(tmp_path, tiny, capsys):
    assert measure(tmp_path) == 0
    assert measure(tmp_path, "--seed", 1) == 2
    assert "--seed (0 -> 1)" in capsys.readouterr().err
    record = json.loads((tmp_path / "arithmetic.json").read_text())
    (tmp_path / "arithmetic.json").write_text(json.dumps(record | {"weights": "other"}))
    assert measure(tmp_path) == 2
    assert "other weights" in capsys.readouterr().err
    assert measure(tmp_path, "--overwrite") == 0


def test_compare_pairs_questions_and_says_the_difference(tmp_path, capsys):
    measure(tmp_path / "a")
    measure(tmp_path / "b", "--temperature", 0.1)
    capsys.readouterr()
    figure = tmp_path / "compare.png"
    assert run("compare", tmp_path / "a", tmp_path / "b", "--figure", figure) == 0
    out = capsys.readouterr().out
    assert "24 questions of all" in out and "pass@4" in out and "points, 95 % interval" in out
    assert "not measured alike, --temperature 0.7, 0.1" in out
    assert figure.stat().st_size > 5000
    assert run("compare", tmp_path / "a", tmp_path / "a", "--figure", figure) == 0
    assert "+0.0 points, 95 % interval +0.0 to +0.0" in capsys.readouterr().out


def test_select_reports_success_on_the_half_that_did_not_choose(tmp_path, capsys):
    out = tmp_path / "medium.jsonl"
    words = [*TINY, "--data", "arithmetic", "--max-questions", 64, "--samples", 16, "--out", out]
    assert run("select", *words, "--between", 0.1, 0.9) == 0
    kept = [json.loads(line) for line in out.open()]
    sampled = {
        line["question"]: line["rewards"]
        for line in map(json.loads, (tmp_path / "medium.samples.jsonl").open())
    }
    for row in kept:
        rewards = sampled[row["question"]]
        assert 0.1 <= sum(rewards[:8]) / 8 <= 0.9
        assert row["success"] == sum(rewards[8:]) / 8
    assert 0 < len(kept) < 64
    assert f"chosen: {len(kept)} of 64" in capsys.readouterr().out


def test_inspect_tells_the_kinds_of_the_embedded_task(tmp_path, capsys):
    words = [*TINY, "--data", "arithmetic", "--max-questions", 16, "--out", tmp_path]
    assert run("inspect", *words) == 0
    out = capsys.readouterr().out
    for kind in ("symbols", "number words", "givens", "command", "story", "question first"):
        assert kind in out
    assert "pooled phrasings" in out
    results = json.loads((tmp_path / "inspect.json").read_text())["results"]
    before, pooled = (results[f"zero_gradient_{name}"][0] for name in ("before", "pooled"))
    assert 0 <= pooled <= before <= 1


def test_inspect_reads_a_file_of_rephrasings(tmp_path, capsys):
    questions = [{"question": f"What is {a} + 2?", "answer": a + 2, "id": a} for a in range(1, 9)]
    texts = [
        {"original": q["question"], "id": q["id"], "kind": "format", "source": "me",
         "question": f"Given: x = {q['id']}, y = 2. Find x + y."}
        for q in questions
    ]  # fmt: skip
    for name, rows in (("q.jsonl", questions), ("r.jsonl", texts)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--data", tmp_path / "q.jsonl", "--rephrasings", tmp_path / "r.jsonl"]
    assert run("inspect", *TINY, *words, "--num-rephrasings", 1) == 0
    out = capsys.readouterr().out
    assert "format" in out and "8 questions with all 1 rephrasings" in out


def test_expected_collapse_of_a_checkpoint(capsys):
    words = [*TINY, "--data", "arithmetic", "--max-questions", 32, "--samples", 16]
    assert run("collapse", *words) == 0
    out = capsys.readouterr().out
    assert "expected ACR" in out and "all wrong" in out


@pytest.mark.parametrize(
    "words, said",
    [
        ("--model tiny --benchmark nothing --out OUT", "nothing"),
        ("--model tiny --benchmark arithmetic --samples 4 --k 8 --out OUT", "--k 8"),
        ("--model tiny --benchmark arithmetic --temperature 0 --out OUT", "greedy"),
        ("--model tiny --benchmark arithmetic --temperature 0.01 --out OUT", "0.05 or more"),
        ("--model nowhere --benchmark arithmetic --out OUT", "nowhere"),
        ("--benchmark arithmetic --out OUT", "--model"),
        ("--model tiny --benchmark missing.jsonl --out OUT", "no such file"),
        ("--model tiny --benchmark arithmetic --samples 0 --out OUT", "--samples 0"),
        ("--model tiny --benchmark arithmetic --embed-with nope --out OUT", "nope"),
        ("--model tiny --benchmark arithmetic --out FILE", "is a file"),
        ("--model tiny --benchmark arithmetic arithmetic --out OUT", "same name"),
        ("compare OUT/a OUT/b", "no such folder"),
        ("collapse", "name a run's folder"),
        ("collapse OUT/none.csv", "no such file"),
        ("collapse --model tiny", "--data"),
        ("collapse --model tiny --data arithmetic --samples 4", "--group-size 8"),
        ("select --model tiny --data arithmetic --samples 3 --out OUT/x.jsonl", "even"),
        ("select --model tiny --data arithmetic --between .5 .3 --out OUT/x.jsonl", "--between"),
        ("select --model tiny --data arithmetic --out OUT/x.csv", ".jsonl"),
        ("inspect --model tiny --samples 4", "--group-size 8"),
        ("inspect --model tiny --rephrasings none.jsonl", "no such file"),
        ("inspect --model tiny --bogus", "--bogus"),
    ],
)
def test_user_errors_are_one_line_and_status_2_before_a_model_is_loaded(
    words, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("evaluate.load_policy", lambda *_: pytest.fail("a model was loaded"))
    (tmp_path / "file").write_text("")
    words = words.replace("OUT", str(tmp_path)).replace("FILE", str(tmp_path / "file"))
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("evaluate.py: error: ") and err.count("\n") == 1 and said in err


def test_the_poster_draws_every_algorithm_of_a_folder_of_runs(tmp_path, capsys):
    from support import figures

    for algo, seed, acr in (("grpo", 0, 0.5), ("grpo", 1, 0.7), ("tagrpo", 0, 0.4)):
        run = tmp_path / f"{algo}-seed{seed}"
        run.mkdir()
        (run / "config.json").write_text(json.dumps({"options": {"algo": algo}}))
        rows = "".join(f"{step},{acr},{acr / 2}\n" for step in (1, 2, 3))
        (run / "metrics.csv").write_text("step,acr,acr_after\n" + rows)
    assert figures.main([str(tmp_path), "--out", str(tmp_path / "poster.png")]) == 0
    assert (tmp_path / "poster.png").read_bytes()[:4] == b"\x89PNG"
    (tmp_path / "empty").mkdir()
    assert figures.main([str(tmp_path / "empty"), "--out", str(tmp_path / "none.png")]) == 2
    assert "no runs" in capsys.readouterr().err and not (tmp_path / "none.png").exists()


RUN = {"config.json": '{"options": {"algo": "grpo"}}', "metrics.csv": "step,acr,acr_after\n1,1,0\n"}


def poster_of(tmp_path, out, **files):
    """Exit status of the poster's command on a folder with one run, some of its files changed."""
    from support import figures

    run = tmp_path / "runs" / "grpo-seed0"
    run.mkdir(parents=True)
    for name, text in (RUN | files).items():
        (run / name).write_text(text)
    return figures.main([str(run.parent), "--out", str(out)])


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("metrics.csv", "", "no step yet"),
        ("metrics.csv", "step,acr,acr_after\n", "no step yet"),
        ("metrics.csv", "step,acr\n1,1\n", "'acr_after'"),
        ("metrics.csv", "step,acr,acr_after\nsoon,1,1\n", "'soon' is no number"),
        ("config.json", "{", "algorithm"),
        ("config.json", "{}", "algorithm"),
        ("config.json", "[]", "algorithm"),
        ("config.json", '{"options": []}', "algorithm"),
        ("config.json", '{"options": {"algo": 5}}', "algorithm"),
    ],
)
def test_a_poster_of_a_damaged_run_is_one_line(tmp_path, capsys, name, text, said):
    assert poster_of(tmp_path, tmp_path / "poster.png", **{name: text}) == 2
    err = capsys.readouterr().err
    assert err.startswith("support.figures: error: ") and err.count("\n") == 1 and said in err


@pytest.mark.parametrize("row", ["2,,0", "2", "2,nan,0", "2,1,0,7,7"])
@pytest.mark.parametrize("before", ["1,1,0\n", ""])
def test_an_empty_or_missing_cell_is_a_gap_in_the_poster(tmp_path, capsys, row, before):
    text = f"step,acr,acr_after\n{before}{row}\n3,1,0\n4,0."  # the last line is being written
    assert poster_of(tmp_path, tmp_path / "poster.png", **{"metrics.csv": text}) == 0
    assert (tmp_path / "poster.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("out", ["x.xyz", "taken", "file/x.png", "pipe.png", "n" * 300 + ".png"])
def test_a_figure_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path, capsys, out):
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe.png")
    assert poster_of(tmp_path, tmp_path / out) == 2
    err = capsys.readouterr().err
    assert err.startswith("support.figures: error: ") and err.count("\n") == 1
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["file", "pipe.png", "runs", "taken"] and (tmp_path / "pipe.png").is_fifo()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_figure_written_through_a_link_leaves_the_link(tmp_path):
    (tmp_path / "link.png").symlink_to(tmp_path / "new.png")
    assert poster_of(tmp_path, tmp_path / "link.png") == 0
    assert (tmp_path / "link.png").is_symlink() and (tmp_path / "new.png").stat().st_size > 5000


@pytest.mark.parametrize("record", ['{"settings": 5}', "[]", "5", "{}", "{", '{"settings": []}'])
def test_a_damaged_record_of_completions_is_one_line(tmp_path, capsys, record):
    (tmp_path / "a.samples.jsonl").write_text("")
    (tmp_path / "a.samples.json").write_text(record)
    words = ["--data", "arithmetic", "--samples", 8, "--out", tmp_path / "a.jsonl"]
    assert run("select", *TINY, *words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "--overwrite" in err


@pytest.mark.parametrize("line", ["5", "[]", "{}", '{"rewards": [1]}', '"\\ud800', "\x00"])
def test_damaged_completions_are_one_line_and_kept(tmp_path, capsys, line):
    assert measure(tmp_path) == 0
    path = tmp_path / "arithmetic.jsonl"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([line, *lines[1:]]))
    capsys.readouterr()
    assert measure(tmp_path) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "is damaged" in err and path.read_text().startswith(line)


@pytest.mark.parametrize(
    "words, said",
    [
        ("kill_and_resume --algo nope", "nope"),
        ("kill_and_resume", "--algo"),
        ("kill_and_resume --algo grpo --kills 0", "--kills 0"),
        ("kill_and_resume --algo grpo --kills -1", "--kills -1"),
        ("vs_trl --rounds 0", "--rounds 0"),
        ("vs_trl --steps 0", "--steps 0"),
        ("vs_trl --prompts 0", "--prompts 0"),
        ("vs_trl --group 1", "--group 1"),
        ("vs_trl --tokens -1", "--tokens -1"),
        ("vs_trl --tokens x", "--tokens"),
        ("vs_trl --micro-batch-tokens 0", "--micro-batch-tokens 0"),
        ("vs_trl --model /nope", "/nope"),
        ("vs_trl --sides nope", "nope"),
        ("vs_trl --sides trl", "pip install trl"),
    ],
)
def test_a_benchmark_refuses_wrong_options_before_anything_starts(words, said, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    name, *words = words.split()
    module = importlib.import_module(name)
    for function in ("run", "Popen"):
        monkeypatch.setattr(subprocess, function, lambda *_, **__: pytest.fail("a run was started"))
    monkeypatch.setattr(module, "find_spec", lambda _: None, raising=False)  # as without trl
    assert module.main(words) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"{name}.py: error: ") and err.count("\n") == 1
    assert said in err
