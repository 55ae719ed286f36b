"""`adjudge bench disturbances`: stories made worse in known ways, and how often a judge scores them lower for it."""

from __future__ import annotations

from collections import Counter
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
from adjudge.bench.machine import describe_machine
from adjudge.bench.words import percent, span
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.verdict import Item
from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.hostile import HOSTILE, with_verdict
from adjudge.training.house.recipe import TextFile
from adjudge.training.house.texts import Corpus, Story, stories_of
from adjudge.training.progress import watched
from adjudge.training.terminal import cell, counted, open_console, plain_table, say
from adjudge.training.writing.disturbances import disturbed, parse_kinds

HEADER = (
    *("what", "kind", "texts", "lower", "lower_low", "lower_high", "score_before", "score_after", "abstained"),
    *("model", "adapter", "aspects", "steps", "sentences", "seed", "machine"),
)
ALL = "all"
VERDICT = "verdict beside it"
PASSAGES = {"passages dropped": "drop", "passages repeated": "repeat"}
"""By kind, what Tree of Writing calls it; of its disturbances those that need no model."""
OTHER_PROMPT = "other prompt"
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


def bench_disturbances(
    path: Path,
    *,
    model: str,
    adapter: Path | None = None,
    aspects: str = "hanna",
    text: str = "story",
    kinds: str | None = None,
    limit: int | None = None,
    steps: int = 2,
    sentences: int = 12,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    output: Path | None = None,
    journal: Journal | None = None,
) -> None:
    """Judge up to `limit` stories as they are and changed, each change `steps` times, and print how each was taken.

    A story is judged up to its `sentences`-th sentence. `kinds` names the changes after commas (default: all). With a
    `journal`, which keeps the verdicts, a run that was cut short goes on. Raises AdjudgeError for what cannot be read,
    and for a change of an unknown kind.
    """
    chosen, asked = parse_kinds(kinds, KINDS), parse_aspects(aspects)
    read = stories_of([TextFile(str(path), text)], mend="give --text COLUMN")
    found = read.texts
    stories = Random(seed).sample(found, min(limit or len(found), len(found)))
    stories = [msgspec.structs.replace(one, sentences=one.sentences[:sentences]) for one in stories]
    changed = list(changes(stories, steps, seed, chosen))
    engine = Engine(model, adapter=adapter, device=device, dtype=dtype)
    items = [Item(one.prompt, _text(one.sentences), f"{n}") for n, one in enumerate(stories)]
    items += [Item(one.prompt, one.text, f"{n} {one.kind}") for n, one in enumerate(changed)]
    judge = PointwiseJudge(engine, aspects=asked, journal=journal)
    scores = [verdict.score for verdict in watched("judging", judge.judge_iter(items), len(items))]
    outcomes = list(outcomes_of(changed, scores[: len(stories)], scores[len(stories) :]))
    machine = describe_machine(engine.runner.device)
    if output is not None:  # before anything is printed
        setting = (model, adapter or "", aspects, steps, sentences, seed, machine)
        rows = []
        for o in outcomes:
            numbers = [cell(number, ".3f") for number in (*o.lower.numbers, o.before, o.after)]
            rows.append((o.what, o.kind, o.texts, *numbers, o.abstained, *setting))
        write_rows(output, HEADER, rows)
    console = open_console(150)
    console.print(_table(outcomes, f"{path.name}, {len(stories)} stories, {counted(steps, 'step')}, {model}"))
    print("[low, high]: 95 % of draws of stories; scores are from 1 to 5, the mean of the aspects; of texts with both")
    for name, count in read.short.items():
        print(f"{counted(count, 'text')} of {name} left out: too short to be made worse by degrees")
    done = Counter(one.kind for one in changed)
    idle = {kind: len(stories) - done[kind] for kind in chosen if done[kind] < len(stories)}
    if idle:
        print("found nothing to do: " + ", ".join(f"{kind} in {count} stories" for kind, count in idle.items()))
    print(machine)
    if output is not None:
        say(f"table: {output}")


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


def _table(outcomes: Sequence[Outcome], title: str) -> Table:
    columns = ("", "kind", "texts", "scored below the story", "score before", "after", "abstained")
    table = plain_table(*columns, title=Text(title))
    for o in outcomes:
        share = "–" if o.lower.value is None else percent(o.lower.value)
        if o.lower.interval:
            share += f" [{span(o.lower.interval)}]"
        scores = (cell(value, ".3f", "–") for value in (o.before, o.after))
        table.add_row(o.what, o.kind, str(o.texts), share, *scores, str(o.abstained))
    return table
