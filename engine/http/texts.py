"""Texts under way for a request: all at once, or bit by bit as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from litestar.response import Stream

from adjudge.engine.async_engine import Answers
from adjudge.engine.completion import Completion, FinishReason, TokenLogprob
from adjudge.engine.face import AnyPrompt
from adjudge.engine.http.errors import at_most, blame, error_body, http_error, overflow, too_long
from adjudge.engine.http.limits import MOST_LOGPROBS
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import TextRequest, Usage
from adjudge.engine.http.token_names import TokenNames
from adjudge.engine.threads.worker import Piece

Event = tuple[int, Completion] | Piece

DONE = b"data: [DONE]\n\n"


class Delta(msgspec.Struct, frozen=True):
    """What has been added to the text at `place`; the last one of a text has its `finish_reason`."""

    place: int
    text: str
    tokens: Sequence[TokenLogprob]
    finish_reason: FinishReason | None = None


@dataclass
class Texts:
    """The texts of one request. `completions` come in as they end."""

    answers: Answers
    first: Event
    rest: AsyncIterator[Event]
    completions: list[Completion] = field(default_factory=list)

    @property
    def usage(self) -> Usage:
        """Complete when all texts have ended."""
        return Usage.of_texts(self.completions, self.answers.prompt_tokens - self.answers.cached_tokens)

    async def all(self) -> list[Completion]:
        """Every completion, in the order of the prompts."""
        async for _ in self.deltas():
            pass
        return sorted(self.completions, key=lambda completion: (completion.prompt, completion.sample))

    async def deltas(self) -> AsyncIterator[Delta]:
        """What is added to the texts that are streamed, as it comes, and how they end."""
        yield self._delta(self.first)
        async for event in self.rest:
            yield self._delta(event)

    def _delta(self, event: Event) -> Delta:
        if isinstance(event, Piece):
            return Delta(event.place, event.text, event.tokens)
        place, completion = event  # whose text has come in pieces
        self.completions.append(completion)
        return Delta(place, "", (), completion.finish_reason)


async def begin(
    service: Service,
    request: AnyRequest,
    prompts: Sequence[AnyPrompt],
    body: TextRequest,
    options: dict[str, Any],
    *,
    field: str,
    renamed: dict[str, str] | None = None,
) -> Texts:
    """Begin the texts, and wait until the first has begun: a full queue, or a prompt too long or after which the model
    has no number, is a status of its own.

    `field` is what the prompts came in; `renamed` see `blame`.
    """
    count = "n" if len(prompts) == 1 else field
    texts_asked = len(prompts) * max(1, options.get("n", 1))
    service.check_count(texts_asked, count)
    _check_numbers(texts_asked, options, service.engine.face.max_prompt_tokens, renamed or {})
    timeout = service.timeout(request, body.timeout)
    how: dict[str, Any] = {"priority": body.priority or 0, "timeout": timeout, "pieces": bool(body.stream), **options}
    with blame(field, count=count, renamed=renamed):
        answers = await service.begun(request, partial(service.engine.open_generate, prompts, **how), timeout)
        events = aiter(answers)
        texts = Texts(answers, await service.unless_gone(request, anext(events)), events)
    if len(prompts) > 1:
        return texts
    match texts.first:
        case (_, Completion(finish_reason="too_long", prompt_tokens=tokens)):
            what = f"{field} has at least {tokens}, which leaves no room for an answer"
            raise too_long(field, what, service.engine.face.max_prompt_tokens)
        case (_, Completion(finish_reason="non_finite", token_ids=())):
            raise overflow(field)
    return texts


def _check_numbers(texts: int, options: dict[str, Any], context: int, renamed: dict[str, str]) -> None:
    """Raise a 400 where the tokens of all texts could come with more log-probabilities than one answer may hold."""
    told, longest = options.get("logprobs"), options.get("max_tokens")
    tokens = texts * min(context, context if longest is None else longest)
    if told is not None:
        what = f"log-probabilities, for {texts} texts of up to {tokens // texts} tokens"
        at_most(tokens * (1 + max(0, told)), MOST_LOGPROBS, what, renamed.get("logprobs", "logprobs"))


def stream(
    texts: Texts,
    chunk: Callable[[Delta], Any],
    usage: Callable[[Usage], Any] | None,
    *,
    tokens: bool,
    token_names: TokenNames,
) -> Stream:
    """The deltas as `chunk` words them, the usage if it is wanted, and the end; an error on the way is an event too.

    Without `tokens` those that add nothing to the text are left out. What `token_names` takes is done before.
    """

    async def events() -> AsyncIterator[bytes]:
        try:
            if tokens:
                await asyncio.to_thread(token_names.make_ready)  # `chunk` runs in the event loop
            async for delta in texts.deltas():
                if delta.text or delta.finish_reason or (tokens and delta.tokens):
                    yield _event(chunk(delta))
            if usage is not None:
                yield _event(usage(texts.usage))
            yield DONE
        except Exception as error:
            yield b"data: " + error_body(http_error(error)) + b"\n\n"

    # As a header: a media type that is given here counts for less than the route's own.
    headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    return Stream(events(), headers=headers)


def _event(chunk: Any) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
