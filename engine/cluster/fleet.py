"""The replicas of a cluster: which of them are there, and what has become of their weights."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError, RayTaskError

from adjudge.engine.cluster.replica import Heads, NotOpen, Opened, State
from adjudge.engine.cluster.routing import Lane, Router
from adjudge.engine.errors import AdjudgeError, NotServing, reason
from adjudge.engine.models.sources import print_status

PATIENCE_SECONDS = 20.0
"""After this long the user is told that replicas are being waited for."""
HANGS_SECONDS = 5.0
"""A replica that does not react for so long, were it only to say that it is there, hangs."""
ASKED_EVERY_SECONDS, BUSY_SECONDS = 10.0, 60.0
"""How often replicas are asked whether they are there, and how long each has for its answer: while nobody waits for it,
it may be busy with itself (with a large schema, say)."""

OFTEN, WITHIN_SECONDS, MOST_PAUSE_SECONDS = 5, 600.0, 60.0
"""A replica that is lost more often in such a time is brought back after a pause, twice as long each time."""

log = logging.getLogger("adjudge")


class Fleet:
    """Actors that hold a `Replica` each, and a lane of `router` to each of them that is open. For one event loop.

    Ray places the actors, notices when one is lost and starts it again. One that comes back to folders in which other
    weights or another adapter stand by now gives no answers until the next change.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self.actors = actors
        self.router = Router()
        self._state = State()
        self._heads: Heads | None = None  # of all that answer
        self._strange: list[Lane] = []  # to replicas that have come back with others
        self._changing = asyncio.Lock()  # held while the replicas with a lane are brought into another state
        self._opening = [asyncio.Lock() for _ in actors]  # held while one is opened
        self._gone = 0
        self._some = asyncio.Event()  # a lane is open, or none will be of itself
        self._tasks: set[asyncio.Task[None]] = set()
        self._losses: dict[int, list[float]] = {}  # when each replica was lost

    @property
    def asleep(self) -> bool:
        """Whether the replicas sleep, those too that are not there."""
        return self._state.asleep

    @property
    def serving(self) -> bool:
        """Whether a replica is there, and all are awake."""
        return bool(self.router.lanes) and not self.asleep

    async def open(self) -> list[Opened]:
        """Open every engine that is not open; raises what keeps one from it."""
        opening = [asyncio.ensure_future(self._open(replica)) for replica in range(len(self.actors))]
        _, waiting = await asyncio.wait(opening, timeout=PATIENCE_SECONDS)
        if waiting:
            print_status(f"waiting for Ray to start {len(waiting)} of {len(opening)} replicas")
        try:
            opened = await asyncio.gather(*opening)
            self._heads = self._heads or opened[0].heads
            return opened
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise AdjudgeError(f"a replica did not start ({reason(error)}): see the logs of Ray") from error
        finally:
            for task in opening:
                task.cancel()

    async def wait(self) -> None:
        """Until there is a lane; raises NotServing when there will be none of itself."""
        while not self.router.lanes:
            if self._some.is_set():
                raise self._none_left()
            await self._some.wait()

    def lose(self, lane: Lane, error: BaseException, *, kill: bool = False) -> None:
        """Close a lane, and open another to the replica when Ray has started it again; one that lives wants `kill`."""
        lanes = self._strange if lane in self._strange else self.router.lanes
        if lane not in lanes:
            return
        if kill:
            ray.kill(self.actors[lane.replica], no_restart=False)
        what = "it hangs" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {reason(error)}"
        log.warning("replica %d was lost (%s): what it owes is asked of others", lane.replica, what)
        lanes.remove(lane)
        if not self.router.lanes:
            self._some.clear()
        self._begin(self._revive(lane.replica))

    async def change(self, **changes: Any) -> Any:
        """Change the state (`State`) of every replica; those that are lost come back in the new one.

        Returns what they have then. Raises what all of them raise; one that fails alone is started again. Replicas that
        came back to other folders are asked where no others are left, and looked at again when it is done.
        """
        while True:
            if not self._strange:
                await self._some.wait()
            async with self._changing:
                if not (lanes := list(self.router.lanes or self._strange)):
                    if self._some.is_set():
                        raise self._none_left()
                    continue
                state = self._state.changed(**changes)
                calls = [self._become(self.actors[lane.replica], state) for lane in lanes]
                results = await asyncio.gather(*calls, return_exceptions=True)
                kept = [result for result in results if not isinstance(result, BaseException)]
                refusals = [error for error in map(_refusal, results) if error is not None]
                if kept:
                    same = {name: getattr(self._heads, name) for name in ("weights", "adapter") if name not in changes}
                    self._state, self._heads = state, msgspec.structs.replace(kept[0], **same)
                for lane, result in zip(lanes, results, strict=True):
                    lane.forget()
                    refused = _refusal(result) is not None
                    if isinstance(result, BaseException) and (kept or not refused):
                        self.lose(lane, result, kill=refused or isinstance(result, TimeoutError))
                if kept:
                    self._look_again()
                    return self._heads
                if refusals:
                    raise refusals[0]

    async def close(self) -> None:
        """Watch no lane and bring no replica back any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, lane: Lane) -> None:
        """Until a lane is closed: where its replica hangs it is lost, whether or not a call's deadline shows it."""
        while lane in (*self.router.lanes, *self._strange):
            await asyncio.sleep(ASKED_EVERY_SECONDS)
            try:
                async with asyncio.timeout(BUSY_SECONDS):
                    await self.actors[lane.replica].__ray_ready__.remote()
            except TimeoutError as error:
                self.lose(lane, error, kill=True)
            except RayError as error:
                self.lose(lane, error)

    async def _become(self, actor: Any, state: State) -> Heads:
        """`Replica.become`; raises TimeoutError where the replica hangs."""
        async with asyncio.timeout(HANGS_SECONDS):
            await actor.__ray_ready__.remote()
        heads: Heads = await actor.become.remote(state)
        return heads

    async def _open(self, replica: int) -> Opened:
        """Open one engine in the state that all have, after Ray has started its actor again if need be."""
        async with self._opening[replica]:
            return await self._open_alone(replica)

    async def _open_alone(self, replica: int) -> Opened:
        """The same, where nobody else opens it meanwhile."""
        actor = self.actors[replica]
        while True:
            state = self._state
            opened: Opened = await actor.open.options(max_task_retries=-1).remote(state)
            async with self._changing:
                if state is not self._state:  # which changed while it opened
                    continue
                if not self._is_open(replica):
                    lane = Lane(replica, opened.cache_tokens)
                    if other := self._other_than_all(opened.heads):
                        told = "replica %d came back with %s than the cluster has: update_weights again"
                        log.warning(told, replica, other)
                        self._strange.append(lane)
                        self._settle()
                    else:
                        self.router.lanes.append(lane)
                        self._some.set()
                    self._begin(self._watch(lane))
                return opened

    def _is_open(self, replica: int) -> bool:
        return any(lane.replica == replica for lane in (*self.router.lanes, *self._strange))

    def _other_than_all(self, heads: Heads) -> str:
        """What a replica has that is not what all have; nothing where it is."""
        if self._heads is None or (heads.weights, heads.adapter) == (self._heads.weights, self._heads.adapter):
            return ""
        return "other weights" if heads.weights != self._heads.weights else "another adapter"

    def _look_again(self) -> None:
        """Open replicas that have had other weights or another adapter than the rest: they may be the same now."""
        strange, self._strange = self._strange, []
        for lane in strange:
            self._begin(self._revive(lane.replica, lost=False))
        if not self.router.lanes:
            self._some.clear()

    def _none_left(self) -> NotServing:
        """Why no lane is open, and none will be of itself."""
        if self._strange:
            return NotServing(
                "the replicas were lost and came back with other weights or another adapter, for those in their folders"
                " are others by now: update_weights again"
            )
        return NotServing(
            "every replica was lost and could not be started again: see the logs of Ray"
            " (/tmp/ray/session_latest/logs), and open another cluster"
        )

    def _settle(self) -> None:
        """Let nobody wait for a lane where none will be of itself."""
        if self._gone + len(self._strange) == len(self.actors):
            self._some.set()

    async def _revive(self, replica: int, lost: bool = True) -> None:
        """Open a lost replica again, when Ray has started its process; one that Ray starts no more is gone."""
        while True:
            if lost:
                await asyncio.sleep(self._pause(replica))
            try:
                async with self._opening[replica]:
                    if not self._is_open(replica):  # by whoever asked for all: it may be in another state by now
                        await self._open_alone(replica)
                return
            except RayTaskError:  # perhaps the lost process still held its memory: Ray counts how often this is tried
                ray.kill(self.actors[replica], no_restart=False)
                lost = True
            except RayError as error:
                log.warning("replica %d could not be started again (%s)", replica, reason(error))
                self._gone += 1
                self._settle()
                return

    def _pause(self, replica: int) -> float:
        """Seconds to wait before it is brought back once more."""
        now = time.monotonic()
        lost = self._losses[replica] = [when for when in self._losses.get(replica, ()) if now - when < WITHIN_SECONDS]
        lost.append(now)
        return min(MOST_PAUSE_SECONDS, 2.0 ** (len(lost) - OFTEN)) if len(lost) > OFTEN else 0.0


def _refusal(result: Any) -> BaseException | None:
    """What a replica raised that is there, if it did; one that is not has not refused."""
    refused = isinstance(result, RayTaskError) and not isinstance(result.cause, NotOpen)
    return result.cause if refused else None
