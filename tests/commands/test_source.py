"""The engine that a command asks: what it is told of a server, and what is refused before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.remote import remote_engine

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
    """The tokenizers and contexts that servers were asked with; none is there."""
    asked: list[Any] = []

    def refuse(*server: Any, tokenizer: Any, max_context: Any, **_: Any) -> None:
        asked.append((tokenizer, max_context))
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
def test_a_server_is_asked_with_the_tokenizer_that_was_named(command: str, opened: list[Any]) -> None:
    words = ("--tokenizer", "dummy:tiny-llama", "--max-context", "4096")
    assert message(command, "--url", "http://localhost:1", *words) == "no server"
    assert opened == [("dummy:tiny-llama", 4096)]


@pytest.mark.parametrize("command", ["judge", "rank"])
@pytest.mark.parametrize("own", [("--device", "cpu"), ("--dtype", "float32"), ("--replicas", "2"), ("--adapter", "a")])
def test_what_is_a_servers_own_matter_is_refused(command: str, own: tuple[str, str], opened: list[Any]) -> None:
    told = message(command, "--url", "http://localhost:1", *own)
    assert told == "--url asks a server: --adapter, --replicas, --device and --dtype are its own matter, leave them out"
    assert not opened


def test_a_tokenizer_without_a_server_is_refused() -> None:
    for command in ("judge", "rank"):
        assert "--tokenizer is for a server (--url)" in message(command, "--tokenizer", "dummy:tiny-llama")
        assert "--max-context is for a server (--url)" in message(command, "--max-context", "4096")
    assert 'tokenizer "dummy:tiny-llama" is for a server' in message("policy", "--tokenizer", "dummy:tiny-llama")
    assert "max_context is for a server at a url" in message("policy", "--max-context", "4096")


def test_device_and_dtype_of_an_evaluation_are_of_its_policies(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from adjudge.commands import bench_policy

    specs: list[Any] = []
    monkeypatch.setattr(bench_policy, "evaluate_policies", lambda *_, spec, device, **__: specs.append((spec, device)))
    words = ["--url", "http://localhost:1", "--tokenizer", "t", "--device", "cpu"]
    result = CliRunner().invoke(app, [*COMMANDS["policy"], *words])
    assert result.exit_code == 0, result.output
    [(spec, device)] = specs
    assert (spec.url, spec.tokenizer, spec.device, device) == ("http://localhost:1", "t", "auto", "cpu")
