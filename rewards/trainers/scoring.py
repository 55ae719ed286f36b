"""`Scorer`: a reward as a trainer may rely on it — checked, bounded in time, and never ending a run unasked."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from threading import TIMEOUT_MAX, Lock
from typing import Any, Literal

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError, CallTooLarge, EngineFailed, NoServer, NotServing, QueueFull, RemoteError
from adjudge.engine.face import EngineFace
from adjudge.engine.score import Reason
from adjudge.engine.waiting import answered_by, overdue
from adjudge.rewards.engines.specification import engines_open_here
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.gated import shut_out
from adjudge.rewards.parts.layer import Layer, layers_of, reward_of
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward, checked, engines_of
from adjudge.rewards.trainers.deadline import Answer, Call
from adjudge.rewards.visible import in_a_line

FIRST_CALLS = (
    " (first calls open models and write what dynamic references are for new prompts, which goes on meanwhile)"
)

OnFailure = Literal["stop", "abstain"]

SPARE = 0.1
"""The share of a deadline that is left, once engines are to be done, for the step under way and the rest of a call."""

SILENT = 3
"""Calls in a row without any answer after which a judge is taken for dead, where a call is but a part of a step."""

_GONE = (NotServing, NoServer)
_REFUSED = (*_GONE, QueueFull, RemoteError)
_PASSING = (*_REFUSED, EngineFailed)
"""Errors that lie in the moment; other AdjudgeErrors are mistakes, which asking again will not mend."""

_log = logging.getLogger("adjudge")


class Scored(msgspec.Struct, frozen=True):
    """The groups' rewards, in order, and how long they took from their turn on.

    With the tokens that the reward's engines computed for them, and those of prompts that sharing saved (of a judge
    that writes up to one too many for each text), and with the `metrics` that a reward keeps of itself (its guards'
    readings).
    """

    rewards: list[GroupReward]
    seconds: float = 0.0
    tokens_computed: int = 0
    tokens_saved: int = 0
    metrics: dict[str, float] = {}


class Scorer:
    """Asks `reward` for groups, one call at a time, from any thread.

    `deadline` seconds after a call's turn has come, what is not scored abstains with "timeout": engines stop a tenth of
    it sooner (`SPARE`), and what is done by then is kept. Where a call is not done even so, all of it abstains, it goes
    on in a thread of its own, and until it is done others abstain `deadline` seconds after they were asked for. None: a
    call lasts as long as it lasts. The first call's time includes opening the judge's model.

    With `on_failure` "abstain" a judge that fails (a server that is gone, an engine without memory, an exception in a
    user's reward) is a warning, and the groups it fails on abstain with "cancelled"; with "stop" it ends the run, and
    so does, without a deadline, a step of nothing but "timeout" (`mute`). Mistakes, such as a missing column, always
    end it: AdjudgeError. When a call fails its groups are asked for one by one. A reward that is NaN or infinite
    abstains with "non_finite".

    Layers around the reward (`Layer`) see a step once, abstentions and all, unless it ends too late; what they ask for
    themselves comes after its rewards, in the time that is left.
    """

    def __init__(
        self, reward: Reward | Function, deadline: float | None = None, on_failure: OnFailure = "stop"
    ) -> None:
        if deadline is not None and not (is_number(deadline, Real) and 0 < deadline <= TIMEOUT_MAX):
            raise AdjudgeError(
                f"deadline is {shown(deadline)}: give seconds above 0, or None to wait as long as it takes"
            )
        if on_failure not in ("stop", "abstain"):
            raise AdjudgeError(f'on_failure is "{on_failure}": choose stop or abstain')
        self.reward = reward_of(reward, "the reward")
        self.deadline = deadline
        self.on_failure = on_failure
        self._turn, self._busy, self._layering = Lock(), Lock(), Lock()
        self._mute: Reason | None = None
        self._unanswered = 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("reward", "deadline", "on_failure")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _turn=Lock(), _busy=Lock(), _layering=Lock(), _mute=None, _unanswered=0)

    def score(self, groups: Sequence[Group], asked: float | None = None, whole: bool = True) -> Scored:
        """The rewards of each group, in order; raises what ends the run, wherever it is.

        `asked` is when they were asked for, in time.monotonic's seconds: now, where nobody says. They are a `whole`
        step's, or some of it.
        """
        scored = self.score_inside(groups, asked=asked)
        self.mute(scored.rewards, whole)
        return self.layered(groups, scored)

    def score_inside(self, groups: Sequence[Group], probe: bool = True, asked: float | None = None) -> Scored:
        """The same without what layers make of them: of a part of a step's groups, where several processes share them.

        One of the processes should `probe`: have the layers ask what they want to know for themselves. Whether the
        judge answers at all is for all of them to see (`mute`).
        """
        asked = time.monotonic() if asked is None else asked
        with self._turn:
            began = time.monotonic()
            before = {id(engine): _tokens(engine) for engine in {*engines_open_here(), *engines_of(self.reward)}}
            rewards = _all_rewards(self._within(groups, lambda: self._inside(groups, apart=False), asked, probe))
            spent = [
                [now - then for now, then in zip(_tokens(engine), before.get(id(engine), (0, 0, 0)), strict=True)]
                for engine in engines_of(self.reward)
            ]
            seconds = time.monotonic() - began
        computed, prompted, written = map(sum, zip(*spent, strict=True)) if spent else (0, 0, 0)
        saved = max(0, prompted - max(0, computed - written))
        return Scored(rewards, seconds, computed, saved, dict(self.reward.metrics))

    def layered(self, groups: Sequence[Group], scored: Scored) -> Scored:
        """The same with what the layers make of all rewards of a step."""
        rewards = _all_rewards(self._layered(groups, scored.rewards))
        return msgspec.structs.replace(scored, rewards=rewards, metrics={**scored.metrics, **self.reward.metrics})

    def score_apart(self, groups: Sequence[Group]) -> list[Answer]:
        """As `score`, of groups that only happen to be asked for together: an error is that of its own group."""
        if not groups:
            return []
        asked = time.monotonic()
        with self._turn:
            answers = self._within(groups, lambda: self._inside(groups, apart=True), asked)
        return self._layered(groups, answers)

    def mute(self, answers: Sequence[Answer], whole: bool = True) -> None:
        """Raise what ends a run whose judge answers nobody: none of a `whole` step, or of `SILENT` calls in a row."""
        if not _silent(answers):
            self._unanswered = 0 if _answered(answers) else self._unanswered
            return
        self._unanswered += 1
        if self.deadline is None and self.on_failure == "stop" and (whole or self._unanswered >= SILENT):
            asked = "this step" if whole else f"the last {self._unanswered} calls"
            text = f'reward "{self.name}": the judge no longer answers (every completion of {asked} is "timeout")'
            raise AdjudgeError(f"{text}: mend what the log says and resume, or let it abstain")

    def _within(
        self, groups: Sequence[Group], ask: Callable[[], list[Answer]], asked: float, probe: bool = True
    ) -> Sequence[Answer]:
        """The answers of a call whose turn it is, abstentions where its deadline passes; what is left is for probes."""
        begins = asked if self._busy.locked() else time.monotonic()  # who has had a turn and is still busy is late
        ends = None if self.deadline is None else begins + self.deadline
        with answered_by(begins + (1 - SPARE) * (self.deadline or math.inf)):
            answers = self._by(ends, ask) if groups else []
        if answers is None:
            text = 'reward "%s" took longer than %g s, groups that abstain: %d%s'
            _log.warning(text, self.name, self.deadline, len(groups), FIRST_CALLS)
            return [_abstaining(group, "timeout") for group in groups]
        if late := _late(answers):
            mend = "see whether the judge's server answers" if self.deadline is None else "raise the deadline"
            text = 'reward "%s": %d completions got no answer in time, and abstain after %.1f s: %s'
            _log.warning(text, self.name, late, time.monotonic() - begins, mend)
        self._warn_where_mute(answers)
        for layer in layers_of(self.reward)[1] if probe and not _silent(answers) else ():
            with answered_by(begins + (1 - SPARE) * (self.deadline or math.inf)):
                done = not layer.has_probes or self._by(ends, partial(_probed, layer)) is not None
            if not done:
                _log.warning(
                    'reward "%s": probes take longer than is left of %g s: raise the deadline', self.name, self.deadline
                )
        return answers

    def _warn_where_mute(self, answers: Sequence[Answer]) -> None:
        """Say, once until it changes, that none of several has a reward; of a late judge it is said each time."""
        reasons = [why for one in answers if isinstance(one, GroupReward) for why in one.abstained]
        mute = Counter(reasons).most_common(1)[0][0] if len(reasons) > 1 and all(reasons) else None
        if mute not in (None, "timeout", self._mute):
            text = 'reward "%s": none of %d completions has a reward, most for "%s": nothing is learned from them'
            _log.warning(f"{text} (docs/judges.md says what to do)", self.name, len(reasons), mute)
        self._mute = mute

    def _by(self, ends: float | None, ask: Callable[[], list[Answer]]) -> list[Answer] | None:
        """What comes of it once nothing else is under way, None where it is not done by then."""
        if ends is None:
            with self._busy:
                return ask()
        left = ends - time.monotonic()
        if left <= 0 or not self._busy.acquire(timeout=left):
            return None
        call = Call(ask, self._busy, self.name)
        try:
            call.start()
        except BaseException:
            self._busy.release()  # as it would have, had it begun
            raise
        return call.answers_by(ends)

    def _inside(self, groups: Sequence[Group], apart: bool) -> list[Answer]:
        answers = self._answers(layers_of(self.reward)[0], groups, apart)
        if apart:
            self.mute(answers, whole=False)
        else:
            _all_rewards(answers)
        return answers

    def _layered(self, groups: Sequence[Group], answers: Sequence[Answer]) -> list[Answer]:
        layers = layers_of(self.reward)[1]
        pairs = [(group, one) for group, one in zip(groups, answers, strict=True) if isinstance(one, GroupReward)]
        if not layers or not pairs:
            return list(answers)
        known, rewards = [group for group, _ in pairs], [reward for _, reward in pairs]
        with self._layering:
            for layer in layers:
                rewards = layer.after(known, rewards)
        left = iter(self._checked(rewards, known))
        return [next(left) if isinstance(one, GroupReward) else one for one in answers]

    def _answers(self, inside: Reward, groups: Sequence[Group], apart: bool) -> list[Answer]:
        """The answers of the reward inside all layers."""
        try:
            return list(self._checked(inside.score_groups(groups), groups))
        except Exception as error:
            ending = None if isinstance(error, CallTooLarge) and len(groups) > 1 else self._ending(error)
            if ending is not None and (not apart or len(groups) == 1 or isinstance(error, _REFUSED)):
                return [ending] * len(groups)  # no group of its own is to blame
            if len(groups) == 1 or isinstance(error, _GONE) or self._cut_short:  # no use in asking again
                return [self._abstains(group, error) for group in groups]
            # Those that do not fail keep their rewards.
            return [answer for group in groups for answer in self._answers(inside, [group], apart)]

    def _checked(self, rewards: Any, groups: Sequence[Group]) -> list[GroupReward]:
        return checked(rewards, groups, f'reward "{self.name}"')

    def _abstains(self, group: Group, error: Exception) -> GroupReward:
        prompt, why = in_a_line(group.prompt[:40]), in_a_line(f"{type(error).__name__}: {error}")
        _log.warning('reward "%s" failed on prompt "%s", which abstains: %s', self.name, prompt, why)
        return _abstaining(group, "timeout" if self._cut_short or self._is_covered(error) else "cancelled")

    def _ending(self, error: Exception) -> AdjudgeError | None:
        """The error as it ends the run, None for one that does not."""
        if isinstance(error, AdjudgeError):
            lived_with = self._is_covered(error) or (self.on_failure == "abstain" and isinstance(error, _PASSING))
            return None if lived_with else error
        if self.on_failure == "abstain" or self._cut_short:  # one that no time was left for may well stumble over None
            return None
        ending = AdjudgeError(f'reward "{self.name}" failed: {type(error).__name__}: {error}')
        ending.__cause__ = error
        return ending

    def _is_covered(self, error: Exception) -> bool:
        """Whether the deadline covers it: a server that does not answer at its opening is no other than a later one."""
        return self.deadline is not None and isinstance(error, NoServer)

    @property
    def _cut_short(self) -> bool:
        """Whether engines have no time left for this call, and somebody still waits for it."""
        return self.deadline is not None and 0 <= overdue() < SPARE * self.deadline

    @property
    def name(self) -> str:
        """The reward's own."""
        return self.reward.name


def _all_rewards(answers: Sequence[Answer]) -> list[GroupReward]:
    """The answers, if they are all rewards; raises the first that is not."""
    for answer in answers:
        if isinstance(answer, AdjudgeError):
            raise answer
    return [answer for answer in answers if isinstance(answer, GroupReward)]


def _late(answers: Sequence[Answer]) -> int:
    """How many responses were out of time."""
    return sum(one.abstained.count("timeout") for one in answers if isinstance(one, GroupReward))


def _answered(answers: Sequence[Answer]) -> bool:
    """Whether a judge may have answered, or another error is there: about what was shut out no judge was asked."""
    return any(
        not isinstance(one, GroupReward)
        or any(why != "timeout" and shut != 1 for why, shut in zip(one.abstained, shut_out(one), strict=True))
        for one in answers
    )


def _silent(answers: Sequence[Answer]) -> bool:
    """Whether a judge was asked and had no time for any."""
    return _late(answers) > 0 and not _answered(answers)


def _probed(layer: Layer) -> list[Answer]:
    layer.probe()
    return []


def _abstaining(group: Group, why: Reason) -> GroupReward:
    count = len(group.responses)
    return GroupReward((None,) * count, (why,) * count)


def _tokens(engine: EngineFace) -> tuple[int, int, int]:
    """Tokens computed, asked for and written so far by an engine."""
    return engine.stats.tokens_computed, engine.stats.prompt_tokens, engine.stats.tokens_written
