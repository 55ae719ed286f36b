"""The judges of a run: the reward that asks them, and when their models are opened."""

from __future__ import annotations

import contextlib
import copy
import logging
from contextlib import AbstractContextManager

from adjudge.engine.errors import RemoteError
from adjudge.engine.face import EngineFace
from adjudge.engine.models.sources import OpenModel, resolve
from adjudge.rewards.engines.colocated import Colocated
from adjudge.rewards.engines.lending import PolicyWeights
from adjudge.rewards.judge_rewards.references import DynamicReference
from adjudge.rewards.reward import Reward
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.grpo.reward_recipe import RewardRecipe
from adjudge.training.prompts import Prompts
from adjudge.training.run import processes
from adjudge.training.run_folder import RunFolder

log = logging.getLogger("adjudge")


class Paying:
    """What pays in a run: the recipe's own reward, with no model opened yet, or another in its stead.

    `written` is what the policy's first weights write, `levelled` the reward without its length trend, where the
    recipe says so, and `watched` that with its guards. Raises AdjudgeError for `prompts` without what a part reads of
    them, and for what the reward or a guard refuses.
    """

    def __init__(self, recipe: GrpoRecipe, reward: Reward | None, prompts: Prompts, folder: RunFolder) -> None:
        self.recipe, self.own, self.written = recipe, reward is None, recipe.written()
        if reward is None:
            reward = recipe.reward.open(self.written, str(folder.journal))
            recipe.reward.check((*prompts.train, *prompts.held_out))
            reward = _colocated(reward, recipe.reward)
        self.paid = reward
        self.levelled = recipe.reward.levelled(self.paid)
        self.watched = recipe.guards_over(prompts.train, own=self.own).watching(self.levelled)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the judges' models that are opened here."""
        return self.recipe.reward.models if self.own else ()

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters that are laid over them."""
        return self.recipe.reward.adapters if self.own else ()

    @property
    def sleeps(self) -> bool:
        """Whether engines give their memory back between the calls."""
        return isinstance(self.paid, Colocated) and self.paid.sleep

    def open(self, *, resume: bool) -> list[EngineFace]:
        """The judges' engines, as `open_judges` opens them."""
        return open_judges(self.recipe.reward, self.written, sleep=self.sleeps, resume=resume) if self.own else []

    def lend(self, policy: OpenModel) -> None:
        """Give judges that are the policy's first weights the policy itself."""
        if isinstance(self.paid, Colocated) and self.recipe.reward.on_policy:
            name = self.recipe.policy.model
            tokenizer = copy.deepcopy(policy.tokenizer)  # as it is now, for trainers change theirs
            fingerprint = resolve(name).fingerprint
            self.paid.policy = PolicyWeights(policy.model, tokenizer, name=name, fingerprint=fingerprint)

    def awake(self) -> AbstractContextManager[None]:
        """Within the block what writes references is as in a call of the reward."""
        return self.paid.awake() if isinstance(self.paid, Colocated) else contextlib.nullcontext()


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


def _colocated(reward: Reward, recipe: RewardRecipe) -> Reward:
    """The reward, whose engines give their memory back between the calls where they share a GPU with the policy."""
    import torch

    state = processes()
    gpus = min(state.num_processes, torch.cuda.device_count()) if state.device.type == "cuda" else 0
    sleep = recipe.sleeps(gpus)
    return Colocated(reward, sleep=sleep) if sleep or recipe.on_policy else reward
