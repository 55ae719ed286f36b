"""What is checked of numbers that a user gives, before a step meets them with the calls of others."""

from __future__ import annotations

import math
from typing import Any


def is_number(value: Any, kind: type) -> bool:
    """Whether it is a finite number of that kind; numpy's count too."""
    try:
        return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number beyond all floats
        return False


def shown(value: object) -> str:
    """A value that a user gave, short enough to stand inside a sentence."""
    try:
        return f"{value!r:.40}"
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of too many digits"
