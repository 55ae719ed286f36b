"""Who waits for what engines are asked here: until when, how urgently, and whether still."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from typing import Any, NamedTuple

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import NotServing, PromptError

ENDED = "the request that this is read for has ended, or the server is being stopped: ask another"


class Terms(NamedTuple):
    """How calls of engines are made in a thread or task, and in threads that get its context.

    None lasts beyond `ends`, in time.monotonic's seconds: what is not done by then is answered as a call's own timeout
    has it. `priority` is that of all, beside their own. `given_up` is cancelled once nobody waits for any of them.
    """

    ends: float = math.inf
    priority: int = 0
    given_up: Future[None] | None = None

    def urgency(self, own: int) -> int:
        """The priority of a call that has its `own`; raises PromptError for what is no whole number."""
        if not is_number(own, Integral):
            raise PromptError(f"priority is {shown(own)}: give a whole number, lower ones come first")
        return self.priority + own

    def deadline(self, timeout: float | None, begun: float) -> float:
        """When a call that was `begun` then is to be done, infinity where nobody says.

        Raises PromptError for seconds that are no number.
        """
        if timeout is not None and timeout != math.inf and not is_number(timeout, Real):
            raise PromptError(f"timeout is {shown(timeout)}: give seconds, or None to wait as long as it takes")
        return self.ends if timeout is None else min(self.ends, begun + float(timeout))


USUAL = Terms()
"""Where nobody says otherwise."""

_TERMS: ContextVar[Terms] = ContextVar("adjudge_terms", default=USUAL)

terms = _TERMS.get
"""Those that hold here."""


@contextmanager
def _on(**changes: Any) -> Iterator[None]:
    token = _TERMS.set(terms()._replace(**changes))
    try:
        yield
    finally:
        _TERMS.reset(token)


@contextmanager
def answered_by(ends: float, priority: int = 0) -> Iterator[None]:
    """Within the block no call lasts beyond `ends`, and all have `priority` beside their own."""
    with _on(ends=min(ends, terms().ends), priority=priority + terms().priority):
        yield


@contextmanager
def unhurried() -> Iterator[None]:
    """Within the block calls have no deadline but their own, so one-off work is not cut off and restarted."""
    with _on(ends=math.inf):
        yield


@contextmanager
def wanted() -> Iterator[Future[None]]:
    """Within the block texts are read, and calls of engines that callers share go on, until what it gives is cancelled.

    The block's end cancels it as well.
    """
    given_up: Future[None] = Future()
    try:
        with _on(given_up=given_up):
            yield given_up
    finally:
        given_up.cancel()


def check_wanted() -> None:
    """Raise NotServing where nobody waits any more: a thread cannot be ended from outside."""
    given_up = terms().given_up
    if given_up is not None and given_up.cancelled():
        raise NotServing(ENDED)


def overdue() -> float:
    """For how many seconds the end of calls made here has passed; below 0 before it."""
    return time.monotonic() - terms().ends


def too_late() -> bool:
    """Whether calls made here would have no time at all; raises NotServing where nobody waits any more."""
    check_wanted()
    return overdue() >= 0
