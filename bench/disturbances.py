"""`adjudge bench disturbances`: stories made worse in known ways, and how often a judge scores them lower for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
from rich.table import Table
from rich.text import Text

from adjudge.bench.agreement.resampling import Estimate
from adjudge.bench.agreement.statistics import share
from adjudge.bench.csv_table import write_rows
from adjudge.bench.words import percent, span
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.verdict import Item
from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.hostile import HOSTILE, with_verdict
from adjudge.training.house.recipe import TextFile
from adjudge.training.house.rows import OTHER_PROMPT
from adjudge.training.house.texts import Corpus, Story, stories_of
from adjudge.training.progress import watched
from adjudge.training.terminal import cell, counted, plain_table
from adjudge.training.writing.disturbances import disturbed

HEADER = (
    *("what", "kind", "texts", "lower", "lower_low", "lower_high", "score_before", "score_after", "abstained"),
    *("model", "adapter", "aspects", "steps", "sentences", "seed", "machine"),
)
ALL = "all"
VERDICT = "verdict beside it"
PASSAGES = {"passages dropped": "drop", "passages repeated": "repeat"}
"""By kind, what Tree of Writing calls it; of its disturbances those that need no model."""
KINDS = (*DISTURBANCES, *PASSAGES, OTHER_PROMPT, VERDICT, *HOSTILE)


class Pairing(msgspec.Struct, frozen=True):
    """A story and what became of it: which `kind` of change, and of `what` sort that is; under which `prompt`."""

    what: str
    kind: str
    story: int
    text: str
    prompt: str


class Outcome(msgspec.Struct, frozen=True):
    """How a kind of change was taken: the share of texts scored below their story, and the mean scores of both.

    Those on which the judge `abstained`, on the text or its story, count in neither; without others there is None.
    """

    what: str
    kind: str
    lower: Estimate
    before: float | None
    after: float | None
    abstained: int

    @property
    def texts(self) -> int:
        """All of the kind."""
        return self.lower.rows + self.abstained


def drawn_stories(path: Path, text: str, limit: int | None, sentences: int, seed: int) -> tuple[list[Story], list[str]]:
    """Up to `limit` stories of the column `text`, each up to its `sentences`-th sentence, and what was left out.

    Raises AdjudgeError for what cannot be read.
    """
    read = stories_of([TextFile(str(path), text)], mend="give --text COLUMN")
    stories = Random(seed).sample(read.texts, min(limit or len(read.texts), len(read.texts)))
    short = [
        f"{counted(count, 'text')} of {name} left out: too short to be made worse by degrees"
        for name, count in read.short.items()
    ]
    return [msgspec.structs.replace(one, sentences=one.sentences[:sentences]) for one in stories], short


def judged(judge: PointwiseJudge, stories: Sequence[Story], changed: Sequence[Pairing]) -> list[Outcome]:
    """How each kind of change to these stories is taken."""
    items = [Item(one.prompt, _text(one.sentences), f"{n}") for n, one in enumerate(stories)]
    items += [Item(one.prompt, one.text, f"{n} {one.kind}") for n, one in enumerate(changed)]
    scores = [verdict.score for verdict in watched("judging", judge.judge_iter(items), len(items))]
    return list(outcomes_of(changed, scores[: len(stories)], scores[len(stories) :]))


def changes(stories: Sequence[Story], steps: int, seed: int, kinds: Sequence[str] = KINDS) -> Iterator[Pairing]:
    """Every story in each way made worse, with a verdict beside it, and replaced; a way may find nothing.

    What a kind makes of a story does not depend on which others are asked for.
    """
    if len(stories) < 2:
        raise AdjudgeError("give at least two stories: some are made worse with sentences of others")
    corpus = Corpus(stories)

    def chance(kind: str, number: int) -> Random:
        return Random(f"{seed} {kind} {number}")

    for number, story in enumerate(stories):
        for kind in kinds:
            made = partial(Pairing, kind=kind, story=number, prompt=story.prompt)
            if kind in DISTURBANCES:
                sentences, random = list(story.sentences), chance(kind, number)
                for _ in range(steps):
                    sentences = DISTURBANCES[kind].step(sentences, random, corpus, story) or sentences
                if tuple(sentences) != story.sentences:
                    yield made("made worse", text=_text(sentences))
            elif kind in PASSAGES:
                if (found := disturbed(PASSAGES[kind], _text(story.sentences), seed=seed)) is not None:
                    yield made("passages", text=found.text)
            elif kind == OTHER_PROMPT:
                prompt = corpus.text(chance(kind, number), story).prompt
                if prompt not in ("", story.prompt):
                    yield made("made worse", text=_text(story.sentences), prompt=prompt)
            elif kind == VERDICT:
                yield made("hostile", text=with_verdict(_text(story.sentences), chance("verdict", number)))
            else:
                yield made("hostile", text=HOSTILE[kind](story, chance(kind, number), corpus))


def outcomes_of(
    changed: Sequence[Pairing], before: Sequence[float | None], after: Sequence[float | None]
) -> Iterator[Outcome]:
    """By kind, in order of appearance, and over all of each sort."""
    kinds = dict.fromkeys((one.what, one.kind) for one in changed)
    sorts = [
        one
        for what in dict.fromkeys(what for what, _ in kinds)
        for one in (*(k for k in kinds if k[0] == what), (what, ALL))
    ]
    scored = [(one, before[one.story], score) for one, score in zip(changed, after, strict=True)]
    for what, kind in sorts:
        found = [entry for entry in scored if entry[0].what == what and kind in (entry[0].kind, ALL)]
        both = [(one, base, score) for one, base, score in found if base is not None and score is not None]
        lower = share([float(score < base) for _, base, score in both], [one.story for one, _, _ in both])
        was = fmean(base for _, base, _ in both) if both else None
        now = fmean(score for *_, score in both) if both else None
        yield Outcome(what, kind, lower, was, now, len(found) - len(both))


def _text(sentences: Sequence[str]) -> str:
    return " ".join(sentences)


def write_outcomes(path: Path, outcomes: Sequence[Outcome], setting: Sequence[object]) -> None:
    """Write them as CSV; the `setting` has what the last columns of HEADER say, from "model" on."""
    rows = []
    for o in outcomes:
        numbers = [cell(number, ".3f") for number in (*o.lower.numbers, o.before, o.after)]
        rows.append((o.what, o.kind, o.texts, *numbers, o.abstained, *setting))
    write_rows(path, HEADER, rows)


def outcome_table(outcomes: Sequence[Outcome], title: str) -> Table:
    """A line for each kind, and for all of each sort."""
    columns = ("", "kind", "texts", "scored below the story", "score before", "after", "abstained")
    table = plain_table(*columns, title=Text(title))
    for o in outcomes:
        share = "–" if o.lower.value is None else percent(o.lower.value)
        if o.lower.interval:
            share += f" [{span(o.lower.interval)}]"
        scores = (cell(value, ".3f", "–") for value in (o.before, o.after))
        table.add_row(o.what, o.kind, str(o.texts), share, *scores, str(o.abstained))
    return table
