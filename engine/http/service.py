"""What all routes of one server share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, TypeVar

from litestar import Request

from adjudge.engine.async_engine import Answers, AsyncFace
from adjudge.engine.http.errors import HttpError, at_most
from adjudge.engine.http.limits import LATE, Limits
from adjudge.engine.http.token_names import TokenNames

Result = TypeVar("Result")
AnyRequest = Request[Any, Any, Any]


@dataclass
class Service:
    """An engine and its limits; while `draining` no more requests are taken.

    Of each that is `under_way` there is what gives it up once it is cancelled.
    """

    engine: AsyncFace
    limits: Limits
    name: str | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    draining: bool = False
    under_way: set[Future[None]] = field(default_factory=set)

    @property
    def active(self) -> int:
        """How many requests are under way."""
        return len(self.under_way)

    @cached_property
    def token_names(self) -> TokenNames:
        """How the model's tokens are written in answers."""
        face = self.engine.face
        return TokenNames(face.tokenizer, face.byte_table)  # which judges have made, or will use

    @property
    def model(self) -> str:
        """The id under which the model is served."""
        return self.name or self.engine.face.name

    def check_model(self, name: str | None) -> None:
        """Raise a 404 for a model that is not this one; None and "" mean the one there is."""
        if name and name != self.model:
            raise HttpError(
                404,
                f'model "{name}" is not served here: ask for "{self.model}", or leave it out',
                param="model",
                code="model_not_found",
            )

    def check_count(self, count: int, field: str) -> None:
        """Raise a 400 for a request that wants more answers than one may."""
        at_most(count, self.limits.max_answers, "answers", field)

    def timeout(self, request: AnyRequest, asked: float | None) -> float:
        """Seconds that a request has left, all of them when this is first asked; raises a 400 for none at all."""
        if asked is not None and not asked > 0:
            raise HttpError(400, f"timeout is {asked}: give seconds above 0", param="timeout")
        now = monotonic()
        began: float = request.scope["state"].setdefault("began", now)
        return max(0.0, min(self.limits.request_timeout, asked or self.limits.request_timeout) - (now - began))

    async def begun(
        self, request: AnyRequest, opened: Callable[[], Coroutine[Any, Any, Answers]], timeout: float
    ) -> Answers:
        """What a request has `opened`, which ends when the request has ended in whatever way; see `unless_gone`."""

        async def noted() -> Answers:
            answers = await opened()
            request.scope["state"]["ending"].callback(answers.close)
            return answers

        return await self.unless_gone(request, noted(), timeout)

    async def unless_gone(self, request: AnyRequest, work: Awaitable[Result], timeout: float | None = None) -> Result:
        """Wait for `work`, but not longer than the client does; raises a 499 that nobody will read.

        With the request's `timeout` it is waited for not much longer than that either; raises a 504.
        """
        working, going = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
        try:
            most = None if timeout is None else timeout + LATE
            await asyncio.wait((working, going), timeout=most, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            if going.done():
                raise HttpError(499, "the client has gone")
            said = "the request was not read in time: ask for less at once, or for a longer timeout"
            raise HttpError(504, said, param="timeout", code="timeout")
        finally:
            working.cancel()
            going.cancel()


async def _gone(request: AnyRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
