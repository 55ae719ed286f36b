"""What a client can get wrong: the answer names the field, and nobody else notices."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest
import torch

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from tests.engine.http.serving import MODEL, Served, error_of, served

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "hi"}
DEEP = b'{"prompt": "a", "json_schema": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001


SENT = "messages[0].reasoning_content"


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        (TEXT, {"max_tokens": 0}, "max_tokens"),
        (TEXT, {"max_tokens": "5"}, "max_tokens"),
        (TEXT, {"max_tokens": 1.5}, "max_tokens"),
        (TEXT, {"temperature": -1}, "temperature"),
        (TEXT, {"top_p": 0}, "top_p"),
        (TEXT, {"min_p": 2}, "min_p"),
        (TEXT, {"top_k": -2}, "top_k"),
        (TEXT, {"repetition_penalty": 0}, "repetition_penalty"),
        (TEXT, {"logprobs": 21}, "logprobs"),
        (TEXT, {"n": 0}, "n"),
        (TEXT, {"n": 10**9}, "n"),
        (TEXT, {"stop": ["a", ""]}, "stop"),
        (TEXT, {"allowed_token_ids": [999]}, "allowed_token_ids"),
        (TEXT, {"choices": []}, "choices"),
        (TEXT, {"regex": "("}, "regex"),
        (TEXT, {"json_schema": {"type": "nothing"}}, "json_schema"),
        (TEXT, {"json_schema": "{"}, "json_schema"),
        (TEXT, {"regex": "a", "choices": ["a"]}, "choices"),
        (TEXT, {"echo": True, "stream": True}, "echo"),
        (TEXT, {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
        (TEXT, {"prompt_logprobs": -5, "stream": False, "echo": True, "logprobs": 2}, "prompt_logprobs"),
        (TEXT, {"prompt_logprobs": 21, "stream": False}, "prompt_logprobs"),
        (TEXT, {"prompt_logprobs": -1, "stream": False}, "prompt_logprobs"),
        (TEXT, {"prompt_logprobs": 20, "stream": False, "prompt": ["a" * 500] * 100}, "prompt_logprobs"),
        (CHAT, {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
        (CHAT, {"prompt_logprobs": 21, "stream": False}, "prompt_logprobs"),
        (TEXT, {"echo": True, "stream": False, "logprobs": 21}, "logprobs"),
        (TEXT, {"echo": True, "stream": False, "logprobs": 20, "prompt": ["a" * 500] * 100}, "echo"),
        (TEXT, {"echo": True, "stream": False, "logprobs": 1, "prompt": [999]}, "prompt"),
        (TEXT, {"echo": True, "stream": False, "max_tokens": -1}, "max_tokens"),
        (TEXT, {"best_of": 2}, "best_of"),
        (TEXT, {"best_of": 1, "n": 2}, "best_of"),
        (TEXT, {"response_format": {"type": "json_object"}}, "response_format"),
        (TEXT, {"skip_special_tokens": True}, "skip_special_tokens"),
        (TEXT, {"no_stop_trim": True}, "no_stop_trim"),
        (TEXT, {"stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        (TEXT, {"suffix": "x"}, "suffix"),
        (TEXT, {"frequency_penalty": 2.5}, "frequency_penalty"),
        (CHAT, {"presence_penalty": "1"}, "presence_penalty"),
        (TEXT, {"logit_bias": {"5": 101}}, "logit_bias"),
        (TEXT, {"logit_bias": {"x": 1}}, "logit_bias"),
        (TEXT, {"logit_bias": {"999": 1}}, "logit_bias"),
        (TEXT, {"length_penalty": 0.5}, "length_penalty"),
        (TEXT, {"stream_options": {"usage": True}}, "stream_options.usage"),
        (TEXT, {"prompt": []}, "prompt"),
        (TEXT, {"prompt": ""}, "prompt"),
        (TEXT, {"prompt": [[]]}, "prompt"),
        (TEXT, {"prompt": ["a", 1]}, "prompt"),
        (TEXT, {"prompt": [[1], [2.5]]}, "prompt[1][0]"),
        (TEXT, {"prompt": [999]}, "prompt"),
        (TEXT, {"prompt": ["a", ""]}, "prompt[1]"),
        (TEXT, {"prompt": ["a"] * 10_001}, "prompt"),
        (TEXT, {"prompt": None}, "prompt"),
        (TEXT, {"promt": "a"}, "promt"),
        (TEXT, {"pro\nmt": "a"}, "pro\nmt"),
        (TEXT, {"stop": ["a"] * 100}, "stop"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": None}, "messages"),
        (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (CHAT, {"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].role"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        (CHAT, {"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        (CHAT, {"tools": [{"type": "function"}]}, "tools"),
        (CHAT, {"tool_choice": "required"}, "tool_choice"),
        (CHAT, {"documents": [{}]}, "documents"),
        (CHAT, {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "b"}]}, SENT),
        (CHAT, {"structured_outputs": {"choice": ["a"]}}, "structured_outputs"),
        (CHAT, {"reasoning_effort": "high"}, "reasoning_effort"),
        (CHAT, {"audio": {}}, "audio"),
        (CHAT, {"modalities": ["audio"]}, "modalities"),
        (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {"max_completion_tokens": 1, "max_tokens": 1}, "max_tokens"),
        (CHAT, {"top_logprobs": 3}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
        (CHAT, {"response_format": {"type": "xml"}}, "response_format.type"),
        (CHAT, {"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (CHAT, {"response_format": {"type": "text", "json_schema": {"schema": {}}}}, "response_format.json_schema"),
        (CHAT, {"response_format": {"type": "json_object"}, "regex": "a"}, "response_format"),
        (CHAT, {"messages": [{**USER, "type": "image"}]}, "messages[0].type"),
        (CHAT, {"n": 1000, "max_tokens": 1000, "logprobs": True, "top_logprobs": 20}, "top_logprobs"),
        (TEXT, {"n": 1000, "max_tokens": 1000, "logprobs": 20}, "logprobs"),
        (CHAT, {"response_format": {"type": "json_object"}, "json_schema": {}}, "json_schema"),
        (CHAT, {"timeout": 0}, "timeout"),
        (CHAT, {"priority": 10**400}, "priority"),
        (CHAT, {"model": 5}, "model"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_each_mistake_names_its_field(
    site: Served, path: str, change: dict[str, Any], param: str, stream: bool
) -> None:
    body = ({"prompt": "a"} if path == TEXT else {"messages": [USER]}) | {"stream": stream} | change
    response = site.post(path, body)
    error = error_of(response)
    assert response.status_code == 400 and error["type"] == "invalid_request_error", error
    assert error["param"] == param and error["message"]
    assert param.split(".")[0].split("[")[0] in error["message"], error


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body"),
        (b"{", "not JSON"),
        (b"[]", "expected `object`"),
        (b'{"prompt": "a"} x', "not JSON"),
        (b'{"prompt": "a", "temperature": NaN}', "not JSON"),
        (b'{"prompt": "\\ud800", "temperature": NaN}', "not JSON"),
        (b'{"prompt": "\\ud800"', "not JSON"),
        (b'{"prompt": "a", "temperature": 1e999}', "temperature"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b'{"prompt": "\xed\xa0\x80"}', "not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "not JSON"),
        (DEEP, "nested too deeply"),
    ],
)
def test_a_body_that_is_no_request_is_told_so(site: Served, body: bytes, message: str) -> None:
    response = site.post(TEXT, content=body)
    assert response.status_code == 400 and message in error_of(response)["message"]


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (TEXT, {"max_completion_tokens": 5}, 'if "max_tokens" is meant, rename it'),
        (TEXT, {"guided_choice": ["a"]}, 'if "choices" is meant, rename it'),
        (TEXT, {"guided_json": {}}, "guided_json is not supported: leave it out"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "'image_url': choose text"),
    ],
)
def test_a_field_or_word_that_is_not_taken_is_told_with_one_that_is(
    site: Served, path: str, change: dict[str, Any], message: str
) -> None:
    response = site.post(path, ({"prompt": "a"} if path == TEXT else {"messages": [USER]}) | change)
    assert response.status_code == 400 and message in error_of(response)["message"], error_of(response)


def test_routes_and_models_that_are_not_there(site: Served, client: openai.OpenAI) -> None:
    assert error_of(site.get("/v1/nothing")) and site.get("/v1/nothing").status_code == 404
    wrong = site.get("/v1/score")
    assert wrong.status_code == 405 and "not for that method" in error_of(wrong)["message"]
    assert "POST" in wrong.headers["allow"]
    with pytest.raises(openai.NotFoundError, match="gpt-9.*not served here") as caught:
        client.completions.create(model="gpt-9", prompt="a")
    assert caught.value.param == "model" and caught.value.code == "model_not_found"


def test_a_mistake_of_ours_is_a_500_without_its_inside(
    site: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(site.engine.engine.runner, "forward", broken)
    response = site.post(TEXT, {"prompt": "a"})
    assert response.status_code == 500 and error_of(response)["type"] == "server_error"
    assert "secret" not in response.text and "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    assert site.post(TEXT, {"prompt": "a"}).status_code == 200


def test_an_engine_without_memory_is_to_be_asked_again(
    site: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(site.engine.engine.runner, "_hidden", full)
    response = site.post(TEXT, {"prompt": "a"})
    assert response.status_code == 503 and response.headers["retry-after"] == "1"
    assert error_of(response)["code"] == "engine_failed" and "no memory left for a step" in caplog.text


def test_a_compressed_body_is_refused_by_what_compressed_it(site: Served) -> None:
    response = site.post(TEXT, content=b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert response.status_code == 415 and "the body is gzip: send it as it is" in response.text


def test_a_step_that_fails_ends_a_stream_with_an_error(
    site: Served, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, steps = site.engine.engine.runner.forward, iter(range(5))

    def soon_broken(step: Any) -> Any:
        if next(steps, None) is None:
            raise ZeroDivisionError
        return forward(step)

    monkeypatch.setattr(site.engine.engine.runner, "forward", soon_broken)
    chunks = client.completions.create(
        model=MODEL, prompt="a", max_tokens=100, stream=True, extra_body={"ignore_eos": True}
    )
    with pytest.raises(openai.APIError, match="the server failed"):
        list(chunks)


def test_a_model_that_yields_nan_ends_that_request_alone() -> None:
    inner = Engine(MODEL)
    inner.runner.model.get_input_embeddings().weight.data[200] = math.nan
    engine = AsyncEngine(inner)
    with served(engine) as site:
        answer = site.post(TEXT, {"prompt": [[1, 200, 2], [1, 2]], "ignore_eos": True, "logprobs": 1, "temperature": 0})
        assert answer.status_code == 200 and "NaN" not in answer.text
        assert [choice["finish_reason"] for choice in answer.json()["choices"]] == ["non_finite", "length"]
        answer = site.post("/v1/score", {"query": [1], "items": [[200], [2]], "label_token_ids": [49, 50]})
        assert answer.status_code == 200 and "NaN" not in answer.text
        assert [result["reason"] for result in answer.json()["results"]] == ["non_finite", None]
        assert answer.json()["scores"][0] is None
        for path, field, body in (
            (TEXT, "prompt", {"prompt": [1, 200]}),
            (CHAT, "messages", {"messages": [{"role": "user", "content": "\u0200"}]}),
        ):
            for stream in (False, True):
                answer = site.post(path, {**body, "stream": stream, "n": 2})
                error = error_of(answer)
                assert (answer.status_code, error["param"], error["code"]) == (422, field, "non_finite")
                assert error["message"].startswith(f"{field} makes the model overflow")
    engine.worker.close(drain=False)
