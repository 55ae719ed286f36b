"""`adjudge train teacher`: stories in; the same out, with what small models wrote on them and a teacher's scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from adjudge.commands.run_options import RunOptions
from adjudge.commands.source import Source
from adjudge.commands.stage_run import check_stages, part_beside, stage_run, write_parts
from adjudge.commands.writing_options import Writing, tell_texts
from adjudge.engine.engine import Engine
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

NEEDED = ("prompt", "text")
NOISE = (0.0, 0.1, 0.17)
"""Noise on the writer's weights, where none is named."""


def teacher_file(
    path: Path,
    output: Path,
    *,
    writer: str | None,
    also: Sequence[str],
    noise: Sequence[float],
    aspects: str,
    bare: Sequence[str],
    gain: float,
    writing: Writing,
    run_options: RunOptions,
) -> None:
    """Have the stories of `path` gone on with, or taken as they were, and scored.

    Mistakes are found before a model is loaded, but for a bare model that does not write.
    """
    if noise and writer is None:
        raise AdjudgeError("--noise is put on the writer's weights: name one with --writer, or leave it out")
    noise = noise or NOISE
    if not 2 <= len(set(noise)) == len(noise) <= MOST_TEXTS or not all(0 <= share <= 1 for share in noise):
        raise AdjudgeError(f"give --noise twice to {MOST_TEXTS} times, each time another number from 0 to 1")
    if not math.isfinite(gain):
        raise AdjudgeError(f"--gain is {gain}: give a number of at least 0")
    asked = parse_aspects(aspects)
    rows = read_stage(path, needs=NEEDED)
    for row in rows:
        if not all(row.text(name, "train teacher").strip() for name in NEEDED):
            raise AdjudgeError(
                f"{row.place}: its prompt or its text is blank: write a first sentence and how it went on"
            )
    own = None if writer is None else resolve(writer)
    bare = bare if gain else ()
    for name in (*also, *bare):
        resolve(name)
    if own and any(noise):
        weight_files(own)
    before = [] if own else written_before(rows)
    source = run_options.source
    with stage_run("the stories", path, output, run_options) as run:
        engines = itertools.chain(
            [run.open()], (Engine(name, device=source.device, dtype=source.dtype) for name in also)
        )
        judges = (PointwiseJudge(engine, asked, journal=run.book) for engine in engines)
        readers = (BareModel(name, source.device, source.dtype) for name in bare)
        written = _written(rows, own, noise, writing, source, run.book) if own else Passed("read", before, [])
        together = several("together", written.kept, lambda one: one.place)
        texts = of_one_length(together.kept) if own else together.kept
        judged = _through("judge", [Marked(text) for text in texts], (partial(judged_by, judge) for judge in judges))
        gained = _through("gain", judged.kept, (partial(gained_by, reader, journal=run.book) for reader in readers))
        left = several("together still", gained.kept, lambda one: one.text.place)
        found = list(zip(left.kept, taught(left.kept, gain), strict=True))
        stages: list[Passed[Any]] = [written, together, judged, gained, left]
        check_stages(stages)  # before the rows are written, which are there whatever was answered
        write_parts(output, _rows(rows, found), stages)
    tell(stages, f"Texts on the stories of {path.name}")
    if found:
        _show(found)
    else:
        say(f"adjudge: nothing in {output} is scored: {part_beside(output, 'dropped')} says why", stderr=True)
    say(f"scored: {output}", f"dropped: {part_beside(output, 'dropped')}")


def _written(
    rows: Sequence[Row], own: ModelSource, noise: Sequence[float], writing: Writing, source: Source, book: Journal
) -> Passed[Continuation]:
    """What the writer wrote with each noise, one engine after the other."""
    whole = Passed[Continuation]("write", [], [])
    for share in noise:
        with noisy(own, share, writing.seed) as folder:
            engine = Engine(folder, device=source.device, dtype=source.dtype)
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
