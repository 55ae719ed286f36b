"""The recipe of `adjudge train grpo`: what the policy is rewarded for, how it writes, how it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import msgspec
from msgspec import Meta

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.guards.canary import read_canaries
from adjudge.rewards.guards.guarded import Guarded, standard_guards
from adjudge.rewards.imported import importable
from adjudge.rewards.judge_rewards.references import DynamicReference
from adjudge.rewards.records.rows import Row, number_of
from adjudge.rewards.reward import Reward
from adjudge.training.chosen import chosen
from adjudge.training.evaluator.targets import nearest
from adjudge.training.grpo.reward_recipe import RewardRecipe
from adjudge.training.recipe import (
    MOST_AT_ONCE,
    AtOnce,
    Data,
    NotNegative,
    Optimiser,
    Positive,
    RowsRecipe,
    Share,
    Whole,
)

GuardName = Literal["length", "canary", "degenerate", "injection", "collapse"]
GUARDS: tuple[GuardName, ...] = get_args(GuardName)
PROBING: tuple[GuardName, ...] = ("canary", "degenerate", "injection")
"""Those that put texts of their own to the reward, which are written from canaries."""

MICRO_BATCH = 8
"""Completions that go through the policy at once, where a recipe does not say."""


class Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the policy writes: `group` completions of each prompt, held out or not.

    `engine` is who writes them: transformers' own generation, or vLLM in the same process, asleep while the policy is
    trained; it takes `vllm_memory` of the GPU.
    """

    group: Annotated[int, Meta(ge=2, le=MOST_AT_ONCE)] = 8
    max_tokens: Whole = 256
    temperature: Positive = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    engine: Literal["transformers", "vllm"] = "transformers"
    vllm_memory: Share = 0.3


