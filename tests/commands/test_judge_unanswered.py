"""`adjudge judge` whose model stands behind something that gives no answers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.options.source import Source
from adjudge.engine.absent import Card
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.training.unanswered import UnansweredEngine
from tests.engine.remote.peer import Peer, says
from tests.jsonl import write_lines


def test_a_run_without_any_answer_ends_with_an_error_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    answering = [UnansweredEngine(Card.of(engine)), engine]

    monkeypatch.setattr(Source, "open", lambda source: nullcontext(answering.pop(0)))
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "Write.", "response": text} for text in ("A lamp.", "Two lamps.")]
    write_lines("t.jsonl", *rows)
    arguments = ["judge", "t.jsonl", "-o", "v.jsonl", "--judge", "pointwise", "--min-mass", "0"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, AdjudgeError) and "abstained on 2 of 2" in result.output
    assert str(result.exception) == "nothing was answered: once the server answers, run this again with --resume"
    result = CliRunner().invoke(app, [*arguments, "--resume"])
    assert result.exit_code == 0 and "abstained on 0 of 2" in result.output, result.output


def test_a_run_whose_every_answer_has_another_form_ends_with_an_error_too(tmp_path: Path) -> None:
    peer = Peer("vllm", Engine("dummy:tiny-llama", kv_cache_gb=0.01))
    peer.script.extend([says(200, {"choices": []})] * 99)
    write_lines(tmp_path / "t.jsonl", *({"prompt": "Write.", "response": text} for text in ("A lamp.", "Two lamps.")))
    try:
        how = ["--judge", "pointwise", "--url", peer.url, "--retries", "0"]
        result = CliRunner().invoke(app, ["judge", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "v.jsonl"), *how])
    finally:
        peer.close()
    assert "2 unsupported" in result.output and "nothing was answered" in str(result.exception)
