"""How a value goes with length where only differences within a group count: least squares, and what it can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

ALIKE = 1e-9
"""Below this share of its own size, a spread is rounding."""

Points = Sequence[tuple[float, float]]
"""The members of a group: (length, value)."""


FEWEST_LENGTHS = 3
"""Through two lengths there is always a line."""


class LengthTrend(msgspec.Struct, frozen=True):
    """The slope of values per unit of length and Pearson's r, each with its 95 % interval (Student's t; Fisher's z).

    All None where the points cannot tell: too few for a spread about the line, without any spread, or beyond float64.
    """

    slope: float | None = None
    interval: tuple[float, float] | None = None
    correlation: float | None = None
    correlation_interval: tuple[float, float] | None = None


def length_trend(groups: Sequence[Points]) -> LengthTrend:
    """Least squares with one slope for all groups, and a level for each."""
    filled = [np.array(points, dtype=float) for points in groups if points]
    centred_N2 = centred(groups)
    freedom = len(centred_N2) - len(filled) - 1
    if freedom < 2:
        return LengthTrend()
    x_N, y_N = centred_N2.T
    sizes = [float(np.abs(np.concatenate(filled)[:, axis]).max()) for axis in (0, 1)]
    if float(np.abs(x_N).max()) <= ALIKE * sizes[0] or float(np.abs(y_N).max()) <= ALIKE * sizes[1]:
        return LengthTrend()
    with np.errstate(over="ignore", invalid="ignore"):
        xx, xy, yy = float(x_N @ x_N), float(x_N @ y_N), float(y_N @ y_N)
    if not all(map(math.isfinite, (xx, xy, yy, xx * yy))):
        return LengthTrend()
    if len(np.unique(np.concatenate(filled)[:, 0])) < FEWEST_LENGTHS:
        return LengthTrend()
    slope = xy / xx
    rest = y_N - slope * x_N
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(float(rest @ rest) / freedom / xx)
    r = min(max(xy / math.sqrt(xx * yy), -1.0), 1.0)
    z, reach = math.atanh(min(max(r, -1 + 1e-12), 1 - 1e-12)), float(ndtri(0.975)) / math.sqrt(freedom - 1)
    return LengthTrend(slope, (slope - half, slope + half), r, (math.tanh(z - reach), math.tanh(z + reach)))


def centred(groups: Sequence[Points]) -> NDArray[np.float64]:
    """The points of all groups, [N, 2], each counted from the mean of its group."""
    filled = [np.array(points, dtype=float) for points in groups if points]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate([points - points.mean(axis=0) for points in filled] or [np.empty((0, 2))])
