"""`adjudge train teacher`: stories in; the same out, with what small models wrote on them and a teacher's scores."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from adjudge.commands.resumable import Earlier
from adjudge.commands.source import Source
from adjudge.commands.stage_run import beside, stage_run, write_parts
from adjudge.commands.texts import Writing
from adjudge.engine.bare_model import BareModel
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sources import resolve
from adjudge.rewards.aspects import parse_aspects
from adjudge.rewards.pointwise import PointwiseJudge
from adjudge.rewards.wire import Row
from adjudge.training.attrition import Count, show_attrition
from adjudge.training.house.continuations import Continuation, noisy, of_one_length, written_by
from adjudge.training.house.teacher import Marked, marked, taught
from adjudge.training.house.texts import Scored
from adjudge.training.stages import Passed, read_stage

NEEDED = ("prompt", "text")


def teacher_file(
    path: Path,
    output: Path,
    *,
    writer: str,
    noise: Sequence[float],
    aspects: str,
    bare: str,
    gain: float,
    writing: Writing,
    source: Source,
    earlier: Earlier,
    journal: Path | None,
) -> None:
    """Have the stories of `path` gone on with and scored; mistakes are found before a model is loaded."""
    if len(set(noise)) < max(2, len(noise)) or not all(0 <= share < math.inf for share in noise):
        raise AdjudgeError("give --noise twice or more, each time another number of at least 0")
    asked = parse_aspects(aspects)
    rows = read_stage(path, needs=NEEDED)
    for row in rows:
        for name in NEEDED:
            row.text(name, "train teacher")
    model = resolve(writer)
    with stage_run("the stories", path, output, earlier=earlier, journal=journal) as run:
        judge = PointwiseJudge(run.open(source), asked, journal=run.book)
        written: list[Passed[Continuation]] = []
        for share in noise:
            with noisy(model, share, writing.seed) as folder:
                engine = Engine(folder, device=source.device, dtype=source.dtype)
                written.append(written_by(writing.texts(engine, run.book, cut=True), rows, share))
        groups = of_one_length([one for stage in written for one in stage.kept])
        texts = [one for group in groups for one in group]
        judged, gained = marked(texts, judge, BareModel(bare, source.device, source.dtype), run.book)
        found = list(zip(gained.kept, taught(gained.kept, gain), strict=True))
        stages: list[Passed[Any]] = [*written, judged, gained]
        write_parts(output, _rows(rows, found), stages)
    show_attrition([Count.of(stage) for stage in stages], f"What small models wrote on {path.name}")
    if found:
        _show(found)
    else:
        print(f"adjudge: nothing in {output} is scored: {beside(output, 'dropped')} says why", file=sys.stderr)
    print(f"scored: {output}\ndropped: {beside(output, 'dropped')}")


def _rows(rows: Sequence[Row], found: Sequence[tuple[Marked, Scored]]) -> list[dict[str, Any]]:
    """The rows, those of which two texts or more were scored with these; none where there are none at all."""
    scored: dict[int, list[Scored]] = {}
    for mark, score in found:
        scored.setdefault(mark.text.place, []).append(score)
    beside = {place: msgspec.to_builtins(scores) for place, scores in scored.items() if len(scores) > 1}
    return [{**row.columns, **({"scored": beside[place]} if place in beside else {})} for place, row in enumerate(rows)]


def _show(found: Sequence[tuple[Marked, Scored]]) -> None:
    """Print what each writer's texts were worth: more noise should be worse."""
    table = Table(title="Mean scores", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("noise", "texts", "judge", "gain, nats a token", "teacher"):
        table.add_column(name, justify="right")
    for noise in sorted({mark.text.noise for mark, _ in found}):
        its = [(mark.judged, mark.gain, score.score) for mark, score in found if mark.text.noise == noise]
        judged, gain, score = map(fmean, zip(*its, strict=True))
        table.add_row(f"{noise:g}", str(len(its)), f"{judged:.2f}", f"{gain:.3f}", f"{score:.2f}")
    Console().print(table)
