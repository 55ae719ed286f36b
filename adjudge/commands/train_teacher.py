"""`adjudge train teacher`: stories in; the same out, with what small models wrote on them and a teacher's scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from adjudge.commands.options.files import output_beside
from adjudge.commands.options.models import DEFAULT_MODEL
from adjudge.commands.options.runs import RunToJudge
from adjudge.commands.options.source import Source
from adjudge.commands.options.writing import Writing, tell_texts, written
from adjudge.commands.runs.output import beside
from adjudge.commands.runs.stage_run import check_stages, part_beside, stage_run, write_parts
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import ModelSource, resolve
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.rows import Row
from adjudge.training.attrition import tell
from adjudge.training.bare_model import BareModel
from adjudge.training.house.continuations import (
    Continuation,
    noisy,
    of_one_length,
    several,
    weight_files,
    written_before,
    written_by,
)
from adjudge.training.house.teacher import Marked, gained_by, judged_by, taught
from adjudge.training.house.texts import MOST_TEXTS, Scored
from adjudge.training.stages import Drop, Passed, read_stage
from adjudge.training.terminal import open_console, plain_table, say

if TYPE_CHECKING:
    from adjudge.engine.engine import Engine

NEEDED = ("prompt", "text")
NOISE = (0.0, 0.1, 0.17)
"""Noise on the writer's weights, where none is named."""
WRITTEN = Writing(max_tokens=160, temperature=0.8, attempts=3, seed=0)
"""How the writer of `train teacher` writes, where nothing else is said."""


def train_teacher(
    stories: Annotated[
        Path,
        typer.Argument(
            help="A file of rows with prompt (a first sentence) and text; without --writer JSONL, with scored."
        ),
    ],
    output: Annotated[Path | None, output_beside("The same with `scored`, JSONL", ".scored.jsonl")] = None,
    writer: Annotated[
        str | None,
        typer.Option(
            help="The model that goes on from first sentences (examples/recipes/everyday.toml trains one), with the"
            " noise, tokens, temperature, attempts and seed below."
        ),
    ] = None,
    noise: Annotated[
        list[float] | None,
        typer.Option(help="Noise on the writer's weights, in their standard deviations: each its own (0, 0.1, 0.17)."),
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Another judge beside --model, whose scores count as much.")
    ] = None,
    aspects: Annotated[str, typer.Option(help="What the judge is asked.")] = "coherence",
    bare: Annotated[
        list[str] | None,
        typer.Option(help=f"A model whose likelihoods tell what the context gains ({DEFAULT_MODEL}); may be repeated."),
    ] = None,
    gain: Annotated[
        float, typer.Option(help="Weight of that gain beside the judge's score; 0: the judge alone.", min=0.0)
    ] = 1.3,
    *,
    writing: Annotated[Writing, written(WRITTEN.max_tokens, WRITTEN.temperature)],
    run_options: RunToJudge,
) -> None:
    """Have a small model go on from the first sentences of stories, well and badly, and a teacher score what it wrote.

    The more noise on its weights, the less its sentences know of each other. The texts on one sentence are cut to as
    many sentences as the shortest has. The teacher is no person: its score is that of a judge (--model; the mean of
    several with --also), standardised, and --gain times the share of the sentences' surprise that their context takes
    away from a bare model (or several), standardised as well. A large model at --url may teach alone, with --gain 0.
    `adjudge train house` learns such texts as far as its recipe says (`scored` under `[excerpts]`). What a row has in
    `scored` already is left out; without --writer, it is those texts that are scored anew, uncut.
    """
    if writer is None and writing != WRITTEN:
        raise AdjudgeError("how texts are written is the writer's matter: name one with --writer, or leave it out")
    output = output or beside(stories, ".scored.jsonl")
    if noise and writer is None:
        raise AdjudgeError("--noise is put on the writer's weights: name one with --writer, or leave it out")
    shares = noise or NOISE
    if not 2 <= len(set(shares)) == len(shares) <= MOST_TEXTS or not all(0 <= share <= 1 for share in shares):
        raise AdjudgeError(f"give --noise twice to {MOST_TEXTS} times, each time another number from 0 to 1")
    if not math.isfinite(gain):
        raise AdjudgeError(f"--gain is {gain}: give a number of at least 0")
    asked = parse_aspects(aspects)
    rows = read_stage(stories, needs=NEEDED)
    for row in rows:
        if not all(row.text(name, "train teacher").strip() for name in NEEDED):
            raise AdjudgeError(
                f"{row.place}: its prompt or its text is blank: write a first sentence and how it went on"
            )
    own = None if writer is None else resolve(writer)
    others, likely = also or (), (bare or (DEFAULT_MODEL,)) if gain else ()
    for name in (*others, *likely):
        resolve(name)
    if own and any(shares):
        weight_files(own)
    before = [] if own else written_before(rows)
    source = run_options.source
    with stage_run("the stories", stories, output, run_options) as run:
        engines = itertools.chain([run.open()], (_engine(name, source) for name in others))
        judges = (PointwiseJudge(engine, asked, journal=run.book) for engine in engines)
        readers = (BareModel(name, source.device, source.dtype) for name in likely)
        made = _made(rows, own, shares, writing, source, run.book) if own else Passed("read", before, [])
        together = several("together", made.kept, lambda one: one.place)
        texts = of_one_length(together.kept) if own else together.kept
        judged = _through("judge", [Marked(text) for text in texts], (partial(judged_by, judge) for judge in judges))
        gained = _through("gain", judged.kept, (partial(gained_by, reader, journal=run.book) for reader in readers))
        left = several("together still", gained.kept, lambda one: one.text.place)
        found = list(zip(left.kept, taught(left.kept, gain), strict=True))
        stages: list[Passed[Any]] = [made, together, judged, gained, left]
        check_stages(stages)  # before the rows are written, which are there whatever was answered
        write_parts(output, _rows(rows, found), stages)
    tell(stages, f"Texts on the stories of {stories.name}")
    if found:
        _show(found)
    else:
        say(f"adjudge: nothing in {output} is scored: {part_beside(output, 'dropped')} says why", stderr=True)
    say(f"scored: {output}", f"dropped: {part_beside(output, 'dropped')}")


