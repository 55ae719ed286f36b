"""What each stage of a pipeline left of its rows: as a table beside a paper's, and as a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from adjudge.training.pictures import check_picture, new_figure, save_picture
from adjudge.training.stages import Passed
from adjudge.training.terminal import cell, plain_table


class Count(msgspec.Struct, frozen=True):
    """A stage by numbers: how many rows came and stayed, and how many were dropped for which reason.

    `published` is the share of a paper's first rows that were left after this stage.
    """

    stage: str
    came: int
    kept: int
    reasons: dict[str, int] = {}
    published: float | None = None

    @staticmethod
    def of(passed: Passed[Any], published: float | None = None) -> Count:
        """The numbers of what a stage made of its rows."""
        reasons = dict(Counter(drop.reason for drop in passed.dropped).most_common())
        kept = len(passed.kept)
        return Count(passed.stage, kept + len(passed.dropped), kept, reasons, published)


def tell(
    stages: Sequence[Passed[Any]], title: str, plot: Path | None = None, published: Sequence[float | None] = ()
) -> None:
    """Print what each stage left, beside the `published` shares if there are any, and draw it where there is a plot."""
    counts = list(map(Count.of, stages, published or repeat(None)))
    show_attrition(counts, title)
    if plot is not None:
        draw_attrition(counts, plot, title)


def show_attrition(counts: Sequence[Count], title: str) -> None:
    """Print the table; shares are of the rows that came to the first stage."""
    published = any(count.published is not None for count in counts)
    table = plain_table(title=Text(title))
    for name, right in (("stage", False), ("came", True), ("kept", True), ("left", True)):
        table.add_column(name, justify="right" if right else "left")
    if published:
        table.add_column("paper", justify="right")
    table.add_column("dropped for")
    for count in counts:
        paper = [cell(count.published, ".2%", "-")] if published else []
        why = ", ".join(f"{reason} {number}" for reason, number in count.reasons.items()) or "-"
        left = cell(_left(count, counts), ".2%", "-")
        table.add_row(count.stage, str(count.came), str(count.kept), left, *paper, why)
    Console().print(table)


def draw_attrition(counts: Sequence[Count], path: Path, title: str) -> None:
    """Draw what was left after each stage into a .png, .svg or .pdf; `check_picture` says whether that can be."""
    check_picture(path)
    figure = new_figure(7.5, 4)
    axes = figure.subplots()
    names = ["all", *(f"{number}. {count.stage}" for number, count in enumerate(counts, 1))]
    here = [100.0, *(100 * (_left(count, counts) or 0.0) for count in counts)]
    axes.plot(names, here, marker="o", label="here")
    known = [(name, 100 * count.published) for name, count in zip(names[1:], counts, strict=True) if count.published]
    if known:
        axes.plot(*zip(*known, strict=True), marker="s", linestyle="--", color="gray", label="paper")
        axes.legend(frameon=False)
    for name, value in zip(names, here, strict=True):
        axes.annotate(f"{value:.1f}", (name, value), textcoords="offset points", xytext=(0, 7), ha="center", fontsize=8)
    axes.set_ylim(0, 112)
    axes.set_ylabel("% left")
    axes.grid(alpha=0.3)
    axes.set_title(title, loc="left", fontsize=11)
    save_picture(figure, path)


def _left(count: Count, counts: Sequence[Count]) -> float | None:
    return count.kept / counts[0].came if counts[0].came else None
