"""`adjudge readers` and `adjudge bench personal-studies` as a user meets them, in this process, with a tiny model."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from tests.engine.remote.peer import Peer, says
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

TINY = ("--model", "dummy:tiny-llama")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write(
        *(
            {"reviewer": reader, "plot": f"Anna {n} meets Ben.", "review": f"Fair, {n}.", "score": 1 + n}
            for reader in ("ann", "bob")
            for n in range(6)
        ),
        {"reviewer": "eve", "plot": "Anna waits.", "review": "Dull.", "score": 2},
    )

    def invoke(*arguments: str, group: str = "readers") -> Result:
        return CliRunner().invoke(app, [group, *arguments])

    return invoke


def write(*rows: dict[str, Any]) -> None:
    write_lines("r.jsonl", *rows)


def passed(result: Result) -> str:
    assert result.exit_code == 0, result.output or result.exception
    return " ".join(result.stdout.split())


def test_reviews_become_questions_that_are_judged_studied_and_learnt_from(run: Run) -> None:
    shown = passed(run("group", "r.jsonl", "-o", "items.jsonl", "--n", "2", "--k", "2"))
    assert "train: 1 reader, 2 questions" in shown and "test: 1 reader, 2 questions" in shown
    assert "readers 13 12 92.31% few_reviews 1" in shown and "0 questions had 0 texts shortened" in shown
    items, [dropped] = read_lines("items.jsonl"), read_lines("items.dropped.jsonl")
    assert dropped["dropped"] == {"stage": "readers", "reason": "few_reviews"} and dropped["reviewer"] == "eve"
    assert sorted(item["split"] for item in items) == ["test", "test", "train", "train"]

    passed(run("items.jsonl", "--judge", "personal", "-o", "v.jsonl", "--min-mass", "0", *TINY, group="judge"))
    assert all(1 < verdict["score"] < 10 and verdict["expected"] for verdict in read_lines("v.jsonl"))

    assert "2 rows: items.sft.jsonl" in passed(run("instruct", "items.jsonl"))
    rows = read_lines("items.sft.jsonl")
    assert all(row["system"] and row["prompt"] and row["response"].endswith("</ANSWER>") for row in rows)
    assert len(read_lines("items.sft.dropped.jsonl")) == 2

    study = ("personal-studies", "items.jsonl", "-o", "s.csv", "--k", "0,2", "--min-mass", "0", *TINY)
    assert "2 questions of 1 reader," in passed(run(*study, group="bench"))
    first = Path("s.csv").read_text()
    assert 'orders,"judge, 3 orders",2,6,0' in first and "paper,GPT-4" in first
    assert isinstance(run(*study, group="bench").exception, AdjudgeError)
    passed(run(*study, "--resume", group="bench"))


def test_studies_that_a_server_answers_nothing_of_end_with_an_error_and_go_on_once_it_does(run: Run) -> None:
    passed(run("group", "r.jsonl", "-o", "items.jsonl", "--n", "2", "--k", "2"))
    peer = Peer("adjudge", Engine("dummy:tiny-llama", kv_cache_gb=0.05))
    peer.script.extend([says(500)] * 99)
    study = ("personal-studies", "items.jsonl", "-o", "s.csv", "--min-mass", "0", "--url", peer.url, "--retries", "0")
    try:
        result = run(*study, group="bench")
        assert "nothing was answered" in str(result.exception) and not Path("s.csv").exists()
        peer.script.clear()
        assert "2 questions of 1 reader," in passed(run(*study, "--resume", group="bench"))
    finally:
        peer.close()


def test_choices_that_a_server_answers_nothing_of_end_with_an_error(run: Run) -> None:
    choice = {"a": "Anna waits.", "b": "Ben waits.", "aspect": "ending", "preferred": "a"}
    write(*({"reviewer": reader, **choice, "a": f"{n}"} for reader in ("ann", "bob") for n in range(6)))
    passed(run("group", "r.jsonl", "-o", "items.jsonl"))
    peer = Peer("adjudge", Engine("dummy:tiny-llama", kv_cache_gb=0.05))
    peer.script.extend([says(500)] * 99)
    try:
        result = run("personal-studies", "items.jsonl", "--url", peer.url, "--retries", "0", group="bench")
    finally:
        peer.close()
    assert "nothing was answered" in str(result.exception) and not Path("items.studies.csv").exists()


def test_plots_are_rewritten_in_runs_that_go_on_where_they_stopped(run: Run) -> None:
    for command, ending in (("anonymise", "anonymous"), ("summarise", "summaries")):
        options = ("r.jsonl", "--max-tokens", "8", "--attempts", "2", *TINY)
        first = run(command, *options)
        shown = " ".join(first.stdout.split())
        kept, dropped = read_lines(f"r.{ending}.jsonl"), read_lines(f"r.{ending}.dropped.jsonl")
        assert len(kept) + len(dropped) == 13 and "from the journal" in shown
        reasons = {row["dropped"]["reason"] for row in dropped}
        assert reasons <= {"cut_short", "empty", "renames_nothing", "unparsable"}
        assert isinstance(run(command, *options).exception, AdjudgeError)
        again = run(command, *options, "--resume")
        assert "texts: 0 written" in " ".join(again.stdout.split()) and str(again.exception) == str(first.exception)
        assert bool(kept) == (first.exception is None) and (kept or "says why (more --" in str(first.exception))
        assert read_lines(f"r.{ending}.dropped.jsonl") == dropped


def test_columns_may_go_by_names_of_the_users(run: Run) -> None:
    names = {"reviewer": "user", "plot": "synopsis", "review": "text", "score": "stars"}
    group = ("group", "r.jsonl", "--overwrite")
    passed(run(*group))
    expected = read_lines("r.items.jsonl")
    write(*({names[name]: value for name, value in row.items()} for row in read_lines("r.jsonl")))
    assert "--columns reviewer=NAME takes one of another name" in str(run(*group).exception)
    columns = ("--columns", ",".join(map("=".join, names.items())))
    passed(run(*group, *columns))
    assert read_lines("r.items.jsonl") == expected
    for command, ending in (("anonymise", "anonymous"), ("summarise", "summaries")):
        run(command, "r.jsonl", "--max-tokens", "8", "--attempts", "1", *columns, *TINY)
        rows = read_lines(f"r.{ending}.jsonl") + read_lines(f"r.{ending}.dropped.jsonl")
        assert len(rows) == 13 and all(row["plot"] and "synopsis" not in row for row in rows)


@pytest.mark.parametrize(
    ("row", "arguments", "reason"),
    [
        ({"score": 11}, ("group", "r.jsonl"), '"score" is 11'),
        ({"plot": ""}, ("anonymise", "r.jsonl", "--model", "no/such"), '"plot" is empty'),
        ({}, ("group", "r.jsonl", "-o", "r.jsonl"), "both the reviews and the output"),
        ({}, ("group", "r.jsonl", "-o", "i.jsonl", "--plot", "r.jsonl/p.png"), "cannot make the folder r.jsonl"),
        ({}, ("group", "r.jsonl", "--plot", "p.txt"), "is no picture"),
        ({}, ("group", "r.jsonl", "--k", "5", "--least", "3"), "least is 3"),
        ({}, ("instruct", "r.jsonl"), "these are reviews, and no questions yet: first `adjudge readers group r.jsonl"),
    ],
)
def test_mistakes_are_found_before_a_model_is_looked_for(
    run: Run, row: dict[str, Any], arguments: tuple[str, ...], reason: str
) -> None:
    write({"reviewer": "ann", "plot": "P.", "review": "R.", "score": 5, **row})
    result = run(*arguments)
    assert isinstance(result.exception, AdjudgeError) and reason in str(result.exception)


def test_what_is_there_is_written_over_only_where_the_user_says_so(run: Run) -> None:
    reviews = Path("r.jsonl").read_text()
    notes = "Mine.\n"
    for name in ("i.jsonl", "j.dropped.jsonl", "p.svg", "q.jsonl"):
        Path(name).write_text(notes)
    for arguments in (
        ("group", "r.jsonl", "-o", "i.jsonl"),
        ("group", "r.jsonl", "-o", "j.jsonl"),
        ("group", "r.jsonl", "-o", "k.jsonl", "--plot", "p.svg"),
        ("instruct", "r.jsonl", "-o", "q.jsonl"),
    ):
        assert "exists: --overwrite it" in str(run(*arguments).exception)
    assert "would hold JSON" in str(run("group", "r.jsonl", "-o", "q.csv").exception)
    assert "z.dropped.svg would be overw" in str(
        run("group", "r.jsonl", "-o", "z.svg", "--plot", "z.dropped.svg").exception
    )
    assert Path("i.jsonl").read_text() == Path("p.svg").read_text() == notes and Path("r.jsonl").read_text() == reviews
    passed(run("group", "r.jsonl", "-o", "j.jsonl", "--overwrite"))
    passed(run("instruct", "j.jsonl", "-o", "q.jsonl", "--overwrite"))
    assert read_lines("q.jsonl")


def test_a_full_disk_is_told_in_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("adjudge.engine.whole_file.os.fsync", full)
    result = run("group", "r.jsonl", "-o", "items.jsonl")
    assert isinstance(result.exception, AdjudgeError) and "items.jsonl (No space left" in str(result.exception)


def test_ratings_have_no_aspects_to_choose(run: Run) -> None:
    passed(run("group", "r.jsonl", "-o", "items.jsonl"))
    for group, command in (("readers", "group"), ("readers", "instruct"), ("bench", "personal-studies")):
        path = "r.jsonl" if command == "group" else "items.jsonl"
        refused = run(command, path, "-o", "o.jsonl", "--aspects", "ending", group=group)
        assert str(refused.exception) == "--aspects are of choices, and these are ratings of whole plots: leave it out"


def test_a_file_that_breaks_off_is_refused(run: Run) -> None:
    Path("r.jsonl").write_text(Path("r.jsonl").read_text()[:-5])
    result = run("group", "r.jsonl")
    assert isinstance(result.exception, AdjudgeError) and "breaks off" in str(result.exception)
