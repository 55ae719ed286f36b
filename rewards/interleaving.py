"""Several streams of answers read by turns, so that an engine works on all of them at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

Answer = TypeVar("Answer")


def interleaved(*streams: Iterator[Answer]) -> Iterator[Answer]:
    """What the streams yield, by turns.

    An engine's call begins when its first answer is asked for, and goes on while that of any other call is waited for.
    """
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for answer in stream:
            yield answer
            waiting.append(stream)
            break
