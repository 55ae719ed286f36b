"""Training the house judge: rows made of licensed texts, learnt as any direct evaluator learns people's scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.adapters import Base, check_base, read_adapter
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.models.sources import OpenModel, resolve
from adjudge.engine.whole_file import write_whole
from adjudge.rewards.judges.aspects import Aspect, aspects_of
from adjudge.training.evaluator.fitting import fit
from adjudge.training.evaluator.questions import Rated, rated_rows
from adjudge.training.evaluator.recipe import Asked, Scores
from adjudge.training.house.averaging import average, check_alike, half_precision
from adjudge.training.house.card import card
from adjudge.training.house.mean_head import MeanHeadTask
from adjudge.training.house.recipe import HouseRecipe
from adjudge.training.house.rows import MadeRows, parted, rows_of, sizes, split
from adjudge.training.house.texts import stories_of
from adjudge.training.run import Run, Status, heard_once
from adjudge.training.run_folder import RunFolder
from adjudge.training.stages import write_stage
from adjudge.training.terminal import counted

SCORES = Scores(column="scores")


def train_house(
    recipe: HouseRecipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    status: Status = lambda line: None,
) -> Run:
    """Train the model of a recipe to score texts by how much worse they were made.

    Folder, processes and resuming are those of `train_sft`; the rows stand in made-rows.jsonl of the folder, and a
    model card beside the adapter, which is stored in bfloat16. Raises AdjudgeError for what can be mended, before the
    model is loaded.
    """
    status = heard_once(status)
    if recipe.policy.adapter is not None:
        base = Base(recipe.policy.model, resolve(recipe.policy.model).fingerprint)
        check_base(recipe.policy.adapter, base)
        if recipe.kept is not None:
            check_base(recipe.kept, base)
            check_alike(Path(recipe.policy.adapter), recipe.kept)
    aspects = aspects_of(recipe.asked)
    texts, (train, held_out) = _made(recipe, aspects, status)
    judged = [
        (asked, _rated(train, asked), _rated(held_out, asked))
        for asked in (Asked("pointwise", {"aspects": aspects}), Asked("pairwise", {"aspects": aspects}))
    ]

    def open_task(opened: OpenModel) -> MeanHeadTask:
        return MeanHeadTask(recipe, opened, judged)

    def begins() -> None:
        rows = (*train.single, *train.pairs, *held_out.single, *held_out.pairs)
        write_stage(RunFolder(Path(recipe.output)).made_rows, (row.columns for row in rows))

    def finish(made: Path, run: Run) -> None:
        if recipe.policy.method == "lora":
            if recipe.kept is not None:
                average(made, recipe.kept, recipe.keep)
            half_precision(made)
        text = card(recipe, texts, train.done, run)
        write_whole(made / "README.md", text.encode())

    kept = () if recipe.kept is None else (read_adapter(recipe.kept).fingerprint,)
    rows = digest(train.fingerprint, held_out.fingerprint, *kept)
    how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "status": status}
    return fit(recipe, rows, open_task, measure="spearman", begins=begins, finish=finish, **how)


def _made(recipe: HouseRecipe, aspects: Sequence[Aspect], status: Status) -> tuple[list[int], list[MadeRows]]:
    """How many texts there are to train on and held out, and the rows that are made of both."""
    stories = stories_of(recipe.sources)
    for name, count in stories.short.items():
        status(f"{counted(count, 'text')} of {name} left out: too short to be made worse by degrees")
    for number, source in enumerate(recipe.sources):
        texts = [text for text in stories.texts if text.source == number]
        if texts and not any(text.prompt for text in texts):
            status(f"no prompts in {source.path}: its texts are split by their first sentences")
    sides = split(stories.texts, recipe.excerpts.held_out)
    if not all(sides[: 1 + bool(recipe.excerpts.held_out)]):
        raise AdjudgeError(
            f"[excerpts] held_out = {recipe.excerpts.held_out:g} leaves {len(sides[0])} of"
            f" {counted(len(stories.texts), 'text')} to train on and holds out {len(sides[1])}: change it, or give more"
            " texts; all of one prompt go together"
        )
    if recipe.excerpts.no_story and not stories.others:
        raise AdjudgeError(
            "[excerpts] no_story is a share of texts that are no stories, and no source has any: add one with stories ="
            " false, or drop it"
        )
    if stories.others and not recipe.excerpts.no_story:
        raise AdjudgeError(
            f"{counted(len(stories.others), 'text')} of sources with stories = false would stand nowhere: set"
            " [excerpts] no_story, or leave the sources out"
        )
    others = parted(stories.others, stories.others, recipe.excerpts.held_out)
    rows = [
        rows_of(side, count, recipe.excerpts, aspects, f"{recipe.seed} {name}", own)
        for name, side, count, own in zip(("train", "held out"), sides, sizes(recipe.excerpts), others, strict=True)
    ]
    status(f"{counted(len(stories.texts), 'text')}, of them {len(sides[1])} held out")
    return [len(side) for side in sides], rows


def _rated(rows: MadeRows, asked: Asked) -> list[Rated]:
    return rated_rows(rows.pairs if asked.name == "pairwise" else rows.single, asked, SCORES)
