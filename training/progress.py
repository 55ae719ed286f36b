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


def watched(what: str, answers: Iterable[T], total: int) -> Iterator[T]:
    """The answers, with a bar that moves as they come, or a line now and then."""
    with bar() as progress:
        task = progress.add_task(what, total=total)
        began = time.monotonic()
        due = began + FIRST
        for done, answer in enumerate(answers, 1):
            yield answer
            progress.advance(task)
            now = time.monotonic()
            if not progress.console.is_terminal and now >= due and done < total:
                due, left = now + EVERY, (now - began) / done * (total - done) / 60
                progress.console.print(f"{what}: {done:,} of {total:,}, {left:.0f} min left", highlight=False)
