"""`AsyncClusterEngine`: the verbs for event loops, over the replicas of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.engine.async_engine import Answers, AsyncFace, prepared
from adjudge.engine.cluster.cluster_engine import ClusterEngine
from adjudge.engine.cluster.order import Order
from adjudge.engine.face import AnyLabels, AnyPrompt
from adjudge.engine.sampling import Sampling
from adjudge.engine.worker import Event, Piece

if TYPE_CHECKING:
    from adjudge.engine.cluster.dispatch import Dispatcher  # imports Ray

TOTALS = ("tokens_written", "preempted", "cache_hit_tokens", "cache_missed_tokens", "cache_evicted_tokens")
"""What only the replicas count, of `AsyncEngine.counters`."""


class AsyncClusterEngine(AsyncFace):
    """A `ClusterEngine` for event loops; `face` is the engine itself.

    async with AsyncClusterEngine(ClusterEngine("smollm2-135m", replicas=2)) as engine:
        scores = await engine.score(prompts, ["1", "2", "3"])
    """

    def __init__(self, engine: ClusterEngine) -> None:
        self.face: ClusterEngine = engine

    @property
    def serving(self) -> bool:
        """Whether a replica is there, and all are awake."""
        return self.face.dispatcher.serving

    async def open_score(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Answers:
        """Begin what `score` waits for; raises LabelError and PromptError."""
        order = await asyncio.to_thread(self.face.score_order, prompts, labels, priority, timeout)
        return _OrderAnswers(self.face.dispatcher, order)

    async def open_generate(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        seeds: Sequence[int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        pieces: bool = False,
        **options: Any,
    ) -> Answers:
        """Begin what `generate` waits for, with `pieces` of the texts as they are written; raises PromptError."""
        prepare = partial(self.face.generate_order, prompts, sampling, seeds, priority, timeout, pieces, **options)
        return _OrderAnswers(self.face.dispatcher, await prepared(prepare, sampling, options, timeout))

    async def open_embed(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Answers:
        """Begin what `embed` waits for; raises PromptError."""
        order = await asyncio.to_thread(self.face.embed_order, prompts, priority, timeout)
        return _OrderAnswers(self.face.dispatcher, order)

    def counters(self) -> dict[str, float]:
        """The replicas' totals since the cluster opened, as of the last call that each answered."""
        totals = {name: self.face.dispatcher.total(name) for name in TOTALS}
        return {**msgspec.structs.asdict(self.face.stats), **totals}

    async def update_weights(
        self, weights: str | Path | None = None, *, adapter: str | Path | EllipsisType | None = ...
    ) -> None:
        """`ClusterEngine.update_weights`, which wants no call under way."""
        await asyncio.to_thread(self.face.update_weights, weights, adapter=adapter)

    async def sleep(self) -> None:
        """`Engine.sleep` in every replica, which wants no call under way."""
        await asyncio.to_thread(self.face.sleep)

    async def wake(self) -> None:
        """`Engine.wake` in every replica."""
        await asyncio.to_thread(self.face.wake)

    async def close(self, drain: bool = True) -> None:
        """Take no new calls and let those under way end, or, without `drain`, fail; then end the replicas."""
        await asyncio.to_thread(self.face.close, drain)


class _OrderAnswers(Answers):
    def __init__(self, dispatcher: Dispatcher, order: Order) -> None:
        self._order = order
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._under_way = dispatcher.start(order, self._deliver)

    @property
    def prompt_tokens(self) -> int:  # type: ignore[override]
        return self._order.prompt_tokens

    @property
    def cached_tokens(self) -> int:  # type: ignore[override]
        return self._order.cached_tokens

    async def __aiter__(self) -> AsyncIterator[tuple[int, Any] | Piece]:
        try:
            while (event := await self._events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.close()

    def close(self) -> None:
        self._under_way.cancel()

    def _deliver(self, event: Event | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self.close()
