"""The rephraser: the checks on hand-made pairs, then the real client against a server that
misbehaves, kills and resumption, the solver, and the joining that train.py uses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rephrase_pairs import BAD, CLIPS, GOOD, UNSEEN
from rephrase_server import Answer, Server, good

import rephrase
from data import DataError, Question
from support.rephrase_checks import last_box, read_numbers, why_not
from support.rephrase_file import ReplyFile

ROOT = Path(__file__).resolve().parents[1]
fcntl = pytest.importorskip("fcntl")


# ---------------------------------------------------------------- the checks


def test_at_least_40_pairs_of_each_sort():
    assert len(GOOD) >= 40 and len(BAD) >= 40


@pytest.mark.parametrize(("original", "rephrased", "gold"), GOOD)
def test_good_rephrasings_are_accepted(original, rephrased, gold):
    assert why_not(original, rephrased, gold) is None


@pytest.mark.parametrize(("original", "rephrased", "gold", "reason"), BAD)
def test_subtly_wrong_rephrasings_are_turned_down(original, rephrased, gold, reason):
    found = why_not(original, rephrased, gold)
    assert found is not None and found.split(":")[0] == reason


@pytest.mark.parametrize(("original", "rephrased", "gold"), UNSEEN)
def test_known_limit_changes_that_no_rule_sees_are_accepted(original, rephrased, gold):
    assert why_not(original, rephrased, gold) is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("two hundred and five", {205}),
        ("twenty-five two three-digit", {25, 2, 3}),
        ("half a dozen, two dozen", {6, 24}),
        ("2.5 million", {2500000}),
        ("2,500,000", {2500000}),
        ("two and a half", {2.5}),
        ("2 1/2", {2.5}),
        ("a third of it", set()),
        ("two-thirds, three quarters", {0.75}),
        ("twice, thrice", {2, 3}),
        ("one or the first or both", set()),
        ("the 10th and the tenth", {10}),
        ("between -3 and 4", {-3, 4}),
        ("x - 3 and 10-15", {3, 10, 15}),
        ("5 0 0", {5, 0}),
        ("9" * 5000, {0}),
    ],
)
def test_numbers_in_words_and_digits_have_one_value(text, values):
    third = {v for v in read_numbers(text).hard() if v.denominator == 3}
    assert {float(v) for v in read_numbers(text).hard() - third} == values


def test_latex_that_went_through_json_is_turned_down():
    original = r"What is $\frac{1}{2} \times \beta$, where $\beta$ is $4$?"
    broken = '"Find $\\frac{1}{2} \\times \\beta$ for $\\beta$ equal to $4$. What is it?"'
    assert why_not(original, json.loads(broken), "2").startswith("characters")


def test_gold_is_no_leak_where_the_original_holds_it():
    original = "Ann has 6 nuts and eats 3 of them. How many nuts are left?"
    assert why_not(original, "Of 6 nuts Ann eats 3. How many nuts are left to her?", "3") is None
    leaked = "Ann has 6 nuts and eats 3, so that Tom is her friend. How many are left?"
    assert why_not(original, leaked, "Tom").startswith("answer leaked")


@pytest.mark.parametrize(
    "text",
    ["#1/0#", "#/#", r"\frac{1}{0}", "1/0", "9" * 9000, "$" * 9000, "{" * 9000, "[asy]" * 2000,
     r"\left" * 2000, "two " * 3000, "1," * 4000, "٣ ½ ²", r"\text{" * 2000, "a - " * 3000],
)  # fmt: skip
def test_hostile_text_gets_a_verdict_in_time(text):
    start = time.process_time()
    for original in (text, text + " What is it?", f"Find 2 + 3, if {text}"):
        for rephrased in (f"How much is {text}", original.swapcase()):
            why_not(original, rephrased, text[:50])
            why_not(original, rephrased, "5")
    assert time.process_time() - start < 5


@given(st.text(), st.text(), st.text())
@settings(max_examples=200, deadline=None)
def test_no_text_breaks_the_checks(original, rephrased, gold):
    why_not(original, rephrased, gold)
    why_not(original, f"{original} {rephrased[: len(original)]}", gold)


def test_only_the_text_between_the_markers_counts():
    assert rephrase.extract("Sure! <rephrased>\n a b \n</rephrased> Done.") == "a b"
    assert rephrase.extract("<think><rephrased>no</rephrased></think>nothing") is None
    assert rephrase.extract("<think> no end <rephrased>no</rephrased>") is None
    assert rephrase.extract("<rephrased>one</rephrased><rephrased>other</rephrased>") == "one"
    assert rephrase.extract("<rephrased>one</rephrased> more </rephrased>") == "one"
    assert rephrase.extract("</rephrased> wrong way <rephrased>") is None
    assert rephrase.extract("") is None


def test_a_statement_that_asks_nothing_is_turned_down():
    original = "She earned $12 an hour for 50 minutes. How much did she earn?"
    told = "She earned $12 an hour, which is what she got for 50 minutes."
    assert why_not(original, told.replace("what", "all"), "10") == "question: nothing is asked"


def test_last_box_survives_unclosed_braces():
    assert last_box(r"\boxed{1} \boxed{\frac{1}{2}} end") == r"\frac{1}{2}"
    assert last_box(r"\boxed{1") == last_box("none") == ""


# ---------------------------------------------------------------- runs


def questions_file(folder: Path, count: int = 4) -> Path:
    """`count` questions of two sentences, each with its own numbers; the answer is their sum."""
    path = folder / "questions.jsonl"
    rows = [
        {"question": f"Ann has {n} nuts and gets {n + 50} more. How many has she?",
         "answer": str(2 * n + 50), "id": f"q{n}"}
        for n in range(11, 11 + count)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def options(server: Server | str, folder: Path, *more: str, count: int = 4) -> list[str]:
    url = server if isinstance(server, str) else server.url
    return [
        "--data", str(questions_file(folder, count)), "--out", str(folder / "out.jsonl"),
        "--model", "m", "--base-url", url, "--backoff", "0.01", "--timeout", "20", *more,
    ]  # fmt: skip


def lines_of(folder: Path) -> list[dict]:
    text = (folder / "out.jsonl").read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n") if line]


def accepted(folder: Path) -> list[dict]:
    return [line for line in lines_of(folder) if line.get("question")]


@pytest.fixture(autouse=True)
def a_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def check_one_line(capsys, *words: str) -> None:
    err = capsys.readouterr().err
    assert err.startswith("rephrase.py: error: ") and err.count("\n") == 1, err
    assert all(word in err for word in words), err


def test_three_kinds_of_each_question_are_asked_and_joined(tmp_path, capsys):
    with Server() as server:
        assert rephrase.main(options(server, tmp_path)) == 0
    assert len(server.requests) == len(accepted(tmp_path)) == 12
    out = capsys.readouterr()
    assert "4 with 3 phrasings" in out.out and out.err == ""  # no bar off a terminal
    for line in lines_of(tmp_path):
        assert {"id", "question", "kind", "source", "key"} <= line.keys()
    questions = rephrase.data.read_jsonl(tmp_path / "questions.jsonl")
    joined, counts = rephrase.join_rephrasings(questions, tmp_path / "out.jsonl")
    assert counts == {3: 4}
    assert joined[0].rephrasings[0].startswith("Kindly")  # wording comes first


BREAKS = {  # what the first request for a question meets; the second is answered well
    "busy": Answer("", status=429, headers={"retry-after": "0.05"}, body={"error": {}}),
    "broken": Answer("", status=500, body={"error": {"message": "oops"}}),
    "dropped": Answer("x" * 300, drop=True),
    "not JSON": Answer(body=b"<html>busy</html>"),
    "half JSON": Answer(body=b'{"choices": ['),
    "truncated": Answer("<rephrased>\nAnn has", finish="length"),
    "refused": Answer(None, refusal="I cannot help with that."),
    "filtered": Answer("", finish="content_filter"),
    "filtered, 400": Answer("", status=400, body={"error": {"code": "content_filter"}}),
    "null": Answer(None),
    "empty": Answer("  \n"),
    "no choices": Answer(body={"choices": []}),
    "no message": Answer(body={"choices": [{"finish_reason": "stop"}]}),
    "content is a list": Answer(body={"choices": [
        {"finish_reason": "stop", "message": {"content": ["a"]}}]}),
    "no markers": Answer("Ann has some nuts. How many?"),
    "wrong numbers": Answer("<rephrased>\nAnn has 7 nuts and gets 8 more. How many?</rephrased>"),
    "half a surrogate pair": Answer(body=b'{"choices": [{"finish_reason": "stop", "message": '
                                         b'{"content": "<rephrased>\\ud83d Ann</rephrased>"}}]}'),
    "line separators": Answer("<rephrased>Ann\u2028\u2029\x85\r\n\x0b has</rephrased>"),
    "slow": None,
}  # fmt: skip


def test_every_sort_of_bad_reply_gets_a_second_chance(tmp_path):
    names = list(BREAKS)

    def decide(request, nth):
        number = int(request.question.split()[2]) - 11
        if nth > 1 or BREAKS[names[number]] is None:
            return Answer(good(request), delay=0.3)
        return BREAKS[names[number]]

    with Server(decide) as server:
        args = options(server, tmp_path, "--num", "1", count=len(names))
        assert rephrase.main(args) == 0
    assert sorted(line["id"] for line in accepted(tmp_path)) == sorted(
        f"q{11 + n}" for n in range(len(names))
    )
    # what the model was told: its own text and the reason
    retries = [r for r in server.requests if len(r.messages) == 3]
    retry = next(r for r in retries if "7 nuts" in r.messages[1]["content"])
    assert [m["role"] for m in retry.messages] == ["user", "assistant", "user"]
    assert "numbers: 26 is missing" in retry.messages[2]["content"]


def test_phrasings_that_stay_wrong_are_missing_and_never_asked_again(tmp_path, capsys):
    wrong = (
        "<rephrased>\nAnn has 1 nut and gets 2. How many nuts has she got?</rephrased>",
        "<rephrased>\nAnn's total is 72, from 11 and 61. How many nuts?</rephrased>",
    )
    with Server(lambda request, nth: Answer(wrong[nth - 1])) as server:
        args = options(server, tmp_path, "--num", "1", count=1)
        assert rephrase.main(args) == 0
        assert rephrase.main(args) == 0
    assert len(server.requests) == 2 and accepted(tmp_path) == []
    assert [line["rejected"].split(":")[0] for line in lines_of(tmp_path)] == [
        "numbers", "answer leaked"]  # fmt: skip
    out = capsys.readouterr().out
    assert "1 with 0 phrasings" in out and "answer leaked" in out


def test_two_kinds_with_one_text_count_once(tmp_path):
    text = "<rephrased>\nPlease tell me this: {}</rephrased>"
    with Server(lambda request, nth: Answer(text.format(request.question))) as server:
        assert rephrase.main(options(server, tmp_path, "--concurrency", "1", count=1)) == 0
    assert len(accepted(tmp_path)) == 1
    assert lines_of(tmp_path)[-1]["rejected"] == "copy: the same as another phrasing"


def test_retry_after_holds_for_all_workers(tmp_path):
    def decide(request, nth):
        if len(server.requests) == 1:
            headers = {"retry-after": "0.8"}
            return Answer("", status=429, headers=headers, body={"error": {}})
        return Answer(good(request), delay=0.2)

    with Server(decide) as server:
        assert rephrase.main(options(server, tmp_path, "--concurrency", "2")) == 0
    first, *later = [r.at for r in server.requests]
    # the other worker's request was on its way; everything after it waited
    assert all(at - first >= 0.75 for at in later[1:])
    assert len(accepted(tmp_path)) == 12


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (429, {"code": "insufficient_quota", "message": "You exceeded"}, "exceeded"),
        (401, {"message": "Incorrect API key"}, "Incorrect API key"),
        (400, {"message": "max_tokens is\nnot supported"}, "max_tokens is"),
        (404, {"message": "no such model"}, "no such model"),
    ],
)
def test_what_no_retry_can_mend_stops_at_once(tmp_path, capsys, status, error, words):
    with Server(lambda r, nth: Answer("", status=status, body={"error": error})) as server:
        assert rephrase.main(options(server, tmp_path, "--concurrency", "2")) == 2
    assert len(server.requests) <= 2 and lines_of(tmp_path) == []
    check_one_line(capsys, words)


def test_a_retry_after_of_an_hour_stops_the_run(tmp_path, capsys):
    answer = Answer("", status=429, headers={"retry-after": "3600"}, body={"error": {}})
    with Server(lambda r, nth: answer) as server:
        assert rephrase.main(options(server, tmp_path)) == 2
    check_one_line(capsys, "3600 s")


def test_a_page_that_is_no_completion_names_the_address(tmp_path, capsys):
    with Server(lambda r, nth: Answer(body={"hello": 1})) as server:
        assert rephrase.main(options(server, tmp_path, "--concurrency", "2")) == 2
    assert len(server.requests) <= 2, "asked at once, not tried six times"
    check_one_line(capsys, "--base-url")


def test_no_server_ends_with_one_line(tmp_path, capsys):
    assert rephrase.main(options("http://127.0.0.1:9/v1", tmp_path)) == 2
    check_one_line(capsys, "no reply after 6 tries")


def test_one_question_without_a_reply_does_not_hold_up_the_others(tmp_path, capsys):
    def decide(request, nth):
        broken = "13 nuts" in request.question
        return Answer("", status=500, body={}) if broken else Answer(good(request))

    with Server(decide) as server:
        args = options(server, tmp_path, "--num", "1", "--concurrency", "1")
        assert rephrase.main(args) == 2
        check_one_line(capsys, "1 requests without a reply")
        assert len(accepted(tmp_path)) == 3
        server.decide = lambda request, nth: Answer(good(request))
        assert rephrase.main(args) == 0
    assert len(accepted(tmp_path)) == 4


def test_concurrency_is_used_and_kept(tmp_path):
    open_, most = [0], [0]

    class Counting(Server):
        async def serve(self, reader, writer):
            open_[0] += 1
            most[0] = max(most[0], open_[0])
            await super().serve(reader, writer)
            open_[0] -= 1

    with Counting(delay=0.1) as server:
        assert rephrase.main(options(server, tmp_path, "--concurrency", "5")) == 0
    assert most[0] == 5


# ---------------------------------------------------------------- nothing is lost


def start(arguments: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "rephrase.py"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {
            "OPENAI_API_KEY": "test"},
    )  # fmt: skip


def wait_for_lines(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        path = folder / "out.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no lines came")


def test_killed_and_resumed_loses_and_doubles_nothing(tmp_path):
    with Server(delay=0.03) as server:
        args = options(server, tmp_path, "--concurrency", "4", count=20)
        process = start(args)
        wait_for_lines(tmp_path, 15)
        process.kill()
        process.communicate()
        time.sleep(0.2)  # what was in flight has arrived at the server
        before, asked = len(lines_of(tmp_path)), len(server.requests)
        assert before >= 15 and asked <= before + 4
        # and a kill in the middle of a line
        with (tmp_path / "out.jsonl").open("a") as file:
            file.write('{"key": "abc", "id": "q1')
        assert rephrase.main(args) == 0
    keys = [line["key"] for line in lines_of(tmp_path)]
    assert len(keys) == len(set(keys)) == 60
    assert len(server.requests) == asked + 60 - before


def test_interrupt_waits_for_what_is_paid_for(tmp_path):
    with Server(delay=0.4) as server:
        process = start(options(server, tmp_path, "--concurrency", "3", count=20))
        wait_for_lines(tmp_path, 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err == "" and "interrupted" in out
    assert len(lines_of(tmp_path)) == len(server.requests) < 60


def test_two_calls_at_once_on_one_file_are_refused(tmp_path, capsys):
    with Server() as server:
        args = options(server, tmp_path)
        held = ReplyFile(tmp_path / "out.jsonl")
        try:
            assert rephrase.main(args) == 2
        finally:
            held.close()
        check_one_line(capsys, "another call")
        assert rephrase.main(args) == 0


@pytest.mark.parametrize(
    "content", ['{"question": "q", "answer": "1"}\n', "notes", "\n\n", "[1]\n"]
)
def test_a_file_of_the_users_is_left_alone(tmp_path, capsys, content):
    (tmp_path / "out.jsonl").write_text(content)
    with Server() as server:
        assert rephrase.main(options(server, tmp_path)) == 2
    assert server.requests == [] and (tmp_path / "out.jsonl").read_text() == content
    check_one_line(capsys, "--out")


def test_a_line_is_in_the_file_when_append_returns_and_synced_soon(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: time.sleep(0.01) or synced.append(handle))

    async def write():
        for n in range(50):
            file.append({"key": str(n), "text": "a\u2028b\ud800"})
            assert len(lines_of(tmp_path)) == n + 1
        await asyncio.sleep(0.5)
        assert len(synced) >= 1 and not file.dirty and file.syncing.done()

    file = ReplyFile(tmp_path / "out.jsonl")
    asyncio.run(write())
    file.close()
    assert [int(line["key"]) for line in lines_of(tmp_path)] == list(range(50))


def test_another_prompt_is_another_key(monkeypatch):
    key = rephrase.job_key("q", "wording", "m")
    assert key != rephrase.job_key("q", "order", "m") != rephrase.job_key("q", "order", "n")
    monkeypatch.setattr(rephrase, "PROMPT_VERSION", "other")
    assert key != rephrase.job_key("q", "wording", "m")


# ---------------------------------------------------------------- cost and options

PRICES = ("--price-in", "1000", "--price-out", "2000")  # 0.2 a reply of the stub


def test_max_cost_is_a_clean_stop_that_is_kept(tmp_path, capsys):
    with Server() as server:
        args = options(server, tmp_path, *PRICES, "--concurrency", "1")
        assert rephrase.main([*args, "--max-cost", "1"]) == 0
        assert len(server.requests) == 5
        assert "--max-cost 1 reached" in capsys.readouterr().out
        assert rephrase.main([*args, "--max-cost", "1"]) == 0
        assert len(server.requests) == 5  # what earlier calls cost counts too
        assert rephrase.main([*args, "--max-cost", "5"]) == 0
    assert len(accepted(tmp_path)) == len(server.requests) == 12
    assert "cost 2.4000" in capsys.readouterr().out


def test_max_cost_without_token_counts_is_an_error(tmp_path, capsys):
    with Server(lambda request, nth: Answer(good(request), usage=False)) as server:
        args = options(server, tmp_path, *PRICES, "--max-cost", "1", "--concurrency", "1")
        assert rephrase.main(args) == 2
    check_one_line(capsys, "token counts")
    assert len(accepted(tmp_path)) == len(server.requests) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--max-cost", "5"], "--price-in"),
        (["--price-in", "1"], "go together"),
        ([*PRICES, "--max-cost", "nan"], "--max-cost"),
        (["--num", "4"], "3 kinds"),
        (["--num", "0"], "--num"),
        (["--concurrency", "0"], "--concurrency"),
        (["--concurrency", "x"], "--concurrency"),
        (["--base-url", "localhost:8000"], "http://"),
        (["--extra", "[1]"], "--extra"),
        (["--data", "nothing-like-it"], "nothing-like-it"),
        (["--data", "none.jsonl"], "no such file"),
        (["--out", "/proc/no/such/place.jsonl"], "--out"),
        (["--surprise"], "--surprise"),
    ],
)
def test_wrong_options_end_with_one_line_before_anything_is_asked(tmp_path, capsys, more, words):
    with Server() as server:
        assert rephrase.main(options(server, tmp_path, *more)) == 2
    assert server.requests == [] and not (tmp_path / "out.jsonl").exists()
    check_one_line(capsys, words)


@pytest.mark.parametrize("by", ["option", "environment"])
@pytest.mark.parametrize("url", ["http://[::1", "http://[::1]x/", "http://h:x/v1"])
def test_an_address_that_is_none_ends_with_one_line(tmp_path, capsys, monkeypatch, url, by):
    words = options(url, tmp_path)
    if by == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        where = words.index("--base-url")
        del words[where : where + 2]
    assert rephrase.main(words) == 2
    check_one_line(capsys, url)


def test_a_missing_key_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    assert rephrase.main(options("http://127.0.0.1:9/v1", tmp_path)) == 2
    check_one_line(capsys, "OPENAI_API_KEY")


def test_extra_fields_reach_the_server(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("rephrase_server.json.loads", lambda b: seen.append(b) or json_loads(b))
    with Server() as server:
        extra = ("--extra", '{"temperature": 0.25}', "--num", "1")
        assert rephrase.main(options(server, tmp_path, *extra, count=1)) == 0
    assert any(b'"temperature":0.25' in bytes(b) for b in seen if isinstance(b, bytes))


json_loads = json.loads


# ---------------------------------------------------------------- the solver


def test_solver_drops_what_changes_the_answer_and_is_not_asked_twice(tmp_path, capsys):
    def decide(request, nth):
        if request.model == "m":
            return Answer(good(request))
        text = request.messages[0]["content"]
        n = int(text.split("Ann has ")[1].split()[0])
        if n == 12:  # the gold in one of three answers
            return Answer(rf"\boxed{{{[74, 75, 75][nth % 3]}}}")
        return Answer(rf"So \boxed{{{2 * n + 50}.0}}")

    with Server(decide) as server:
        args = options(server, tmp_path, "--num", "1", "--concurrency", "1", count=3)
        assert rephrase.main(args) == 0
        assert len(server.requests) == 3
        args += ["--verify-with", "solver"]
        assert rephrase.main(args) == 0
        assert len(server.requests) == 3 + 9
        assert rephrase.main(args) == 0
        assert len(server.requests) == 3 + 9
    questions = rephrase.data.read_jsonl(tmp_path / "questions.jsonl")
    joined, counts = rephrase.join_rephrasings(questions, tmp_path / "out.jsonl")
    assert counts == {0: 1, 1: 2} and joined[1].rephrasings == ()
    assert "solver" in capsys.readouterr().out


# ---------------------------------------------------------------- joining


def write_rows(path: Path, *rows: dict, end: str = "\n") -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + end, encoding="utf-8")
    return path


ASKED = [Question("1", "What is 2 + 3?", "5", ("old",)), Question("2", "What is 4 + 4?", "8")]


def test_joined_by_id_or_by_exact_original(tmp_path):
    path = write_rows(
        tmp_path / "r.jsonl",
        {"id": 1, "question": "Add 3 to 2.", "kind": "order", "source": "s"},
        {"id": "1", "question": "Sum of two and three?", "kind": "wording", "source": "s"},
        {"original": "What is 4 +  4?\n", "question": "Add 4 and 4.", "kind": "x", "source": "s"},
        # the same line number in another data set
        {"id": "2", "original": "How old is Bo?", "question": "Bo's age?", "kind": "wording"},
        {"id": "9", "question": "of no question here", "kind": "wording"},
        {"id": "1", "question": "", "kind": "format", "source": "padding"},
        {"id": "1", "question": "what is 2 + 3", "kind": "wording", "source": "the original"},
    )
    joined, counts = rephrase.join_rephrasings(ASKED, path)
    assert joined[0].rephrasings == ("Sum of two and three?", "Add 3 to 2.")
    assert joined[1].rephrasings == ("Add 4 and 4.",)
    assert counts == {1: 1, 2: 1}


def test_one_of_each_kind_comes_before_the_second_of_any(tmp_path):
    rows = [{"id": "1", "question": f"{kind} {n}", "kind": kind} for n in (1, 2)
            for kind in ("order", "format", "wording")]  # fmt: skip
    joined, _ = rephrase.join_rephrasings(ASKED, write_rows(tmp_path / "r.jsonl", *rows))
    assert [text.split()[0] for text in joined[0].rephrasings] == list(rephrase.KINDS) * 2


def test_the_last_line_of_a_key_counts_and_half_a_line_is_no_error(tmp_path):
    path = write_rows(
        tmp_path / "r.jsonl",
        {"key": "a", "id": "1", "question": "", "rejected": "numbers: 2 is missing"},
        {"key": "a", "id": "1", "question": "good", "kind": "wording"},
        {"key": "b", "id": "2", "question": "accepted", "kind": "wording"},
        {"key": "b", "solver": "s", "answer": "7"},
        {"key": "b", "id": "2", "question": "", "kind": "wording", "verified": "s"},
        end='\n{"key": "c", "id": "1", "qu',
    )
    joined, counts = rephrase.join_rephrasings(ASKED, path)
    assert joined[0].rephrasings == ("good",) and joined[1].rephrasings == ()
    assert counts == {0: 1, 1: 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no rephrasings"),
        ("nonsense\n", "line 1: not JSON"),
        ('{"id": "1"}\n', "text 'question'"),
        ('{"question": "q"}\n', "neither"),
        ('{"id": "7", "question": "q"}\n', "none of its phrasings"),
        ("[" * 100_000 + "\n", "line 1: not JSON"),
    ],
)
def test_files_that_cannot_be_joined_say_why(tmp_path, text, words):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        rephrase.join_rephrasings(ASKED, path)
    with pytest.raises(DataError, match="no such file"):
        rephrase.join_rephrasings(ASKED, tmp_path / "none")


def test_the_public_set_is_joined_by_its_originals(monkeypatch):
    table = [
        {"question": q, "answer": "5", "index": i, "sub_index": s}
        for i, s, q in [
            (0, 1, "Add 2 and 3."), (0, 0, "What is 2 + 3?"), (0, 2, ""), (0, 3, "Two plus three?"),
            (1, 0, "Of nobody"), (1, 1, "Of no one"), (2, 0, ""), (2, 1, None),
        ]
    ]  # fmt: skip
    calls = []
    fake = types.SimpleNamespace(load_dataset=lambda *a: calls.append(a) or {"train": table})
    monkeypatch.setitem(sys.modules, "datasets", fake)
    joined, counts = rephrase.join_rephrasings(ASKED, rephrase.PUBLIC_SET)
    assert calls == [("lhkhiem28/TA-GRPO-datasets", "MATH-A9-U")]
    assert joined[0].rephrasings == ("Add 2 and 3.", "Two plus three?")
    assert counts == {0: 1, 2: 1}


def test_the_public_set_offline_is_one_clear_line(monkeypatch):
    def no_network(*_):
        raise ConnectionError("Couldn't reach the hub\nat all")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=no_network))
    with pytest.raises(DataError, match="cannot be loaded: Couldn't reach the hub at all"):
        rephrase.load_public_rephrasings()
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        rephrase.load_public_rephrasings()


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (CLIPS.upper(), "the same"),
        (CLIPS.replace(" and half", ", and   half"), "the same"),
        (CLIPS.replace("did Nora sell", "did she sell"), "almost the same"),
    ],
)
def test_a_copy_is_no_rephrasing(text, how):
    assert why_not(CLIPS, text, "72") == f"copy: {how} as the original"
