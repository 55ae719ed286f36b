from __future__ import annotations

from typing import Any

import msgspec
import openai
import pytest

from adjudge.engine.http.bodies import decode
from adjudge.engine.http.chat import ChatRequest
from adjudge.engine.http.completions import CompletionRequest
from adjudge.engine.http.pooling import ClassifyRequest, EmbeddingRequest
from tests.engine.http.serving import MODEL, Served, error_of

UNREAD = (
    *("metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *("request_id", "safety_identifier", "service_tier", "store", "user"),
)
TURN = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("kind", "given", "names"),
    [
        (CompletionRequest, {"prompt": "a"}, UNREAD),
        (ChatRequest, {"messages": [TURN]}, (*UNREAD, "parallel_tool_calls")),
        (EmbeddingRequest, {"input": "a"}, ("user",)),
        (ClassifyRequest, {"input": "a"}, ("user",)),
    ],
)
def test_of_what_does_nothing_no_objects_are_made(
    kind: type[Any], given: dict[str, Any], names: tuple[str, ...]
) -> None:
    body = decode(msgspec.json.encode(given | {name: [[], {"a": 1}] for name in names}), kind)
    assert {name for name in names if type(getattr(body, name)) is msgspec.Raw} == set(names)


def test_a_mark_of_utf_8_before_a_body_is_none_of_it(site: Served) -> None:
    marked = '\ufeff{"prompt": "a", "max_tokens": 1}'.encode()
    assert site.post("/v1/completions", content=marked).status_code == 200
    response = site.post("/v1/completions", content="\ufeff".encode())
    assert response.status_code == 400 and "the body is not JSON" in error_of(response)["message"]


def test_what_says_nothing_may_be_sent(site: Served, client: openai.OpenAI) -> None:
    more: Any = {"prompt_cache_options": {"ttl": "24h"}, "moderation": None}
    assert client.chat.completions.create(model=MODEL, messages=[TURN], max_tokens=1, extra_body=more).choices  # type: ignore[list-item]
    response = site.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "moderation": {"model": "x"}})
    assert response.status_code == 400 and error_of(response)["param"] == "moderation"
