"""What is checked of numbers that a user gives, before a step meets them with the calls of others."""

from __future__ import annotations

import math
import random
from numbers import Integral
from typing import Any

from adjudge.engine.errors import AdjudgeError


def is_number(value: Any, kind: type) -> bool:
    """Whether it is a finite number of that kind; numpy's count too."""
    try:
        return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number beyond all floats
        return False


def at_least(least: int, /, **numbers: Any) -> None:
    """Raise AdjudgeError for what is no whole number, or less than that; each is named as its caller gives it."""
    for name, value in numbers.items():
        if not is_number(value, Integral):
            raise AdjudgeError(f"{name} is {shown(value)}: give a whole number of at least {least}")
        if value < least:
            raise AdjudgeError(f"{name} is {shown(value)}: give at least {least}")


def draws(seed: Any) -> random.Random:
    """What draws numbers by a seed, or for None other ones each time; raises AdjudgeError for what is neither."""
    if seed is not None and not is_number(seed, Integral):
        raise AdjudgeError(f"seed is {shown(seed)}: give a whole number, or None")
    return random.Random(None if seed is None else int(seed))


def shown(value: object) -> str:
    """A value that a user gave, short enough to stand inside a sentence."""
    try:
        return f"{value!r:.40}"
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of too many digits"
