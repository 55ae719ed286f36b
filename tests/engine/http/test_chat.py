from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from adjudge.engine.text.prompt import Message, Prompt, Segment
from tests.engine.http.serving import MODEL, Served

HOW: dict[str, Any] = {"max_tokens": 16, "temperature": 1.5, "seed": 3}
MESSAGES: Any = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "hi"}]},
]

LM_EVAL = {"type": "text"}
"""What its template puts into every message."""


def own(site: Served, **options: Any) -> Any:
    """What the engine itself replies."""
    face = site.engine.face
    system, user = Prompt((Segment("Be brief."),)), Prompt((Segment("Say "), Segment("hi")))
    return face.generate([face.chat([Message("system", system), Message("user", user)])], **options)


def test_replies_are_the_engines_own(site: Served, client: openai.OpenAI) -> None:
    expected = own(site, n=2, logprobs=2, **HOW)
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, n=2, logprobs=True, top_logprobs=2, user="u", store=False, **HOW
    )
    assert [choice.message.content for choice in answer.choices] == [completion.text for completion in expected]
    assert [choice.finish_reason for choice in answer.choices] == [completion.finish_reason for completion in expected]
    assert answer.choices[0].message.role == "assistant" and answer.usage is not None
    assert answer.usage.prompt_tokens == expected[0].prompt_tokens
    for choice, completion in zip(answer.choices, expected, strict=True):
        assert choice.logprobs is not None and choice.logprobs.content is not None
        told = choice.logprobs.content
        assert [token.logprob for token in told] == [token.logprob for token in completion.logprobs]
        assert [[other.logprob for other in token.top_logprobs] for token in told] == [
            [logprob for _, logprob in token.top] for token in completion.logprobs
        ]
        written = b"".join(bytes(token.bytes or []) for token in told[: -(completion.finish_reason == "stop") or None])
        assert written.decode(errors="replace") == completion.text


def test_the_tokens_that_a_conversation_comes_to_are_read(site: Served, client: openai.OpenAI) -> None:
    expected = own(site, n=2, prompt_logprobs=0, **HOW)
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, n=2, extra_body={"prompt_logprobs": 0}, **HOW
    ).model_dump()
    assert [choice["message"]["content"] for choice in answer["choices"]] == [one.text for one in expected]
    read = [
        listed and [(int(token), one["logprob"]) for token, one in listed.items()]
        for listed in answer["prompt_logprobs"]
    ]
    assert read == [one and [(one.token_id, one.logprob)] for one in expected[0].prompt_logprobs]


def test_what_asks_for_nothing_changes_nothing(site: Served) -> None:
    def told(**options: Any) -> Any:
        response = site.post("/v1/chat/completions", {"messages": MESSAGES, **HOW, **options})
        assert response.status_code == 200, response.text
        return response.json()["choices"]

    nulls: dict[str, Any] = {
        "priority": None,
        "prompt_logprobs": None,
        "return_token_ids": None,
        "stream_options": {"include_usage": None, "continuous_usage_stats": None},
        "documents": None,
        "cache_salt": None,
    }
    neutral = {"tools": [], "tool_choice": "none", "modalities": ["text"], "reasoning_effort": "none"}
    assert told(**nulls) == told(**neutral) == told(parallel_tool_calls=False) == told()
    inert = {
        "chat_template_kwargs": {"enable_thinking": False},
        "top_k": -1,
        "stop_token_ids": [],
        "min_tokens": 0,
        "length_penalty": 1.0,
        "add_generation_prompt": True,
        "use_beam_search": False,
        "functions": None,
        "verbosity": "medium",
        "request_id": "r",
        "tool_choice": "auto",
        "skip_special_tokens": False,
        "stream_options": {"continuous_usage_stats": False},
    }
    assert told(**inert) == told()
    for name, value in (("chat_template", "{{ x }}"), ("min_tokens", 3), ("continue_final_message", True)):
        response = site.post("/v1/chat/completions", {"messages": MESSAGES, **HOW, name: value})
        assert response.status_code == 400 and f"{name} is not supported: leave it out" in response.text


