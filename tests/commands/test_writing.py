"""`adjudge writing` as a user meets it, in this process, with an engine that writes what the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.options.source import Source
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from tests.engine.remote.peer import Peer, says
from tests.jsonl import read_lines, write_lines
from tests.rewards.scripted import Script, ScriptedEngine
from tests.training.writing.grading import by_chances, construction

Run = Callable[..., Result]
TEXT = "\n\n".join(f"Paragraph {number}, of a kind." for number in range(6))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_lines(
        "t.jsonl",
        {"id": "a", "prompt": "Write.", "response": TEXT},
        {"id": "b", "prompt": "Write.", "response": "One."},
    )
    return lambda *arguments: CliRunner().invoke(app, ["writing", *arguments])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tiny: Engine) -> Callable[[Script], ScriptedEngine]:
    """Commands ask the engine it returns."""

    def use(says: Script) -> ScriptedEngine:
        engine = ScriptedEngine(tiny, says, by_chances(grade))
        monkeypatch.setattr(Source, "open", lambda source: nullcontext(engine))
        return engine

    return use


def grade(shown: str, labels: tuple[str, ...]) -> Mapping[str, float]:
    """Fiction, and good unless it is one sentence."""
    return {labels[0] if labels[0] != "1" else "1" if "One." in shown else "5": 0.9}


def test_dropping_and_repeating_needs_no_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "open", lambda source: pytest.fail("a model was opened"))
    result = run("disturb", "t.jsonl", "--kinds", "drop,repeat")
    assert result.exit_code == 0, result.output
    assert [line["id"] for line in read_lines("t.disturbed.jsonl")] == ["a/none", "a/drop", "a/repeat", "b/none"]
    assert [line["dropped"] for line in read_lines("t.disturbed.dropped.jsonl")] == [
        {"stage": "disturb", "reason": "too_short"}
    ] * 2
    assert "too_short 2" in result.stdout


def test_where_no_transfer_was_answered_the_run_ends_with_an_error_and_goes_on_once_it_is(
    run: Run, tiny: Engine
) -> None:
    write_lines("blank.jsonl", {"response": TEXT}, {"response": " "})
    peer = Peer("adjudge", tiny)
    peer.script.extend([says(500)] * 99)
    disturb = ("disturb", "blank.jsonl", "-o", "o.jsonl", "--url", peer.url, "--retries", "0", "--max-tokens", "4")
    try:
        assert "nothing was answered" in str(run(*disturb).exception) and not Path("o.jsonl").exists()
        peer.script.clear()
        peer.script.append(says(500))
        assert run(*disturb, "--attempts", "1", "--resume").exit_code == 0
    finally:
        peer.close()
    assert {"cut_short", "timeout"} <= {line["dropped"]["reason"] for line in read_lines("o.dropped.jsonl")}


def test_a_run_goes_on_where_it_was_stopped(run: Run, script: Callable[[Script], ScriptedEngine]) -> None:
    def stopping(shown: str, before: int) -> str:
        raise KeyboardInterrupt

    script(stopping)
    assert run("disturb", "t.jsonl").exit_code == 130
    assert not Path("t.disturbed.jsonl").exists()
    engine = script(lambda shown, before: "Anew.")
    result = run("disturb", "t.jsonl", "--resume")
    assert result.exit_code == 0, result.output
    first = Path("t.disturbed.jsonl").read_bytes()
    assert len(engine.asked) == 8 and "texts: 8 written, 0 of them again, 0 from the journal" in result.stdout
    assert isinstance(run("disturb", "t.jsonl").exception, AdjudgeError)  # it would overwrite
    again = script(stopping)
    assert "8 from the journal" in run("disturb", "t.jsonl", "--resume").stdout
    assert again.asked == [] and Path("t.disturbed.jsonl").read_bytes() == first


@pytest.mark.parametrize(
    ("rows", "more", "reason"),
    [
        ([{"id": "a"}], (), '"response" is missing'),
        ([{"text": "x"}, {"text": 7}], (), 'line 2 of t.jsonl: "text" is 7, not a string'),
        ([{"id": "a", "text": "x"}] * 2, (), 'its id "a" is that of line 1'),
        ([{"text": "x"}], ("--kinds", "shuffle"), 'no disturbance is called "shuffle"'),
        ([{"text": "x"}], ("-o", "t.jsonl"), "is both the texts and the output"),
    ],
)
def test_mistakes_are_found_before_a_model_is_loaded(
    run: Run, script: Callable[[Script], ScriptedEngine], rows: list[dict[str, Any]], more: tuple[str, ...], reason: str
) -> None:
    script(lambda shown, before: pytest.fail("asked"))
    write_lines("t.jsonl", *rows)
    result = run("disturb", "t.jsonl", *more)
    assert isinstance(result.exception, AdjudgeError) and reason in str(result.exception)


def test_a_benchmark_is_built_of_good_texts_and_every_drop_is_told(
    run: Run, script: Callable[[Script], ScriptedEngine]
) -> None:
    engine = script(lambda shown, before: construction())
    write_lines(
        "t.jsonl", *[{"id": name, "text": text} for name, text in {"a": TEXT, "b": "One.", "c": "Two. Three."}.items()]
    )
    result = run("build", "t.jsonl", "-o", "b.jsonl")
    assert result.exit_code == 0, result.output
    rows = read_lines("b.jsonl")
    assert [row["id"] for row in rows] == ["a/completion", "a/guide", "c/guide", "a/open", "c/open"]
    assert {row["genre"] for row in rows} == {"fiction"} and rows[0]["quality"] == pytest.approx(5.0)
    assert [(line["id"], line["dropped"]) for line in read_lines("b.dropped.jsonl")] == [
        ("b", {"stage": "filter", "reason": "low_quality"}),
        ("c", {"stage": "completion", "reason": "too_short"}),
    ]
    assert len(engine.scored) == 3 + 3 and len(engine.asked) == 2
    assert "b.jsonl (1 completion, 2 guide, 2 open)" in result.stdout and "scores: 6 computed" in result.stdout
    first, again = Path("b.jsonl").read_bytes(), script(lambda shown, before: pytest.fail("asked"))
    told = run("build", "t.jsonl", "-o", "b.jsonl", "--resume").stdout
    assert "scores: 0 computed, 6 from the journal" in told
    assert again.scored == [] and Path("b.jsonl").read_bytes() == first


def test_completions_alone_need_no_text_of_the_model_and_nothing_left_is_said(
    run: Run, script: Callable[[Script], ScriptedEngine]
) -> None:
    script(lambda shown, before: pytest.fail("asked"))
    result = run("build", "t.jsonl", "-o", "b.jsonl", "--tasks", "completion")
    assert result.exit_code == 0 and [row["id"] for row in read_lines("b.jsonl")] == ["a/completion"]
    result = run("build", "t.jsonl", "-o", "c.jsonl", "--tasks", "completion", "--min-mass", "0.95")
    assert "nothing is left in c.jsonl: c.dropped.jsonl says why (a lower --least or" in str(result.exception)
    assert isinstance(result.exception, AdjudgeError) and read_lines("c.jsonl") == []
    assert "low_mass 2" in result.stdout


@pytest.mark.parametrize(
    ("rows", "more", "reason"),
    [
        ([{"id": "a"}], (), '"response" is missing (needed by a benchmark)'),
        ([{"text": "x"}], ("--tasks", "poem"), 'no task is called "poem"'),
        ([{"text": "x", "genre": 3}], (), 'line 1 of t.jsonl: "genre" is 3'),
        ([{"id": "a", "text": "x"}] * 2, (), 'its id "a" is that of line 1'),
    ],
)
def test_mistakes_of_a_benchmark_are_found_before_a_model_is_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], more: tuple[str, ...], reason: str
) -> None:
    monkeypatch.setattr(Source, "open", lambda source: pytest.fail("a model was opened"))
    write_lines("t.jsonl", *rows)
    result = run("build", "t.jsonl", *more)
    assert isinstance(result.exception, AdjudgeError) and reason in str(result.exception)
