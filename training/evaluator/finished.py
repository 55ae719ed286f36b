"""Runs of trained judges as their folders tell them: the recipe, and the rows that were held out."""

from __future__ import annotations

from pathlib import Path

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.training.evaluator.recipe import DirectRecipe, PreferenceRecipe
from adjudge.training.evaluator.split import Split, read_split
from adjudge.training.run_folder import BESIDE, RunFolder

KINDS: dict[str, type[DirectRecipe] | type[PreferenceRecipe]] = {"direct": DirectRecipe, "preference": PreferenceRecipe}


class Finished(msgspec.Struct, frozen=True):
    """A run that has come to its end."""

    folder: RunFolder
    recipe: DirectRecipe | PreferenceRecipe
    rows: Split

    @property
    def adapter(self) -> Path | None:
        """The trained adapter; None where all weights were trained."""
        return self.folder.policy if self.recipe.policy.method == "lora" else None


def finished_run(path: Path) -> Finished:
    """The run in a folder.

    Raises AdjudgeError for a folder without a trained judge, and where the file of rows is not what it was.
    """
    folder = RunFolder(path)
    told = folder.record()
    if (kind := told.get("kind")) not in KINDS:
        raise AdjudgeError(f"{path} is no run of train direct or train reward: name the output folder of one")
    if not folder.policy.is_dir():
        raise AdjudgeError(f"{path} has no trained judge yet: let the run come to its end, with --resume")
    recipe = msgspec.convert({name: value for name, value in told.items() if name not in BESIDE}, KINDS[kind])
    split = read_split(recipe.data, recipe.seed)
    if not split.held_out:
        raise AdjudgeError(f"the run in {path} held no rows out to measure it on: train with [data] held_out")
    if split.fingerprint != told.get("rows"):
        raise AdjudgeError(f"{recipe.data.train} is not what the run in {path} began with: put it back")
    return Finished(folder, recipe, split)
