"""`adjudge judge --judge ensemble` as a user meets it, in this process, with a tiny model of random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from tests.jsonl import write_lines

Run = Callable[..., Result]

SHORT = ("--judge", "ensemble", "--aspects", "wit=Is it funny?", "--model", "dummy:tiny-llama", "-o", "v.jsonl")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "Tell one.", "response": f"Story {n}.", "genre": "tale"} for n in range(5)]
    write_lines("i.jsonl", *rows)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_each_text_is_scored_beside_others_and_resumed_and_replayed(run: Run) -> None:
    result = run("judge", "i.jsonl", *SHORT, "--report", "r.html")
    assert result.exit_code == 0, result.output
    before = Path("v.jsonl").read_bytes()
    lines = [json.loads(line) for line in before.splitlines()]
    assert [line["id"] for line in lines] == list("12345") and {line["genre"] for line in lines} == {"tale"}
    assert len({line["score"] for line in lines}) == 5 and all(1 <= line["score"] <= 5 for line in lines)
    assert all(line["breakdown"]["wit"]["score"] == line["score"] for line in lines)
    assert "Story 4." in Path("r.html").read_text()
    again = run("judge", "i.jsonl", *SHORT, "--resume")
    assert "nothing was asked anew" in again.stdout and Path("v.jsonl").read_bytes() == before
    assert run("replay", "v.jsonl").stdout_bytes == before
    seeded = run("judge", "i.jsonl", *SHORT, "--partners", "2", "--seed", "1", "--resume")
    assert seeded.exit_code == 0 and Path("v.jsonl").read_bytes() != before
    assert "computed 0 of 0 tokens" in seeded.stdout  # all pairs of five texts are in the journal


def test_a_limit_beyond_the_file_leaves_nothing_out_and_is_no_mistake(run: Run) -> None:
    result = run("judge", "i.jsonl", *SHORT, "--limit", "6")
    assert result.exit_code == 0 and len(Path("v.jsonl").read_bytes().splitlines()) == 5, result.output
    assert "leave out --limit" in str(run("judge", "i.jsonl", *SHORT, "--limit", "4", "--resume").exception)


def test_more_partners_than_a_file_has_are_refused_before_a_model_is_looked_for(run: Run) -> None:
    with pytest.raises(AdjudgeError, match="5 partners for each of 5 stories: give from 0 to 4"):
        raise run("judge", "i.jsonl", *SHORT, "--partners", "5", "--model", "no/such-model").exception  # type: ignore[misc]
