from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from adjudge.engine.completion import Completion
from adjudge.engine.remote.transport import TOO_LONG
from tests.engine.http.serving import MODEL, Served, error_of, wait_until_idle

TEXT = "/v1/completions"
HOW: dict[str, Any] = {"max_tokens": 24, "temperature": 1.5, "seed": 7}


def own(site: Served, prompts: Any, **options: Any) -> list[Completion]:
    """What the engine itself writes."""
    return site.engine.face.generate(prompts, **options)


def test_texts_are_the_engines_own(site: Served, client: openai.OpenAI) -> None:
    prompts = ["once", "upon a time"]
    expected = own(site, prompts, n=2, **HOW)
    answer = client.completions.create(model=MODEL, prompt=prompts, n=2, extra_body={"return_token_ids": True}, **HOW)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [completion.text for completion in expected]
    assert [tuple(choice.token_ids) for choice in answer.choices] == [text.token_ids for text in expected]
    assert [choice.finish_reason for choice in answer.choices] == [text.finish_reason for text in expected]
    assert answer.usage is not None and answer.usage.prompt_tokens == len("once") + len("upon a time")
    assert answer.usage.completion_tokens == sum(len(completion.token_ids) for completion in expected)
    assert answer.model == MODEL and answer.object == "text_completion"


def test_a_prompt_of_token_ids_and_a_list_of_them(site: Served, client: openai.OpenAI) -> None:
    one, two = [1, 2, 3], [260, 5]
    expected = [completion.text for completion in own(site, [one, two], **HOW)]
    assert [choice.text for choice in client.completions.create(model="", prompt=one, **HOW).choices] == expected[:1]
    both = client.completions.create(model=MODEL, prompt=[one, two], **HOW)
    assert [choice.text for choice in both.choices] == expected


def test_a_stream_adds_up_to_the_same_texts(site: Served, client: openai.OpenAI) -> None:
    expected = own(site, ["once"], n=3, logprobs=2, **HOW)
    texts, reasons = [""] * 3, [""] * 3
    ids: list[list[int]] = [[], [], []]
    logprobs: list[list[float]] = [[], [], []]
    usage = None
    for chunk in client.completions.create(
        model=MODEL,
        prompt="once",
        n=3,
        logprobs=2,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
        **HOW,
    ):
        assert usage is None
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            ids[choice.index] += choice.token_ids
            logprobs[choice.index] += choice.logprobs.token_logprobs
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == [completion.text for completion in expected]
    assert [tuple(some) for some in ids] == [completion.token_ids for completion in expected]
    assert reasons == [completion.finish_reason for completion in expected]
    assert logprobs == [[token.logprob for token in completion.logprobs] for completion in expected]
    assert usage is not None and usage.completion_tokens == sum(len(text.token_ids) for text in expected)


def test_a_stream_is_one_of_events_to_every_client(site: Served) -> None:
    chat = {"messages": [{"role": "user", "content": "once"}]}
    for path, asked in (("completions", {"prompt": "once"}), ("chat/completions", chat)):
        stream = site.post(f"/v1/{path}", {**asked, "max_tokens": 1, "stream": True})
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache"


def test_a_stream_sends_what_a_stop_string_held_back(site: Served, client: openai.OpenAI) -> None:
    [whole] = own(site, ["once"], ignore_eos=True, **HOW)
    stop = whole.text[-1] + "never written"
    chunks = client.completions.create(
        model=MODEL, prompt="once", stop=[stop], stream=True, extra_body={"ignore_eos": True}, **HOW
    )
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.text


