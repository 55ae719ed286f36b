"""The replicas of a cluster: which of them are there, and what has become of their weights."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError, RayTaskError

from adjudge.engine.cluster.replica import Opened, State
from adjudge.engine.cluster.routing import Lane, Router
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.sources import print_status

PATIENCE_SECONDS = 20.0
"""After this long the user is told that replicas are being waited for."""

log = logging.getLogger("adjudge")


class Fleet:
    """Actors that hold a `Replica` each, and a lane of `router` to each of them that is open. For one event loop.

    Ray places the actors, notices when one is lost and starts it again.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self.actors = actors
        self.router = Router()
        self._state = State()
        self._gone = 0
        self._some = asyncio.Event()  # a lane is open, or none will ever be
        self._reviving: set[asyncio.Task[None]] = set()

    async def open(self) -> list[Opened]:
        """Open every engine that is not open; raises what keeps one from it."""
        opening = [asyncio.ensure_future(self._open(replica)) for replica in range(len(self.actors))]
        _, waiting = await asyncio.wait(opening, timeout=PATIENCE_SECONDS)
        if waiting:
            print_status(f"waiting for Ray to start {len(waiting)} of {len(opening)} replicas")
        try:
            return await asyncio.gather(*opening)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise AdjudgeError(f"a replica did not start ({reason(error)}): see the logs of Ray") from error
        finally:
            for task in opening:
                task.cancel()

    async def wait(self) -> None:
        """Until there is a lane; raises AdjudgeError when there will be none."""
        await self._some.wait()
        if not self.router.lanes:
            raise AdjudgeError(
                f"all {self._gone} replicas were lost and could not be started again:"
                " see the logs of Ray (/tmp/ray/session_latest/logs), and open another cluster"
            )

    def lose(self, lane: Lane, error: Exception) -> None:
        """Close a lane, and open another to the replica when Ray has started it again."""
        if lane not in self.router.lanes:
            return
        log.warning("replica %d was lost (%s): what it owes is asked of others", lane.replica, type(error).__name__)
        self.router.lanes.remove(lane)
        if not self.router.lanes:
            self._some.clear()
        task = asyncio.ensure_future(self._revive(lane.replica))
        self._reviving.add(task)
        task.add_done_callback(self._reviving.discard)

    async def change(self, method: str, *arguments: Any, **changes: Any) -> Any:
        """Call a method of every replica; `changes` are to the state in which those come back that are lost.

        Returns what one of them returned. Raises what all of them raise; one that fails alone is started again.
        """
        await self.wait()
        lanes = list(self.router.lanes)
        calls = [getattr(self.actors[lane.replica], method).remote(*arguments) for lane in lanes]
        results = await asyncio.gather(*calls, return_exceptions=True)
        if all(isinstance(result, RayError) for result in results):
            raise getattr(results[0], "cause", None) or AdjudgeError(
                f"every replica was lost in {method}: call it again"
            )
        self._state = msgspec.structs.replace(self._state, **changes)
        for lane, result in zip(lanes, results, strict=True):
            lane.forget()
            if isinstance(result, RayTaskError):
                ray.kill(self.actors[lane.replica], no_restart=False)
            if isinstance(result, RayError):
                self.lose(lane, result)
        return next(result for result in results if not isinstance(result, RayError))

    async def close(self) -> None:
        """Bring no more replicas back."""
        for task in self._reviving:
            task.cancel()
        await asyncio.gather(*self._reviving, return_exceptions=True)

    async def _open(self, replica: int) -> Opened:
        """Open one engine in the state that all have, after Ray has started its actor again if need be."""
        actor = self.actors[replica]
        while True:
            state = self._state
            opened: Opened = await actor.open.options(max_task_retries=-1).remote(state)
            if state is self._state:
                break
            ray.kill(actor, no_restart=False)  # the weights changed while it opened
        if not any(lane.replica == replica for lane in self.router.lanes):
            self.router.lanes.append(Lane(replica, opened.cache_tokens))
            self._some.set()
        return opened

    async def _revive(self, replica: int) -> None:
        while True:
            try:
                await self._open(replica)
                return
            except RayTaskError:  # perhaps the lost process still held its memory: Ray counts how often this is tried
                ray.kill(self.actors[replica], no_restart=False)
            except RayError as error:
                log.warning("replica %d could not be started again (%s)", replica, reason(error))
                self._gone += 1
                if self._gone == len(self.actors):
                    self._some.set()
                return
