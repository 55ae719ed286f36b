"""`Guarded`: a reward with guards beside it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import msgspec

from adjudge.engine.checking import at_least, shown
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.waiting import overdue
from adjudge.rewards.guards.canary import CanaryGuard
from adjudge.rewards.guards.collapse import CollapseGuard
from adjudge.rewards.guards.guard import UNKNOWN, Guard, GuardTripped
from adjudge.rewards.guards.length import LengthGuard
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.guards.probes import DegenerateGuard, InjectionGuard
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.layer import Around, Layer
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward

log = logging.getLogger("adjudge")

Found = TypeVar("Found")

TRIES = 3
"""How often a guard that has no time left to probe is asked to again."""


STANDARD: dict[str, Callable[..., Guard]] = {
    kind.name: kind for kind in (LengthGuard, CanaryGuard, DegenerateGuard, InjectionGuard, CollapseGuard)
}


def standard_guards(settings: Mapping[str, Mapping[str, Any]] | None = None) -> list[Guard]:
    """One of each guard, as it comes or with the arguments that `settings` has under its name.

    Raises AdjudgeError for settings that the guard refuses, or of a guard that is not there.
    """
    told = settings or {}
    if unknown := [name for name in told if name not in STANDARD]:
        raise AdjudgeError(f'there is no guard "{unknown[0]}" to set: choose from {", ".join(STANDARD)}')
    return [kind(**told.get(name, {})) for name, kind in STANDARD.items()]


class GuardedState(msgspec.Struct, frozen=True):
    """What a `Guarded` knows after a `step`.

    `due` is the step after which it probes next, `failed` how often guards have failed; `over` are the measures above
    their limits, by guard; `guards` is what each of them remembers.
    """

    step: int
    due: int
    failed: int
    over: tuple[tuple[str, str], ...]
    guards: dict[str, dict[str, Any]]


class Guarded(Layer):
    """A reward that passes another's through as they are (`checked`), while guards watch it; put it outermost.

    Every call is a step, the first is 1. At the first and every `every`-th after it the guards probe the reward with
    texts of their own (the standard guards: up to 336 on 12 prompts), after its rewards are there and until a trainer's
    deadline; one that has no time left probes after the next step, and after `TRIES` such steps not until the next
    time, with a warning. Where the reward looks for tags (`FormatReward`, `SectionReward`) `form` puts them around:
    "<think>So.</think><answer>{text}</answer>". While `learning` is False, as for held-out prompts, a call is no step.

    `metrics` has those of the reward inside, `guards/<guard>/<measure>` (NaN for what cannot be told yet),
    `guards/over` = how many measures are above their limits, `guards/failed` = how often a guard has failed so far, and
    `guards/seconds` = how long the guards took this time. A measure that crosses its limit is a warning, once until it
    has been below again; for guards named in `stop_on` `GuardTripped` is raised on every such step or, with `raises`
    False, left in `tripped` until the next step. Probes that fail cost no reward. `state` is
    plain data to keep with a checkpoint and to set again.

    Raises AdjudgeError for a guard that is there twice, for a `stop_on` that is not there, and for a `form` without
    {text}.
    """

    raises: bool = True

    def __init__(
        self,
        reward: Reward | Function,
        guards: Sequence[Guard] | None = None,
        *,
        every: int = 100,
        stop_on: Sequence[str] = (),
        form: str | None = None,
    ) -> None:
        self.guards = standard_guards() if guards is None else list(guards)
        if strange := [guard for guard in self.guards if not isinstance(guard, Guard)]:
            raise AdjudgeError(f"a guard is {shown(strange[0])}: give guards, as LengthGuard(), or None for all")
        names = [guard.name for guard in self.guards]
        if len(set(names)) < len(names):
            raise AdjudgeError(f"the guards are {', '.join(names)}: give each once")
        if isinstance(stop_on, str):
            raise AdjudgeError(f"stop_on is {stop_on[:40]!r}: give a list of guards' names")
        if unknown := [name for name in stop_on if name not in names]:
            mend = f"choose from {', '.join(names)}" if names else "no guard is in use: add one, or stop on none"
            raise AdjudgeError(f'stop_on names "{unknown[0]}": {mend}')
        if form is not None and "{text}" not in form:
            raise AdjudgeError(f'form is "{form[:40]}": write {{text}} where a text stands in it')
        at_least(1, every=every)
        super().__init__(reward)
        self.every = every
        self.stop_on = frozenset(stop_on)
        self.form = form
        self.step = 0
        self.failed = 0
        self.over: frozenset[tuple[str, str]] = frozenset()
        self.tripped: GuardTripped | None = None
        self._metrics: dict[str, float] = {}
        self._due = 0
        self._probed: set[str] = set()
        self._short: Counter[str] = Counter()
        self._probing = 0.0
        self._lock = Lock()

    @property
    def metrics(self) -> Mapping[str, float]:  # type: ignore[override]
        """What there is to log: while not `learning` what the reward inside has, for the guards have seen nothing."""
        return self._metrics if self.learning else self.reward.metrics

    @property
    def state(self) -> GuardedState:
        """What is known by now."""
        kept = {guard.name: self._attempt(guard, "be kept", guard.memory) for guard in self.guards}
        guards = {name: memory for name, memory in kept.items() if memory is not None}
        return GuardedState(self.step, self._due, self.failed, tuple(sorted(self.over)), guards)

    @state.setter
    def state(self, state: GuardedState) -> None:
        """Go on from there; raises msgspec.ValidationError, and changes nothing, where these guards cannot.

        A guard that the state does not tell of stays as it is, with a warning.
        """
        known = [guard for guard in self.guards if guard.name in state.guards]
        memories = [(guard, guard.recalled(state.guards[guard.name])) for guard in known]
        if unknown := [guard.name for guard in self.guards if guard not in known and guard.remembers]:
            log.warning("nothing is known of the guard %s: it stays as it is", ", ".join(unknown))
        for guard, memory in memories:
            for name, value in memory.items():
                setattr(guard, name, value)
        self.step, self._due, self.failed, self.over = state.step, state.due, state.failed, frozenset(state.over)
        self._probed.clear()
        self._short.clear()

    @property
    def has_probes(self) -> bool:
        """Whether the next step is one at which the guards probe, or they have missed the last such step."""
        return self.learning and self.step >= self._due

    def probe(self) -> None:
        """Have the guards put texts of their own to the reward; once a step, whoever asks for it."""
        with self._lock:
            if not self.has_probes:
                return
            began, due, self._due = time.monotonic(), self._due, (self.step // self.every + 1) * self.every
        for guard in self.guards:
            if guard.name in self._probed:
                continue
            try:
                self._attempt(guard, "probe", partial(guard.probe, _probed(self.reward, self.form)))
            except _OutOfTime:
                self._short[guard.name] += 1
                if self._short[guard.name] < TRIES:
                    self._due = due  # the others are not asked again
                    break
                log.warning("the guard %s has not had time to probe: raise the deadline, or every", guard.name)
            self._probed.add(guard.name)
        else:
            self._probed.clear()
            self._short.clear()
        self._probing = time.monotonic() - began

    def after(self, groups: Sequence[Group], rewards: list[GroupReward]) -> list[GroupReward]:
        """The rewards as they are, once the guards have seen them."""
        if self.learning:
            with self._lock:  # calls may overlap where rewards are asynchronous
                self._watch(groups, rewards)
        return rewards

    def _watch(self, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> None:
        began = time.monotonic()
        self.step += 1
        readings = {guard.name: self._readings(guard, groups, rewards) for guard in self.guards}
        before, self.over = self.over, frozenset(_over(self.guards, readings))
        tripped = [
            GuardTripped(
                name, measure, readings[name][measure], guard.limits[measure], self.step, self._why(guard, measure)
            )
            for guard in self.guards
            for name, measure in sorted(self.over)
            if name == guard.name
        ]
        for one in tripped:
            if (one.guard, one.measure) not in before:
                log.warning(one.finding)
        self._emit(readings, time.monotonic() - began + self._probing)
        self._probing = 0.0
        self.tripped = next((one for one in tripped if one.guard in self.stop_on), None)
        if self.tripped is not None and self.raises:
            raise self.tripped

    def _readings(self, guard: Guard, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> dict[str, float]:
        """A guard's readings after this step; what goes wrong in it is logged and counted."""
        self._attempt(guard, "observe", lambda: guard.observe(groups, rewards))
        return self._attempt(guard, "read", guard.readings) or dict.fromkeys(guard.measures, UNKNOWN)

    def _why(self, guard: Guard, measure: str) -> str:
        return self._attempt(guard, "explain", lambda: str(guard.why(measure))) or ""

    def _attempt(self, guard: Guard, doing: str, act: Callable[[], Found]) -> Found | None:
        """What came of it; None where it went wrong, which is logged and counted."""
        try:
            return act()
        except _OutOfTime:
            raise
        except Exception as error:
            self.failed += 1
            log.warning(
                "step %d: the guard %s could not %s (%s: %s); rewards are not touched",
                self.step + (doing == "probe"), guard.name, doing, type(error).__name__, reason(error),
            )  # fmt: skip
            return None

    def _emit(self, readings: dict[str, dict[str, float]], seconds: float) -> None:
        measured = {
            f"guards/{guard}/{measure}": value for guard, row in readings.items() for measure, value in row.items()
        }
        self._metrics = {
            **self.reward.metrics,
            **measured,
            "guards/over": float(len(self.over)),
            "guards/failed": float(self.failed),
            "guards/seconds": seconds,
        }

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())


