"""What a judged file of items adds up to: numbers, a table and lines for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec
from rich.table import Column, Table
from rich.text import Text

from adjudge.bench.reports.length import LengthEffect, length_line, length_of_items
from adjudge.bench.reports.run_cost import RunCost
from adjudge.bench.words import abstentions
from adjudge.engine.score import Reason
from adjudge.rewards.records.verdict import Item, Verdict
from adjudge.rewards.visible import in_a_line, visible
from adjudge.training.terminal import counted, right, ruled_table

MIN_ID, PART = 12, 8
"""Columns of the terminal for an id at least, and for a part."""


class ItemRow(msgspec.Struct, frozen=True):
    """An item, and what the judge said of it."""

    item: Item
    verdict: Verdict


class ItemSummary(msgspec.Struct, frozen=True):
    """Counts over the items of one run; `parts` are the names of all parts."""

    cost: RunCost
    items: int
    scores: tuple[float, ...]
    parts: tuple[str, ...]
    abstained: dict[Reason, int]
    truncated: int
    length: LengthEffect

    @property
    def mean(self) -> float | None:
        """The mean score."""
        return fmean(self.scores) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the scores."""
        return stdev(self.scores) if len(self.scores) > 1 else None


def summarise_items(rows: Sequence[ItemRow], cost: RunCost) -> ItemSummary:
    """The summary of `rows`."""
    verdicts = [row.verdict for row in rows]
    return ItemSummary(
        cost=cost,
        items=len(rows),
        scores=tuple(verdict.score for verdict in verdicts if verdict.score is not None),
        parts=tuple(dict.fromkeys(name for verdict in verdicts for name in verdict.breakdown)),
        abstained=dict(Counter(verdict.abstained for verdict in verdicts if verdict.abstained)),
        truncated=sum(verdict.truncated for verdict in verdicts),
        length=length_of_items([(row.item, row.verdict) for row in rows]),
    )


def item_table(verdicts: Sequence[Verdict], *, width: int) -> Table:
    """One line for each item; its parts have columns of their own where a terminal of `width` columns holds them."""
    names = list(dict.fromkeys(name for verdict in verdicts for name in verdict.breakdown))
    shown = names if MIN_ID + PART * (len(names) + 3) <= width else []
    heads = right("score", *(Text(_short(name)) for name in shown), "mass", no_wrap=True)
    table = ruled_table(Column("item", overflow="fold", min_width=8), *heads)
    for number, verdict in enumerate(verdicts, 1):
        parts = [verdict.breakdown.get(name) for name in shown]
        table.add_row(
            Text(in_a_line(verdict.id) or str(number)),
            Text(f"abstained:\n{verdict.abstained}", "yellow") if verdict.score is None else f"{verdict.score:z.2f}",
            *("–" if part is None or part.score is None else f"{part.score:z.1f}" for part in parts),
            "–" if verdict.mass is None else f"{verdict.mass:.3f}",
        )
    return table


def item_lines(summary: ItemSummary) -> list[str]:
    """The run in a few plain sentences: scores, abstentions, length, tokens, time."""
    cost = summary.cost
    lines = [
        f"{cost.model}: {counted(summary.items, 'item')}",
        mean_line(summary),
        abstentions(summary.abstained, summary.items),
        f"texts shortened in {summary.truncated} of {summary.items}",
        f"length: {length_line(summary.length)}",
        *cost.lines(summary.items, "item"),
    ]
    return [visible(line) for line in lines]


def mean_line(summary: ItemSummary) -> str:
    """The mean score and its spread."""
    if summary.mean is None:
        return "no item has a score"
    spread = "" if summary.deviation is None else f", standard deviation {summary.deviation:.2f}"
    return f"mean score {summary.mean:z.2f}{spread}"


def _short(name: str) -> str:
    name = in_a_line(name).rpartition("/")[2]  # a leaf of a tree by its own name
    return name if len(name) < PART else name[: PART - 3] + "."
