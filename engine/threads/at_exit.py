"""The end of the process, which waits for the step that an engine has under way in another thread."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from adjudge.engine.threads.forked import Renewed

GRACE = 30.0
"""Seconds that it waits at most."""


class _Steps(threading.Condition):
    under_way = 0


_steps = Renewed(_Steps)  # those of a parent's threads end nowhere in a process that was forked
_ending = False


@contextmanager
def step_under_way() -> Iterator[None]:
    """Within the block a step is computed; where the process is ending no further one begins.

    A thread that the interpreter's end meets within a step takes the process with it (SIGABRT).
    """
    steps = _steps.here
    _count(steps, 1)
    if _ending and threading.current_thread().daemon:
        _count(steps, -1)
        threading.Event().wait()  # until the end
    try:
        yield
    finally:
        if steps is _steps.here:  # and not that of a process which was forked within
            _count(steps, -1)


def _count(steps: _Steps, more: int) -> None:
    with steps:
        steps.under_way += more
        steps.notify_all()


@atexit.register
def _end() -> None:
    global _ending
    _ending = True
    steps = _steps.here
    with steps:
        steps.wait_for(lambda: not steps.under_way, GRACE)
