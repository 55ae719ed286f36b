"""The report of judged items as one HTML file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

import msgspec
import numpy as np

from adjudge.bench.reports.items import ItemRow, ItemSummary, mean_line
from adjudge.bench.reports.page import Axis, capital, render_page
from adjudge.rewards.records.verdict import Part, Verdict

MOST_PARTS = 60
"""Parts drawn over all items; rubrics of each row's own have as many as there are rows."""

NEAR = 1e-6
"""How well an expected score must fit a scale for the scale to be taken as known."""


class PartLine(msgspec.Struct, frozen=True):
    """A line of a breakdown: a part, or (part None) the name of a branch that has no score of its own."""

    label: str
    name: str
    depth: int
    part: Part | None


def render_items(rows: Sequence[ItemRow], summary: ItemSummary, *, title: str) -> str:
    """The rows as one HTML page without scripts or references."""
    scores: dict[str, list[float]] = {name: [] for name in summary.parts}
    for row in rows:
        for name, part in row.verdict.breakdown.items():
            if part.score is not None:
                scores[name].append(part.score)
    clouds = [(name, values) for name, values in scores.items() if len(values) > min(1, len(rows) - 1)]
    bins = bins_of(summary.scores)
    return render_page(
        "items.html.jinja",
        rows,
        title=title,
        summary=summary,
        mean_line=capital(mean_line(summary)),
        score_axis=Axis.over(summary.scores),
        part_axis=Axis.over([value for _, values in clouds for value in values]),
        clouds=[(name, values, fmean(values)) for name, values in clouds[:MOST_PARTS]],
        more_parts=len(summary.parts) - len(clouds[:MOST_PARTS]),
        bins=bins,
        fullest=max((count for _, _, count in bins), default=0),
        tallest=max(
            (p for row in rows for part in row.verdict.breakdown.values() for p in part.distribution or ()), default=1.0
        ),
        lines_of=lines_of,
        scale_of=scale_of,
    )


def lines_of(verdict: Verdict) -> Iterator[PartLine]:
    """The parts in order, those called "branch/leaf" under the name of their branch."""
    above: tuple[str, ...] = ()
    for name, part in verdict.breakdown.items():
        *branches, leaf = name.split("/")
        for depth, branch in enumerate(branches):
            path = tuple(branches[: depth + 1])
            if above[: depth + 1] != path and "/".join(path) not in verdict.breakdown:
                yield PartLine(branch, "/".join(path), depth, None)
        above = tuple(branches)
        yield PartLine(leaf, name, len(branches), part)


def scale_of(part: Part) -> list[str] | None:
    """The labels of a part's distribution where its score tells them: whole numbers from 1, or from 0."""
    if part.score is None or part.distribution is None:
        return None
    for first in (1, 0):
        labels = range(first, first + len(part.distribution))
        if abs(sum(p * label for p, label in zip(part.distribution, labels, strict=True)) - part.score) < NEAR:
            return [str(label) for label in labels]
    return None


def bins_of(scores: Sequence[float]) -> list[tuple[float, float, int]]:
    """(from, to, how many) of a histogram of the scores, in about as many bins as the square root of their number."""
    if not scores:
        return []
    counts, edges = np.histogram(scores, bins=min(20, max(5, math.isqrt(len(scores)))))
    return [(float(low), float(high), int(count)) for low, high, count in zip(edges, edges[1:], counts, strict=False)]
