"""The judges of a run: the reward that asks them, and when their models are opened."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Sequence

import torch
from accelerate import PartialState

from adjudge.engine.errors import RemoteError
from adjudge.engine.face import EngineFace
from adjudge.engine.models.sources import OpenModel, resolve
from adjudge.rewards.engines.colocated import Colocated
from adjudge.rewards.engines.lending import PolicyWeights
from adjudge.rewards.judge_rewards.references import DynamicReference
from adjudge.rewards.records.messages import Text
from adjudge.rewards.reward import Reward
from adjudge.training.grpo.preparing import Preparing
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.grpo.reward_recipe import RewardRecipe
from adjudge.training.prompts import Prompts
from adjudge.training.run_folder import RunFolder

log = logging.getLogger("adjudge")


class Paying:
    """What pays in a run: the recipe's own reward, with no model opened yet, or another in its stead.

    `written` is what the policy's first weights write, `levelled` the reward without its length trend, where the
    recipe says so, and `watched` that with its guards. Raises AdjudgeError for `prompts` without what a part reads of
    them, and for what the reward or a guard refuses.
    """

    def __init__(
        self, recipe: GrpoRecipe, reward: Reward | None, prompts: Prompts, folder: RunFolder, state: PartialState
    ) -> None:
        self.recipe, self.own, self.written = recipe, reward is None, recipe.written()
        self.paid = _own(recipe, folder, state, self.written) if reward is None else reward
        self.levelled = recipe.reward.levelled(self.paid)
        if self.own:
            recipe.reward.check((*prompts.train, *prompts.held_out))
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
            self.paid.policy = _lent(self.recipe, policy)

    def preparing(self, ahead: Sequence[Text], folder: RunFolder) -> Preparing:
        """What has the references of the prompts `ahead` written first."""
        around = self.paid.awake if isinstance(self.paid, Colocated) else contextlib.nullcontext
        return Preparing(self.written, ahead, folder.journal if self.recipe.reward.journal else None, around)


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


def _lent(recipe: GrpoRecipe, policy: OpenModel) -> PolicyWeights:
    """The first weights of the policy; its tokenizer as it is now, for trainers change theirs."""
    name = recipe.policy.model
    tokenizer = copy.deepcopy(policy.tokenizer)
    return PolicyWeights(policy.model, tokenizer, name=name, fingerprint=resolve(name).fingerprint)


def _own(recipe: GrpoRecipe, folder: RunFolder, state: PartialState, written: DynamicReference) -> Reward:
    gpus = min(state.num_processes, torch.cuda.device_count()) if state.device.type == "cuda" else 0
    reward = recipe.reward.open(written, str(folder.journal))
    sleep = recipe.reward.sleeps(gpus)
    return Colocated(reward, sleep=sleep) if sleep or recipe.reward.on_policy else reward
