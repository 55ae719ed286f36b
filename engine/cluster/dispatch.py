"""The dispatcher: orders go out to replicas, answers come back, and what a lost replica owes is asked elsewhere."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from adjudge.engine.cluster.fleet import HANGS_SECONDS, Fleet
from adjudge.engine.cluster.order import Lengths, Order, Query
from adjudge.engine.cluster.replica import Done, NotOpen, Opened, Verb
from adjudge.engine.cluster.routing import Lane
from adjudge.engine.errors import AdjudgeError, CallTooLarge, EngineFailed, NotServing, QueueFull, first_of
from adjudge.engine.face import Stats
from adjudge.engine.threads.loop_thread import LoopThread, T, Work
from adjudge.engine.threads.worker import Deliver, Event, Piece

TRIES = 3
"""Replicas that may be lost with a request before it is given up; before the last one it is sent by itself."""
FULL_SECONDS = 0.2
"""Between two looks whether the queue of a replica has places again."""
GRACE_SECONDS = 2.0
"""What a replica, which keeps deadlines itself, may be late."""

log = logging.getLogger("adjudge")


class Dispatcher:
    """A thread with an event loop in which all orders are under way at once; every method may be called from any.

    In a process forked from this one, where that thread is not, orders and changes are AdjudgeErrors.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self.stats = Stats()
        self.loop = LoopThread(
            "adjudge-dispatcher", lambda: NotServing("the cluster is closed and takes no more calls: open another")
        )
        self._fleet = Fleet(actors)
        self._counters: dict[Lane, dict[str, float]] = {}
        self._orders: set[asyncio.Task[Any]] = set()
        self._drops: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._alone = asyncio.Lock()

    def open(self) -> list[Opened]:
        """Wait until every replica has its engine; raises what keeps one from it."""
        return self.loop.run(self._until_closed, "opening", self._fleet.open)

    @property
    def serving(self) -> bool:
        """Whether orders are answered now; any thread may ask."""
        return self._fleet.serving and not self.loop.closed

    def total(self, name: str) -> float:
        """One of `AsyncEngine.counters` over all replicas, those that were lost too, as each last told it."""
        return sum(counters[name] for counters in list(self._counters.values()))

    @property
    def now(self) -> dict[str, int]:
        """How many replicas are there, and the tokens to compute for what they were sent and have not answered."""
        lanes = list(self._fleet.router.lanes)
        return {"replicas": len(lanes), "tokens_waiting": sum(lane.load for lane in lanes)}

    def start(self, order: Order, deliver: Deliver) -> Future[None]:
        """Begin an order; cancelling the future ends it. `deliver` is called in the dispatcher's thread."""
        order.deliver = deliver
        return self.loop.start(self._run, order)

    def change(self, what: str, **changes: Any) -> Any:
        """`Fleet.change`, which wants no order under way, or only to wake; `what` it is called in errors.

        Orders of a sleeping cluster end at once, and what is awake stays as it is.
        """
        return self.loop.run(self._until_closed, what, partial(self._change, what, **changes))

    def close(self, drain: bool) -> None:
        """Take no more orders, let those under way end (or, without `drain`, end them with an error), and stop.

        Returns when all have ended, whoever closes it first; a later call without `drain` ends them at once.
        """
        self.loop.close(self._fleet.close, drain=drain)

    async def _until_closed(self, what: str, work: Work[T]) -> T:
        """Work that is no order's: whoever waits for it is told where nothing goes on here any more."""
        try:
            return await work()
        except asyncio.CancelledError:
            raise NotServing(f"the cluster was closed before {what} was done") from None

    async def _change(self, what: str, **changes: Any) -> Any:
        orders, waking = list(self._orders), changes == {"asleep": False}
        if not waking and not all(task.cancelling() for task in orders):
            raise AdjudgeError(f"{what} while a call is under way would change it half-way: let it end first")
        async with self._changing:  # which later orders wait for
            if waking and not self._fleet.asleep:
                return None
            await asyncio.gather(*orders, *self._drops, return_exceptions=True)
            return await self._fleet.change(**changes)

    async def _run(self, order: Order) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._orders.add(task)
        try:
            if await self._acquired(self._changing, order, order.queries):
                self._changing.release()
                await self._serve(order, order.queries)
        except asyncio.CancelledError:
            order.deliver(NotServing("the cluster was closed before this call was answered"))
            raise
        except BaseException as error:
            order.deliver(first_of(error))
        else:
            order.deliver(None)
        finally:
            self._orders.discard(task)

    async def _serve(self, order: Order, queries: Sequence[Query], last: bool = False, moved: bool = False) -> None:
        """Send queries to whom they belong, and wait for their answers; `moved` ones may stay open: see `_send`."""
        try:
            async with asyncio.timeout_at(order.deadline):
                await self._fleet.wait()
        except TimeoutError:
            return order.give_up(queries, "timeout")
        routes = self._fleet.router.route([query.tokens for query in queries], order.extra)
        batches: dict[Lane, list[Query]] = {}
        for query, route in zip(queries, routes, strict=True):
            query.route = route
            batches.setdefault(route.lane, []).append(query)
        async with asyncio.TaskGroup() as group:
            for lane, batch in batches.items():
                group.create_task(self._send(order, lane, batch, last, moved))

    async def _send(self, order: Order, lane: Lane, queries: list[Query], last: bool, moved: bool) -> None:
        """Read a replica's answers; what it leaves open goes elsewhere, unless this was the `last` try of it.

        What was admitted elsewhere and `moved` here is left open where the queue is full. A replica whose engine fails,
        and not the call, counts as lost, though its process lives: nobody else would get an answer from it. Where
        another fails in the same way it is the call, which gets the error.
        """
        stream = self._stream(order, self._fleet.actors[lane.replica], queries)
        texts: dict[int, Lengths] = {}
        full = False
        try:
            async with asyncio.timeout_at(order.deadline and order.deadline + GRACE_SECONDS):
                async for message in stream:
                    self._take(order, lane, queries, await message, texts)
        except RayTaskError as error:
            full = moved and isinstance(error.cause, QueueFull | CallTooLarge)
            if isinstance(error.cause, NotOpen):
                self._fleet.lose(lane, error)
            elif not full:
                mistake = isinstance(error.cause, AdjudgeError) and not isinstance(error.cause, EngineFailed)
                if mistake or order.failed is type(error.cause):
                    raise error.cause from error
                order.failed = type(error.cause)
                self._lost(lane, queries, error.cause, kill=True)
        except RayError as error:
            self._lost(lane, queries, error)
        except TimeoutError:
            order.give_up(queries, "timeout")
            self._drops.add(drop := asyncio.ensure_future(self.loop.noted(self._drop, lane, stream)))
            drop.add_done_callback(self._drops.discard)
        except asyncio.CancelledError:
            await self._drop(lane, stream)
            raise
        finally:
            for query in queries:
                assert query.route is not None
                query.route.leave()
        lost = [query for query in queries if query.open]
        if lost and not last and not full:
            await self._again(order, lost)

    def _lost(self, lane: Lane, queries: Sequence[Query], error: BaseException, *, kill: bool = False) -> None:
        self._fleet.lose(lane, error, kill=kill)
        for query in queries:
            query.losses += bool(query.open)

    async def _drop(self, lane: Lane, stream: AsyncIterator[Any]) -> None:
        """Have a replica drop a call, and wait until it has; one that does not react hangs, and counts as lost."""
        ray.cancel(stream)
        try:
            async with asyncio.timeout(HANGS_SECONDS):
                with suppress(RayError):  # how it ends
                    async for message in stream:
                        await message
        except TimeoutError as error:
            self._fleet.lose(lane, error, kill=True)

    async def _again(self, order: Order, queries: list[Query]) -> None:
        """Ask others; a request that was there whenever a replica was lost is under suspicion, and goes by itself.

        A text can be made to crash an engine: it may neither take its neighbours with it nor the cluster.
        """
        clear = [query for query in queries if query.losses < TRIES - 1]
        portion = len(clear)
        while clear:
            await self._serve(order, clear[:portion], moved=True)
            full = [query for query in clear[:portion] if query.open]
            clear = full + clear[portion:]
            portion = max(1, portion // 2) if full else min(len(clear), 2 * portion)
            if full:
                clear = await self._paused(order, clear)
        for query in (query for query in queries if query.losses >= TRIES - 1):
            if not await self._acquired(self._alone, order, [query]):
                continue
            try:
                while query.open and query.losses < TRIES:
                    losses = query.losses
                    await self._serve(order, [query], last=True, moved=True)
                    if query.open and query.losses == losses:
                        await self._paused(order, [query])
            finally:
                self._alone.release()
            if query.open:
                log.warning(
                    "prompt %d of a call (%d tokens) was given up: %d replicas were lost while they computed it",
                    query.number,
                    len(query.tokens),
                    query.losses,
                )
                order.give_up([query], "cancelled")

    async def _paused(self, order: Order, queries: list[Query]) -> list[Query]:
        """The queries, after a moment; given up, and none, where the order has no time left."""
        if order.deadline is None or time.monotonic() < order.deadline:
            await asyncio.sleep(FULL_SECONDS)
            return queries
        order.give_up(queries, "timeout")
        return []

    async def _acquired(self, lock: asyncio.Lock, order: Order, queries: Sequence[Query]) -> bool:
        """Wait for a lock while the order has time; False, and the queries are given up, where that is too short."""
        try:
            async with asyncio.timeout_at(order.deadline):
                return await lock.acquire()
        except TimeoutError:
            order.give_up(queries, "timeout")
            return False

    def _stream(self, order: Order, actor: Any, queries: list[Query]) -> AsyncIterator[Any]:
        prompts = [query.tokens for query in queries]
        rest = None if order.deadline is None else max(0.0, order.deadline - time.monotonic())
        verb: Verb = "embed"
        how: dict[str, Any] = {"priority": order.priority, "timeout": rest}
        if order.sampling is not None:
            verb, seeds = "generate", [query.seed for query in queries]
            how |= {"sampling": order.sampling, "seeds": seeds, "pieces": order.pieces}
        elif labels := [query.labels for query in queries if query.labels is not None]:
            verb, how["labels"] = "score", labels
        return actor.ask.options(num_returns="streaming").remote(verb, prompts, **how)  # type: ignore[no-any-return]

    def _take(
        self, order: Order, lane: Lane, queries: list[Query], message: list[Event] | Done, texts: dict[int, Lengths]
    ) -> None:
        """Hand on a replica's message; `texts` is how much of each text it has sent."""
        if isinstance(message, Done):
            order.cached_tokens += message.cached_tokens
            self._counters[lane] = message.counters
            self.stats.steps = int(self.total("steps"))
            self.stats.tokens_computed = int(self.total("tokens_computed"))
            self.stats.tokens_written = int(self.total("tokens_written"))
            return
        for event in message:
            assert not isinstance(event, BaseException)
            place = event.place if isinstance(event, Piece) else event[0]
            query, sample = queries[place // order.samples], place % order.samples
            if isinstance(event, Piece):
                texts[place] = order.grow(query, sample, event, texts.get(place, (0, 0)))
            elif order.answer(query, sample, event[1]) and not _is_too_long(event[1]):
                order.prompt_tokens += len(query.tokens)
                self.stats.prompts += 1
                self.stats.prompt_tokens += len(query.tokens) + (query.labels.tokens if query.labels else 0)
            if not query.open and query.route:
                query.route.leave()


def _is_too_long(answer: Any) -> bool:
    return "too_long" in (getattr(answer, "reason", None), getattr(answer, "finish_reason", None))
