"""Reports of judged pairs: a table and lines for the terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from adjudge.bench.reports.length import length_line
from adjudge.bench.reports.page import Axis, capital, render_page
from adjudge.bench.reports.pair_summary import (
    PairRow,
    RunSummary,
    agreement,
    by_order,
    position_bias,
    worth,
)
from adjudge.bench.words import abstentions, signed
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.records.verdict import AspectVerdict, PairVerdict
from adjudge.rewards.visible import in_a_line, visible
from adjudge.training.terminal import counted, right, ruled_table

# On the terminal


def summary_lines(summary: RunSummary) -> list[str]:
    """The run in a few plain sentences: agreement, position bias, abstentions, tokens, time."""
    lines = [
        f"{summary.cost.model}: {counted(summary.pairs, 'pair')}, {counted(len(summary.aspects), 'aspect')}",
        agreement(summary),
        position_bias(summary),
        abstentions(summary.abstained, summary.pairs),
        f"texts shortened in {summary.truncated} of {summary.pairs}",
        f"length: {length_line(summary.length)}",
        *summary.cost.lines(summary.pairs, "pair"),
    ]
    return [visible(line) for line in lines]


def pair_table(rows: Sequence[PairRow], summary: RunSummary, *, width: int) -> Table:
    """One line for each pair, for a terminal of `width` columns.

    Where the aspects' scores do not fit, one column counts the aspects that prefer a and those that prefer b.
    """
    scored = _table(rows, summary, each_aspect=True)
    unlimited = Console(width=100_000)
    natural = Measurement.get(unlimited, unlimited.options, scored).maximum
    foldable = max((cell_len(in_a_line(row.pair.id)) for row in rows), default=0) - 20
    return scored if natural - max(foldable, 0) <= width else _table(rows, summary, each_aspect=False)


def _table(rows: Sequence[PairRow], summary: RunSummary, each_aspect: bool) -> Table:
    intended = any(row.expected for row in rows)
    aspects = [Text(_short(name)) for name in summary.aspects] if each_aspect else ["aspects"]
    heads = right("p", *aspects, "bias", "mass", no_wrap=True)
    last = [Column("meant", no_wrap=True)] * intended
    pair = Column("pair", overflow="fold", min_width=8)
    table = ruled_table(pair, Column("better", no_wrap=True), *heads, *last)
    for number, row in enumerate(rows, 1):
        verdict = row.verdict
        given = [verdict.aspects.get(name) for name in summary.aspects]
        table.add_row(
            Text(in_a_line(row.pair.id) or str(number)),
            *_preferred(row),
            *(map(_scores, given) if each_aspect else [_wins(given)]),
            "–" if verdict.bias is None else signed(verdict.bias),
            "–" if verdict.mass is None else f"{verdict.mass:.3f}",
            *([_meant(row)] if intended else []),
        )
    return table


def _short(name: str) -> str:
    name = in_a_line(name)
    return name if len(name) <= 7 else name[:5] + "."


def _preferred(row: PairRow) -> tuple[Text, str]:
    p = row.verdict.preference
    if p is None:
        return Text(f"abstained:\n{row.verdict.abstained}", "yellow"), "–"
    return Text(row.preferred.upper(), "bold") if row.preferred else Text("even"), f"{max(p, 1 - p):.3f}"


def _scores(aspect: AspectVerdict | None) -> Text:
    if aspect is None or aspect.score_a is None or aspect.score_b is None:
        return Text("–", "dim")
    a, b = aspect.score_a, aspect.score_b
    return Text.assemble((f"{a:.1f}", "bold" if a > b else ""), ("/", "dim"), (f"{b:.1f}", "bold" if b > a else ""))


def _wins(aspects: Sequence[AspectVerdict | None]) -> str:
    preferences = [aspect.preference for aspect in aspects if aspect is not None and aspect.preference is not None]
    return f"{sum(p > 0.5 for p in preferences)} A, {sum(p < 0.5 for p in preferences)} B" if preferences else "–"


def _meant(row: PairRow) -> Text:
    mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "dim")}[row.agrees]
    return Text(f"{mark} {row.expected or ''}".upper().replace("TIE", "tie"), style)


# As a page


def render(rows: Sequence[PairRow], summary: RunSummary, *, title: str) -> str:
    """The rows as one HTML page without scripts or references."""
    biases = _biases(rows, summary)
    return render_page(
        "pairs.html.jinja",
        rows,
        title=title,
        summary=summary,
        worth=worth(summary),
        agreement=capital(agreement(summary)),
        position_bias=capital(position_bias(summary)),
        intended=any(row.expected for row in rows),
        unit_axis=Axis(0.0, 1.0),
        pair_axis=_preference_axis([row.verdict for row in rows]),
        aspect_axis=_preference_axis([aspect for row in rows for aspect in row.verdict.aspects.values()]),
        bias_axis=Axis.around(0.0, [b for _, values in biases for b in values], [2.0**n for n in range(-2, 11)]),
        biases=[(name, values, fmean(values)) for name, values in biases if values],
        labels=SCALE.labels,
        tallest=_tallest(rows),
    )


def _preference_axis(verdicts: Sequence[PairVerdict | AspectVerdict]) -> Axis:
    """An axis for the preferences and what they were in each order."""
    known = [verdict.preference for verdict in verdicts if verdict.preference is not None]
    orders = [p for verdict in verdicts for p in by_order(verdict.preference, verdict.bias) or ()]
    return Axis.around(0.5, known + orders, (0.05, 0.1, 0.25, 0.5))


def _biases(rows: Sequence[PairRow], summary: RunSummary) -> list[tuple[str, list[float]]]:
    """The position biases of the pairs, and of each aspect."""
    aspects = {
        name: [aspect.bias for row in rows if (aspect := row.verdict.aspects.get(name)) and aspect.bias is not None]
        for name in summary.aspects
    }
    return [("whole pairs", [row.verdict.bias for row in rows if row.verdict.bias is not None]), *aspects.items()]


def _tallest(rows: Sequence[PairRow]) -> float:
    """The largest probability of any label, at which a bar is full."""
    aspects = [aspect for row in rows for aspect in row.verdict.aspects.values()]
    distributions = [one for aspect in aspects for one in (aspect.distribution_a, aspect.distribution_b) if one]
    return max((p for distribution in distributions for p in distribution), default=0.0) or 1.0