class GrpoOptimiser(Optimiser, frozen=True, forbid_unknown_fields=True):
    """How the policy is trained, for `steps` steps or `epochs` times through the prompts.

    A step that the prompts of all epochs do not fill is left out; a supervised one is filled up from the next epoch.
    A step takes `prompts_per_step` prompts, over all processes together, each with its group; `micro_batch` completions
    go through a process's policy at once, which changes memory and time alone, but for the entropy bonus. `iterations`
    steps share the same completions. `advantage` "group_std" divides by the group's standard deviation, "none" does not
    (EvolvR). `beta` is the coefficient of the KL term, `epsilon` the clip range (upwards `epsilon_high`), `entropy` the
    coefficient of an entropy bonus, which TRL averages over the tokens of each micro batch by itself. `loss` says how
    tokens are averaged: "grpo" within a completion first, "dapo" over the step's tokens, "dr_grpo" over the longest
    length there can be. `liger`: Liger's layer kernels ("auto": where they are installed, on a GPU); the loss never
    holds the logits of all tokens at once in any case, as TRL computes it tile by tile.
    """

    lr: Positive = 1e-6
    prompts_per_step: AtOnce = 8
    micro_batch: Whole | None = None
    iterations: Whole = 1
    beta: NotNegative = 0.0
    epsilon: Positive = 0.2
    epsilon_high: Positive | None = None
    entropy: NotNegative = 0.0
    advantage: Literal["group_std", "none"] = "group_std"
    loss: Literal["grpo", "dapo", "dr_grpo"] = "grpo"
    liger: bool | Literal["auto"] = "auto"

    def count(self, prompts: int) -> int:
        """The steps of the whole run, for a data set of so many prompts; one epoch where the recipe names none."""
        if self.steps is not None:
            return self.steps
        return max(1, int(self.passes(prompts)) // self.prompts_per_step) * self.iterations


class LengthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `LengthGuard` can be told."""

    limit: float | None = None
    window: Whole | None = None


class CanarySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `CanaryGuard` can be told."""

    drift: float | None = None
    abstained: float | None = None


class ProbeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `DegenerateGuard` and `InjectionGuard` can be told."""

    tolerance: float | None = None


class CollapseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `CollapseGuard` can be told: `parts` of the reward by name, `reference` scores as they should be spread.

    Gates put "reward/" before the names of parts; it may be left out here.
    """

    parts: tuple[str, ...] | None = None
    reference: tuple[float, ...] | None = None
    bins: Annotated[int, Meta(ge=1, le=10**4)] | None = None
    window: Whole | None = None
    enough: Whole | None = None
    loss: float | None = None
    zero_variance: float | None = None


class Guards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What watches the reward (see `Guarded`): the guards in `use`, [] for none, each with a table of its settings.

    At the first call and every `every`-th after it they put texts of their own to the reward, which costs as much as
    rewarding those: up to 336 with all guards. A guard named in `stop_on` ends the run when it finds what it looks for,
    once that step is logged and saved; the others warn, and all are among the metrics. `canaries` is a file of texts
    like the shipped ones, in a known order, for the guards that need such (see `Canary`); `form` is what a completion
    looks like where the reward looks for tags, with {text} in the place of such a text.
    """

    use: tuple[GuardName, ...] = GUARDS
    every: Whole = 100
    stop_on: tuple[GuardName, ...] = ()
    canaries: str | None = None
    form: str | None = None
    length: LengthSettings = LengthSettings()
    canary: CanarySettings = CanarySettings()
    degenerate: ProbeSettings = ProbeSettings()
    injection: ProbeSettings = ProbeSettings()
    collapse: CollapseSettings = CollapseSettings()

    def stopping_on(self, names: str) -> Guards:
        """The same with other guards to stop on, named after commas; raises AdjudgeError for one that is none."""
        given = chosen(names, GUARDS, "guard", least=0)
        return msgspec.structs.replace(self, stop_on=tuple(name for name in GUARDS if name in given))

    def watching(self, reward: Reward) -> Reward:
        """The reward with its guards; raises AdjudgeError for what a guard refuses, and a `stop_on` not in use."""
        if not self.use and not self.stop_on:
            return reward
        try:
            guards = [guard for guard in standard_guards(self.settings()) if guard.name in self.use]
            return Guarded(reward, guards, every=self.every, stop_on=self.stop_on, form=self.form)
        except AdjudgeError as error:
            raise AdjudgeError(f"[guards] {error}") from error

    def settings(self) -> dict[str, dict[str, Any]]:
        """What each guard is told, by its name; raises AdjudgeError for canaries that cannot be read."""
        told: dict[str, dict[str, Any]] = {
            name: {
                field: value
                for field, value in msgspec.structs.asdict(getattr(self, name)).items()
                if value is not None
            }
            for name in GUARDS
        }
        if self.canaries is not None:
            canaries = read_canaries(self.canaries)
            for name in PROBING:
                told[name]["canaries"] = canaries
        return told

    def idle(self, own: Mapping[str, Any]) -> Iterator[str]:
        """Settings of the table without effect, each with its fix; `own` is what it says itself, without a preset."""
        for name in ("every", "canaries", "form"):
            if name in own and not set(PROBING) & set(self.use):
                yield (
                    f"[guards] {name} is for guards that put texts of their own to the reward, and none is in use: name"
                    f" some of {', '.join(PROBING)} in use, or leave {name} out"
                )
        for name in GUARDS:
            if name in own and name not in self.use:
                yield f'[guards.{name}] is of a guard that is not in use: add "{name}" to use, or leave the table out'


class GrpoRecipe(RowsRecipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `adjudge train grpo` reads."""

    writes: ClassVar[bool] = True
    data: Data
    reward: RewardRecipe
    guards: Guards = Guards()
    generation: Generation = Generation()
    optimiser: GrpoOptimiser = GrpoOptimiser()

    def __post_init__(self) -> None:
        if self.reward.on_policy:
            self._check_lending()
        if self.logging.save_every % self.optimiser.iterations:
            raise AdjudgeError(
                f"[logging] save_every is {self.logging.save_every}, which is no multiple of [optimiser] iterations"
                f" ({self.optimiser.iterations}): a checkpoint amid them could not be resumed, make it one"
            )

    def placed(self, folder: Path) -> Self:
        """The same with absolute paths; what is of the user's own making is found in `folder` from here on."""
        if self.reward.own:
            importable(folder)
        return super().placed(folder)

    def idle(self, own: Mapping[str, Any]) -> Iterator[str]:
        """Settings of the file without effect, each with its fix."""
        yield from super().idle(own)
        yield from self.reward.idle(own.get("reward", {}))
        yield from self.guards.idle(own.get("guards", {}))
        if "vllm_memory" in own.get("generation", {}) and self.generation.engine != "vllm":
            yield (
                f'[generation] vllm_memory is for engine "vllm", and engine is "{self.generation.engine}": set engine ='
                ' "vllm", or leave vllm_memory out'
            )

    def guards_over(self, rows: Sequence[Row], *, own: bool = True) -> Guards:
        """The guards; one against collapse that watches what an evaluator writes is told people's scores of the rows.

        These as it could write them: the labels `nearest` to them, a bin for each. With its `own` reward, parts are
        called as that calls them. Raises AdjudgeError for a part that it has not, and where all scores are the same.
        """
        if "collapse" not in self.guards.use or not self.guards.collapse.parts:
            return self.guards
        collapse = self.guards.collapse
        if own:
            try:
                parts = tuple(map(self.reward.named, self.guards.collapse.parts))
            except AdjudgeError as error:
                raise AdjudgeError(f"[guards.collapse] {error}") from error
            collapse = msgspec.structs.replace(collapse, parts=parts)
        if collapse.reference is None and (labels := self._labels(collapse, rows)):
            bins = collapse.bins or max(labels) - min(labels) + 1
            collapse = msgspec.structs.replace(collapse, reference=tuple(map(float, labels)), bins=bins)
        return msgspec.structs.replace(self.guards, collapse=collapse)

    def written(self) -> DynamicReference:
        """What the policy's first weights write, asked as the policy is, and as the policy writes."""
        how = self.generation
        sampling = Sampling(max_tokens=how.max_tokens, temperature=how.temperature, top_p=how.top_p, top_k=how.top_k)
        return DynamicReference(self.reward.first(self.policy.model), sampling, chat=self.data.chat)

    def _labels(self, collapse: CollapseSettings, rows: Sequence[Row]) -> list[int]:
        """People's scores of what the guard watches, each as the label next to it."""
        written = self.reward.score_columns
        columns = [written[part] for part in collapse.parts or () if part in written]
        given = [number_of(row.columns.get(column)) for row in rows for column in columns]
        # What is no score is for the reward to refuse, by prompt and column.
        labels = [nearest(score, range(1, 6)) for score in given if score is not None and 1 <= score <= 5]
        if len(set(labels)) == 1:
            raise AdjudgeError(f"all rows have the same score, {labels[0]}: there is nothing to learn; add others")
        return labels

    def _check_lending(self) -> None:
        """Raise AdjudgeError where the policy's first weights do not stay as they are."""
        if self.policy.method != "lora":
            raise AdjudgeError(
                '[reward.engine] model is "policy", whose first weights are gone once all weights are trained: set'
                ' method = "lora" in [policy], or name a model'
            )
        if self.generation.engine == "vllm":
            raise AdjudgeError(
                '[reward.engine] model is "policy", whose weights lose their last bits each time the adapter is merged'
                ' for vLLM: set engine = "transformers" in [generation], or name a model'
            )


class Batch(msgspec.Struct, frozen=True):
    """How a step's completions are spread: `micro` at once, `accumulate` times, in each of `processes`."""

    micro: int
    accumulate: int
    processes: int


def batch_of(recipe: GrpoRecipe, processes: int) -> Batch:
    """How a step is spread over that many processes; raises AdjudgeError where it cannot be."""
    completions = recipe.optimiser.prompts_per_step * recipe.generation.group
    local, left = divmod(completions, processes)
    if left:
        raise AdjudgeError(
            f"a step has {recipe.optimiser.prompts_per_step} prompts of {recipe.generation.group} completions, which"
            f" {processes} processes cannot share evenly: change [optimiser] prompts_per_step or the processes"
        )
    divisors = [size for size in range(1, local + 1) if local % size == 0]
    micro = recipe.optimiser.micro_batch or max(size for size in divisors if size <= MICRO_BATCH)
    if micro not in divisors:
        raise AdjudgeError(
            f"[optimiser] micro_batch is {micro}, but a process has {local} completions a step: give one of"
            f" {', '.join(map(str, divisors))}"
        )
    return Batch(micro, local // micro, processes)
