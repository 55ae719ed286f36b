"""`Colocated`: a judge on the policy's own device, which has its memory only while it scores."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.threads.forked import Renewed
from adjudge.rewards.engines.lending import PolicyWeights
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.layer import Around, inside
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward

_log = logging.getLogger("adjudge")

_UNDER_WAY: list[Colocated] = []
"""The reward of each call now under way: their engines stay awake."""
_CHANGING = Renewed(Lock)


class Colocated(Around):
    """The rewards of `reward`, whose engines wake for each call and give their memory back to the driver after it.

    An engine that is not open yet is opened by its first call. Calls that overlap share one waking, also those of
    several rewards on one engine; one that is still at work when they end (a call that a deadline cut off) stays awake
    until the next call ends, and the log says so. Engines that cannot sleep (a server's) are left alone. With `sleep`
    False none sleeps.

    `policy` lends its base weights to engines that are specified as "policy" (see `PolicyWeights`): they have no copy
    of them, and when they sleep they give back their cache. The policy itself is not touched. A reward with a policy
    does not pickle.
    """

    def __init__(self, reward: Reward | Function, *, sleep: bool = True, policy: Any = None) -> None:
        super().__init__(inside(reward, "what is colocated"))
        self.sleep = sleep
        self.policy = policy if policy is None or isinstance(policy, PolicyWeights) else PolicyWeights(policy)

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        with self.awake():
            return self.reward.score_groups(groups)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Within the block (of this thread or task) it is as in a call: engines awake, the policy's weights lent."""
        with _CHANGING.here:
            _UNDER_WAY.append(self)
        try:
            with _CHANGING.here:
                for engine in self.engines:
                    if hasattr(engine, "wake"):
                        engine.wake()
            with nullcontext() if self.policy is None else self.policy.lent():
                yield
        finally:
            with _CHANGING.here:
                _UNDER_WAY.remove(self)
                if self.sleep:
                    self._put_to_sleep()

    def _put_to_sleep(self) -> None:
        in_use = {id(engine) for reward in _UNDER_WAY for engine in reward.engines}
        for engine in self.engines:
            try:
                if hasattr(engine, "sleep") and id(engine) not in in_use:
                    engine.sleep()
            except AdjudgeError as error:
                _log.warning("%s: %s stays awake: %s", self.name, engine.name, error)
