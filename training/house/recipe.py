"""The recipe of `adjudge train house`: whose texts are made worse, how, and how the judge learns to tell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import HANNA, STORYER, Aspect, aspects_of
from adjudge.training.evaluator.recipe import DirectOptimiser, JudgeRecipe
from adjudge.training.recipe import Positive, Share, Whole, beside, read_recipe

QUALITY = Aspect("quality", "Is it a good story that makes sense and follows from its first sentence?")
FLUENCY = Aspect("fluency", "Are the sentences well formed and easy to read?")
ASPECTS: tuple[Aspect, ...] = (*HANNA, *(one for one in STORYER if one not in HANNA), QUALITY, FLUENCY)
"""What the judge is asked of: HANNA's aspects, StoryER's, and the whole."""


NO_LICENCE = ("none", "noassertion", "unknown", "unlicensed", "proprietary", "all rights reserved", "n/a", "?", "todo")
"""What people write where there is no licence."""


class TextFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file (JSONL, JSON, CSV or Parquet, `text` and `prompt` its columns), a .txt or .md file, or a folder of those.

    A column that holds several texts by name gives all of them. A row may have, in `worse`, worse tellings of its text
    by the disturbance that each is a case of: {"drift": "...", "bland": "..."}, and in `scored` other texts on its
    prompt with the scores a teacher gave them: [{"text": "...", "score": 2.5}, ...]. With `stories = false` its texts
    are none, but what may be handed in instead: essays, recipes, reports.
    """

    path: str
    text: str = "text"
    prompt: str = "prompt"
    stories: bool = True


class TextSource(TextFile, frozen=True, forbid_unknown_fields=True):
    """The same, and whose the texts are: `licence`, by its SPDX name, and `attribution`, who wrote them."""

    licence: str = ""
    attribution: str = ""

    def __post_init__(self) -> None:
        for name in ("licence", "attribution"):
            if not getattr(self, name).strip():
                raise AdjudgeError(
                    f"the source {self.path} has no {name}: write {name} = ..., or leave the source out; texts are"
                    " used with both alone"
                )
        if self.licence.strip().lower() in NO_LICENCE:
            raise AdjudgeError(
                f'the source {self.path} has the licence "{self.licence}", which is none: write the one its texts are'
                " under, by its SPDX name, or leave the source out"
            )


class Excerpts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is cut from the texts, and what becomes of it.

    `count` excerpts of `shortest` to `longest` sentences; `long` is the share of longer ones, of up to `long_to`, from
    texts that have as many, `from_start` the share that begins where its text does, `prompted` the share of those that
    is shown under its prompt and not its first sentence. Each becomes two versions, one worse than the other: `pairs`
    is the share that are shown to the pairwise judge, `hostile` the share whose worse version is a text that only tries
    to buy a score; half as many have a verdict beside them, and as many stand under another prompt, as far as that
    leaves any (0.4 leaves none for steps down). In the place of a share `scored` of the others come texts on one prompt
    with a teacher's scores, as far as the sources have any; a share `anchored` of those is to keep, in the teacher's
    place, the scores that the judge gives it as the run begins. A share `no_story` of the rest is, in its worse
    version, a text of the sources that have no stories. A share `alone` of what is left are mostly long excerpts made
    worse by one kind of step and no other, one that `often` names, where "other prompt" counts as one.
    Excerpts are asked about `asked` aspects. A step down is drawn as often again for each time that `often` names it.
    `held_out` is the share of the prompts that are kept from training.

    Steps down: order, foreign, babble, misplaced, contradiction, people, repeat, middle, dropped, drift, cut, forced
    ending, shuffled words, dropped words, repeated words, plain, bland, summary, explained, transfer.
    """

    count: Annotated[int, Meta(ge=1, le=10**6)] = 800
    shortest: Annotated[int, Meta(ge=2)] = 3
    longest: Whole = 9
    long: Share = 0.1
    long_to: Whole = 24
    from_start: Share = 0.4
    prompted: Share = 0.6
    pairs: Share = 0.15
    hostile: Share = 0.08
    scored: Share = 0.0
    anchored: Share = 0.0
    no_story: Share = 0.0
    alone: Share = 0.0
    asked: Whole = 1
    often: tuple[str, ...] = ()
    held_out: Annotated[float, Meta(ge=0, lt=1)] = 0.1

    def __post_init__(self) -> None:
        if not self.shortest <= self.longest <= self.long_to:
            raise AdjudgeError("[excerpts] shortest, longest and long_to are not in rising order: mend them")
        if self.anchored and not self.scored:
            raise AdjudgeError("[excerpts] anchored is a share of the texts with scores: set scored as well")
        if self.alone and not self.often:
            raise AdjudgeError("[excerpts] alone is a share of excerpts with one of the steps of often: name those")


class MeanHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A head of layer `layer`, counted from 0, that is given to the mean of the whole prompt before training.

    It moves texts learnt together apart by `strength` points of the score, on average. With `beyond`, between 0 and 1,
    it lowers those alone that lie further than that share of the way from where the better ones lie to the worse.
    """

    layer: Annotated[int, Meta(ge=0)]
    strength: Positive = 0.5
    beyond: Annotated[float, Meta(gt=0, lt=1)] | None = None


