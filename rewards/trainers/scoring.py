"""`Scorer`: a reward as a trainer may rely on it — checked, bounded in time, and never ending a run unasked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import TIMEOUT_MAX, Lock, Thread
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError, NotServing, QueueFull, RemoteError, reason
from adjudge.engine.score import Reason
from adjudge.rewards.group import Group
from adjudge.rewards.reward import GroupReward, Reward

OnFailure = Literal["stop", "abstain"]

LARGEST = 1.7e38
"""A reward beyond this counts as not finite: trainers keep rewards in float32, and subtract them."""

_PASSING = (NotServing, QueueFull, RemoteError)
"""Errors that lie in the moment; other AdjudgeErrors are mistakes, which asking again will not mend."""

_log = logging.getLogger("adjudge")


class Scored(msgspec.Struct, frozen=True):
    """The groups' rewards, in order, and how long they took.

    With the tokens that the reward's engines computed for them, and that sharing saved, and with the `metrics` that a
    reward keeps of itself (its guards' readings).
    """

    rewards: list[GroupReward]
    seconds: float = 0.0
    tokens_computed: int = 0
    tokens_saved: int = 0
    metrics: dict[str, float] = {}


class Scorer:
    """Asks `reward` for groups, one call at a time, from any thread.

    A call that is not done within `deadline` seconds abstains with "timeout". It goes on in a thread of its own; until
    it is done, if ever, later calls wait for it and abstain at their own deadlines. None: a call lasts as long as it
    lasts.

    With `on_failure` "abstain" a judge that fails (a server that is gone, an exception in a user's reward) is a
    warning, and the groups it fails on abstain with "cancelled"; with "stop" it ends the run. Mistakes, such as a
    missing column or a wrong number of rewards, always do: AdjudgeError. A reward that is NaN or infinite abstains
    with "non_finite".
    """

    def __init__(self, reward: Reward, deadline: float | None = None, on_failure: OnFailure = "stop") -> None:
        if deadline is not None and not 0 < deadline <= TIMEOUT_MAX:
            raise AdjudgeError(f"deadline is {deadline}: give seconds above 0, or None to wait as long as it takes")
        if on_failure not in ("stop", "abstain"):
            raise AdjudgeError(f'on_failure is "{on_failure}": choose stop or abstain')
        self.reward = reward
        self.deadline = deadline
        self.on_failure = on_failure
        self._busy = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_busy"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._busy = Lock()

    def score(self, groups: Sequence[Group]) -> Scored:
        """The rewards of each group, in order."""
        began = time.monotonic()
        before = _tokens(self.reward)
        rewards = self._within(groups, self.deadline) if groups else []
        after = _tokens(self.reward)
        computed, saved = after[0] - before[0], after[1] - before[1]
        return Scored(rewards, time.monotonic() - began, computed, saved, dict(getattr(self.reward, "metrics", {})))

    def _within(self, groups: Sequence[Group], deadline: float | None) -> list[GroupReward]:
        """The rewards, or abstentions where there is a deadline and it passes."""
        if deadline is None:
            with self._busy:
                return self._asked(groups)
        ends = time.monotonic() + deadline
        if self._busy.acquire(timeout=deadline):
            call = _Call(lambda: self._asked(groups), self._busy)
            call.start()
            call.join(max(0.0, ends - time.monotonic()))
            if call.error is not None:
                raise call.error
            if call.rewards is not None:
                return call.rewards
        _log.warning('reward "%s" took longer than %g s: %d groups abstain', self.name, deadline, len(groups))
        return [_abstaining(group, "timeout") for group in groups]

    def _asked(self, groups: Sequence[Group]) -> list[GroupReward]:
        try:
            return self._checked(groups)
        except Exception as error:
            self._check(error)
            return [self._alone(group) for group in groups]  # those that do not fail keep their rewards

    def _alone(self, group: Group) -> GroupReward:
        """The rewards of one group, which abstains where the reward fails and that is to be lived with."""
        try:
            return self._checked([group])[0]
        except Exception as error:
            self._check(error)
            text = f"{type(error).__name__}: {error}"
            _log.warning('reward "%s" failed on prompt "%s", which abstains: %s', self.name, group.prompt[:40], text)
            return _abstaining(group, "cancelled")

    def _checked(self, groups: Sequence[Group]) -> list[GroupReward]:
        return checked(self.reward.score_groups(groups), groups, self.name)

    def _check(self, error: Exception) -> None:
        """Raise what ends the run."""
        if isinstance(error, AdjudgeError) and (self.on_failure == "stop" or not isinstance(error, _PASSING)):
            raise error
        if self.on_failure == "stop":
            raise AdjudgeError(f'reward "{self.name}" failed: {type(error).__name__}: {error}') from error

    @property
    def name(self) -> str:
        """The reward's own."""
        return self.reward.name


class _Call(Thread):
    """A call under way, which keeps the scorer `busy` until it is over, whether anybody waits for it or not."""

    def __init__(self, ask: Callable[[], list[GroupReward]], busy: Lock) -> None:
        super().__init__(name="adjudge-reward", daemon=True)  # a dead judge must not keep the process
        self.rewards: list[GroupReward] | None = None
        self.error: BaseException | None = None
        self._ask, self._busy = ask, busy
        self._device = _cuda_device()

    def run(self) -> None:
        """Ask."""
        try:
            if self._device is not None:
                import torch

                torch.cuda.set_device(self._device)  # a new thread begins on the first device
            self.rewards = self._ask()
        except BaseException as error:
            self.error = error
        finally:
            self._busy.release()


def checked(rewards: Any, groups: Sequence[Group], name: str) -> list[GroupReward]:
    """What a reward answered, if it is one GroupReward for each group with one number or None for each response.

    Raises AdjudgeError otherwise. Numbers that are not finite are abstentions, and so is a None without a reason, which
    becomes "unsupported".
    """
    if not isinstance(rewards, Sequence) or len(rewards) != len(groups):
        count = len(rewards) if isinstance(rewards, Sequence) else type(rewards).__name__
        raise AdjudgeError(
            f'reward "{name}" returned {count} for {len(groups)} groups: return one GroupReward for each'
        )
    return [_checked(reward, group, name) for reward, group in zip(rewards, groups, strict=True)]


def _checked(reward: Any, group: Group, name: str) -> GroupReward:
    place = f'reward "{name}", prompt "{group.prompt[:40]}"'
    if not isinstance(reward, GroupReward):
        raise AdjudgeError(f"{place}: this is {type(reward).__name__}: return one GroupReward for each group")
    if len(reward.rewards) != len(group.responses):
        raise AdjudgeError(
            f"{place}: {len(reward.rewards)} rewards for {len(group.responses)} completions:"
            " give one for each, None to abstain"
        )
    values, reasons = [], []
    for value, why in zip(reward.rewards, reward.abstained, strict=True):
        number, said = _finite(value, place), why
        if number is None:
            said = said or ("unsupported" if value is None else "non_finite")
        values.append(number)
        reasons.append(None if number is not None else said)
    return msgspec.structs.replace(reward, rewards=tuple(values), abstained=tuple(reasons))


def _finite(value: Any, place: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise AdjudgeError(f"{place}: a reward is {type(value).__name__} ({reason(error)}): give a number") from error
    return number if abs(number) <= LARGEST else None  # false for NaN too


def _abstaining(group: Group, why: Reason) -> GroupReward:
    count = len(group.responses)
    return GroupReward((None,) * count, (why,) * count)


def _tokens(reward: Reward) -> tuple[int, int]:
    """Tokens that the reward's engines have computed and saved so far."""
    stats = [engine.stats for engine in reward.engines]
    computed = sum(one.tokens_computed for one in stats)
    return computed, sum(one.prompt_tokens for one in stats) - computed


def _cuda_device() -> int | None:
    """The device that this thread works on, if it works on any."""
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else None
