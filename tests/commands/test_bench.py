"""`adjudge bench` as a user meets it where something is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError


def test_compiling_without_triton_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AdjudgeError, match="needs triton: pip install triton"):
        CliRunner().invoke(app, ["bench", "compile"], catch_exceptions=False)


@pytest.mark.parametrize("command", ["judge", "judges", "tree", "grpo", "kernels", "confidence", "disturbances"])
def test_a_table_that_cannot_be_written_is_told_before_anything_is_measured(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "__init__", lambda *_, **__: pytest.fail("a model was opened"))
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p"}\n')
    given = {"kernels": [], "judges": [str(tmp_path)]}.get(command, [str(tmp_path / "rows.jsonl")])
    with pytest.raises(AdjudgeError, match="cannot write .*: name another file"):
        CliRunner().invoke(app, ["bench", command, *given, "-o", str(tmp_path)], catch_exceptions=False)
