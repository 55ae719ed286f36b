"""How the metrics on held-out prompts moved from the first step of a run to its last, over runs of several seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from scipy.special import stdtrit

from adjudge.training.curves import PART


class Change(msgspec.Struct, frozen=True):
    """A metric before the first step and after the last, in each run."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def mean(self) -> float:
        """By how much it rose, on average over the runs."""
        return statistics.fmean(self.rises)

    @property
    def margin(self) -> float | None:
        """Half the width of the mean's 95 % interval (Student's t over runs); None for a single run."""
        count = len(self.before)
        if count < 2:
            return None
        return float(stdtrit(count - 1, 0.975)) * statistics.stdev(self.rises) / math.sqrt(count)

    @property
    def verdict(self) -> str:
        """What the interval says: "rose", "fell", or "unclear" where it holds 0; nothing for a single run."""
        if self.margin is None:
            return ""
        if abs(self.mean) <= self.margin:
            return "unclear"
        return "rose" if self.mean > 0 else "fell"

    @property
    def rises(self) -> list[float]:
        """By how much it rose in each run."""
        return [after - before for before, after in zip(self.before, self.after, strict=True)]


Metrics = Sequence[Mapping[str, Any]]
"""The lines of metrics of a run."""


def changes(runs: Sequence[Metrics]) -> list[Change]:
    """The change of the reward and of each of its parts, over the lines of metrics of each run.

    Runs without held-out prompts, or whose last answers are not of the last step of all, have none to show, and are
    left out (`last_steps` tells which).
    """
    ends = [found for found in _ends(runs) if found is not None]
    names = sorted({name for first, _ in ends for name in first if name == "reward" or PART.fullmatch(name)})
    found = []
    for name in names:
        known = [(first[name], last[name]) for first, last in ends if None not in (first.get(name), last.get(name))]
        if known:
            found.append(Change(name, *zip(*known, strict=True)))
    return found


def last_steps(runs: Sequence[Metrics]) -> list[int | None]:
    """After which step each run last answered its held-out prompts; None where it did not do so twice.

    `changes` leaves out those with None, and those with less than the longest run has.
    """
    return [lines[-1]["step"] if len(lines) > 1 else None for lines in map(_answered, runs)]


def _answered(lines: Metrics) -> Metrics:
    return [line for line in lines if line["split"] == "held_out"]


def _ends(runs: Sequence[Metrics]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]] | None]:
    """Of each run its first held-out answers and those of the last step of all; None where it has not both."""
    steps = last_steps(runs)
    last = max((step for step in steps if step is not None), default=None)
    return [
        None if step is None or step != last else (answered[0], answered[-1])
        for step, answered in zip(steps, map(_answered, runs), strict=True)
    ]
