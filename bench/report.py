"""Reports of judged pairs: a table and lines for the terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean

import jinja2
import msgspec
import numpy as np
import rich
from markupsafe import Markup, escape
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from adjudge.bench.summary import (
    PairRow,
    RunSummary,
    agreement,
    by_order,
    counted,
    pace,
    percent,
    position_bias,
    sharing,
    signed,
    span,
    worth,
)
from adjudge.engine.score import Reason
from adjudge.rewards.verdict import AspectVerdict, PairVerdict

REASONS: dict[Reason, str] = {
    "unparsable": "the answer could not be read as a label",
    "low_mass": "the model gave the labels too little of its probability",
    "timeout": "no answer came in time",
    "non_finite": "the model returned numbers that are not finite",
    "too_long": "the texts do not fit into the model’s context",
    "cancelled": "the request was cancelled",
    "unsupported": "the model or its server cannot answer this kind of question",
}
"""The reasons to abstain, in words."""

SHOWN = 20_000  # characters of a text in the HTML file: a policy may write a megabyte
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0))
}  # printable by category and drawn as nothing; U+FE0F stays, for it is part of ordinary emoji


# Hostile text


def visible(text: str) -> str:
    """The text with its invisible, control and direction-changing characters written out: ⟨U+200B⟩."""
    return "".join(f"⟨{part}⟩" if hidden else part for part, hidden in pieces(text))


def marked(text: str) -> Markup:
    """The same as HTML, the rest escaped; a long text is cut, and says so."""
    parts = [Markup("<i>{}</i>").format(part) if hidden else escape(part) for part, hidden in pieces(text[:SHOWN])]
    if len(text) > SHOWN:
        parts.append(Markup("<i>{:,} more characters are not shown</i>").format(len(text) - SHOWN))
    return Markup("").join(parts)


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of readable text, and the names of hidden characters ("U+200B", "U+200B ×12"), which are flagged."""
    for character, run in groupby(text.replace("\r\n", "\n"), lambda c: c if _hidden(c) else ""):
        if character:
            length = sum(1 for _ in run)
            yield f"U+{ord(character):04X}" + (f" ×{length}" if length > 1 else ""), True
        else:
            yield "".join(run), False


def _hidden(character: str) -> bool:
    if character.isprintable() or character in "\n\t":
        return character in BLANK
    return unicodedata.category(character) != "Zs"


# On the terminal


