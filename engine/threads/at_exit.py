"""The end of the process, which waits for the step that an engine has under way in another thread."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE = 30.0
"""Seconds that it waits at most."""

_changed = threading.Condition()
_under_way = 0
_ending = False


@contextmanager
def step_under_way() -> Iterator[None]:
    """Within the block a step is computed; where the process is ending no further one begins.

    A thread that the interpreter's end meets within a step takes the process with it (SIGABRT).
    """
    global _under_way
    with _changed:
        _under_way += 1
    if _ending and threading.current_thread().daemon:
        _leave()
        threading.Event().wait()  # until the end
    try:
        yield
    finally:
        _leave()


def _leave() -> None:
    global _under_way
    with _changed:
        _under_way -= 1
        _changed.notify_all()


def _begin_anew() -> None:
    """In a process that was forked: the steps of its parent's threads end nowhere there."""
    global _changed, _under_way
    _changed, _under_way = threading.Condition(), 0


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_begin_anew)


@atexit.register
def _end() -> None:
    global _ending
    _ending = True
    with _changed:
        _changed.wait_for(lambda: not _under_way, GRACE)
