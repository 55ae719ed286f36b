"""`adjudge judge` whose model stands behind something that gives no answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.source import Source
from adjudge.engine.absent import Card
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.training.unanswered import UnansweredEngine
from tests.jsonl import write_lines


def test_a_run_without_any_answer_ends_with_an_error_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    answering = [UnansweredEngine(Card.of(engine)), engine]

    @contextmanager
    def opened(source: Source) -> Iterator[EngineFace]:
        yield answering.pop(0)

    monkeypatch.setattr(Source, "open", opened)
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "Write.", "response": text} for text in ("A lamp.", "Two lamps.")]
    write_lines("t.jsonl", *rows)
    arguments = ["judge", "t.jsonl", "-o", "v.jsonl", "--judge", "pointwise", "--min-mass", "0"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, AdjudgeError) and "abstained on 2 of 2" in result.output
    assert str(result.exception) == "nothing was answered: once the server answers, run this again with --resume"
    result = CliRunner().invoke(app, [*arguments, "--resume"])
    assert result.exit_code == 0 and "abstained on 0 of 2" in result.output, result.output
