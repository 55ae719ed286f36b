"""From score distributions to a preference without position bias."""

from __future__ import annotations

import math
from collections.abc import Sequence


def log_odds(first: Sequence[float], second: Sequence[float], values: Sequence[float]) -> float:
    """log(P(first > second) + P(=)/2) − log(P(first < second) + P(=)/2), the two scores taken as independent.

    `first` and `second` are probabilities over the same labels, whose numbers are `values`.
    """
    above = below = 0.0
    for p, x in zip(first, values, strict=True):
        for q, y in zip(second, values, strict=True):
            above += p * q * (1.0 if x > y else 0.5 if x == y else 0.0)
            below += p * q * (1.0 if x < y else 0.5 if x == y else 0.0)
    return math.log(max(above, math.ulp(0.0))) - math.log(max(below, math.ulp(0.0)))


def sigmoid(x: float) -> float:
    """1 / (1 + e^−x), without overflow."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def debiased(log_odds_ab: float, log_odds_ba: float) -> tuple[float, float]:
    """(log-odds that a is better, bias towards the first place) from the first story's log-odds in each order.

    An additive position bias cancels: (ℓ_AB − ℓ_BA)/2 and (ℓ_AB + ℓ_BA)/2.
    """
    return (log_odds_ab - log_odds_ba) / 2, (log_odds_ab + log_odds_ba) / 2