def _over(guards: Sequence[Guard], readings: dict[str, dict[str, float]]) -> list[tuple[str, str]]:
    """The measures above their limits, by guard; NaN is above none."""
    return [
        (guard.name, measure)
        for guard in guards
        for measure, limit in guard.limits.items()
        if readings[guard.name][measure] > limit
    ]


def _probed(reward: Reward, form: str | None) -> Reward:
    """What probes are put to: the reward before its history comes in, which they must not add to."""
    while isinstance(reward, LengthFree):
        reward = reward.reward
    return _InTime(reward if form is None else _Formed(reward, form))


class _OutOfTime(Exception):
    """A probe was cut short: its abstentions say nothing about the judge."""


class _InTime(Around):
    """A reward whose answers are there in time, or not at all."""

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        scored = self.reward.score_groups(groups)
        if overdue() >= 0 and any("timeout" in one.abstained for one in scored):
            raise _OutOfTime
        return scored


class _Formed(Around):
    """A reward for responses once they stand in a form."""

    def __init__(self, reward: Reward, form: str) -> None:
        super().__init__(reward)
        self.form = form

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        return self.reward.score_groups(
            [
                msgspec.structs.replace(one, responses=[self.form.replace("{text}", text) for text in one.responses])
                for one in groups
            ]
        )
