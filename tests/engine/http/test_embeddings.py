"""`/v1/embeddings`: the engine's hidden states in OpenAI's form, to the bit."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import openai
import pytest

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.http.limits import MOST_EMBEDDINGS, Limits
from tests.engine.http.serving import MODEL, Served, error_of, raw_request, served, wait_until_busy, wait_until_idle

PATH = "/v1/embeddings"
TEXTS = ["A lamp.", "<|im_end|> A lamp.", "½ é 🙂 \0", "A lamp."]


def embedded(site: Served, **body: Any) -> list[np.ndarray]:
    response = site.post(PATH, body)
    assert response.status_code == 200, response.text
    return [np.array(one["embedding"], np.float32) for one in response.json()["data"]]


def test_openais_client_reads_the_engines_hidden_states(site: Served, client: openai.OpenAI) -> None:
    expected = [embedding.values for embedding in site.engine.face.embed(TEXTS)]
    for how in ({}, {"encoding_format": "float"}):  # by default it asks for base64, and decodes it
        answer = client.embeddings.create(model=MODEL, input=TEXTS, **how)
        assert [one.index for one in answer.data] == [0, 1, 2, 3] and answer.model == MODEL
        assert np.array_equal(np.array([one.embedding for one in answer.data], np.float32), np.array(expected))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(len(text.encode()) for text in TEXTS)
    alone = client.embeddings.create(model=MODEL, input=TEXTS[1])
    assert np.array_equal(np.array(alone.data[0].embedding, np.float32), expected[1])


def test_a_text_ends_as_the_models_tokenizer_ends_it(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = embedded(site, input=[[65, 66, 258]])
    monkeypatch.setattr(site.engine.face.tokenizer, "_end", (258,))
    assert np.array_equal(embedded(site, input="AB"), expected)
    assert np.array_equal(embedded(site, input=[65, 66, 258]), expected)


def test_token_ids_are_read_as_they_are(site: Served) -> None:
    expected = [embedding.values for embedding in site.engine.face.embed([[65, 66], [257, 65]])]
    assert np.array_equal(embedded(site, input=[[65, 66], [257, 65]]), expected)
    [alone] = embedded(site, input=[65, 66])
    assert np.array_equal(alone, expected[0])


def test_base64_is_little_endian_float32(site: Served) -> None:
    [one] = site.post(PATH, {"input": "A lamp.", "encoding_format": "base64"}).json()["data"]
    [embedding] = site.engine.face.embed(["A lamp."])
    assert embedding.values is not None and base64.b64decode(one["embedding"]) == embedding.values.tobytes()


def test_a_shared_beginning_is_computed_once(site: Served) -> None:
    wait_until_idle(site.engine)
    usage = site.post(PATH, {"input": ["q" * 50 + end for end in "abc"]}).json()["usage"]
    assert usage["prompt_tokens"] == 153 and usage["prompt_tokens_details"] == {"cached_tokens": 100}


@pytest.mark.parametrize(
    ("change", "status", "param", "message"),
    [
        ({"input": []}, 400, "input", "empty"),
        ({"input": ""}, 400, "input", "empty"),
        ({"input": ["a", ""]}, 400, "input[1]", "input[1]: the prompt is empty"),
        ({"input": [[1], []]}, 400, "input[1]", "empty"),
        ({"input": ["a", [1]]}, 400, "input", "mixes"),
        ({"input": [[1], [999]]}, 400, "input[1]", "token id 999 is outside the vocabulary"),
        ({"input": [[-1]]}, 400, "input", "token id -1 is outside"),
        ({"input": [10**30]}, 400, "input", "outside the vocabulary"),
        ({"input": [True]}, 400, "input[0]", "expected"),
        ({"input": None}, 400, "input", "expected"),
        ({"input": {"text": "a"}}, 400, "input", "expected"),
        ({"input": ["a"] * (MOST_EMBEDDINGS + 1)}, 400, "input", f"at most {MOST_EMBEDDINGS}"),
        ({"input": "a" * 5000}, 400, "input", "length is 2048 tokens; input has at least 5000"),
        ({"input": ["b", "a" * 5000]}, 400, "input[1]", "input[1] has at least 5000"),
        ({"timeout": 1e-9}, 504, "input", "not read in time"),
        ({"timeout": 0}, 400, "timeout", "above 0"),
        ({"encoding_format": "hex"}, 400, "encoding_format", "invalid"),
        ({"dimensions": 8}, 400, "dimensions", "is not supported: leave it out"),
        ({"truncate_prompt_tokens": 5}, 400, "truncate_prompt_tokens", "no field"),
        ({"model": "other"}, 404, "model", "not served here"),
    ],
)
def test_each_mistake_names_its_field(
    site: Served, change: dict[str, Any], status: int, param: str, message: str
) -> None:
    response = site.post(PATH, {"input": "fresh", **change})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (status, param) and message in error["message"], error
    if "tokens: this" in error["message"]:
        assert error["code"] == "context_length_exceeded"


def test_an_input_may_abstain_and_leaves_the_others_theirs(site: Served) -> None:
    data = site.post(PATH, {"input": ["b", "a" * 5000], "abstain": True}).json()["data"]
    [embedding] = site.engine.face.embed(["b"])
    assert np.array_equal(np.array(data[0]["embedding"], np.float32), embedding.values)
    assert data[0]["reason"] is None and data[1]["embedding"] is None and data[1]["reason"] == "too_long"


def test_hostile_texts_are_plain_characters(site: Served) -> None:
    body = rb'{"input": ["\u0000<|im_end|>\ud800\udc00 \ud83d", "\udfff", "[[10]]"]}'
    response = site.post(PATH, content=body)
    assert response.status_code == 200, response.text
    expected = site.engine.face.embed(["\0<|im_end|>\U00010000 \ufffd", "\ufffd", "[[10]]"])
    for one, embedding in zip(response.json()["data"], expected, strict=True):
        assert np.array_equal(np.array(one["embedding"], np.float32), embedding.values)


def test_an_overflow_is_an_error_of_that_request_alone_and_never_a_number() -> None:
    inner = Engine(MODEL)
    inner.runner.model.get_input_embeddings().weight.data[200] = math.nan
    engine = AsyncEngine(inner)
    with served(engine) as site:
        response = site.post(PATH, {"input": [[1, 2], [1, 200]]})
        assert (response.status_code, error_of(response)["param"]) == (422, "input[1]")
        assert error_of(response)["code"] == "non_finite" and "NaN" not in response.text
        found = site.post(PATH, {"input": [[1, 2], [1, 200]], "abstain": True}).json()["data"]
        assert [one["reason"] for one in found] == [None, "non_finite"]
    engine.worker.close(drain=False)


def test_the_key_the_limits_and_the_metrics_are_those_of_every_route(engine: AsyncEngine) -> None:
    with served(engine, Limits(api_key="sesame", max_body=1000, max_answers=2)) as site:
        key = {"authorization": "Bearer sesame"}
        assert site.post(PATH, {"input": "a"}).status_code == 401
        assert site.post(PATH, {"input": "a" * 1000}, headers=key).status_code == 413
        assert error_of(site.post(PATH, {"input": ["a"] * 3}, headers=key))["param"] == "input"
        assert site.post(PATH, {"input": "a"}, headers=key).status_code == 200
        assert 'adjudge_http_requests_total{route="/v1/embeddings",status="401"} 1.0' in site.get("/metrics").text


def test_a_client_that_goes_takes_its_call_with_it(site: Served) -> None:
    wait_until_idle(site.engine)
    before = site.engine.engine.stats.tokens_computed
    with raw_request(site.url, PATH, json.dumps({"input": [[number] * 2000 for number in range(200)]}).encode()):
        wait_until_busy(site.engine)
    wait_until_idle(site.engine)
    assert site.engine.engine.stats.tokens_computed - before < 200 * 2000
