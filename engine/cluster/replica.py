"""`Replica`: one engine of a cluster, in an actor's process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal

import msgspec

from adjudge.engine.async_engine import Answers, AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.fingerprints import folder_fingerprint
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.threads.worker import Event
from adjudge.engine.tokens import Tokens

Verb = Literal["score", "generate", "embed"]
"""What a replica is asked for."""


class NotOpen(Exception):
    """The actor was started again, and its engine is not there yet."""


class Heads(msgspec.Struct, frozen=True):
    """Which weights an engine has and which adapter, each by its content, and the reward head that they bring."""

    weights: str
    adapter: str | None
    reward_head: RewardHead | None


class Opened(msgspec.Struct, frozen=True):
    """What is to be known of a replica's engine; forms are compiled for the last two."""

    fingerprint: str
    dtype: str
    heads: Heads
    max_prompt_tokens: int
    cache_tokens: int
    end_ids: frozenset[int]
    vocabulary: int


class State(msgspec.Struct, frozen=True):
    """What has become of the weights since the start; a replica that was lost comes back in this state.

    The counters tell folders apart that are written anew under the same name.
    """

    weights: str | None = None
    adapter: str | EllipsisType | None = ...
    asleep: bool = False
    weights_taken: int = 0
    adapters_taken: int = 0

    def changed(self, **changes: Any) -> State:
        """The state after a change of some fields."""
        taken = {
            "weights_taken": self.weights_taken + ("weights" in changes),
            "adapters_taken": self.adapters_taken + ("adapter" in changes),
        }
        return msgspec.structs.replace(self, **changes, **taken)


class Done(msgspec.Struct, frozen=True):
    """The end of a stream: how many of its tokens were cached, and the engine's counters."""

    cached_tokens: int
    counters: dict[str, float]


class Replica:
    """Answers what it is sent, all under way in one batch. Every method but `open` raises NotOpen before it."""

    def __init__(self, model: str, options: dict[str, Any]) -> None:
        self._model = model
        self._options = options
        self._engine: AsyncEngine | None = None
        self._state = State()
        self._weights = ""  # those of the engine, by their content
        self._changing = asyncio.Lock()

    async def open(self, state: State) -> Opened:
        """Open the engine, unless it is open, and bring it into `state`."""
        async with self._changing:
            if self._engine is None:
                self._engine = AsyncEngine(await asyncio.to_thread(self.load, state))
                self._state = state
            await self._become(state)
        engine = self._opened.engine
        return Opened(
            fingerprint=engine.fingerprint,
            dtype=engine.dtype,
            heads=self._heads,
            max_prompt_tokens=engine.max_prompt_tokens,
            cache_tokens=engine.cache.pool.usable * engine.cache.pool.block_size,
            end_ids=engine.end_ids,
            vocabulary=engine.runner.vocabulary,
        )

    def load(self, state: State) -> Engine:
        """A new engine in `state`."""
        engine = Engine(self._model, **self._options)
        self._weights = engine.fingerprint if state.weights is None else folder_fingerprint(Path(state.weights))
        if state.weights is not None or not isinstance(state.adapter, EllipsisType):
            engine.update_weights(state.weights, adapter=state.adapter)
        if state.asleep:
            engine.sleep()
        return engine

    async def become(self, state: State) -> Heads:
        """Bring the engine from its state into another, by `Engine.wake`, `update_weights` and `sleep`."""
        async with self._changing:
            await self._become(state)
            return self._heads

    async def _become(self, state: State) -> None:
        engine, before = self._opened, self._state
        if before.weights_taken > state.weights_taken or before.adapters_taken > state.adapters_taken:
            raise AdjudgeError("this replica has taken what the others have not: start it again")
        if before.asleep and not state.asleep:
            await engine.wake()
            self._state = msgspec.structs.replace(self._state, asleep=False)
        weights = None if state.weights_taken == before.weights_taken else state.weights
        adapter = ... if state.adapters_taken == before.adapters_taken else state.adapter
        if weights is not None or not isinstance(adapter, EllipsisType):
            taken = weights and await asyncio.to_thread(folder_fingerprint, Path(weights))
            await engine.update_weights(weights, adapter=adapter)
            self._weights = taken or self._weights
        if state.asleep and not before.asleep:
            await engine.sleep()
        self._state = state

    async def ask(self, verb: Verb, prompts: Sequence[Tokens], **how: Any) -> AsyncIterator[list[Event] | Done]:
        """What comes of `AsyncEngine`'s `open_` and the verb: the answers and pieces of a step together.

        A message costs a millisecond: each has what has come in since the last, as soon as there is anything.
        """
        answers: Answers = await getattr(self._opened, f"open_{verb}")(prompts, **how)
        ready: list[Event] = []
        came = asyncio.Event()

        async def collect() -> None:
            try:
                async for answer in answers:
                    ready.append(answer)
                    came.set()
            finally:
                came.set()

        collecting = asyncio.create_task(collect())
        try:
            while not collecting.done() or ready:
                await came.wait()
                came.clear()
                events, ready[:] = ready[:], []
                if events:
                    yield events
            await collecting
            yield Done(answers.cached_tokens, self._opened.counters())
        finally:
            collecting.cancel()
            answers.close()

    @property
    def _opened(self) -> AsyncEngine:
        if self._engine is None:
            raise NotOpen
        return self._engine

    @property
    def _heads(self) -> Heads:
        engine = self._opened.engine
        return Heads(self._weights, engine.adapter, engine.reward_head)
