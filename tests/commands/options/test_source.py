"""The engine that a command asks: what it is told of a server, and what is refused before anything is opened."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.options.source import Source
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.remote import remote_engine
from adjudge.rewards.engines.specification import EngineSpec

COMMANDS = {
    "judge": ["judge", "rows.jsonl", "--judge", "pointwise", "-o", "out.jsonl"],
    "rank": ["rank", "groups.jsonl", "-o", "out.jsonl"],
    "policy": [
        "bench",
        "policy",
        "dummy:tiny-llama",
        "--prompts",
        "rows.jsonl",
        "-o",
        "out",
        "--base",
        "dummy:tiny-llama",
    ],
}


@pytest.fixture(autouse=True)
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What servers were asked with; none is there."""
    asked: list[Any] = []

    def refuse(*server: Any, api_key: Any, **given: Any) -> None:
        asked.append(given)
        raise AdjudgeError("no server")

    monkeypatch.setattr(remote_engine, "RemoteEngine", refuse)
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "Tell one.", "response": "Story."}\n')
    Path("groups.jsonl").write_text('{"prompt": "Tell one.", "responses": ["Story.", "Tale."]}\n')
    return asked


def message(command: str, *words: str) -> str:
    error = CliRunner().invoke(app, [*COMMANDS[command], *words]).exception
    assert isinstance(error, AdjudgeError)
    return str(error)


@pytest.mark.parametrize("command", ["judge", "rank"])
def test_a_server_is_asked_with_what_it_does_not_say_and_no_more_at_once_than_was_asked_for(
    command: str, opened: list[Any]
) -> None:
    url = ("--url", "http://localhost:1")
    words = ("--tokenizer", "dummy:tiny-llama", "--max-context", "4096", "--max-concurrency", "64")
    words += ("--timeout", "600", "--retries", "0")
    assert message(command, *url) == message(command, *url, *words) == "no server"
    how = {"max_concurrency": 64, "timeout": 600.0, "retries": 0}
    assert opened == [{}, {"tokenizer": "dummy:tiny-llama", "max_context": 4096} | how]


@pytest.mark.parametrize("command", ["judge", "rank"])
@pytest.mark.parametrize("own", [("--device", "cpu"), ("--dtype", "float32"), ("--replicas", "2"), ("--adapter", "a")])
def test_what_is_a_servers_own_matter_is_refused(command: str, own: tuple[str, str], opened: list[Any]) -> None:
    told = message(command, "--url", "http://localhost:1", *own)
    assert told == f"the engine is a server, http://localhost:1 (--url): leave out {own[0]}, which it decides itself"
    assert not opened


@pytest.mark.parametrize(
    ("option", "value", "has"),
    [
        ("tokenizer", "dummy:tiny-llama", "has its own"),
        ("max-context", "4096", "knows its own"),
        ("max-concurrency", "64", "takes all at once"),
        ("timeout", "600", "is waited for"),
        ("retries", "0", "is asked once"),
    ],
)
def test_what_a_server_is_told_without_a_server_is_refused(option: str, value: str, has: str) -> None:
    for command in ("judge", "rank"):
        assert f"--{option} is for a server (--url): a model here {has}" in message(command, f"--{option}", value)
    told = message("policy", f"--{option}", value)
    assert f"{option.replace('-', '_')} is for a server (url): a model here {has}" in told


def test_device_and_dtype_of_an_evaluation_are_of_its_policies(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from adjudge.commands import bench_policy

    specs: list[EngineSpec] = []
    devices: list[str] = []
    monkeypatch.setattr(bench_policy, "identity_of", lambda policy, device, dtype: devices.append(device))
    monkeypatch.setattr(EngineSpec, "check", lambda spec: specs.append(spec))
    words = ["--url", "http://localhost:1", "--tokenizer", "t", "--device", "cpu", "--timeout", "9"]
    assert message("policy", *words, "--judge", "pointwise") == "no server"
    [spec], [device] = specs, devices
    assert (spec.url, spec.tokenizer, spec.device, device) == ("http://localhost:1", "t", "auto", "cpu")
    assert (spec.timeout, spec.retries) == (9.0, None)


@pytest.mark.parametrize("command", ["judge", "rank"])
def test_what_a_servers_model_was_not_trained_for_is_said_as_of_one_here(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "open", lambda source: nullcontext(house))
    house = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    house.name = "house"
    words = ("--url", "http://localhost:1", "--overwrite", "--aspects", "wit=Is it funny?", "--min-mass", "0")
    result = CliRunner().invoke(app, [*COMMANDS[command], *words])
    assert 'house was not trained for the aspect "wit"' in result.stderr and result.exit_code == 0, result.output
    assert "house was trained to score, not to write" in message(command, *words, "--mode", "reasoned")


@pytest.mark.parametrize("name", ["house", "another"])
def test_the_usual_judge_is_that_of_the_model_which_a_server_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    there.name = name
    monkeypatch.setattr(Source, "open", lambda source: nullcontext(there))
    Path("pairs.jsonl").write_text('{"prompt": "Tell one.", "story_a": "Story.", "story_b": "Tale."}\n')
    result = CliRunner().invoke(app, ["judge", "pairs.jsonl", "--url", "http://localhost:1", "--min-mass", "0"])
    monkeypatch.setattr(Source, "open", lambda source: pytest.fail("asked for nothing"))
    assert "cannot read none.jsonl" in str(CliRunner().invoke(app, ["judge", "none.jsonl", "--url", "x"]).exception)
    assert f"{name}, {'pointwise' if name == 'house' else 'pairwise'}: 1 pair" in result.output, result.output
