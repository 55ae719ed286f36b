"""Numbers in words, the same in all reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def by_reason(abstained: Mapping[Any, int]) -> str:
    """Such as "2 low_mass, 1 timeout", by the reasons' names; nothing where nobody abstained."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(abstained.items()))


def abstentions(abstained: Mapping[Any, int], of: int) -> str:
    """Such as "abstained on 3 of 10: 2 low_mass, 1 timeout"."""
    told = by_reason(abstained)
    return f"abstained on {sum(abstained.values())} of {of}" + (f": {told}" if told else "")


def percent(share: float, digits: int = 0) -> str:
    """Such as "54 %"; a share that is not whole is never rounded to 0 or 100."""
    told, least = f"{100 * share:.{digits}f}", 10.0**-digits
    if share > 0 and told == f"{0:.{digits}f}":
        return f"<{least:.{digits}f} %"
    if share < 1 and told == f"{100:.{digits}f}":
        return f">{100 - least:.{digits}f} %"
    return f"{told} %"


def span(interval: tuple[float, float]) -> str:
    """Such as "35–71 %"; an end that is not whole is never rounded to 0 or 100."""
    return "–".join(percent(end).removesuffix(" %") for end in interval) + " %"


def signed(value: float, digits: int = 2) -> str:
    """With its sign, and a minus as long as the plus; what rounds to 0 is +0."""
    return f"{value:+z.{digits}f}".replace("-", "−")
