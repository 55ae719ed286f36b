"""`/v1/completions`: texts that continue prompts, in OpenAI's (older) form."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import Stream

from adjudge.engine.completion import Completion, FinishReason, TokenLogprob
from adjudge.engine.face import AnyPrompt
from adjudge.engine.http.errors import HttpError
from adjudge.engine.http.prompt_tokens import (
    PromptLogprobs,
    check_numbers,
    check_read,
    check_whole,
    echoes_of,
    number,
    tokens_of,
    worded,
)
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import Given, Only, TextRequest, Usage, prompts_of, refuse_others
from adjudge.engine.http.texts import Delta, begin, stream
from adjudge.engine.http.token_names import LEAST, Offsets
from adjudge.engine.tokens import Tokens

MAX_TOKENS = 16
"""OpenAI's own default."""


class Start(NamedTuple):
    """What a text begins with, the prompt with `echo` and nothing without, and the prompt's tokens."""

    echo: str
    tokens: Tokens


Begun = tuple[Start, Sequence[TokenLogprob | None]]
"""A text's beginning, and what was read of its prompt's tokens."""


class CompletionRequest(TextRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`prompt` is a text, token ids, or a list of one of the two; special-token strings in a text are plain characters.

    `logprobs` is how many alternatives to report for each token; with `return_tokens_as_token_ids` (vLLM's) tokens are
    named token_id:N there, so that no two have one name. `prompt_logprobs` (vLLM's) is the same for the prompt's own
    tokens, by their ids; null where the prompt was not read. With `echo` each text begins with its prompt, whose
    tokens' log-probabilities are reported as well (null for the first, which has nothing before it); `max_tokens` may
    be 0 then, for the prompt alone.
    """

    prompt: Given
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_tokens_as_token_ids: bool | None = None
    echo: bool | None = None
    suffix: Annotated[str | None, Only("")] = None
    best_of: int | None = None
    response_format: Annotated[Any, Only({"type": "text"})] = None

    @property
    def asks_for_prompts(self) -> str | None:
        """The field by which something is told of the prompts, if there is one."""
        return "echo" if self.echo else None if self.prompt_logprobs is None else "prompt_logprobs"

    @property
    def counts(self) -> list[int]:
        """How many alternatives to tell for each token of the prompts, every time that they are told."""
        asked = (self.prompt_logprobs, self.logprobs if self.echo else None)
        return [count for count in asked if count is not None]


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """For each token of a text its name, log-probability, alternatives and place, in characters."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    """A text, or what is added to it; `index` counts through the prompts' texts in order."""

    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: CompletionLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


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
    refuse_others(data)
    if data.best_of not in (None, best := data.n or 1):
        raise HttpError(400, f"best_of is not supported: leave it out, or give {best}", param="best_of")
    prompts = prompts_of(data.prompt, "prompt")
    options = {"max_tokens": MAX_TOKENS if data.max_tokens is None else data.max_tokens, **data.options()}
    if data.logprobs is not None:
        options["logprobs"] = data.logprobs
    n, starts, timeout = max(1, data.n or 1), None, service.timeout(request, data.timeout)
    if (asked := data.asks_for_prompts) is not None:
        check_whole(data, asked)
        service.check_count(len(prompts) * n, "n" if len(prompts) == 1 else "prompt")
        starts = await service.unless_gone(request, asyncio.to_thread(_starts, service, data, prompts, n), timeout)
        prompts = [start.tokens for start in starts]
        most = max(data.counts, key=lambda count: (count < 0, count), default=None)  # one below 0 is refused
        options["prompt_logprobs"] = most
    alone = bool(data.echo) and options["max_tokens"] == 0
    if alone:
        options["max_tokens"] = 1  # what is written is left out
    texts = await begin(service, request, prompts, data, options, field="prompt")
    wording = _Wording(service, data)
    if data.stream:
        usage = wording.usage if data.wants_usage else None
        tokens = data.logprobs is not None or bool(data.return_token_ids)
        return stream(texts, wording.chunk, usage, tokens=tokens, token_names=service.token_names)
    done = await service.unless_gone(request, texts.all())
    if data.echo and data.logprobs is not None:
        check_read(done, len(prompts), service.engine.face.max_prompt_tokens)
    if alone:
        done = texts.completions = [_unwritten(completion) for completion in done]
    deltas = [
        Delta(completion.prompt * n + completion.sample, completion.text, completion.logprobs, completion.finish_reason)
        for completion in done
    ]
    begun = None if starts is None else [(starts[one.prompt], one.prompt_logprobs) for one in done]
    return await asyncio.to_thread(wording.response, deltas, texts.usage, begun)


def _starts(service: Service, data: CompletionRequest, prompts: Sequence[AnyPrompt], n: int) -> list[Start]:
    """What is told of the prompts of `n` texts each, but for what is read of them."""
    tokens, asked = tokens_of(service, prompts, "prompt"), data.asks_for_prompts
    check_numbers(n * sum(map(len, tokens)), data.counts, str(asked))
    echoes = echoes_of(service, prompts, tokens, n) if data.echo else [""] * len(prompts)
    return list(map(Start, echoes, tokens))


def _unwritten(completion: Completion) -> Completion:
    """The same as if nothing had been written."""
    reason: FinishReason = "length" if completion.finish_reason == "stop" else completion.finish_reason
    return msgspec.structs.replace(completion, text="", token_ids=(), logprobs=(), finish_reason=reason)


class _Wording:
    """The form in which one request's texts are answered."""

    def __init__(self, service: Service, body: CompletionRequest) -> None:
        self._body, self._model = body, service.model
        self._token_names = service.token_names
        self._id, self._created = f"cmpl-{uuid.uuid4().hex}", int(time.time())
        self._offsets: dict[int, Offsets] = defaultdict(lambda: Offsets(self._token_names))

    def response(
        self, deltas: Sequence[Delta], usage: Usage | None = None, begun: Sequence[Begun] | None = None
    ) -> CompletionResponse:
        """One answer; something is told of the prompts where there are `begun`."""
        some: Sequence[Begun | None] = [None] * len(deltas) if begun is None else begun
        choices = [self._choice(delta, one) for delta, one in zip(deltas, some, strict=True)]
        return CompletionResponse(self._id, self._model, self._created, choices, usage)

    def chunk(self, delta: Delta) -> CompletionResponse:
        return self.response([delta])

    def _choice(self, delta: Delta, begun: Begun | None) -> CompletionChoice:
        ids = [token.token_id for token in delta.tokens] if self._body.return_token_ids else None
        text, tokens, told, count = delta.text, delta.tokens, None, self._body.logprobs
        if begun is not None:
            start, read = begun
            text = start.echo + text
            if self._body.echo and count is not None and read:
                self._offsets[delta.place] = Offsets(self._token_names, before=start.tokens, text=start.echo)
                first = TokenLogprob(start.tokens[0], math.nan)  # nothing stands before it: it has no number
                cut = (msgspec.structs.replace(one, top=one.top[:count]) for one in read if one is not None)
                tokens = [first, *cut, *tokens]
            if self._body.prompt_logprobs is not None:
                told = worded(read, self._body.prompt_logprobs, self._token_names)
        logprobs = None if count is None else self._logprobs(delta.place, tokens)
        return CompletionChoice(delta.place, text, delta.finish_reason, logprobs, ids, told)

    def usage(self, usage: Usage) -> CompletionResponse:
        return self.response([], usage)

    def _logprobs(self, place: int, tokens: Sequence[TokenLogprob]) -> CompletionLogprobs:
        name = "token_id:{}".format if self._body.return_tokens_as_token_ids else self._token_names.name
        offsets = self._offsets[place]
        return CompletionLogprobs(
            [name(token.token_id) for token in tokens],
            [number(token.logprob) for token in tokens],
            [_alternatives(token, name) for token in tokens],
            [offsets.next(token.token_id) for token in tokens],
        )


def _alternatives(token: TokenLogprob, name: Callable[[int], str]) -> dict[str, float] | None:
    """The likeliest tokens at its place, and the token itself where it is none of them; None where it has no number."""
    if math.isnan(token.logprob):
        return None
    some = token.top if token.token_id in dict(token.top) else (*token.top, (token.token_id, token.logprob))
    named: dict[str, float] = {}
    for one, value in some:
        named.setdefault(name(one), max(value, LEAST))  # of one name the likeliest
    return named
