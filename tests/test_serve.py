"""`adjudge serve` as a process: it says where it listens, and SIGTERM lets a stream end."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.serve import greeting, key_of
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.cluster.async_cluster import TOTALS
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.http.routes import judging
from adjudge.rewards.judges.aspects import parse_aspects
from tests.engine.http.serving import MODEL, served

TINY = ("--model", "dummy:tiny-llama")
COMMAND = (sys.executable, "-m", "adjudge", "serve")


@contextmanager
def running(*options: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL that a server on a free port prints, and its process."""
    command = [*COMMAND, *TINY, "--port", "0", *options]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ, **environment}}
    with subprocess.Popen(command, **how) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("adjudge: serving dummy:tiny-llama on http://127.0.0.1:"), line
            yield line.split()[4], process
        finally:
            process.kill()


def test_sigterm_lets_a_stream_end_and_exits_with_0() -> None:
    with running("--aspects", "wit=Is it funny?", ADJUDGE_API_KEY="sesame") as (url, process):
        with httpx2.Client(base_url=url, timeout=60, headers={"authorization": "Bearer sesame"}) as client:
            assert client.get("/v1/models", headers={"authorization": ""}).status_code == 401
            pair = {"prompt": "p", "story_a": "a", "story_b": "b"}
            [verdict] = client.post("/v1/judge", json={"pairs": [pair]}).json()["verdicts"]
            assert verdict["aspects"].keys() == {"wit"}
            with openai.OpenAI(base_url=f"{url}/v1", api_key="sesame", max_retries=0) as theirs:
                how: dict[str, Any] = {"model": "dummy:tiny-llama", "temperature": 0, "max_tokens": 8}
                told = theirs.chat.completions.create(messages=[{"role": "user", "content": "once"}], **how)
                read = theirs.completions.create(prompt="once", stream=True, **how)
                whole = theirs.completions.create(prompt="once", **how)
                assert "".join(chunk.choices[0].text for chunk in read) == whole.choices[0].text
                assert told.usage is not None and told.usage.completion_tokens == 8
            body = {"prompt": "once", "max_tokens": 200, "ignore_eos": True, "stream": True}
            with client.stream("POST", "/v1/completions", json=body) as response:
                lines = response.iter_lines()
                assert next(lines).startswith("data: {")
                process.send_signal(signal.SIGTERM)
                rest = [line for line in lines if line]
        assert '"finish_reason":"length"' in rest[-2] and rest[-1] == "data: [DONE]"
        assert process.wait(60) == 0
        assert process.communicate() == ("", "")


def test_the_models_of_ours_say_what_they_cannot_do() -> None:
    assert "to judge, serve --model house" in greeting("smollm2-135m", None, "http://localhost:8000")
    assert "for texts, serve --model smollm2-135m" in greeting("house", None, "http://localhost:8000")
    for model, adapter in (("smollm2-135m", "lora/"), ("house", "lora/"), ("a/b", None)):
        assert len(greeting(model, adapter, "http://localhost:8000").splitlines()) == 1


def test_a_port_in_use_is_refused_before_the_model_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = CliRunner().invoke(app, ["serve", "--model", "no/such-model", "--port", str(port)])
    assert isinstance(refused.exception, AdjudgeError) and str(refused.exception) == (
        f"cannot listen on 127.0.0.1:{port} (Address already in use): name others with --host and --port"
    )


def test_a_server_may_hold_more_connections_than_files_are_usually_open() -> None:
    resource = pytest.importorskip("resource")
    _, most = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, most))
    try:
        refused = CliRunner().invoke(app, ["serve", *TINY, "--host", "192.0.2.1"])
        assert isinstance(refused.exception, AdjudgeError) and "cannot listen" in str(refused.exception)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most if 0 < most < 1 << 16 else 1 << 16, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def verdicts_of(url: str) -> list[dict[str, Any]]:
    """What a server says of six pairs; it writes and counts besides."""
    body = {"pairs": [{"prompt": "p", "story_a": f"Story {n}. " * 9, "story_b": "b"} for n in range(6)]}
    with httpx2.Client(base_url=url, timeout=120) as client:
        verdicts: list[dict[str, Any]] = client.post("/v1/judge", json=body).json()["verdicts"]
        written = client.post("/v1/completions", json={"prompt": "once", "max_tokens": 3, "temperature": 0})
        assert written.json()["usage"]["completion_tokens"] == 3
        told = dict(line.split() for line in client.get("/metrics").text.splitlines() if line[0] != "#")
        read = {name: float(told[f"adjudge_{name}_total"]) for name in ("prompt_tokens", *TOTALS)}
        assert read["cache_hit_tokens"] > 0 < read["cache_missed_tokens"]
    return verdicts


def test_replicas_answer_as_one_engine_does() -> None:
    engine = AsyncEngine(Engine(MODEL))
    with served(engine, routes=[judging(parse_aspects("coherence"))]) as site:
        one = verdicts_of(site.url)
    engine.worker.close(drain=False)
    with running("--replicas", "2", "--aspects", "coherence") as (url, process):
        two = verdicts_of(url)
        told = httpx2.get(f"{url}/metrics").text
        assert "adjudge_replicas 2.0\n" in told and "adjudge_tokens_waiting 0.0\n" in told
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert one == two and len({verdict["preference"] for verdict in one}) == 6


@pytest.mark.parametrize(("given", "variable"), [("", None), (" ", "sesame"), (None, ""), (None, " \n")])
def test_an_empty_key_is_no_key(given: str | None, variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if variable is not None:
        monkeypatch.setenv("ADJUDGE_API_KEY", variable)
    with pytest.raises(AdjudgeError, match="is empty, and without a key anybody is answered"):
        key_of(given)


@pytest.mark.parametrize("given", ["sécret", "a b", "a\nb", "a\x7f"])
def test_a_key_that_no_header_can_carry_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJUDGE_API_KEY", given)
    for key in (given, None):
        with pytest.raises(AdjudgeError, match="blanks or other signs that no header takes: mend it"):
            key_of(key)


def test_a_server_keeps_what_it_loaded_from_the_collector_and_takes_steps_as_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, int]] = []

    def run(server: Any) -> None:
        seen.append((gc.get_freeze_count(), server._service.engine.engine.scheduler.max_batch_tokens))

    monkeypatch.setattr("adjudge.engine.http.server.Server.run", run)
    before = gc.get_freeze_count()
    try:
        result = CliRunner().invoke(app, ["serve", *TINY, "--port", "0", "--max-batch-tokens", "48"])
    finally:
        gc.unfreeze()
    assert result.exit_code == 0, result.output
    [(kept, tokens)] = seen
    assert kept > before and tokens == 48


def test_a_key_is_what_stands_between_the_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_of(None) is None and key_of(" a\n") == "a"
    monkeypatch.setenv("ADJUDGE_API_KEY", "sesame\n")
    assert key_of(None) == "sesame" and key_of("other") == "other"
