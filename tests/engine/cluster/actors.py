"""Actors without Ray, whose processes open, change, hang and die as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import EllipsisType
from typing import Any

import numpy as np
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from adjudge.engine.cluster.replica import Done, Heads, Opened, Replica, State
from adjudge.engine.embedding import Embedding
from adjudge.engine.errors import AdjudgeError

FOLDERS: dict[str, str] = {}
"""What stands in folders, where it matters; "model" is the one that replicas open."""


class Weights:
    """As much of an engine as has weights."""

    adapter = reward_head = None

    def __init__(self, weights: str | None) -> None:
        self.weights, self.asleep, self.engine = weights, False, self

    async def update_weights(self, weights: str | None, *, adapter: str | EllipsisType | None) -> None:
        if weights == "none there":
            raise AdjudgeError("holds no weights")
        self.weights = weights or self.weights

    async def sleep(self) -> None:
        self.asleep = True

    async def wake(self) -> None:
        self.asleep = False


class Process(Replica):
    """A replica that takes `loading` seconds to open and `changing` to become another."""

    def __init__(self, loading: float, changing: float) -> None:
        super().__init__("", {})
        self.loading, self.changing, self.loads, self.hangs = loading, changing, 0, False
        self.fails: list[Exception] = []  # what the next calls of its engine raise

    async def open(self, state: State) -> Opened:
        async with self._changing:
            if self._engine is None:
                self.loads += 1
                await asyncio.sleep(self.loading)
                self._engine, self._state = Weights(state.weights), state  # type: ignore[assignment]
                self._weights = FOLDERS.get(state.weights or "model", "")
                if state.asleep:
                    await self._engine.sleep()
            await self._become(state)
        return Opened("", "", self._heads, 1, 100, frozenset(), 1)

    async def become(self, state: State) -> Heads:
        await asyncio.sleep(self.changing)
        return await super().become(state)


class Method:
    """A method of an actor, as Ray's handles have it."""

    def __init__(self, call: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self.call = call

    def options(self, **_: Any) -> Method:
        return self

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._raised(*arguments))

    async def _raised(self, *arguments: Any) -> Any:
        try:
            return await self.call(*arguments)
        except (RayActorError, ActorUnavailableError):
            raise
        except Exception as error:
            raise RayTaskError("method", "", error) from None


class Stream:
    """An answer, and the end of the stream; of a process that hangs nothing, until it is killed."""

    def __init__(self, actor: Actor) -> None:
        self.actor, self.process = actor, actor.process
        answer = (0, Embedding(np.ones(1, np.float32), None, 1))
        self.messages: list[Any] = [[answer], Done(0, {"steps": 1, "tokens_computed": 1, "tokens_written": 0})]

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        while self.process.hangs and self.process is self.actor.process:
            await asyncio.sleep(0.01)
        if self.process is not self.actor.process:
            raise RayActorError
        if not self.messages:
            raise StopAsyncIteration
        coming = asyncio.get_running_loop().create_future()
        if self.process.fails:
            coming.set_exception(RayTaskError("embed", "", self.process.fails.pop(0)))
        else:
            coming.set_result(self.messages.pop(0))
        return coming


class Streaming:
    """A streaming method of an actor."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    def options(self, **_: Any) -> Streaming:
        return self

    def remote(self, *_: Any, **how: Any) -> Stream:
        return Stream(self.actor)


class Actor:
    """An actor whose process can die, and is there again at once, without its engine."""

    def __init__(self, loading: float = 0.05, changing: float = 0.01, hangs: bool = False) -> None:
        self.times, self.kills = (loading, changing), 0
        self.process = Process(*self.times)
        self.made: Callable[[Process], object] = lambda process: None  # what happens to each new process
        self.process.hangs = hangs
        self.ask = Streaming(self)
        self.open, self.become = Method(self._open), Method(self._become)
        self.__ray_ready__ = Method(self._ready)

    def die(self) -> None:
        loads = self.process.loads
        self.process = Process(*self.times)
        self.process.loads = loads
        self.made(self.process)

    async def _open(self, state: State) -> Opened:
        return await self.process.open(state)

    async def _become(self, state: State) -> Heads:
        return await self.process.become(state)

    async def _ready(self) -> None:
        if self.process.hangs:
            await asyncio.Event().wait()

    @property
    def weights(self) -> Any:
        return getattr(self.process._engine, "weights", None)
