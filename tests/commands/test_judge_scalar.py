from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.options.source import Source
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.rewards.judges.kinds import prepare
from tests.engine.http.serving import served
from tests.jsonl import read_lines, write_lines


def test_a_reward_model_scores_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "Tell one.", "response": f"Story {n}.", "id": f"i{n}", "genre": "tale"} for n in range(3)]
    write_lines(tmp_path / "items.jsonl", *rows)
    command = ["judge", "items.jsonl", "--judge", "scalar", "--model", "dummy:tiny-qwen3-reward"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    verdicts = read_lines(tmp_path / "items.verdicts.jsonl")
    assert [verdict["id"] for verdict in verdicts] == ["i0", "i1", "i2"] and verdicts[0]["genre"] == "tale"
    assert len({verdict["score"] for verdict in verdicts}) == 3
    assert all(verdict["breakdown"]["reward"]["score"] == verdict["score"] for verdict in verdicts)
    assert "i2" in result.stdout


def test_a_model_without_a_reward_head_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Source, "open", lambda source: pytest.fail("loaded"))
    write_lines("items.jsonl", {"prompt": "Tell one.", "response": "Story."})
    result = CliRunner().invoke(app, ["judge", "items.jsonl", "--judge", "scalar"])
    assert "house has no reward head" in str(result.exception)


def test_options_of_judges_that_ask_are_refused() -> None:
    with pytest.raises(AdjudgeError, match="--mode is for --judge pairwise, .*: leave it out"):
        prepare("scalar", {"mode": "reasoned"})


def test_a_server_of_a_reward_model_scores_items_and_its_run_is_replayed_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "Tell one.", "response": f"Story {n}. <|im_end|>", "id": f"i{n}"} for n in range(3)]
    write_lines("items.jsonl", *rows)
    command = ["judge", "items.jsonl", "--judge", "scalar"]
    name = "dummy:tiny-qwen3-reward"
    assert CliRunner().invoke(app, [*command, "--model", name]).exit_code == 0
    expected = Path("items.verdicts.jsonl").read_bytes()
    engine = AsyncEngine(Engine(name))
    with served(engine) as site:
        result = CliRunner().invoke(app, [*command, "--url", site.url, "-o", "there.jsonl"])
    engine.worker.close(drain=False)
    assert result.exit_code == 0, result.output
    assert Path("there.jsonl").read_bytes() == expected
    assert CliRunner().invoke(app, ["replay", "there.jsonl", "-o", "again.jsonl"]).exit_code == 0
    assert Path("again.jsonl").read_bytes() == expected


def test_a_server_that_only_writes_is_refused_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("items.jsonl").write_text('{"prompt": "Tell one.", "response": "Story."}\n')
    engine = AsyncEngine(Engine("dummy:tiny-llama"))
    with served(engine) as site:
        result = CliRunner().invoke(app, ["judge", "items.jsonl", "--judge", "scalar", "--url", site.url])
    engine.worker.close(drain=False)
    assert isinstance(result.exception, RemoteError) and "needs a reward model" in str(result.exception)
    assert not Path("items.verdicts.jsonl").exists()
