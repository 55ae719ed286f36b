"""An event loop in a thread of its own, for blocking callers."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, TypeVar

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.threads.forked import require_process

T = TypeVar("T")

Work = Callable[..., Coroutine[Any, Any, T]]


class LoopThread:
    """Does asynchronous work until it is closed or dropped; the thread does not keep the process alive.

    Any thread may call. Once it is closed work is refused by the error that `refusal` makes; in a process forked from
    this one, where the thread is not, by AdjudgeError.
    """

    def __init__(self, name: str, refusal: Callable[[], AdjudgeError]) -> None:
        self.process = os.getpid()
        self.closed = False
        self._refusal = refusal
        self._under_way: set[asyncio.Task[Any]] = set()
        self._lock = Lock()
        self._ended: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=_run, args=(self._loop, self._lock), name=name, daemon=True)
        self._thread.start()
        self._stop = weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self._stop.atexit = False

    def start(self, work: Work[T], *arguments: Any) -> Future[T]:
        """Start some work; cancelling the future cancels it."""
        require_process(self.process)
        with self._lock:
            if self.closed:
                raise self._refusal()
            return asyncio.run_coroutine_threadsafe(self.noted(work, *arguments), self._loop)

    def run(self, work: Work[T], *arguments: Any) -> T:
        """Do some work, and wait for what it returns."""
        return self.start(work, *arguments).result()

    async def noted(self, work: Work[T], *arguments: Any) -> T:
        """Within the loop: do some work for whose end `close` waits."""
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            return await work(*arguments)
        finally:
            self._under_way.discard(task)

    def close(self, last: Work[None], *, drain: bool = False) -> None:
        """Start nothing more, let what is under way end, or cancel it, then do what is `last`, and stop.

        Returns when all has ended, whoever closes it first, and raises what `last` did; a later call without `drain`
        cancels what is left. In a forked process it does nothing.
        """
        if os.getpid() != self.process:
            return
        with self._lock:
            if not self.closed:
                self.closed = True
                self._ended = asyncio.run_coroutine_threadsafe(self._finish(last), self._loop)
            if not drain and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.call_soon, self._cancel)  # after what was begun is noted
        self._thread.join()
        if self._ended.done():
            self._ended.result()

    async def _finish(self, last: Work[None]) -> None:
        try:
            while self._under_way:  # it may begin other work
                await asyncio.gather(*self._under_way, return_exceptions=True)
            await last()
        finally:
            self._stop()

    def _cancel(self) -> None:
        for task in self._under_way:
            task.cancel()


def _run(loop: asyncio.AbstractEventLoop, lock: Lock) -> None:
    """The thread, which does not hold the object it belongs to: one that is dropped ends it, too."""
    loop.run_forever()
    with lock:
        loop.close()
