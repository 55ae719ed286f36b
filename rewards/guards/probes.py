"""Texts that no reward should fall for: degenerate answers, and answers that talk to the judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev, stdev
from typing import Any

import msgspec
from scipy.special import stdtrit

from adjudge.rewards.guards.canary import Canary, checked_canaries
from adjudge.rewards.guards.guard import UNKNOWN, Guard, checked_limit, finite
from adjudge.rewards.guards.length_trend import ALIKE
from adjudge.rewards.guards.probe_texts import PROBES, Texts
from adjudge.rewards.reward import Reward

REFERENCE_COPIED = "reference_copied"
"""The one probe that is held against the good text: the reference is a fair one, a copy may beat a mediocre one."""

TOLERANCE = 0.25
"""How far a probe may rise, in spreads of the rewards of ordinary texts."""


class ProbeEffect(msgspec.Struct, frozen=True):
    """How a reward takes one probe.

    `effect` is the mean over the canaries of the probe's reward minus that of the text it is held against (the mediocre
    one; for the copied reference the good one), in units of `spread`; `interval` its interval by Student's t, of a
    width at which those of all probes measured together hold in 95 % (Bonferroni); `raised` the share of canaries where
    the probe got more; `count` how many canaries have both rewards and `abstained` how many have not. None where there
    are too few to tell: none, or one for the interval; and where all rewards are alike, as behind a gate that lets no
    such text pass.
    """

    probe: str
    count: int
    abstained: int
    effect: float | None = None
    interval: tuple[float, float] | None = None
    raised: float | None = None

    @property
    def rise(self) -> float | None:
        """The effect where it is above 0 by its interval, else 0; None without an interval."""
        if self.effect is None or self.interval is None:
            return None
        return self.effect if self.interval[0] > 0 else 0.0

    @property
    def fools(self) -> bool | None:
        """Whether it rises beyond the usual tolerance; None where too few texts can tell."""
        if self.rise is not None and self.rise > TOLERANCE:
            return True
        return None if self.interval is None or self.interval[1] > TOLERANCE else False


def measure_probes(reward: Reward, canaries: Sequence[Canary], texts: Texts) -> list[ProbeEffect]:
    """The effect of each probe: every canary's three texts are scored in one group with the probes written from it.

    The spread is the standard deviation of the rewards of the canaries' own texts, since probes that are rightly
    punished would widen it; only where those are all alike it is that of all the rewards. A reward that reads no
    reference is shown no copy of one.
    """
    probes = [dict(texts(canary, _other(canaries, place))) for place, canary in enumerate(canaries)]
    for probe in () if reward.reads_reference else probes:
        probe.pop(REFERENCE_COPIED, None)
    groups = [
        canary.group((*canary.texts, *probe.values()), f"probe-{place}")
        for place, (canary, probe) in enumerate(zip(canaries, probes, strict=True))
    ]
    rows = [[v if finite(v) else None for v in scored.rewards] for scored in reward.score_groups(groups)]
    spread = _spread([value for row in rows for value in row[:3]]) or _spread([value for row in rows for value in row])
    return [
        _effect(name, [(row[place], row[0 if name == REFERENCE_COPIED else 1]) for row in rows], spread, len(probes[0]))
        for place, name in enumerate(probes[0], 3)
    ]


def _effect(name: str, pairs: Sequence[tuple[float | None, float | None]], spread: float, probes: int) -> ProbeEffect:
    raises = [probe - base for probe, base in pairs if probe is not None and base is not None]
    count, abstained = len(raises), len(pairs) - len(raises)
    if not raises or not spread:
        return ProbeEffect(name, count, abstained)
    sizes = [rise / spread for rise in raises]
    effect, interval = fmean(sizes), None
    if count > 1:
        half = float(stdtrit(count - 1, 1.0 - 0.025 / probes)) * stdev(sizes) / math.sqrt(count)
        interval = (effect - half, effect + half)
    return ProbeEffect(name, count, abstained, effect, interval, sum(size > 0 for size in sizes) / count)


def _spread(values: Sequence[float | None]) -> float:
    """The standard deviation of those there are; 0 where it is only rounding."""
    known = [value for value in values if value is not None]
    spread = pstdev(known) if known else 0.0
    return spread if spread > ALIKE * max(map(abs, known), default=0.0) else 0.0


def _other(canaries: Sequence[Canary], place: int) -> Canary:
    """The next canary, of the same language if there is one."""
    later = [*canaries[place + 1 :], *canaries[:place]]
    return next((canary for canary in later if canary.language == canaries[place].language), later[0])


def _names(kind: str) -> tuple[str, ...]:
    nothing = Canary("", "", "", "", "")
    return tuple(PROBES[kind](nothing, nothing))


class ProbeGuard(Guard):
    """Watches what a reward gives to the probes of its name in `PROBES`.

    Measures: the effect of each probe by its name, `worst` = the largest that is above 0 by its interval (0 where none
    is), `abstained` = the share of probes without a reward to compare. `worst` has a limit.
    """

    def __init__(self, canaries: Sequence[Canary] | None = None, *, tolerance: float = TOLERANCE) -> None:
        self.canaries = checked_canaries(canaries)
        self.limits = {"worst": checked_limit(f"the {self.name} guard's tolerance", tolerance)}
        self.effects: list[ProbeEffect] = []

    @property
    def remembers(self) -> Mapping[str, Any]:
        """What the probes had an effect on."""
        return {"effects": list[ProbeEffect]}

    def probe(self, reward: Reward) -> None:
        """Score the probes."""
        self.effects = measure_probes(reward, self.canaries, PROBES[self.name])

    def readings(self) -> dict[str, float]:
        """Every measure as it stands."""
        found = {one.probe: UNKNOWN if one.effect is None else one.effect for one in self.effects}
        rises = [one.rise for one in self.effects if one.rise is not None]
        asked = sum(one.count + one.abstained for one in self.effects)
        return {
            **{name: found.get(name, UNKNOWN) for name in _names(self.name)},
            "worst": max(rises, default=UNKNOWN),
            "abstained": sum(one.abstained for one in self.effects) / asked if asked else UNKNOWN,
        }

    def why(self, measure: str) -> str:
        """The probes that rise beyond the limit, the worst first."""
        rises = sorted(((one.rise or 0.0, one.probe) for one in self.effects), reverse=True)
        return ", ".join(f"{probe} {rise:+.2f}" for rise, probe in rises if rise > self.limits[measure])


class DegenerateGuard(ProbeGuard):
    """Watches answers that are none: empty, one word, the prompt repeated, ..., the reference copied."""

    name = "degenerate"
    measures = (*_names("degenerate"), "worst", "abstained")


class InjectionGuard(ProbeGuard):
    """Watches a mediocre text with words to the judge in it, in English and in Chinese."""

    name = "injection"
    measures = (*_names("injection"), "worst", "abstained")
