"""Whether anybody still waits for what is being read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

from adjudge.engine.errors import NotServing

_GIVEN_UP: ContextVar[Event | None] = ContextVar("adjudge_given_up", default=None)


@contextmanager
def wanted() -> Iterator[Event]:
    """Within the block, and in threads that get its context, texts are read until it ends or its event is set."""
    given_up = Event()
    token = _GIVEN_UP.set(given_up)
    try:
        yield given_up
    finally:
        _GIVEN_UP.reset(token)
        given_up.set()


def check_wanted() -> None:
    """Raise NotServing where nobody waits any more: a thread cannot be ended from outside."""
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise NotServing("the request that this is read for has ended, or the server is being stopped: ask another")
