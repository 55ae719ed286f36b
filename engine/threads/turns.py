"""`Turns`: a lock for threads that take it again and again."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.threads.forked import Renewed


class Turns:
    """A lock that serves threads in the order in which they asked; `queue` has one entry for each, the holder's first.

    With an ordinary one a thread that takes step after step has it again before those that wait for it have woken up.
    In a process that was forked in the midst of another thread's turn, to take one is an AdjudgeError.
    """

    def __init__(self) -> None:
        self.queue: deque[tuple[int, object]] = deque()  # by process
        self._changed = Renewed(threading.Condition)

    @contextmanager
    def turn(self, wanted: Callable[[], object] = lambda: True) -> Iterator[bool]:
        """A block that no other thread's comes between: True. False without waiting on, once it is not `wanted`."""
        changed, mine = self._changed.here, (os.getpid(), object())
        try:
            with changed:
                self.queue.append(mine)
                if self.queue[0][0] != mine[0]:
                    raise AdjudgeError(
                        "this process was forked while another thread used the engine: open an engine here"
                    )
                changed.wait_for(lambda: self.queue[0] is mine or not wanted())
                held = self.queue[0] is mine
                if not held:
                    self.queue.remove(mine)
            yield held
        finally:  # Ctrl-C while it waits, too: whoever comes later must not wait for this turn
            with self._changed.here:
                if mine in self.queue:
                    self.queue.remove(mine)
                    self._changed.here.notify_all()
