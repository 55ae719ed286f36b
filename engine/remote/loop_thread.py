"""An event loop in a thread of its own, for blocking callers."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines until it is closed or dropped; the thread does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=_run, args=(self._loop,), name=name, daemon=True)
        self._thread.start()
        self._stop = weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self._stop.atexit = False

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and wait for what it returns."""
        return self.start(coroutine).result()

    def cancel_all(self) -> None:
        """Cancel what is under way, and wait for its end."""
        self.run(_cancel_others())

    def close(self) -> None:
        """Stop; what is under way never ends."""
        self._stop()
        self._thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """The thread, which does not hold the object it belongs to: one that is dropped ends it, too."""
    loop.run_forever()
    loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
