"""Canaries: texts whose order is known, scored again and again to see whether the reward still knows it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.rewards.guards.guard import UNKNOWN, Guard, checked_limit, finite
from adjudge.rewards.journal import content_key
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import Reward

log = logging.getLogger("adjudge")

SHIPPED = Path(__file__).with_name("canaries.jsonl")
"""Twelve prompts, nine in English and three in Chinese, with texts written for this purpose."""


class Canary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt with three answers that any reader would put in this order: good, mediocre, bad.

    `reference` is a fourth, fair one, for judges that hold a text against a reference; `columns` what else they read.
    """

    prompt: str
    good: str
    mediocre: str
    bad: str
    reference: str
    language: str = "en"
    columns: dict[str, Any] = {}

    @property
    def texts(self) -> tuple[str, str, str]:
        """The three answers, the best first."""
        return self.good, self.mediocre, self.bad

    def group(self, texts: Sequence[str], id: str) -> Group:
        """These texts as answers to the prompt."""
        return Group(self.prompt, tuple(texts), self.reference, id, self.columns)


def read_canaries(path: str | Path = SHIPPED) -> tuple[Canary, ...]:
    """The canaries of a JSONL file; raises AdjudgeError naming the line that is wrong."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise AdjudgeError(f"the canaries in {path} cannot be read ({reason(error)}): name another file") from error
    canaries = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                canaries.append(msgspec.json.decode(line, type=Canary))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise AdjudgeError(f"line {number} of {path} is no canary ({reason(error)}): mend it") from error
    return checked_canaries(canaries)


def checked_canaries(canaries: Sequence[Canary] | None) -> tuple[Canary, ...]:
    """The canaries, by default the shipped ones; raises AdjudgeError for fewer than two: probes swap their texts.

    And for what is none, as the name of their file.
    """
    if canaries is None:
        return _shipped()
    if not isinstance(canaries, list | tuple) or not all(isinstance(one, Canary) for one in canaries):
        raise AdjudgeError(f"canaries are {shown(canaries)}: give a list of Canary, of a file read_canaries(FILE)")
    if len(canaries) < 2:
        raise AdjudgeError(f"there are {len(canaries)} canaries: give at least 2")
    return tuple(canaries)


@cache
def _shipped() -> tuple[Canary, ...]:
    return read_canaries()


class CanaryMeasurement(msgspec.Struct, frozen=True):
    """What a reward gave the canaries: for each the rewards of the good, the mediocre and the bad text."""

    rewards: tuple[tuple[float | None, ...], ...]

    @property
    def agreement(self) -> float | None:
        """The share of pairs of a canary's texts that are in the known order, a tie counting half; None without any."""
        return _mean([point for point in self._points() if point is not None])

    def drift(self, first: CanaryMeasurement) -> float | None:
        """By how much the agreement has fallen since `first`, on the pairs that both have; None without any."""
        pairs = zip(first._points(), self._points(), strict=True)
        return _mean([then - now for then, now in pairs if then is not None and now is not None])

    def _points(self) -> list[float | None]:
        """Of each pair of a canary's texts whether it is in the known order; None where one has no reward."""
        return [
            None if better is None or worse is None else 0.5 if better == worse else float(better > worse)
            for row in self.rewards
            for better, worse in combinations(row, 2)
        ]

    @property
    def tells(self) -> bool:
        """Whether any two texts have different rewards."""
        return len({value for row in self.rewards for value in row if value is not None}) > 1

    @property
    def abstained(self) -> float:
        """The share of texts without a reward."""
        values = [value for row in self.rewards for value in row]
        return values.count(None) / len(values)

    def moved(self, first: CanaryMeasurement) -> float | None:
        """The mean size of the change of a reward since `first`; None where no text has both."""
        changes = [
            abs(now - then)
            for row, before in zip(self.rewards, first.rewards, strict=True)
            for now, then in zip(row, before, strict=True)
            if now is not None and then is not None
        ]
        return _mean(changes)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def measure_canaries(reward: Reward, canaries: Sequence[Canary]) -> CanaryMeasurement:
    """Score the canaries, each as a group of three."""
    groups = [canary.group(canary.texts, f"canary-{place}") for place, canary in enumerate(canaries)]
    scored = reward.score_groups(groups)
    return CanaryMeasurement(tuple(tuple(v if finite(v) else None for v in one.rewards) for one in scored))


class CanaryGuard(Guard):
    """Watches whether the reward still puts the canaries in their order, against the first time it was asked.

    Measures: `agreement` with the known order (1 all of it, ½ chance), `drift` = the first agreement minus the last, of
    the pairs that had rewards both times (first is the first time that any two texts had different ones), `moved` = the
    mean size of the change of a canary's reward since the first time (0 for a judge that has not changed), `abstained`
    = the share of texts without a reward. `drift` and `abstained` have limits.
    """

    name = "canary"
    measures = ("agreement", "drift", "moved", "abstained")

    def __init__(
        self, canaries: Sequence[Canary] | None = None, *, drift: float = 0.15, abstained: float = 0.5
    ) -> None:
        self.canaries = checked_canaries(canaries)
        self.limits = {
            "drift": checked_limit("the canary guard's drift", drift),
            "abstained": checked_limit("the canary guard's abstained", abstained),
        }
        self.of = content_key(canaries=self.canaries)
        self.first: CanaryMeasurement | None = None
        self.last: CanaryMeasurement | None = None

    @property
    def remembers(self) -> Mapping[str, Any]:
        """The first measurement, and the last, and which canaries they are of."""
        return {"of": str | None, **dict.fromkeys(("first", "last"), CanaryMeasurement | None)}

    def recalled(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """As any guard; what is of other canaries is forgotten, with a warning: there is nothing to compare it with."""
        values = super().recalled(memory)
        if values["of"] == self.of:
            return values
        log.warning("the guard canary had other canaries before: its drift is from now on")
        return {"of": self.of, "first": None, "last": None}

    def probe(self, reward: Reward) -> None:
        """Score the canaries."""
        self.last = measure_canaries(reward, self.canaries)
        # A judge that was away at the first step, or told nothing apart, leaves nothing to drift from.
        if self.first is None or not self.first.tells:
            self.first = self.last

    def readings(self) -> dict[str, float]:
        """Every measure as it stands."""
        if self.first is None or self.last is None:
            return dict.fromkeys(self.measures, UNKNOWN)
        known = {
            "agreement": self.last.agreement,
            "drift": self.last.drift(self.first) if self.first.tells else None,
            "moved": self.last.moved(self.first),
            "abstained": self.last.abstained,
        }
        return {name: UNKNOWN if value is None else value for name, value in known.items()}
