"""`adjudge writing`: texts in, disturbed texts or a benchmark out, resumable at any point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adjudge.commands.resumable import check_answered
from adjudge.commands.run_options import RunOptions
from adjudge.commands.stage_run import check_left, part_beside, stage_run, write_parts
from adjudge.commands.writing_options import Writing, tell_texts
from adjudge.training.attrition import tell
from adjudge.training.kept_engine import KeptEngine
from adjudge.training.stages import Passed, read_stage
from adjudge.training.terminal import say
from adjudge.training.writing.building import SCHEMA, Building, candidates_of
from adjudge.training.writing.disturbances import TRANSFERS, disturb, parse_kinds
from adjudge.training.writing.tasks import completions, guided, opened, parse_tasks


def disturb_file(
    path: Path,
    output: Path,
    *,
    kinds: str | None,
    most: int,
    writing: Writing,
    run_options: RunOptions,
) -> None:
    """Disturb the texts of `path`; a model is loaded only where genres are to change."""
    chosen = parse_kinds(kinds)
    rows = read_stage(path)
    pure = [kind for kind in chosen if kind not in TRANSFERS]
    disturb(rows, pure, most=most, seed=writing.seed)  # which finds rows without a text before a model is loaded
    with stage_run("the texts", path, output, run_options) as run:
        how: dict[str, Any] = {"most": most, "seed": writing.seed}
        if pure == [*chosen]:
            texts, made = None, disturb(rows, chosen, **how)
        else:
            texts = writing.texts(run.open(), run.book)
            made = disturb(rows, chosen, texts, **how)
            check_answered(_reasons(made))  # before anything is written: the others are made again for nothing
        write_parts(output, made.kept, [made])
    tell([made], f"Disturbed texts of {path.name}")
    if texts is not None:
        tell_texts(texts.counts)
    say(f"disturbed: {output}", f"dropped: {part_beside(output, 'dropped')}")
    check_left(output, made.kept, "other --kinds, or longer texts")


def _reasons(made: Passed[dict[str, Any]]) -> Iterator[str | None]:
    """Why transfers that the model was asked for are missing, and None for those that are there."""
    for drop in made.dropped:
        if drop.row.kind in TRANSFERS and drop.reason != "too_short":
            yield drop.reason
    yield from (None for row in made.kept if row["disturbance"]["kind"] in TRANSFERS)


def build_file(
    path: Path,
    output: Path,
    *,
    tasks: str | None,
    least: float,
    min_mass: float,
    writing: Writing,
    run_options: RunOptions,
) -> None:
    """Make a benchmark of the texts of `path`; mistakes are found before the model is loaded."""
    wanted = parse_tasks(tasks)
    candidates = candidates_of(read_stage(path))
    with stage_run("the texts", path, output, run_options) as run:
        engine = run.open()
        texts, scores = writing.texts(engine, run.book, SCHEMA), KeptEngine(engine, run.book)
        building = Building(scores, texts, min_mass=min_mass, least=least)
        done: list[Passed[Any]] = [classified := building.classify(candidates)]
        done.append(good := building.filter(classified.kept))
        rows: list[dict[str, Any]] = []
        if "completion" in wanted:
            done.append(filled := completions(good.kept, writing.seed))
            rows += filled.kept
        if wanted != ("completion",):
            done.append(constructed := building.construct(good.kept))
            for task, make in {"guide": guided, "open": opened}.items():
                rows += map(make, constructed.kept if task in wanted else ())
        write_parts(output, rows, done)
    tell(done, f"What {path.name} gave")
    print(f"scores: {scores.asked} computed, {scores.remembered} from the journal")
    tell_texts(texts.counts)
    counts = ", ".join(f"{sum(row['task'] == task for row in rows)} {task}" for task in wanted)
    say(f"benchmark: {output} ({counts})", f"dropped: {part_beside(output, 'dropped')}")
    check_left(output, rows, "a lower --least or --min-mass, other --tasks, or a larger --model")