def test_a_deadline_lets_go_of_what_was_held_back(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = site.engine.engine
    begun = inner.stats.steps
    monkeypatch.setattr(inner.scheduler, "clock", lambda: 9.0 if inner.stats.steps - begun >= 10 else 0.0)
    body = {"prompt": "once", "timeout": 5, "allowed_token_ids": [65], "stop": ["A" * 99], "max_tokens": 50}
    lines = site.post("/v1/completions", {**body, "stream": True}).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "A" * 10
    assert chunks[-1]["choices"][0]["finish_reason"] == "timeout"


def test_logprobs_have_names_and_places(site: Served, client: openai.OpenAI) -> None:
    choice = client.completions.create(
        model=MODEL, prompt="once", logprobs=2, extra_body={"regex": "aé€b"}, max_tokens=30
    ).choices[0]
    assert choice.text == "aé€b" and choice.logprobs is not None
    names = ["a", r"bytes:\xc3", r"bytes:\xa9", r"bytes:\xe2", r"bytes:\x82", r"bytes:\xac", "b"]
    assert choice.logprobs.tokens is not None and choice.logprobs.tokens[:7] == names
    assert choice.logprobs.text_offset is not None and choice.logprobs.text_offset[:7] == [0, 1, 1, 2, 2, 2, 3]
    [completion] = own(site, ["once"], logprobs=2, regex="aé€b", max_tokens=30)
    assert choice.logprobs.token_logprobs == [token.logprob for token in completion.logprobs]
    assert choice.logprobs.top_logprobs is not None
    first = [logprob for _, logprob in completion.logprobs[0].top]
    assert list(choice.logprobs.top_logprobs[0].values()) == [*first, completion.logprobs[0].logprob]


def test_among_the_alternatives_is_always_the_token_itself(site: Served, client: openai.OpenAI) -> None:
    unlikely = False
    for logprobs in (0, 1):
        choice = client.completions.create(
            model=MODEL, prompt="once", logprobs=logprobs, temperature=2.0, seed=1, max_tokens=12
        ).choices[0]
        assert choice.logprobs is not None and choice.logprobs.top_logprobs is not None
        for name, value, top in zip(
            choice.logprobs.tokens or [],
            choice.logprobs.token_logprobs or [],
            choice.logprobs.top_logprobs,
            strict=True,
        ):
            assert top[name] == value and len(top) <= logprobs + 1
            unlikely |= len(top) == 2
    assert unlikely


def test_an_echo_has_the_prompt_and_its_log_probabilities(site: Served, client: openai.OpenAI) -> None:
    prompts = ["once é", "b"]
    expected = own(site, prompts, n=2, logprobs=1, prompt_logprobs=1, **HOW)
    answer = client.completions.create(
        model=MODEL, prompt=prompts, n=2, logprobs=1, echo=True, extra_body={"return_token_ids": True}, **HOW
    )
    for choice, completion in zip(answer.choices, expected, strict=True):
        prompt, listed = prompts[completion.prompt], choice.logprobs
        assert choice.text == prompt + completion.text and tuple(choice.token_ids) == completion.token_ids
        assert listed is not None and listed.tokens and listed.token_logprobs and listed.text_offset
        read = [one and one.logprob for one in (*completion.prompt_logprobs, *completion.logprobs)]
        assert listed.token_logprobs == read and read[0] is None
        places = {"once é": [0, 1, 2, 3, 4, 5, 5, 6], "b": [0, 1]}[prompt]  # a token is a byte here
        assert listed.text_offset[: len(places)] == places
        assert listed.top_logprobs is not None and listed.top_logprobs[0] is None
        for name, value, top in zip(listed.tokens[1:], listed.token_logprobs[1:], listed.top_logprobs[1:], strict=True):
            assert top[name] == value and len(top) <= 2
    assert answer.usage is not None and answer.usage.prompt_tokens == 8


def test_prompts_are_read_in_vllms_form(site: Served, client: openai.OpenAI) -> None:
    prompts = ["once é", "b"]
    expected = own(site, prompts, n=2, prompt_logprobs=2, **HOW)
    for extra, echoed in (({}, False), ({"echo": True, "logprobs": 1}, True), ({"echo": True, "logprobs": 3}, True)):
        body: dict[str, Any] = {"prompt": prompts, "n": 2, "prompt_logprobs": 2, **extra, **HOW}
        for choice, completion in zip(site.post(TEXT, body).json()["choices"], expected, strict=True):
            assert choice["text"] == (prompts[completion.prompt] if echoed else "") + completion.text
            first, *rest = choice["prompt_logprobs"]
            assert first is None and len(rest) == completion.prompt_tokens - 1
            for listed, read in zip(rest, completion.prompt_logprobs[1:], strict=True):
                assert read is not None
                values = {int(token): one["logprob"] for token, one in listed.items()}
                assert values == {read.token_id: read.logprob, **dict(read.top)}
            if echoed:
                count = len(completion.prompt_logprobs)
                told = choice["logprobs"]
                assert told["token_logprobs"][1:count] == [
                    read.logprob for read in completion.prompt_logprobs[1:] if read
                ]
                assert {len(top) for top in told["top_logprobs"][1:count]} <= {extra["logprobs"], extra["logprobs"] + 1}
            if completion.prompt == 0:
                assert rest[0][str(ord("n"))]["decoded_token"] == "n"
    plain = site.post(TEXT, {"prompt": prompts, **HOW}).json()["choices"]
    assert [choice["prompt_logprobs"] for choice in plain] == [None, None]


def test_of_a_prompt_that_was_not_read_nothing_is_told(site: Served) -> None:
    body = {"prompt": ["once", "x" * 5000], "max_tokens": 1, "prompt_logprobs": 0, "ignore_eos": True}
    read, unread = site.post(TEXT, body).json()["choices"]
    assert len(read["prompt_logprobs"]) == 4 and read["finish_reason"] == "length"
    assert (unread["prompt_logprobs"], unread["finish_reason"]) == (None, "too_long")


def test_an_echo_of_the_prompt_alone_adds_up_to_the_score_of_its_end(site: Served, client: openai.OpenAI) -> None:
    before, end = [260, 5, 9], [17, 30]
    body: dict[str, Any] = {"model": MODEL, "prompt": [[*before, *end]], "echo": True, "logprobs": 0}
    for max_tokens in (0, 1):
        answer = client.completions.create(max_tokens=max_tokens, **body)
        [choice], usage = answer.choices, answer.usage
        assert usage is not None and usage.completion_tokens == max_tokens and choice.logprobs is not None
        values = choice.logprobs.token_logprobs or []
        assert len(values) == 5 + max_tokens and choice.finish_reason == "length"
        whole = sum(values[3:5])
        [reading] = site.post("/v1/score", {"query": before, "items": [[]], "label_token_ids": [17]}).json()["results"]
        [then] = site.post("/v1/score", {"query": [*before, 17], "items": [[]], "label_token_ids": [30]}).json()[
            "results"
        ]
        assert whole == pytest.approx(reading["full_logprobs"][0] + then["full_logprobs"][0], abs=1e-5)
    plain = client.completions.create(model=MODEL, prompt=["once", [1, 2]][0], echo=True, max_tokens=0)
    assert plain.choices[0].text == "once" and plain.choices[0].logprobs is None


def test_an_echo_of_a_prompt_that_was_not_read_is_an_error_and_no_certainty(site: Served) -> None:
    body = {"prompt": ["once", "x" * 5000], "echo": True, "max_tokens": 1}
    response = site.post("/v1/completions", {**body, "logprobs": 0})
    assert response.status_code == 400 and error_of(response)["param"] == "prompt[1]"
    response = site.post("/v1/completions", {**body, "prompt": ["x" * 1900] * 9, "logprobs": 0, "timeout": 1e-4})
    assert response.status_code == 504 and error_of(response)["param"].startswith("prompt")
    choices = site.post("/v1/completions", body).json()["choices"]
    assert choices[1]["finish_reason"] == "too_long" and choices[1]["text"] == "x" * 5000


def test_an_echo_does_not_grow_without_bounds(site: Served) -> None:
    long = {"prompt": "a" * 1500, "n": 400}
    for param, change in (
        ("echo", {"prompt": ["a" * 3_000_000, "b"], "n": 40, "echo": True, "max_tokens": 0}),
        ("echo", {**long, "logprobs": 0, "echo": True, "max_tokens": 0}),
        ("prompt_logprobs", {**long, "prompt_logprobs": 0, "max_tokens": 1}),
    ):
        response = site.post(TEXT, change)
        assert response.status_code == 400 and error_of(response)["param"] == param


def test_engine_options_reach_the_engine(site: Served) -> None:
    def text(**options: object) -> str:
        response = site.post("/v1/completions", {"prompt": "once", "max_tokens": 40, **options})
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["text"])

    assert text(choices=["yes", "no"]) in ("yes", "no")
    assert text(allowed_token_ids=[65], ignore_eos=True) == "A" * 40
    assert text(top_k=1) == text(temperature=0) == text(min_p=1.0)
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(text(json_schema=schema, max_tokens=200)) == {"a": 1}
    greedy = text(temperature=0)
    assert text(temperature=0, repetition_penalty=1.9) != greedy == text(temperature=0, logit_bias={})
    assert text(temperature=0, frequency_penalty=2, presence_penalty=1) != greedy
    assert text(temperature=0, logit_bias={"66": 100}, ignore_eos=True) == "B" * 40


