"""`Turns`: a lock for threads that take it again and again."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """A lock that serves threads in the order in which they asked; `queue` has one entry for each, the holder's first.

    With an ordinary one a thread that takes step after step has it again before those that wait for it have woken up.
    """

    def __init__(self) -> None:
        self.queue: deque[object] = deque()
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        mine = object()
        with self._changed:
            try:
                self.queue.append(mine)
                self._changed.wait_for(lambda: self.queue[0] is mine)
            except BaseException:  # Ctrl-C: whoever comes later must not wait for this turn
                if mine in self.queue:
                    self.queue.remove(mine)
                self._changed.notify_all()
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self.queue.popleft()
            self._changed.notify_all()