def _engine(name: str, source: Source) -> Engine:
    """That model, where the judge's would be."""
    from adjudge.engine.engine import Engine

    return Engine(name, device=source.device, dtype=source.dtype)


def _made(
    rows: Sequence[Row], own: ModelSource, noise: Sequence[float], writing: Writing, source: Source, book: Journal
) -> Passed[Continuation]:
    """What the writer wrote with each noise, one engine after the other."""
    whole = Passed[Continuation]("write", [], [])
    for share in noise:
        with noisy(own, share, writing.seed) as folder:
            engine = _engine(folder, source)
            texts = writing.texts(engine, book, unended=True)
            stage = written_by(texts, rows, share)
            engine.sleep()  # the next one's memory
        tell_texts(texts.counts)
        whole.kept.extend(stage.kept)
        whole.dropped.extend(stage.dropped)
    return whole


def _through(
    name: str, rows: Sequence[Marked], steps: Iterable[Callable[[Sequence[Marked]], Passed[Marked]]]
) -> Passed[Marked]:
    """What every step has kept, one after the other, and what any has dropped."""
    dropped: list[Drop] = []
    for step in steps:
        stage = step(rows)
        rows = stage.kept
        dropped += stage.dropped
    return Passed(name, list(rows), dropped)


def _rows(rows: Sequence[Row], found: Sequence[tuple[Marked, Scored]]) -> list[dict[str, Any]]:
    """All rows, with the texts that were scored for them where there are some, and no others."""
    scored: dict[int, list[Any]] = {}
    for mark, score in found:
        scored.setdefault(mark.text.place, []).append(msgspec.to_builtins(score))
    whole = [{name: value for name, value in row.columns.items() if name != "scored"} for row in rows]
    return [{**row, "scored": scored[place]} if place in scored else row for place, row in enumerate(whole)]


def _show(found: Sequence[tuple[Marked, Scored]]) -> None:
    """Print what the texts were worth, by the writer's noise where that is known: more should be worse."""
    table = plain_table(title="Mean scores")
    for name in ("noise", "texts", "judge", "gain", "teacher"):
        table.add_column(name, justify="right")
    for noise in sorted({mark.text.noise for mark, _ in found}, key=lambda noise: noise or 0.0):
        its = [
            (fmean(mark.scores), fmean(mark.gains or (math.nan,)), score.score)
            for mark, score in found
            if mark.text.noise == noise
        ]
        judged, gain, score = map(fmean, zip(*its, strict=True))
        noise_of, gain_of = "" if noise is None else f"{noise:g}", "" if math.isnan(gain) else f"{gain:.3f}"
        table.add_row(noise_of, str(len(its)), f"{judged:.2f}", gain_of, f"{score:.2f}")
    open_console(120).print(table)