def test_a_stream_adds_up_to_the_same_replies(site: Served, client: openai.OpenAI) -> None:
    expected = own(site, n=2, **HOW)
    texts, roles, reasons, usage = ["", ""], ["", ""], ["", ""], None
    for chunk in client.chat.completions.create(
        model=MODEL, messages=MESSAGES, n=2, stream=True, stream_options={"include_usage": True}, **HOW
    ):
        assert chunk.object == "chat.completion.chunk" and usage is None
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            roles[choice.index] += choice.delta.role or ""
            reasons[choice.index] += choice.finish_reason or ""
    assert texts == [completion.text for completion in expected]
    assert reasons == [completion.finish_reason for completion in expected]
    assert roles == ["assistant", "assistant"] and usage is not None
    assert usage.prompt_tokens == expected[0].prompt_tokens


def test_a_message_cannot_write_special_tokens(client: openai.OpenAI) -> None:
    def prompt_tokens(content: str) -> int:
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": content}], max_tokens=1
        )
        assert answer.usage is not None
        return answer.usage.prompt_tokens

    mark = "<|im_end|>"  # one token of this model's, had it power
    assert prompt_tokens(mark) - prompt_tokens("") == len(mark)


def test_replies_in_a_form(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    formats: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_format=formats, max_completion_tokens=200
    )
    assert json.loads(answer.choices[0].message.content or "") == {"a": 1}
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_format={"type": "json_object"}, max_tokens=4, temperature=0
    )
    assert (answer.choices[0].message.content or "").lstrip()[:1] == "{"
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format={"type": "text"}, **HOW)
    assert answer.choices[0].message.content


def test_what_lm_eval_adds_to_a_message_says_nothing(site: Served) -> None:
    plain, told = ({"messages": [{"role": "user", "content": "Hi.", **more}], "seed": 1} for more in ({}, LM_EVAL))
    answers = [site.post("/v1/chat/completions", {**body, "max_tokens": 5}).json() for body in (plain, told)]
    assert answers[0]["choices"] == answers[1]["choices"] and answers[0]["usage"]["prompt_tokens"]


def test_an_own_reply_can_be_sent_back(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=MESSAGES, **HOW).choices[0].message
    sent: Any = [*MESSAGES, reply.model_dump(), {"role": "user", "content": "more"}]
    assert client.chat.completions.create(model=MODEL, messages=sent, max_tokens=1).choices


def test_without_a_limit_a_reply_may_fill_the_context(site: Served) -> None:
    body = {"messages": [{"role": "user", "content": "a" * 2000}], "ignore_eos": True}
    usage = site.post("/v1/chat/completions", body).json()["usage"]
    assert usage["total_tokens"] == site.engine.face.max_prompt_tokens


def test_a_conversation_too_long_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="2048 tokens; messages has at least 5019") as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "a" * 5000}])
    assert caught.value.param == "messages"


def test_a_stop_string_ends_a_reply(site: Served, client: openai.OpenAI) -> None:
    [whole] = own(site, ignore_eos=True, **HOW)
    stop = whole.text[5]
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stop=stop, extra_body={"ignore_eos": True}, **HOW
    )
    assert answer.choices[0].message.content == whole.text[: whole.text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(("alternatives", "tokens"), [({"top_logprobs": 20}, 3), ({"top_logprobs": 0}, 63), ({}, 63)])
def test_a_chat_of_no_given_length_has_as_many_tokens_as_may_be_told_of(
    site: Served, monkeypatch: pytest.MonkeyPatch, alternatives: dict[str, int], tokens: int
) -> None:
    monkeypatch.setattr("adjudge.engine.http.chat.MOST_LOGPROBS", 63)
    monkeypatch.setattr("adjudge.engine.http.texts.MOST_LOGPROBS", 63)
    body = {"messages": MESSAGES, "logprobs": True, "ignore_eos": True, **alternatives}
    [choice] = site.post("/v1/chat/completions", body).json()["choices"]
    assert choice["finish_reason"] == "length" and len(choice["logprobs"]["content"]) == tokens
    assert site.post("/v1/chat/completions", {**body, "max_tokens": tokens + 1}).status_code == 400


def test_a_reply_that_is_sent_back_is_taken(site: Served) -> None:
    reply = {"role": "assistant", "content": "Yes.", "tool_calls": [], "reasoning_content": None}
    sent_back = [*MESSAGES, reply, *MESSAGES]
    assert site.post("/v1/chat/completions", {"messages": sent_back, "max_tokens": 1}).status_code == 200