def test_an_equal_prompt_comes_from_the_cache(site: Served) -> None:
    wait_until_idle(site.engine)  # which empties it
    body: dict[str, Any] = {"prompt": "the same again and again", "max_tokens": 1, "n": 2}
    usages = [site.post("/v1/completions", body).json()["usage"] for _ in range(2)]
    length = len(body["prompt"])
    assert [usage["prompt_tokens"] for usage in usages] == [length, length]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached == [0, length - 1]  # the last token is computed all the same, for each text


def test_what_asks_for_nothing_changes_nothing(site: Served) -> None:
    def told(**options: Any) -> Any:
        response = site.post(TEXT, {"prompt": "once", "n": 2, **HOW, **options})
        assert response.status_code == 200, response.text
        return response.json()["choices"]

    nothing = ("structured_outputs", "guided_json", "truncate_prompt_tokens", "cache_salt", "lora_path", "suffix")
    assert told(**dict.fromkeys((*nothing, "response_format", "best_of"))) == told()
    inert = {"skip_special_tokens": False, "no_stop_trim": False, "best_of": 2, "response_format": {"type": "text"}}
    assert told(**inert) == told()


def test_a_deadline_ends_a_text_where_it_is(site: Served) -> None:
    answer = site.post("/v1/completions", {"prompt": "once", "timeout": 1e-9}).json()
    assert [(choice["finish_reason"], choice["text"]) for choice in answer["choices"]] == [("timeout", "")]
    stream = site.post("/v1/completions", {"prompt": "once", "timeout": 1e-9, "stream": True})
    assert '"finish_reason":"timeout"' in stream.text and stream.text.endswith("data: [DONE]\n\n")


KNOWN = "This model's maximum context length is 2048 tokens; prompt has at least 5000, which leaves no room"
"""LiteLLM and others know an error by such words."""


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_too_long_is_refused_unless_others_are_not(site: Served, client: openai.OpenAI, stream: bool) -> None:
    long = "a" * 5000
    with pytest.raises(openai.BadRequestError, match=KNOWN) as caught:
        client.completions.create(model=MODEL, prompt=long, stream=stream)
    assert caught.value.param == "prompt" and caught.value.code == "context_length_exceeded"
    assert TOO_LONG.search(str(caught.value))
    answer = site.post("/v1/completions", {"prompt": [long, "b"], "max_tokens": 2, "ignore_eos": True}).json()
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["too_long", "length"]


def test_max_tokens_beyond_the_context_end_with_it(site: Served) -> None:
    answer = site.post("/v1/completions", {"prompt": [1] * 2040, "max_tokens": 10**30, "ignore_eos": True}).json()
    assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["completion_tokens"] == 8
