"""Whether longer texts are judged better: the slope of verdicts on length, with what can be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from scipy.special import ndtri, stdtrit

from adjudge.bench.words import signed
from adjudge.rewards.group import Group, GroupVerdict
from adjudge.rewards.verdict import Item, Pair, PairVerdict, Verdict

PER = 1000
"""The slope is per so many characters."""

ALIKE = 1e-9
"""Below this share of its own size, a spread is rounding."""

Points = Sequence[tuple[float, float]]


class LengthEffect(msgspec.Struct, frozen=True):
    """How a value goes with length: least squares over `points` (length in characters, value).

    `slope` is per 1,000 characters and `correlation` Pearson's r, each with its 95 % interval (by Student's t, and by
    Fisher's z); None where the points cannot tell: fewer than four, or without any spread.
    """

    of: Literal["score", "preference", "strength"]
    points: tuple[tuple[float, float], ...]
    slope: float | None = None
    interval: tuple[float, float] | None = None
    correlation: float | None = None
    correlation_interval: tuple[float, float] | None = None

    @property
    def direction(self) -> Literal["longer", "shorter"] | None:
        """Which texts are judged better; None where the interval holds 0, or there is none."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return None
        return "longer" if self.interval[0] > 0 else "shorter"


def length_of_items(judged: Sequence[tuple[Item, Verdict]]) -> LengthEffect:
    """The score of a text on its length."""
    points = [(len(item.response), verdict.score) for item, verdict in judged if verdict.score is not None]
    return length_effect("score", [points])


def length_of_pairs(judged: Sequence[tuple[Pair, PairVerdict]]) -> LengthEffect:
    """The log-odds that a is better on how much longer a is."""
    return length_effect(
        "preference",
        [
            [
                (len(pair.a) - len(pair.b), _log_odds(verdict.preference))
                for pair, verdict in judged
                if verdict.preference is not None
            ]
        ],
    )


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
    )


def length_effect(of: Literal["score", "preference", "strength"], groups: Sequence[Points]) -> LengthEffect:
    """Least squares with one slope for all groups, and a level for each: only differences within a group count.

    With several groups the points come back counted from their group's means.
    """
    filled = [np.array(points, dtype=float) for points in groups if points]
    centred_N2 = np.concatenate([points - points.mean(axis=0) for points in filled] or [np.empty((0, 2))])
    shown_N2 = centred_N2 if len(groups) > 1 else np.concatenate(filled or [np.empty((0, 2))])
    points = tuple((float(x), float(y)) for x, y in shown_N2)
    freedom = len(centred_N2) - len(filled) - 1
    if freedom < 2:
        return LengthEffect(of, points)
    x_N, y_N = centred_N2.T
    sizes = [float(np.abs(np.concatenate(filled)[:, axis]).max()) for axis in (0, 1)]
    if float(np.abs(x_N).max()) <= ALIKE * sizes[0] or float(np.abs(y_N).max()) <= ALIKE * sizes[1]:
        return LengthEffect(of, points)
    xx, xy, yy = float(x_N @ x_N), float(x_N @ y_N), float(y_N @ y_N)
    slope = xy / xx
    rest = y_N - slope * x_N
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(float(rest @ rest) / freedom / xx)
    r = min(max(xy / math.sqrt(xx * yy), -1.0), 1.0)
    z, reach = math.atanh(min(max(r, -1 + 1e-12), 1 - 1e-12)), float(ndtri(0.975)) / math.sqrt(freedom - 1)
    return LengthEffect(
        of,
        points,
        PER * slope,
        (PER * (slope - half), PER * (slope + half)),
        r,
        (math.tanh(z - reach), math.tanh(z + reach)),
    )


def length_line(effect: LengthEffect) -> str:
    """The effect in one sentence."""
    if effect.slope is None or effect.interval is None or effect.correlation is None:
        return "whether length matters cannot be told: too few verdicts, or all alike"
    units = {"score": "points", "preference": "log-odds", "strength": "in strength"}
    size = max(map(abs, effect.interval))
    digits = min(max(2, 1 - math.floor(math.log10(size or 1.0))), 6)
    slope, low, high = (signed(value, digits) for value in (effect.slope, *effect.interval))
    return (
        f"{slope} {units[effect.of]} per {PER:,} characters"
        f"{' that a story is longer' if effect.of == 'preference' else ''}"
        f" (95 % interval {low} to {high}; r {signed(effect.correlation)}): {conclusion(effect)}"
    )


def conclusion(effect: LengthEffect) -> str:
    """What follows from the interval."""
    if effect.direction is None:
        return "no effect of length can be told"
    return f"{effect.direction} texts are judged better"


def _log_odds(p: float) -> float:
    p = min(max(p, 1e-12), 1 - 1e-12)
    return math.log(p) - math.log1p(-p)