class HouseRecipe(JudgeRecipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `adjudge train house` reads.

    What a run leaves is averaged with the adapter in the folder `keep_of` (where that is not said: the one that it goes
    on from), which has the share `keep` of it; 0: none.

    With `mean_head`, answers are told before training what a layer in the middle knows of the whole prompt.
    """

    keep: Share = 0.0
    keep_of: str | None = None
    mean_head: MeanHead | None = None
    sources: tuple[TextSource, ...]
    excerpts: Excerpts = Excerpts()
    aspects: str | None = None
    optimiser: DirectOptimiser = DirectOptimiser()

    def __post_init__(self) -> None:
        if not self.sources:
            raise AdjudgeError("a recipe of this kind needs texts: write [[sources]] with path, licence, attribution")
        if [aspect.name for aspect in aspects_of(self.asked)] == ["ending"]:
            raise AdjudgeError('aspects is "ending" alone, which excerpts without an end lack: name others beside it')
        if self.keep and (self.policy.adapter is None or self.policy.method == "full"):
            raise AdjudgeError(
                "keep averages with the adapter to go on from: name one with [policy] adapter, or drop it"
            )
        if self.mean_head and (self.keep or self.policy.method == "full"):
            raise AdjudgeError(
                "mean_head is fitted into an adapter, which then averages with none that has it not: drop keep, and"
                ' method = "full", or mean_head'
            )
        if self.keep_of is not None and not self.keep:
            raise AdjudgeError("keep_of has no share in what the run leaves: write keep = 0.5 as well, or drop it")
        if self.excerpts.anchored and self.policy.adapter is None:
            raise AdjudgeError(
                "[excerpts] anchored keeps what an adapter knows: name the one to go on from with [policy] adapter, or"
                " drop it"
            )

    @property
    def kept(self) -> Path | None:
        """The folder of the adapter that has the share `keep`."""
        adapter = self.keep_of or self.policy.adapter
        return Path(adapter) if self.keep and adapter is not None else None

    @property
    def asked(self) -> str | tuple[Aspect, ...]:
        """The aspects, as judges take them."""
        return self.aspects or ASPECTS


def read_house_recipe(path: Path, *, data: Path | None = None) -> HouseRecipe:
    """The recipe of a TOML file.

    Sources that are not where the recipe says are looked for in the folder `data`. Raises AdjudgeError as
    `read_recipe` does, and for a source that is nowhere.
    """
    recipe, folder = read_recipe(path, HouseRecipe), path.parent.resolve()
    sources = []
    for one in recipe.sources:
        named = one.path
        if data is not None and not Path(named).exists():
            one = msgspec.structs.replace(one, path=beside(data.absolute(), os.path.relpath(named, folder)))
        if not Path(one.path).exists():
            where = named if data is None else f"{named} (or {one.path})"
            raise AdjudgeError(f"the source {where} is not there: mend its path, or name its folder with --data")
        sources.append(one)
    return msgspec.structs.replace(recipe, sources=tuple(sources))
