"""`AsyncClusterEngine`: the verbs for event loops, over the replicas of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from adjudge.engine.async_engine import Answers, AsyncFace
from adjudge.engine.cluster.cluster_engine import ClusterEngine

TOTALS = ("tokens_written", "preempted", "cache_hit_tokens", "cache_missed_tokens", "cache_evicted_tokens")
"""What only the replicas count, of `AsyncEngine.counters`."""


class AsyncClusterEngine(AsyncFace):
    """A `ClusterEngine` for event loops; `face` is the engine itself.

    async with AsyncClusterEngine(ClusterEngine("smollm2-135m", replicas=2)) as engine:
        scores = await engine.score(prompts, ["1", "2", "3"])
    """

    face: ClusterEngine

    def __init__(self, engine: ClusterEngine) -> None:
        self.face = self.engine = engine

    @property
    def serving(self) -> bool:
        """Whether a replica is there, and all are awake."""
        return self.face.dispatcher.serving

    def _begin(self, call: Any, priority: int, timeout: float | None, pieces: bool = False) -> Answers:
        call.begin(priority, timeout, pieces)
        return Answers(call, lambda deliver: self.face.dispatcher.start(call, deliver).cancel)

    def counters(self) -> dict[str, float]:
        """The replicas' totals since the cluster opened, as of the last call that each answered; and what is so now."""
        dispatcher = self.face.dispatcher
        totals = {name: dispatcher.total(name) for name in TOTALS}
        return {**msgspec.structs.asdict(self.face.stats), **totals, **dispatcher.now}

    async def _change(self, action: Callable[[Any], None]) -> None:
        await asyncio.to_thread(action, self.engine)

    async def close(self, drain: bool = True) -> None:
        """Take no new calls and let those under way end, or, without `drain`, fail; then end the replicas."""
        await asyncio.to_thread(self.face.close, drain)
