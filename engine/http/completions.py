"""`/v1/completions`: texts that continue prompts, in OpenAI's (older) form."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import Stream

from adjudge.engine.completion import FinishReason, TokenLogprob
from adjudge.engine.http.inputs import Given, prompts_of
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.spelling import LEAST, Offsets
from adjudge.engine.http.text_request import TextRequest, Usage, refuse_all_but
from adjudge.engine.http.texts import Delta, begin, stream

MAX_TOKENS = 16
"""OpenAI's own default."""

ONLY: dict[str, tuple[Any, ...]] = {"echo": (False,), "suffix": ("",), "best_of": (1,)}


class CompletionRequest(TextRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`prompt` is a text, token ids, or a list of one of the two; special-token strings in a text are plain characters.

    `logprobs` is how many alternatives to report for each token; with `return_tokens_as_token_ids` (vLLM's) tokens are
    named token_id:N there, so that no two have one name.
    """

    prompt: Given
    logprobs: int | None = None
    return_tokens_as_token_ids: bool | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """For each token of a text its name, log-probability, alternatives and place, in characters."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    """A text, or what is added to it; `index` counts through the prompts' texts in order."""

    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: CompletionLogprobs | None = None
    token_ids: list[int] | None = None


class CompletionResponse(msgspec.Struct, frozen=True):
    """All texts, or, in a stream, one chunk."""

    id: str
    model: str
    created: int
    choices: list[CompletionChoice]
    usage: Usage | None = None
    object: str = "text_completion"


@post("/v1/completions", status_code=200, tags=["texts"])
async def completions(
    data: JSONBody[CompletionRequest], request: AnyRequest, service: NamedDependency[Service]
) -> CompletionResponse | Stream:
    """Continue prompts."""
    service.check_model(data.model)
    refuse_all_but(data, ONLY)
    options = {"max_tokens": MAX_TOKENS if data.max_tokens is None else data.max_tokens, **data.options()}
    if data.logprobs is not None:
        options["logprobs"] = data.logprobs
    texts = await begin(service, request, prompts_of(data.prompt, "prompt"), data, options, field="prompt")
    wording = _Wording(service, data)
    if data.stream:
        usage = wording.usage if data.wants_usage else None
        tokens = data.logprobs is not None or bool(data.return_token_ids)
        return stream(texts, lambda delta: wording.response([delta]), usage, tokens=tokens)
    n = options.get("n", 1)
    done = [
        Delta(completion.prompt * n + completion.sample, completion.text, completion.logprobs, completion.finish_reason)
        for completion in await service.unless_gone(request, texts.all())
    ]
    return await asyncio.to_thread(wording.response, done, texts.usage)


class _Wording:
    """The form in which one request's texts are answered."""

    def __init__(self, service: Service, body: CompletionRequest) -> None:
        self._body, self._model = body, service.model
        self._spelling = service.spelling
        self._id, self._created = f"cmpl-{uuid.uuid4().hex}", int(time.time())
        self._offsets: dict[int, Offsets] = defaultdict(lambda: Offsets(self._spelling))

    def response(self, deltas: Sequence[Delta], usage: Usage | None = None) -> CompletionResponse:
        choices = [
            CompletionChoice(
                delta.place,
                delta.text,
                delta.finish_reason,
                None if self._body.logprobs is None else self._logprobs(delta.place, delta.tokens),
                [token.token_id for token in delta.tokens] if self._body.return_token_ids else None,
            )
            for delta in deltas
        ]
        return CompletionResponse(self._id, self._model, self._created, choices, usage)

    def usage(self, usage: Usage) -> CompletionResponse:
        return self.response([], usage)

    def _logprobs(self, place: int, tokens: Sequence[TokenLogprob]) -> CompletionLogprobs:
        name = "token_id:{}".format if self._body.return_tokens_as_token_ids else self._spelling.name
        offsets = self._offsets[place]
        return CompletionLogprobs(
            [name(token.token_id) for token in tokens],
            [max(token.logprob, LEAST) for token in tokens],
            [{name(one): max(value, LEAST) for one, value in _alternatives(token)} for token in tokens],
            [offsets.next(token.token_id) for token in tokens],
        )


def _alternatives(token: TokenLogprob) -> tuple[tuple[int, float], ...]:
    """The likeliest tokens at its place, and the token itself where it is none of them."""
    among = token.token_id in dict(token.top)
    return token.top if among else (*token.top, (token.token_id, token.logprob))
