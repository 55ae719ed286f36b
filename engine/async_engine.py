"""`AsyncEngine`: the verbs for event loops; calls of any number of tasks share one batch."""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from adjudge.engine.batching.call import Call
from adjudge.engine.checking import shown
from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, QueueFull
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.text import grammar
from adjudge.engine.threads.worker import Event, Piece, Start, Worker
from adjudge.engine.threads.worker_engine import SharedEngine
from adjudge.engine.waiting import answered_by, terms

if TYPE_CHECKING:
    from adjudge.engine.cluster.cluster_engine import ClusterEngine
    from adjudge.engine.cluster.order import Order

Prepared = TypeVar("Prepared")


class Answers:
    """A call under way: iterate for its answers, each once, in the order in which they come.

    An answer is (place in the call, Score, Completion or Embedding), and before it come the `Piece`s of a text, if they
    were asked for. Errors are raised by the iteration. Leaving it early, or `close`, or letting go of it, cancels what
    is still under way.
    `prompt_tokens` and `cached_tokens` count the prompts' tokens and those that did not have to be computed; they are
    complete when the iteration has ended.
    """

    def __init__(self, call: Call | Order, start: Start) -> None:
        self._call = call
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(event: Event | None) -> None:  # without `self`, which the call would keep from being let go of
            try:
                loop.call_soon_threadsafe(events.put_nowait, event)
            except RuntimeError:  # the loop is closed: nobody waits any more
                close()

        self._events = events
        self.close = close = weakref.finalize(self, start(deliver))
        close.atexit = False

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts."""
        return self._call.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Those that did not have to be computed."""
        return self._call.cached_tokens

    async def __aiter__(self) -> AsyncIterator[tuple[int, Any] | Piece]:
        try:
            while (event := await self._events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.close()
            self._events.put_nowait(None)  # for whoever iterates again


class AsyncFace(ABC):
    """The verbs for event loops, wherever the model runs; `face` has the blocking ones, for any thread."""

    face: EngineFace
    engine: Engine | ClusterEngine

    @property
    def serving(self) -> bool:
        """Whether calls are taken now, as far as is known here."""
        return True

    async def open_score(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Answers:
        """Begin what `score` waits for; raises LabelError and PromptError."""
        call = await prepared(partial(self.engine.score_call, prompts, labels), timeout)
        return self._begin(call, priority, timeout)

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
        prepare = partial(self.engine.generate_call, prompts, sampling, seeds, **options)
        return self._begin(await prepared(prepare, timeout, sampling, options), priority, timeout, pieces)

    async def open_embed(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Answers:
        """Begin what `embed` waits for; raises PromptError."""
        return self._begin(await prepared(partial(self.engine.embed_call, prompts), timeout), priority, timeout)

    @abstractmethod
    def _begin(self, call: Any, priority: int, timeout: float | None, pieces: bool = False) -> Answers:
        """Begin a call that is prepared."""

    @abstractmethod
    async def _change(self, action: Callable[[Any], None]) -> None:
        """Do something with `engine` that wants no call under way."""

    @abstractmethod
    async def close(self, drain: bool = True) -> None:
        """Take no new calls and let those under way end, or, without `drain`, fail."""

    def counters(self) -> dict[str, float]:
        """What happens behind this face, as numbers by name, for metrics; an engine that keeps none has none."""
        return {}

    async def score(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> list[Score]:
        """`EngineFace.score` without blocking the event loop."""
        return await in_order(await self.open_score(prompts, labels, priority=priority, timeout=timeout))

    async def generate(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        seeds: Sequence[int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> list[Completion]:
        """`EngineFace.generate` without blocking the event loop."""
        how: dict[str, Any] = {"seeds": seeds, "priority": priority, "timeout": timeout, **options}
        return await in_order(await self.open_generate(prompts, sampling, **how))

    async def embed(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> list[Embedding]:
        """`EngineFace.embed` without blocking the event loop."""
        return await in_order(await self.open_embed(prompts, priority=priority, timeout=timeout))

    async def reward(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> list[ModelReward]:
        """`EngineFace.reward` without blocking the event loop."""
        with answered_by(terms().deadline(timeout, time.monotonic())):  # the time for both
            read = await asyncio.to_thread(self.face.read_for_rewards, prompts)
            return await in_order(await self.open_embed(read, priority=priority), ModelReward.of)

    async def update_weights(
        self,
        weights: Mapping[str, torch.Tensor] | str | Path | None = None,
        *,
        adapter: str | Path | EllipsisType | None = ...,
    ) -> None:
        """`update_weights` of `engine`, which wants no call under way."""
        await self._change(lambda engine: engine.update_weights(weights, adapter=adapter))

    async def sleep(self) -> None:
        """`sleep` of `engine`, which wants no call under way."""
        await self._change(lambda engine: engine.sleep())

    async def wake(self) -> None:
        """`wake` of `engine`."""
        await self._change(lambda engine: engine.wake())

    async def __aenter__(self) -> AsyncFace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(drain=error is None)


class AsyncEngine(AsyncFace):
    """An `Engine` whose steps are taken by a thread of its own.

    async with AsyncEngine(Engine("smollm2-135m")) as engine:
        scores = await engine.score(prompts, ["1", "2", "3"])

    Raises AdjudgeError for what is no open engine.
    """

    def __init__(self, engine: Engine) -> None:
        if not isinstance(engine, Engine):
            raise AdjudgeError(f"engine is {shown(engine)}: give an open one, as AsyncEngine(Engine(name))")
        self.engine: Engine = engine
        self.worker = Worker(engine)
        self.face = SharedEngine(self.worker)

    @property
    def serving(self) -> bool:
        """Whether the engine is awake."""
        return not self.engine.asleep

    def _begin(self, call: Any, priority: int, timeout: float | None, pieces: bool = False) -> Answers:
        return Answers(call, lambda deliver: self.worker.start(call, deliver, priority, timeout, pieces))

    def counters(self) -> dict[str, float]:
        """Totals since the engine opened, and how many requests run and wait and how many KV blocks are free now."""
        stats, scheduler, cache = self.engine.stats, self.engine.scheduler, self.engine.cache
        return {
            "prompts": stats.prompts,
            "prompt_tokens": stats.prompt_tokens,
            "tokens_computed": stats.tokens_computed,
            "tokens_written": stats.tokens_written,
            "steps": stats.steps,
            "preempted": scheduler.preempted,
            "cache_hit_tokens": cache.hit_tokens,
            "cache_missed_tokens": cache.missed_tokens,
            "cache_evicted_tokens": cache.evicted_tokens,
            "requests_running": len(scheduler.running),
            "requests_waiting": scheduler.waiting,
            "kv_blocks_free": cache.pool.free,
            "kv_blocks_used": cache.pool.usable - cache.pool.free,
        }

    async def close(self, drain: bool = True) -> None:
        """Take no new calls and let those under way end, or, without `drain`, fail."""
        await asyncio.to_thread(partial(self.worker.close, drain=drain))

    async def _change(self, action: Callable[[Any], None]) -> None:
        await asyncio.wrap_future(self.worker.between_steps(action))


async def prepared(
    prepare: Callable[[], Prepared],
    timeout: float | None,
    sampling: Sampling | None = None,
    options: Mapping[str, Any] = {},
) -> Prepared:
    """What a thread makes of a call whose answers are to be there in `timeout` seconds from now, however busy it is.

    It is one of a few where texts have a form that may take long to prepare; raises QueueFull where it takes longer
    than that.
    """
    slow = [
        name for name in grammar.TRIED if options.get(name) is not None or getattr(sampling, name, None) is not None
    ]
    ends = terms().deadline(timeout, time.monotonic())
    with answered_by(ends):
        run = partial(contextvars.copy_context().run, prepare)
    under_way = asyncio.get_running_loop().run_in_executor(grammar.THREADS.here if slow else None, run)
    if not slow or ends == math.inf:
        return await under_way
    try:
        return await asyncio.wait_for(under_way, max(0.0, ends - time.monotonic()))
    except TimeoutError as error:
        raise QueueFull(
            f"{slow[0]} was not prepared in time, maybe behind those of others: try again later, or give it longer"
        ) from error


async def in_order(answers: Answers, keep: Callable[[Any], Any] = lambda answer: answer) -> list[Any]:
    """All answers of a call, of each what is to `keep`, in the order of its prompts."""
    found = [(event[0], keep(event[1])) async for event in answers if not isinstance(event, Piece)]
    return [answer for _, answer in sorted(found, key=itemgetter(0))]
