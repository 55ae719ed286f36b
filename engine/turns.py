"""`Turns`: a lock for threads that take it again and again."""

from __future__ import annotations

import threading
from types import TracebackType


class Turns:
    """A lock that serves threads in the order in which they asked.

    With an ordinary one a thread that takes step after step has it again before those that wait for it have woken up.
    `asked` counts how often it was wanted.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.asked = self._served = 0

    def __enter__(self) -> None:
        with self._changed:
            mine = self.asked
            self.asked += 1
            while self._served != mine:
                self._changed.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._served += 1
            self._changed.notify_all()
