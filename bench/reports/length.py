"""Whether longer texts are judged better: the slope of verdicts on length, with what can be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from adjudge.bench.agreement.resampling import FEWEST_CLUSTERS, of_prompts
from adjudge.bench.words import signed
from adjudge.rewards.guards.length_trend import Points, centred, length_trend
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.verdict import Item, Verdict

PER = 1000
"""The slope is per so many characters."""
DECIDES = 0.5
"""The share of all (squared) differences in length that would go with a single text, beyond which it decides."""


class LengthEffect(msgspec.Struct, frozen=True):
    """How a value goes with length: least squares over `points` (length in characters, value).

    `slope` is per 1,000 characters, with its 95 % `interval` (by Student's t), and `correlation` Pearson's r; None
    where the points cannot tell: fewer than four, of fewer than three lengths, or without any spread. There is no
    interval where they are of too few `prompts`, as far as that is known. `outlier` is by how many characters the one
    text whose length decides the line lies from the mean, None where none does.
    """

    of: Literal["score", "preference", "strength"]
    points: tuple[tuple[float, float], ...]
    slope: float | None = None
    interval: tuple[float, float] | None = None
    correlation: float | None = None
    prompts: int | None = None
    outlier: float | None = None

    @property
    def direction(self) -> Literal["longer", "shorter"] | None:
        """Which texts are judged better; None where the interval holds 0, or there is none, or one text decides."""
        if self.interval is None or self.outlier is not None or self.interval[0] <= 0 <= self.interval[1]:
            return None
        return "longer" if self.interval[0] > 0 else "shorter"


def length_of_items(judged: Sequence[tuple[Item, Verdict]]) -> LengthEffect:
    """The score of a text on its length."""
    points = [(len(item.response), verdict.score) for item, verdict in judged if verdict.score is not None]
    return length_effect("score", [points])


def length_of_pairs(judged: Sequence[tuple[str, str, float | None]], prompts: int | None = None) -> LengthEffect:
    """The log-odds that a is better on how much longer a is, of (a, b, preference), where known of so many prompts."""
    points = [(len(a) - len(b), _log_odds(preference)) for a, b, preference in judged if preference is not None]
    return length_effect("preference", [points], prompts)


def length_of_groups(judged: Sequence[tuple[Group, GroupVerdict]]) -> LengthEffect:
    """The strength of a response on its length, both counted from the mean of its group."""
    return length_effect(
        "strength",
        [
            [
                (len(text), strength)
                for text, strength in dict(zip(group.responses, verdict.strengths, strict=True)).items()
                if strength is not None
            ]
            for group, verdict in judged
        ],
        len({group.prompt for group, verdict in judged if any(one is not None for one in verdict.strengths)}),
    )


def length_effect(
    of: Literal["score", "preference", "strength"], groups: Sequence[Points], prompts: int | None = None
) -> LengthEffect:
    """Least squares with one slope for all groups, and a level for each: only differences within a group count.

    With several groups the points come back counted from their group's means. Of fewer `prompts` than an interval of
    agreement has, which the points of one rise and fall with, there is none.
    """
    shown = centred(groups).tolist() if len(groups) > 1 else [point for points in groups for point in points]
    points = tuple((float(x), float(y)) for x, y in shown)
    trend = length_trend(groups)
    if trend.slope is None or trend.interval is None:
        return LengthEffect(of, points)
    low, high = trend.interval
    interval = None if prompts is not None and prompts < FEWEST_CLUSTERS else (PER * low, PER * high)
    lengths_N = centred(groups)[:, 0]
    sizes_N = np.repeat([len(points) for points in groups if points], [len(points) for points in groups if points])
    without_N = lengths_N**2 * sizes_N / np.maximum(sizes_N - 1, 1)  # what each text's absence would take away
    farthest = int(without_N.argmax())
    outlier = float(lengths_N[farthest]) if without_N[farthest] > DECIDES * float(lengths_N @ lengths_N) else None
    return LengthEffect(of, points, PER * trend.slope, interval, trend.correlation, prompts, outlier)


def length_line(effect: LengthEffect) -> str:
    """The effect in one sentence."""
    if effect.slope is None or effect.correlation is None:
        return "whether length matters cannot be told: too few verdicts, or all alike"
    units = {"score": "points", "preference": "log-odds", "strength": "in strength"}
    size = max(map(abs, effect.interval or (effect.slope,)))
    digits = min(max(2, 1 - math.floor(math.log10(size or 1.0))), 6)
    slope, *ends = (_told(value, digits) for value in (effect.slope, *(effect.interval or ())))
    sure = f"95 % interval {' to '.join(ends)}" if ends else f"no interval: {of_prompts(effect.prompts or 0)}"
    return (
        f"{slope} {units[effect.of]} per {PER:,} characters"
        f"{' that a story is longer' if effect.of == 'preference' else ''}"
        f" ({sure}; r {signed(effect.correlation)}): {conclusion(effect)}"
    )


def conclusion(effect: LengthEffect) -> str:
    """What follows from the interval."""
    if effect.slope is not None and effect.interval is None:
        return "too few to tell"
    if effect.outlier is not None:
        what = f"{abs(effect.outlier):,.0f} characters {'longer' if effect.outlier > 0 else 'shorter'} than the mean"
        return f"one {'difference' if effect.of == 'preference' else 'text'}, {what}, decides this: leave it out to see"
    if effect.direction is None:
        return "no effect of length can be told"
    return f"{effect.direction} texts are judged better"


def _told(value: float, digits: int) -> str:
    """The value with its sign, and with as many more digits as it takes for it not to be nothing."""
    return signed(value, min(max(digits, -math.floor(math.log10(abs(value)))), 6) if value else digits)


def _log_odds(p: float) -> float:
    p = min(max(p, 1e-12), 1 - 1e-12)
    return math.log(p) - math.log1p(-p)
