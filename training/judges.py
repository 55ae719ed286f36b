"""The judges of a run, opened before an earlier run is forgotten or a policy loaded."""

from __future__ import annotations

import logging

from adjudge.engine.errors import RemoteError
from adjudge.engine.face import EngineFace
from adjudge.rewards.references import DynamicReference
from adjudge.training.reward_recipe import RewardRecipe

log = logging.getLogger("adjudge")


def open_judges(reward: RewardRecipe, written: DynamicReference, *, sleep: bool, resume: bool) -> list[EngineFace]:
    """The engines of a recipe's reward, to be held as long as it is asked; they `sleep` until then where they can.

    `written` is what the policy's first weights write. Raises what `RewardRecipe.opened` does, but for a server that is
    gone where a run goes on that lets it abstain.
    """
    try:
        opened = reward.opened(written)
    except RemoteError as error:
        if not resume or reward.on_failure != "abstain":
            raise
        log.warning("the run goes on without its judge: %s", error)
        return []
    for engine in opened if sleep else ():
        if hasattr(engine, "sleep"):
            engine.sleep()
    return opened
