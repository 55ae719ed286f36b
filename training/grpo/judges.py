"""The judges of a run: the reward that asks them, and when their models are opened."""

from __future__ import annotations

import copy
import logging

import torch
from accelerate import PartialState

from adjudge.engine.errors import RemoteError
from adjudge.engine.face import EngineFace
from adjudge.engine.models.sources import OpenModel, resolve
from adjudge.rewards.colocated import Colocated
from adjudge.rewards.lending import PolicyWeights
from adjudge.rewards.references import DynamicReference
from adjudge.rewards.reward import Reward
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.grpo.reward_recipe import RewardRecipe
from adjudge.training.run_folder import RunFolder

log = logging.getLogger("adjudge")


def during_training(recipe: GrpoRecipe, folder: RunFolder, state: PartialState, written: DynamicReference) -> Reward:
    """The recipe's own reward, with no model opened yet."""
    gpus = min(state.num_processes, torch.cuda.device_count()) if state.device.type == "cuda" else 0
    reward = recipe.reward.open(written, str(folder.journal))
    sleep = recipe.reward.sleeps(gpus)
    return Colocated(reward, sleep=sleep) if sleep or recipe.reward.on_policy else reward


def open_judges(reward: RewardRecipe, written: DynamicReference, *, sleep: bool, resume: bool) -> list[EngineFace]:
    """The engines of a recipe's reward, to be held as long as it is asked; they `sleep` until then where they can.

    `written` is what the policy's first weights write. Raises what `RewardRecipe.openers` do, but for a server that is
    gone where a run goes on that lets it abstain.
    """
    opened: list[EngineFace] = []
    for open_one in reward.openers(written):
        try:
            engine = open_one()
        except RemoteError as error:
            if not resume or reward.on_failure != "abstain":
                raise
            log.warning("the run goes on without its judge: %s", error)
        else:
            opened += [engine] if engine is not None else []
    for engine in opened if sleep else ():
        if hasattr(engine, "sleep"):
            engine.sleep()
    return opened


def lent(recipe: GrpoRecipe, policy: OpenModel) -> PolicyWeights:
    """The first weights of the policy; its tokenizer as it is now, for trainers change theirs."""
    name = recipe.policy.model
    tokenizer = copy.deepcopy(policy.tokenizer)
    return PolicyWeights(policy.model, tokenizer, name=name, fingerprint=resolve(name).fingerprint)
