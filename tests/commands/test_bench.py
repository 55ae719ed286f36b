"""`adjudge bench` as a user meets it where something is not installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError


def test_compiling_without_triton_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AdjudgeError, match="needs triton: pip install triton"):
        CliRunner().invoke(app, ["bench", "compile"], catch_exceptions=False)


OWN = """
from adjudge import OwnJudge

class Whole(OwnJudge):
    range = (1.0, 3.0)

    def __init__(self, engine, **how):
        super().__init__(engine, min_mass=0.0, **how)

    def questions(self, item):
        return [self.question("short", "Is it short? {text}", ["1", "2", "3"], text=item.response[:99])]

class Unranged(Whole):
    def score_of(self, parts):
        return parts["short"].score
"""


def test_probes_are_put_to_a_judge_of_ones_own_with_a_range_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_probed.py").write_text(OWN)
    printed = []
    for name in ("Whole", "Unranged"):
        command = ["bench", "probe", "--judge", f"own_probed:{name}", "--model", "dummy:tiny-llama"]
        printed.append(CliRunner().invoke(app, command, catch_exceptions=False).stdout.replace(name, ""))
    assert "; 0 % abstained" in printed[0] and printed[0] == printed[1], "effects are in standard deviations"


def test_two_runs_do_not_write_one_table_of_disturbances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "__init__", lambda *_, **__: pytest.fail("a model was opened"))
    rows = [{"prompt": f"p{n}", "story": f"It rained on {n}. Nobody came. The lamp went out."} for n in range(2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["bench", "disturbances", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "t.csv")]
    with (
        FileLock(tmp_path / "t.csv.journal.lock"),
        pytest.raises(AdjudgeError, match=r"another run is writing with .*t.csv.journal"),
    ):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_what_the_judge_of_disturbances_was_not_trained_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "__init__", lambda *_, **__: pytest.fail("a model was opened"))
    command = ["bench", "disturbances", str(tmp_path / "none.jsonl"), "--aspects", "wit=Is it funny?"]
    assert 'house was not trained for the aspect "wit"' in CliRunner().invoke(app, command).stderr


@pytest.mark.parametrize("command", ["judge", "tree", "grpo", "kernels", "confidence", "disturbances"])
def test_a_table_that_cannot_be_written_is_told_before_anything_is_measured(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "__init__", lambda *_, **__: pytest.fail("a model was opened"))
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p"}\n')
    given = [] if command == "kernels" else [str(tmp_path / "rows.jsonl")]
    with pytest.raises(AdjudgeError, match="cannot write .*: name another file"):
        CliRunner().invoke(app, ["bench", command, *given, "-o", str(tmp_path)], catch_exceptions=False)
