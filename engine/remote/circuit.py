"""A circuit breaker: a server that is gone is asked once in a while, not once for every prompt."""

from __future__ import annotations

from collections.abc import Callable


class Circuit:
    """Opens after `limit` failures in a row; then one attempt every `pause` seconds is let through, until one succeeds.

    `clock` gives seconds. For one thread.
    """

    def __init__(self, limit: int, pause: float, clock: Callable[[], float]) -> None:
        self.limit = limit
        self.pause = pause
        self.clock = clock
        self._failures = 0
        self._since = 0.0

    def admits(self) -> bool:
        """Whether an attempt may be made now. One that never ends only costs the time until the next is let through."""
        if self._failures < self.limit:
            return True
        if self.clock() - self._since < self.pause:
            return False
        self._since = self.clock()
        return True

    @property
    def left(self) -> float:
        """Seconds until the next attempt is let through, if none is now."""
        return max(0.0, self._since + self.pause - self.clock())

    def succeeded(self) -> None:
        """Note that the server answered."""
        self._failures = 0

    def failed(self) -> None:
        """Note that it did not."""
        self._failures += 1
        self._since = self.clock()
