"""`adjudge bench` as a user meets it where something is not installed."""

from __future__ import annotations

import importlib.util

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError


def test_compiling_without_triton_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AdjudgeError, match="needs triton: pip install triton"):
        CliRunner().invoke(app, ["bench", "compile"], catch_exceptions=False)
