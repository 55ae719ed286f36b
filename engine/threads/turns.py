"""`Turns`: a lock for threads that take it again and again."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar
from weakref import WeakSet

from adjudge.engine.errors import AdjudgeError


class Turns:
    """A lock that serves threads in the order in which they asked; `queue` has one entry for each, the holder's first.

    With an ordinary one a thread that takes step after step has it again before those that wait for it have woken up.
    In a process that was forked in the midst of another thread's turn, to take one is an AdjudgeError.
    """

    _all: ClassVar[WeakSet[Turns]] = WeakSet()

    def __init__(self) -> None:
        self.queue: deque[object] = deque()
        self._changed = threading.Condition()
        self._torn = False
        self._all.add(self)

    @contextmanager
    def turn(self, wanted: Callable[[], object] = lambda: True) -> Iterator[bool]:
        """A block that no other thread's comes between: True. False without waiting on, once it is not `wanted`."""
        if self._torn:
            raise AdjudgeError("this process was forked while another thread used the engine: open an engine here")
        mine = object()
        try:
            with self._changed:
                self.queue.append(mine)
                self._changed.wait_for(lambda: self.queue[0] is mine or not wanted())
                held = self.queue[0] is mine
                if not held:
                    self.queue.remove(mine)
            yield held
        finally:  # Ctrl-C while it waits, too: whoever comes later must not wait for this turn
            with self._changed:
                if mine in self.queue:
                    self.queue.remove(mine)
                    self._changed.notify_all()

    @classmethod
    def _begin_anew(cls) -> None:
        """In a process that was forked, where those that held or waited for a turn are not."""
        for turns in cls._all:
            turns._changed, turns._torn = threading.Condition(), bool(turns.queue)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=Turns._begin_anew)
