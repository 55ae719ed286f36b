"""Bars on stderr that tell how far a run is, and are gone when it ends; lines where stderr is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

FIRST, EVERY = 10.0, 60.0
"""Seconds to the first line, and from one to the next."""
BURST = 1.0
"""Answers that come within so many seconds of each other were computed together: how long all take, the first of them
does not tell."""


def bar(*, shown: bool = True) -> Progress:
    """What is done, how much of how much, and how long the rest will take; nothing where it is not to be `shown`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal))


class Pace:
    """Says now and then, where there is no terminal for a bar, how far something is of `total`; `done` is its start."""

    def __init__(self, console: Console, total: int, done: int = 0) -> None:
        self.console, self.total, self.first = console, total, done
        self.began = self.burst = time.monotonic()
        self.due = self.began + FIRST
        self.latest = self.known = (self.began, done)  # when it was so far: now, and before the answers that come now

    def say(self, what: str, done: int) -> None:
        """Say it, where it is time to."""
        now = time.monotonic()
        if now - self.latest[0] > BURST:
            self.known, self.burst = self.latest, now
        elif now - self.burst > 10 * BURST:  # they come without a pause
            self.known, self.burst = (now, done), now
        self.latest = (now, done)
        until, before = self.known
        if self.console.is_terminal or now < self.due or before == self.first or done >= self.total:
            return
        self.due = now + EVERY
        whole = (until - self.began) / (before - self.first) * (self.total - self.first)
        left = max(0.0, self.began + whole - now) / 60
        self.console.print(f"{what} {done:,} of {self.total:,}, {left:.0f} min left", highlight=False)


def watched(what: str, answers: Iterable[T], total: int, *, shown: bool = True) -> Iterator[T]:
    """The answers, with a bar that moves as they come, or a line now and then; where they are to be `shown`."""
    with bar(shown=shown) as progress:
        task = progress.add_task(what, total=total)
        pace = Pace(progress.console, total)
        for done, answer in enumerate(answers, 1):
            yield answer
            progress.advance(task)
            if shown:
                pace.say(f"{what}:", done)
