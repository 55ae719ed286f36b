"""Bars on stderr that tell how far a run is, and are gone when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def bar() -> Progress:
    """What is done, how much of how much, and how long the rest will take."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def watched(what: str, answers: Iterable[T], total: int) -> Iterator[T]:
    """The answers, with a bar that moves as they come."""
    with bar() as progress:
        task = progress.add_task(what, total=total)
        for answer in answers:
            yield answer
            progress.advance(task)
