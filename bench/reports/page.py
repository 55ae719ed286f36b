"""What all reports share: one HTML file without scripts or references, its axes, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape

from adjudge.bench.reports.length import PER, LengthEffect, conclusion, length_line
from adjudge.bench.reports.pair_summary import by_order
from adjudge.bench.words import percent, signed, span
from adjudge.engine.score import Reason
from adjudge.engine.whole_file import write_whole
from adjudge.rewards.visible import pieces, visible
from adjudge.training.terminal import counted

HEAD = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri"""
"""How every report begins, and hardly anything else."""

DRAWN = 1000
"""Rows that a page shows one by one: browsers take no page of a hundred megabytes."""

SHOWN = 20_000  # characters of a text in the HTML file: a policy may write a megabyte

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

    @staticmethod
    def over(values: Sequence[float]) -> Axis:
        """From the least value to the largest, or around the only one."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        return Axis(low, high) if low < high else Axis(low - 0.5, high + 0.5)


class Scatter(msgspec.Struct, frozen=True):
    """The points of a length effect as places on two axes, and the ends of its line."""

    x: Axis
    y: Axis
    dots: tuple[tuple[str, str], ...]
    line: tuple[tuple[str, str], ...]

    @staticmethod
    def of(effect: LengthEffect) -> Scatter:
        """The drawing of an effect."""
        lengths, values = ([point[axis] for point in effect.points] for axis in (0, 1))
        x = Axis.over(lengths)
        ends: tuple[tuple[float, float], ...] = ()
        if effect.slope is not None:
            middle, level, slope = fmean(lengths), fmean(values), effect.slope / PER
            ends = tuple((end, level + slope * (end - middle)) for end in (x.low, x.high))
        y = Axis.over([*values, *(height for _, height in ends)])
        places = [(x(length), Axis(y.high, y.low)(value)) for length, value in (*effect.points, *ends)]
        dots, line = places[: len(values)], places[len(values) :]
        return Scatter(x, y, tuple(dots), tuple(line))


def write_page(path: str | Path, page: str) -> None:
    """Write a page that appears whole or not at all; raises OSError where it cannot be written."""
    write_whole(Path(path), page.encode())


def render_page(template: str, rows: Sequence[Any], **values: Any) -> str:
    """A template of this folder filled in, with the first of the rows, and how many others there are.

    Every value is escaped, and invisible characters in it are written out.
    """
    return _environment().get_template(template).render(rows=rows[:DRAWN], others=len(rows[DRAWN:]), **values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"marked": marked, "percent": percent, "signed": signed, "unbroken": _unbroken}
    environment.globals |= {
        "by_order": by_order,
        "capital": capital,
        "conclusion": conclusion,
        "counted": counted,
        "length_line": length_line,
        "reasons": REASONS,
        "scatter_of": Scatter.of,
        "span": span,
    }
    return environment


def marked(text: str) -> Markup:
    """A text as HTML, its hidden characters written out and the rest escaped; a long one is cut, and says so."""
    parts = [Markup("<i>{}</i>").format(part) if hidden else escape(part) for part, hidden in pieces(text[:SHOWN])]
    if len(text) > SHOWN:
        parts.append(Markup("<i>{:,} more characters are not shown</i>").format(len(text) - SHOWN))
    return Markup("").join(parts)


def capital(sentence: str) -> str:
    """With a capital letter."""
    return sentence[0].upper() + sentence[1:]


def _unbroken(text: str) -> str:
    """The text with its percent signs held to their numbers."""
    return text.replace(" %", "\u00a0%")
