"""What is read of a request ends with it: in time, when its client goes, and when the server is stopped."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.http import server as server_module
from adjudge.engine.http import service as service_module
from adjudge.engine.http.limits import Limits
from tests.engine.http.serving import MODEL, PATIENCE, Endless, Served, error_of, raw_request, served

CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
TEXT = ("/v1/completions", {"prompt": "a", "max_tokens": 1})
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("prompt", *TEXT),
    ("prompt", "/v1/completions", {"prompt": "a", "max_tokens": 1, "echo": True}),
    ("chat", "/v1/chat/completions", CHAT),
    ("prompt", "/v1/chat/completions", {**CHAT, "prompt_logprobs": 1}),
    ("prompt", "/v1/score", {"items": ["a"], "labels": ["1", "2"]}),
    ("prompt", "/v1/embeddings", {"input": "a"}),
]
"""What of the tokenizer is without end, and who waits for it."""


@pytest.mark.parametrize(("what", "path", "body"), REQUESTS)
def test_what_is_not_read_in_time_is_read_no_further(
    site: Served, what: str, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "LATE", 0.0)
    reading = Endless.in_place_of(monkeypatch, site.engine.engine.tokenizer, what)
    response = site.post(path, {**body, "timeout": 0.05})
    error = error_of(response)
    assert response.status_code == 504 and (error["param"], error["code"]) == ("timeout", "timeout")
    assert reading.ended.get(timeout=PATIENCE)


@pytest.mark.parametrize(("what", "path", "body"), REQUESTS)
def test_what_is_read_for_a_client_that_goes_is_read_no_further(
    site: Served, what: str, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Endless.in_place_of(monkeypatch, site.engine.engine.tokenizer, what)
    with raw_request(site.url, path, json.dumps(body).encode()):
        assert reading.begun.get(timeout=PATIENCE)
        assert reading.ended.empty()
    assert reading.ended.get(timeout=PATIENCE)


def test_a_drain_ends_what_is_still_being_read_in_however_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "THREADS", 1)
    engine = AsyncEngine(Engine(MODEL))
    reading = Endless.in_place_of(monkeypatch, engine.engine.tokenizer, "prompt")
    with served(engine, Limits(drain_timeout=0.0)) as site, ThreadPoolExecutor() as pool:
        asked = pool.submit(site.post, *TEXT)
        assert reading.begun.get(timeout=PATIENCE)
        site.server.drain()
        response = asked.result()
        assert response.status_code == 503 and error_of(response)["code"] == "not_serving"


def test_more_messages_than_the_model_holds_tokens_are_not_even_rendered(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Endless.in_place_of(monkeypatch, site.engine.engine.tokenizer, "chat")
    longest = site.engine.face.max_prompt_tokens
    response = site.post("/v1/chat/completions", {**CHAT, "messages": CHAT["messages"] * (longest + 1)})
    error = error_of(response)
    assert response.status_code == 400 and (error["param"], error["code"]) == ("messages", "context_length_exceeded")
    assert error["message"] == (
        f"This model's maximum context length is {longest} tokens; the {longest + 1} messages have at least so many"
    )
    assert reading.begun.empty()


def test_a_request_has_one_time_for_all_that_it_waits_for(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = [100.0], list[float]()
    timeout = service_module.Service.timeout

    def later(service: Any, request: Any, asked: float | None) -> float:
        left.append(timeout(service, request, asked))
        now[0] += 2.0
        return left[-1]

    with monkeypatch.context() as patch:
        patch.setattr(service_module, "monotonic", lambda: now[0])
        patch.setattr(service_module.Service, "timeout", later)
        response = site.post("/v1/chat/completions", {**CHAT, "prompt_logprobs": 1, "timeout": 5})
    assert left == [5.0, 3.0, 1.0] and response.status_code in (200, 504)
