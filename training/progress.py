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


def bar(*, shown: bool = True) -> Progress:
    """What is done, how much of how much, and how long the rest will take; nothing where it is not to be `shown`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal))


class Pace:
    """Says now and then, where there is no terminal for a bar, how far something is of `total`; `done` is its start."""

    def __init__(self, console: Console, total: int, done: int = 0) -> None:
        self.console, self.total, self.first = console, total, done
        self.began = time.monotonic()
        self.due = self.began + FIRST

    def say(self, what: str, done: int) -> None:
        """Say it, where it is time to."""
        now, new = time.monotonic(), done - self.first
        if self.console.is_terminal or now < self.due or not new or done >= self.total:
            return
        self.due = now + EVERY
        left = (now - self.began) / new * (self.total - done) / 60
        self.console.print(f"{what} {done:,} of {self.total:,}, {left:.0f} min left", highlight=False)


def watched(what: str, answers: Iterable[T], total: int) -> Iterator[T]:
    """The answers, with a bar that moves as they come, or a line now and then."""
    with bar() as progress:
        task = progress.add_task(what, total=total)
        pace = Pace(progress.console, total)
        for done, answer in enumerate(answers, 1):
            yield answer
            progress.advance(task)
            pace.say(f"{what}:", done)
