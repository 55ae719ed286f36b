"""People's scores as what a judge should answer: a distribution over its labels."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row, number_of
from adjudge.training.evaluator.recipe import Scores

Scale = tuple[float, float]
Label = TypeVar("Label", int, float)


def ratings_of(row: Row, scores: Scores, aspect: str, suffix: str = "") -> list[float] | None:
    """What each rater gave a row on an aspect; None where nobody did. Raises AdjudgeError naming row and column."""
    if scores.column is not None:
        name = scores.column + suffix
        value, name = _of_aspect(row, name, aspect), f"{name}: {aspect}"
    elif (column := scores.columns.get(aspect)) is not None:
        name = column + suffix
        value = row.columns.get(name)
    else:
        return None
    value = _decoded(value)
    if value is None or value == "":
        return None
    ratings = value if isinstance(value, list) else [value]
    numbers = [number for one in ratings if not isinstance(one, str) and (number := number_of(one)) is not None]
    if not numbers or len(numbers) < len(ratings):
        raise AdjudgeError(f'{row.place}: "{name}" is {json.dumps(value)[:40]}, not a number or a list of numbers')
    return numbers


def soft_target(ratings: Sequence[float], labels: Sequence[float], scale: Scale | None, place: str) -> list[float]:
    """The share of each label, [K]: every rater counts alike, and a score between two labels is spread over both.

    So the expected value is the raters' mean. `labels` are in rising order; scores of a `scale` of their own are mapped
    onto them. Raises AdjudgeError for a score outside the scale.
    """
    low, high = scale or (labels[0], labels[-1])
    shares = [0.0] * len(labels)
    mend = "mend it, or say the data's own: [scores] scale = [1, 10]" if scale is None else "mend it, or [scores] scale"
    for rating in ratings:
        if not low <= rating <= high:
            raise AdjudgeError(f"{place}: a score is {rating:g}, outside {low:g} to {high:g}: {mend}")
        value = labels[0] + (rating - low) / (high - low) * (labels[-1] - labels[0])
        above = next(k for k in range(1, len(labels)) if value <= labels[k] or k == len(labels) - 1)
        part = (value - labels[above - 1]) / (labels[above] - labels[above - 1])
        shares[above - 1] += (1 - part) / len(ratings)
        shares[above] += part / len(ratings)
    return shares


def nearest(score: float, labels: Sequence[Label]) -> Label:
    """The label next to a score; `labels` are in rising order, and of two equally near the lower is taken."""
    return min(labels, key=lambda label: abs(label - score))


def expected(shares: Sequence[float], labels: Sequence[float]) -> float:
    """The mean score of a distribution over labels."""
    return math.fsum(share * label for share, label in zip(shares, labels, strict=True))


def _of_aspect(row: Row, column: str, aspect: str) -> Any:
    """The entry of an object of scores that is named as the aspect, in capitals or not."""
    scores = _decoded(row.columns.get(column))
    if not isinstance(scores, dict):
        raise AdjudgeError(f'{row.place}: "{column}" is no object of scores by aspect (named by [scores] column)')
    return next((scores[name] for name in scores if name.strip().lower() == aspect.lower()), None)


def _decoded(value: Any) -> Any:
    """A column as it is, or what the text in a cell of a table says."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
