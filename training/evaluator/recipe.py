"""The recipes of `adjudge train direct` and `adjudge train reward`: whose judgements are learnt, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.kinds import prepare
from adjudge.rewards.judges.options import options_by_name
from adjudge.training.recipe import Lora, NotNegative, Policy, Positive, Recipe, Rows, read_recipe
from adjudge.training.sft_recipe import SftOptimiser


class JudgedRows(Rows, frozen=True, forbid_unknown_fields=True):
    """What people judged.

    `train` is a file of rows. `held_out` is the share of the prompts that is kept from training, drawn by a hash
    of each prompt and the seed, so that a prompt is on one side with all its rows; or another such file, whose prompts
    are then taken out of the first. `columns` renames: {response = "story"} reads the response from the column story.
    """

    held_out: str | Annotated[float, Meta(ge=0, lt=1)] = 0.2


class TrainedPolicy(Policy, frozen=True, forbid_unknown_fields=True):
    """The model that becomes a judge: an adapter over it is trained ("lora"), or all its weights ("full").

    `adapter` is a PEFT folder to go on from, of an earlier run; its rank and its layers are then those it has. What it
    says in layers before number `first_layer`, counted from 0, is left as it is.
    """

    method: Literal["full", "lora"] = "lora"
    adapter: str | None = None
    first_layer: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.first_layer and self.adapter is None:
            raise AdjudgeError("[policy] first_layer leaves layers of an adapter as they are: name it with adapter")
        if self.adapter is not None and (self.method == "full" or self.lora != Lora()):
            raise AdjudgeError('[policy] adapter goes on as it is: leave out method = "full" and [policy.lora]')


class JudgeOptimiser(SftOptimiser, frozen=True, forbid_unknown_fields=True):
    """How the judge is trained: as in supervised recipes, but for `micro_batch` and `max_tokens`.

    Where `micro_batch` is not said, it is the most up to 4 that share a step evenly. Texts are shortened to prompts of
    `max_tokens` as a judge shortens those too long for its model, and counted.
    """

    lr: Positive = 2e-4
    usual_micro_batch: ClassVar[int] = 4


class DirectOptimiser(JudgeOptimiser, frozen=True, forbid_unknown_fields=True):
    """The same, with what else counts in the loss: `mass`, `gap` and `places`.

    The loss is the cross-entropy of the raters' distribution with the labels', plus `mass` times −log of the labels'
    probability under the whole vocabulary (with 1 it is the cross-entropy over the whole vocabulary), plus `gap` times
    the squared error of the gaps between the expected scores, on one aspect, of texts that are learnt together, plus
    `places` times the cross-entropy of telling, where a sentence ends, whether it stands where its author put it. That
    is read after two thirds of the layers: as the log-odds of the best label over the worst, as the head would give
    them there.
    """

    mass: NotNegative = 0.1
    gap: NotNegative = 0.0
    places: NotNegative = 0.0


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose questions the evaluator learns to answer: a judge by `name`, with the options of `adjudge judge`.

    Rows of pairwise have story_a and story_b, those of pointwise response.
    """

    name: Literal["pointwise", "pairwise"] = "pointwise"
    options: dict[str, Any] = {}


class Scores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a row has people's scores: in one `column` that holds them by aspect, or in `columns` {aspect = "column"}.

    A score is a number, or a list of what several raters gave. Of pairs each column comes twice, as NAME_a and NAME_b.
    `scale` is the data's own, lowest and highest, where it is not that of the labels; it is mapped onto theirs.
    """

    column: str | None = None
    columns: dict[str, str] = {}
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if (self.column is None) == (not self.columns):
            raise AdjudgeError('[scores] needs either column = "ratings" or columns = {coherence = "..."}')
        if self.scale is not None and not self.scale[0] < self.scale[1]:
            raise AdjudgeError("[scores] scale is not a lowest and a highest number: write scale = [1, 10]")


class JudgeRecipe(Recipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all that train a judge read."""

    policy: TrainedPolicy = TrainedPolicy()
    optimiser: JudgeOptimiser = JudgeOptimiser()


class JudgedRecipe(JudgeRecipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recipe that learns from what people judged."""

    data: JudgedRows = JudgedRows()


class DirectRecipe(JudgedRecipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `adjudge train direct` reads."""

    judge: Asked = Asked()
    scores: Scores
    optimiser: DirectOptimiser = DirectOptimiser()

    def __post_init__(self) -> None:
        if self.judge.options.get("mode", "direct") != "direct":
            raise AdjudgeError('[judge] options: mode is not "direct": a judge that writes is trained with train sft')
        with options_by_name():
            prepare(self.judge.name, self.judge.options)


class PreferenceRecipe(JudgedRecipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `adjudge train reward` reads: rows have `prompt`, `chosen` and `rejected`."""

    def __post_init__(self) -> None:
        if self.policy.adapter is not None:
            raise AdjudgeError("[policy] adapter: a reward model is trained from the start, leave it out")


AnyJudgeRecipe = TypeVar("AnyJudgeRecipe", DirectRecipe, PreferenceRecipe)


def read_judge_recipe(path: Path, kind: type[AnyJudgeRecipe], *, data: Path | None = None) -> AnyJudgeRecipe:
    """The recipe of a TOML file, with the rows of `data`, if that is said, in the place of its own.

    Raises AdjudgeError as `read_recipe` does, and where no file of rows is named.
    """
    recipe = read_recipe(path, kind)
    if data is not None:
        recipe = msgspec.structs.replace(recipe, data=msgspec.structs.replace(recipe.data, train=str(data.absolute())))
    if recipe.data.train is None:
        raise AdjudgeError(f'{path.name} names no rows: write [data] train = "rows.jsonl", or give --data')
    return recipe