def summary_lines(summary: RunSummary) -> list[str]:
    """The run in a few plain sentences: agreement, position bias, abstentions, tokens, time."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.abstained.items()))
    lines = [
        f"{summary.model}: {counted(summary.pairs, 'pair')}, {counted(len(summary.aspects), 'aspect')}",
        agreement(summary),
        position_bias(summary),
        f"abstained on {sum(summary.abstained.values())} of {summary.pairs}" + (f": {reasons}" if reasons else ""),
        f"texts shortened in {summary.truncated} of {summary.pairs}",
        f"computed {summary.tokens_computed:,} of {summary.prompt_tokens:,} tokens asked for" + sharing(summary),
        f"{summary.seconds:.1f} s" + pace(summary),
    ]
    return [visible(line) for line in lines]


def pair_table(rows: Sequence[PairRow], summary: RunSummary, *, width: int | None = None) -> Table:
    """One line for each pair, for a terminal of `width` columns (default: this one's).

    Where the aspects' scores do not fit, one column counts the aspects that prefer a and those that prefer b.
    """
    width = width or rich.get_console().width
    scored = _table(rows, summary, each_aspect=True)
    unlimited = Console(width=100_000)
    natural = Measurement.get(unlimited, unlimited.options, scored).maximum
    foldable = max((cell_len(visible(row.pair.id)) for row in rows), default=0) - 20
    return scored if natural - max(foldable, 0) <= width else _table(rows, summary, each_aspect=False)


def _table(rows: Sequence[PairRow], summary: RunSummary, each_aspect: bool) -> Table:
    intended = any(row.expected for row in rows)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("pair", overflow="fold", min_width=8)
    table.add_column("better", no_wrap=True)
    for head in ("p", *(map(_short, summary.aspects) if each_aspect else ["aspects"]), "bias", "mass"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    if intended:
        table.add_column("meant", no_wrap=True)
    for number, row in enumerate(rows, 1):
        verdict = row.verdict
        aspects = [verdict.aspects.get(name) for name in summary.aspects]
        table.add_row(
            Text(visible(row.pair.id) or str(number)),
            *_preferred(row),
            *(map(_scores, aspects) if each_aspect else [_wins(aspects)]),
            "–" if verdict.bias is None else signed(verdict.bias),
            "–" if verdict.mass is None else f"{verdict.mass:.3f}",
            *([_meant(row)] if intended else []),
        )
    return table


def _short(name: str) -> str:
    name = visible(name)
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


class Axis(msgspec.Struct, frozen=True):
    """A horizontal axis; places on it are percentages of its width, so that a drawing fits any screen."""

    low: float
    high: float

    def __call__(self, value: float) -> str:
        """The place of a value, kept on the axis."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(share, 0.0), 1.0):.2f}%"

    @staticmethod
    def around(middle: float, values: Sequence[float], widths: Sequence[float]) -> Axis:
        """The narrowest of `widths` on both sides of `middle` that holds the values."""
        reach = max((abs(value - middle) for value in values), default=0.0)
        width = next((width for width in widths if reach <= width), widths[-1])
        return Axis(middle - width, middle + width)


def write_pair_report(
    path: str | Path,
    rows: Sequence[PairRow],
    summary: RunSummary,
    *,
    title: str,
    labels: Sequence[str] = ("1", "2", "3", "4", "5"),
) -> None:
    """Write the rows as one HTML file without scripts or references; `labels` are those of the distributions.

    The file appears whole or not at all. Raises OSError where it cannot be written.
    """
    path = Path(path)
    page = render(rows, summary, title=title, labels=labels)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def render(rows: Sequence[PairRow], summary: RunSummary, *, title: str, labels: Sequence[str]) -> str:
    """The page of `write_pair_report`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"marked": marked, "percent": percent, "signed": signed, "unbroken": _unbroken}
    environment.globals |= {"by_order": by_order, "span": span, "sharing": sharing, "pace": pace, "counted": counted}
    biases = _biases(rows, summary)
    return environment.get_template("pairs.html.jinja").render(
        title=title,
        rows=rows,
        summary=summary,
        worth=worth(summary),
        agreement=_capital(agreement(summary)),
        position_bias=_capital(position_bias(summary)),
        reasons=REASONS,
        intended=any(row.expected for row in rows),
        unit_axis=Axis(0.0, 1.0),
        pair_axis=_preference_axis([row.verdict for row in rows]),
        aspect_axis=_preference_axis([aspect for row in rows for aspect in row.verdict.aspects.values()]),
        bias_axis=Axis.around(0.0, [b for _, values in biases for b in values], [2.0**n for n in range(-2, 11)]),
        biases=[(name, values, fmean(values)) for name, values in biases if values],
        labels=tuple(labels),
        tallest=_tallest(rows, labels),
        place=_places(labels),
    )


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _unbroken(text: str) -> str:
    """The text with its percent signs held to their numbers."""
    return text.replace(" %", "\u00a0%")


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


def _tallest(rows: Sequence[PairRow], labels: Sequence[str]) -> float:
    """The largest probability of any label, at which a bar is full.

    Raises ValueError for a distribution over another number of labels.
    """
    tallest = 0.0
    for row in rows:
        for name, aspect in row.verdict.aspects.items():
            for distribution in (aspect.distribution_a, aspect.distribution_b):
                if distribution is not None and len(distribution) != len(labels):
                    found = f"{len(distribution)} probabilities for {len(labels)} labels"
                    raise ValueError(f'pair "{row.pair.id}", aspect "{name}": {found}')
                tallest = max(tallest, *(distribution or (0.0,)))
    return tallest or 1.0


def _places(labels: Sequence[str]) -> Callable[[float], float] | None:
    """Where an expected score stands among the labels, the first at 0; None unless they are rising numbers."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return None
    rising = all(x < y for x, y in pairwise(numbers))
    return (lambda value: float(np.interp(value, numbers, range(len(numbers))))) if rising else None
