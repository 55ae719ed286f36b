"""Intervals by bootstrap over clusters: whole prompts are drawn again, with all their rows, never single rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from adjudge.engine.errors import AdjudgeError

FEWEST_CLUSTERS = 5
"""With fewer there is a value, but no interval: the percentiles of so few are not to be believed."""

DEFINED = 0.9
"""The share of the draws in which a statistic must exist for it to have an interval."""

ALIKE = 1e-12
"""Below this share of their own size, differences are rounding."""

Measure = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Values of a statistic, [R], under R weightings of the clusters, [R, C]; NaN where it does not exist."""


def of_prompts(count: int) -> str:
    """How many prompts there are, where they are too few for an interval."""
    return f"{count} of at least {FEWEST_CLUSTERS} prompts"


class Bootstrap(msgspec.Struct, frozen=True):
    """How intervals are drawn: so many draws of as many clusters as there are, and the middle share of the values."""

    draws: int = 1000
    seed: int = 0
    confidence: float = 0.95


USUAL = Bootstrap()


class Estimate(msgspec.Struct, frozen=True):
    """A statistic over `rows` of `clusters` prompts, with its interval; `why` says what keeps either from existing."""

    value: float | None
    interval: tuple[float, float] | None
    rows: int
    clusters: int
    why: str | None = None

    @property
    def numbers(self) -> tuple[float | None, float | None, float | None]:
        """The value, and the ends of its interval."""
        return (self.value, *(self.interval or (None, None)))


class Clusters:
    """Rows by their cluster: `of_row` [N] is each row's place among the `names`, in order of first appearance."""

    def __init__(self, names: Sequence[Hashable]) -> None:
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self.of_row = np.array([places[name] for name in names], dtype=np.int64)
        self.rows, self.count = len(names), len(places)

    def sums(self, values_NK: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sums of rows in each cluster, [C, K]."""
        sums_CK = np.zeros((self.count, values_NK.shape[1]))
        np.add.at(sums_CK, self.of_row, values_NK)
        return sums_CK

    def draws(self, how: Bootstrap) -> NDArray[np.float64]:
        """How often each cluster is in each draw, [D, C]."""
        chances = np.full(self.count, 1 / self.count)
        return np.random.default_rng(how.seed % 2**63).multinomial(self.count, chances, size=how.draws).astype(float)


def estimate(measure: Measure, clusters: Clusters, how: Bootstrap, absent: str) -> Estimate:
    """The statistic of all rows, once each, and the percentiles of its draws; `absent` says why it does not exist."""
    value = float(measure(np.ones((1, clusters.count)))[0])
    if not np.isfinite(value):
        return Estimate(None, None, clusters.rows, clusters.count, absent)
    if clusters.count < FEWEST_CLUSTERS:
        why = f"no interval: {of_prompts(clusters.count)}"
        return Estimate(value, None, clusters.rows, clusters.count, why)
    values_D = measure(clusters.draws(how))
    values_D = values_D[np.isfinite(values_D)]
    if len(values_D) < DEFINED * how.draws:
        why = f"no interval: in {how.draws - len(values_D)} of {how.draws} draws it does not exist"
        return Estimate(value, None, clusters.rows, clusters.count, why)
    tail = (1 - how.confidence) / 2
    if np.ptp(values_D) <= ALIKE * np.abs(values_D).max():
        why = "no interval: all draws are alike, which does not say how sure it is"
        return Estimate(value, None, clusters.rows, clusters.count, why)
    low, high = (float(bound) for bound in np.quantile(values_D, (tail, 1 - tail)))
    return Estimate(value, (low, high), clusters.rows, clusters.count)


def wilson(successes: float, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson, 1927): (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p, spread = successes / trials, z * z / trials
    middle, half = p + spread / 2, z * math.sqrt(p * (1 - p) / trials + spread / (4 * trials))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def columns(clusters: Sequence[Hashable], **named: Sequence[float]) -> tuple[Clusters, list[NDArray[np.float64]]]:
    """Columns of numbers as arrays, with their clusters.

    Raises AdjudgeError for columns of several lengths, and naming the first number that is not finite.
    """
    arrays = []
    for name, values in named.items():
        array = np.array(values, dtype=float)
        if len(array) != len(clusters):
            raise AdjudgeError(f'"{name}" has {len(array)} numbers for {len(clusters)} rows: give one for each')
        if (wrong := np.flatnonzero(~np.isfinite(array))).size:
            raise AdjudgeError(f'number {wrong[0] + 1} of "{name}" is {array[wrong[0]]}: leave out rows without one')
        arrays.append(array)
    return Clusters(clusters), arrays
