"""`adjudge writing` as a user meets it, in this process, with an engine that writes what the test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.source import Source
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from tests.rewards.scripted import Script, ScriptedEngine

Run = Callable[..., Result]
TEXT = "\n\n".join(f"Paragraph {number}, of a kind." for number in range(6))


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return Engine("dummy:tiny-llama", kv_cache_gb=0.2)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_rows([{"id": "a", "prompt": "Write.", "response": TEXT}, {"id": "b", "prompt": "Write.", "response": "One."}])
    return lambda *arguments: CliRunner().invoke(app, ["writing", *arguments])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tiny: Engine) -> Callable[[Script], ScriptedEngine]:
    """Commands ask the engine it returns."""

    def use(says: Script) -> ScriptedEngine:
        engine = ScriptedEngine(tiny, says)

        @contextmanager
        def opened(source: Source) -> Iterator[ScriptedEngine]:
            yield engine

        monkeypatch.setattr(Source, "open", opened)
        return engine

    return use


def write_rows(rows: list[dict[str, Any]], name: str = "t.jsonl") -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def test_dropping_and_repeating_needs_no_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "open", lambda source: pytest.fail("a model was opened"))
    result = run("disturb", "t.jsonl", "--kinds", "drop,repeat")
    assert result.exit_code == 0, result.output
    assert [line["id"] for line in lines("t.disturbed.jsonl")] == ["a/none", "a/drop", "a/repeat", "b/none"]
    assert [line["dropped"] for line in lines("t.disturbed.dropped.jsonl")] == [
        {"stage": "disturb", "reason": "too_short"}
    ] * 2
    assert "too_short 2" in result.stdout


def test_a_run_goes_on_where_it_was_stopped(run: Run, script: Callable[[Script], ScriptedEngine]) -> None:
    def stopping(shown: str, before: int) -> str:
        raise KeyboardInterrupt

    script(stopping)
    assert run("disturb", "t.jsonl").exit_code == 130
    assert not Path("t.disturbed.jsonl").read_bytes()
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
    write_rows(rows)
    result = run("disturb", "t.jsonl", *more)
    assert isinstance(result.exception, AdjudgeError) and reason in str(result.exception)
