"""Texts over the wire: what is asked for, and what comes back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import PromptError, RemoteError
from adjudge.engine.remote.completions import Choice, OpenAIProtocol
from adjudge.engine.remote.protocols import TextAsk
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.tokenizer import Tokenizer
from tests.engine.remote.conftest import VARIED, Open
from tests.engine.text.tokenizers import worded_tokenizer
from tests.engine.tiny import DIGITS


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
def test_texts_and_their_tokens_are_the_engines_own(open_remote: Open, engine: Engine, kind: str) -> None:
    remote, _ = open_remote(kind)
    options: dict[str, Any] = {"max_tokens": 6, "temperature": 0.0, "logprobs": 3, "n": 2}
    assert remote.generate(VARIED, **options) == engine.generate(VARIED, **options)


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
@pytest.mark.parametrize(("count", "alternatives"), [(0, 0), (3, 0), (1, 4), (4, 1)])
def test_prompts_are_read_as_the_engine_reads_them(
    open_remote: Open, engine: Engine, kind: str, count: int, alternatives: int
) -> None:
    remote, _ = open_remote(kind)
    options: dict[str, Any] = {"max_tokens": 2, "temperature": 0.0, "logprobs": alternatives, "n": 2}
    here = engine.generate(VARIED, prompt_logprobs=count, **options)
    assert remote.generate(VARIED, prompt_logprobs=count, **options) == here
    assert all(len(one.prompt_logprobs) == one.prompt_tokens for one in here)


@pytest.mark.parametrize("kind", ["adjudge", "vllm"])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 7, "n": 3},
        {"temperature": 0.0, "frequency_penalty": 1.5, "presence_penalty": -0.5, "logit_bias": {70: 6.0}},
        {"temperature": 1.0, "stop": ("a", "e"), "seed": 3, "max_tokens": 40},
        {"choices": ("yes", "no"), "seed": 1},
        {"regex": "[0-9]{2}", "seed": 2},
        {"json_schema": {"type": "boolean"}, "seed": 2},
        {"allowed_token_ids": (65, 66), "seed": 4, "ignore_eos": True},
    ],
)
def test_every_field_of_sampling_reaches_the_server(
    open_remote: Open, engine: Engine, kind: str, options: dict[str, Any]
) -> None:
    remote, _ = open_remote(kind)
    options = {"max_tokens": 5} | options
    assert remote.generate(VARIED[:2], **options) == engine.generate(VARIED[:2], **options)


def test_nothing_is_left_to_a_servers_own_defaults(open_remote: Open) -> None:
    neutral = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "top_k": -1}
    remote, server = open_remote("vllm")
    remote.score(["a"], DIGITS)
    remote.generate(["a"], max_tokens=1)
    assert all(body | neutral == body for body in server.bodies)
    assert server.bodies[1]["skip_special_tokens"] is False  # an engine's text has them
    remote, server = open_remote("sglang")
    remote.generate(["a"], max_tokens=1)
    params = server.bodies[0]["sampling_params"]
    assert params | neutral == params and params["skip_special_tokens"] is False


def test_a_priority_goes_to_servers_that_know_one(open_remote: Open) -> None:
    for kind, knows in (("adjudge", True), ("vllm", True), ("sglang", False), ("openai", False)):
        remote, server = open_remote(kind)
        remote.score(["a"], DIGITS, priority=3)
        remote.generate(["a"], max_tokens=1, priority=3)
        remote.generate(["a"], max_tokens=1)
        assert [body.get("priority") for body in server.bodies] == [3 if knows else None] * 2 + [None]


def test_a_priority_that_is_no_number_never_leaves(open_remote: Open) -> None:
    remote, server = open_remote("sglang")
    for ask in (lambda how: remote.score(["a"], DIGITS, **how), lambda how: remote.generate(["a"], **how)):
        with pytest.raises(PromptError, match="priority is 'x': give a whole number"):
            ask({"priority": "x"})
    assert not server.bodies


def test_numbers_of_numpy_are_sent_as_numbers(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    how: dict[str, Any] = {"max_tokens": np.int64(2), "temperature": np.float32(0.5), "priority": np.int64(2)}
    how |= {"seeds": np.array([3]), "allowed_token_ids": [np.int64(65)]}
    assert remote.generate(["a"], **how) == engine.generate(["a"], **how)
    assert remote.score(["a"], DIGITS, priority=np.int64(2)) == engine.score(["a"], DIGITS)


def test_each_prompt_keeps_its_own_seed(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    options: dict[str, Any] = {"seeds": [5, 6, 5], "max_tokens": 5}
    assert remote.generate(["a", "a", "a"], **options) == engine.generate(["a", "a", "a"], **options)


@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_a_seed_of_any_size_is_one_that_the_server_takes(open_remote: Open, kind: str) -> None:
    remote, server = open_remote(kind)
    texts = remote.generate(["a", "a"], seeds=[2**64 - 1, 2**64 - 1], max_tokens=5)
    assert texts[0].text == texts[1].text and texts[0].finish_reason == "length"
    assert [body["seed"] for body in server.bodies] == [2**31 - 1] * 2


def test_sglang_writes_choices_as_a_regular_expression(open_remote: Open) -> None:
    remote, server = open_remote("sglang")
    [text] = remote.generate(["a"], choices=("y.s", "no"), temperature=0, seed=1, max_tokens=5)  # nothing is drawn
    assert server.bodies[0]["sampling_params"]["regex"] == r"(y\.s)|(no)"
    assert text.text in ("y.s", "no") and text.finish_reason == "stop"
    assert math.isnan(text.logprob)  # what SGLang reports under a form is not the model's own


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        ("openai", {"top_k": 3}, "top_k"),
        ("openai", {"logprobs": 2}, "logprobs"),
        ("openai", {"json_schema": "{}"}, "json_schema"),
        ("sglang", {"seed": 3}, "seed"),
        ("sglang", {"seeds": [3]}, "seed"),
        ("sglang", {"allowed_token_ids": (1,)}, "allowed_token_ids"),
        ("sglang", {"logprobs": 2, "temperature": 0.7}, "logprobs"),
        ("sglang", {"prompt_logprobs": 0, "temperature": 0.7}, "prompt_logprobs"),
        ("openai", {"prompt_logprobs": 0}, "prompt_logprobs"),
    ],
)
def test_what_a_server_would_ignore_is_refused_before_anything_is_sent(
    open_remote: Open, kind: str, options: dict[str, Any], word: str
) -> None:
    remote, server = open_remote(kind)
    mend = "give temperature 0" if word == "seed" else "leave it out"
    with pytest.raises(RemoteError, match=f"^{word}.*{mend}, or use `adjudge serve`"):
        remote.generate(["a"], **options)
    assert not server.bodies


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
def test_surrogates_are_taken_as_the_engine_takes_them(open_remote: Open, engine: Engine, kind: str) -> None:
    remote, server = open_remote(kind)
    for name, value in (
        ("stop", "\ud800"),
        ("choices", ("a", "b\udc00")),
        ("regex", "\ud83d"),
        ("json_schema", "\udc00"),
    ):
        for each in (engine, remote):
            with pytest.raises(PromptError, match=f"^{name} has a lone surrogate, which no text has: leave it out"):
                each.generate(["a"], max_tokens=2, **{name: value})
    assert not server.bodies
    options: dict[str, Any] = {"choices": ("\ud83d\ude42",), "stop": "\ud83d\ude43", "temperature": 0, "max_tokens": 9}
    [text] = remote.generate(["a"], **options)
    assert text.text == engine.generate(["a"], **options)[0].text == "🙂"


def test_a_plain_servers_texts_have_the_tokens_they_have_here(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("openai")
    [text] = remote.generate(["a"], temperature=0, max_tokens=4)
    [own] = engine.generate(["a"], temperature=0, max_tokens=4)
    assert text.text == own.text
    assert text.token_ids == engine.tokenizer.encode(own.text, False)
    assert math.isnan(text.logprob)


def test_a_plain_servers_texts_go_on_from_their_prompts() -> None:
    tokenizer = Tokenizer(worded_tokenizer("first"))
    tokens = tokenizer.prompt("Say:")
    text = OpenAIProtocol("theirs", tokenizer, 20).written(
        Choice("Once", finish_reason="stop"), TextAsk(tokens, Sampling(), None, 8)
    )
    assert tokens + text.token_ids == tokenizer.prompt("Say:Once")


def test_scores_are_read_where_a_text_wrote_them(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    options: dict[str, Any] = {"regex": "so <ANSWER>[1-5]</ANSWER>", "seed": 1, "max_tokens": 40}
    texts = remote.generate(["Rate."], **options)
    [score] = remote.read_answers(["Rate."], texts, DIGITS)
    assert score == engine.read_answers(["Rate."], engine.generate(["Rate."], **options), DIGITS)[0]
    assert score.reason is None
