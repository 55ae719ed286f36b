"""`adjudge writing`: texts in, disturbed texts or a benchmark out, resumable at any point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from adjudge.commands.lazy import Commands
from adjudge.commands.options.files import output_beside
from adjudge.commands.options.runs import RunToWrite
from adjudge.commands.options.writing import Writing, tell_texts, written
from adjudge.commands.runs.output import beside
from adjudge.commands.runs.resumable import check_answered
from adjudge.commands.runs.stage_run import check_left, part_beside, stage_run, write_parts
from adjudge.training.attrition import tell
from adjudge.training.kept_engine import KeptEngine
from adjudge.training.stages import Passed, read_stage
from adjudge.training.terminal import say
from adjudge.training.writing.building import SCHEMA, Building, candidates_of
from adjudge.training.writing.disturbances import TRANSFERS, disturb, parse_kinds
from adjudge.training.writing.tasks import completions, guided, opened, parse_tasks

writing = Commands(
    help="Disturb texts to test a judge, and build writing benchmarks from texts (Tree of Writing).",
    no_args_is_help=True,
)

Texts = Annotated[
    Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of texts: response, text or story; other columns stay.")
]


@writing.command("disturb")
def disturb_texts(
    texts: Texts,
    output: Annotated[Path | None, output_beside("The texts and what became of them", ".disturbed.jsonl")] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="drop, repeat (no model), to_comment, to_letter, to_official, to_poem, after commas (default: all)."
        ),
    ] = None,
    most: Annotated[int, typer.Option(help="Passages that are dropped or repeated at most.", min=1)] = 3,
    *,
    writing: Annotated[Writing, written(1024)],
    run_options: RunToWrite,
) -> None:
    """Make texts worse in known ways: a judge must score each below the text it was made of.

    Every row comes as it is, and then once for each kind: some of its paragraphs (sentences, where it has few) left
    out or repeated elsewhere, or the whole written anew in another genre. The column `disturbance` says of which row
    (`of`), which `kind` and how much (`amount` of `unit`). What was too short stands in OUTPUT.dropped.jsonl. Next:
    `adjudge judge OUTPUT --judge tree`, then `adjudge bench tree`.
    """
    output = output or beside(texts, ".disturbed.jsonl")
    chosen = parse_kinds(kinds)
    rows = read_stage(texts)
    pure = [kind for kind in chosen if kind not in TRANSFERS]
    disturb(rows, pure, most=most, seed=writing.seed)  # which finds rows without a text before a model is loaded
    with stage_run("the texts", texts, output, run_options) as run:
        how: dict[str, Any] = {"most": most, "seed": writing.seed}
        if pure == [*chosen]:
            transferred, made = None, disturb(rows, chosen, **how)
        else:
            transferred = writing.texts(run.open(), run.book)
            made = disturb(rows, chosen, transferred, **how)
            check_answered(_reasons(made))  # before anything is written: the others are made again for nothing
        write_parts(output, made.kept, [made])
    tell([made], f"Disturbed texts of {texts.name}")
    if transferred is not None:
        tell_texts(transferred.counts)
    say(f"disturbed: {output}", f"dropped: {part_beside(output, 'dropped')}")
    check_left(output, made.kept, "other --kinds, or longer texts")


@writing.command("build")
def build_benchmark(
    texts: Texts,
    output: Annotated[Path | None, output_beside("The benchmark, JSONL", ".benchmark.jsonl")] = None,
    tasks: Annotated[str | None, typer.Option(help="completion, guide, open, after commas (default: all).")] = None,
    least: Annotated[float, typer.Option(help="Quality of 1 to 5 that a text must have.", min=1.0, max=5.0)] = 4.0,
    min_mass: Annotated[
        float, typer.Option(help="Probability that the labels must have together.", min=0.0, max=1.0)
    ] = 0.01,
    *,
    writing: Annotated[Writing, written(768)],
    run_options: RunToWrite,
) -> None:
    """Make a writing benchmark of good texts: what must be asked for to get each of them?

    The model tells each text's genre (unless the row has a `genre`) and its quality, by label distributions alone, and
    writes theme, summary and requirements of the good ones. Each then gives up to three rows, with the text as the
    `reference`: **completion** (a gap to be filled), **guide** (instruction and requirements), **open** (the
    instruction). With a `response` they are rows for `adjudge judge --judge tree`. English and Chinese texts are asked
    about in their language. Every text that was dropped stands in OUTPUT.dropped.jsonl, with the stage and the reason.
    """
    output = output or beside(texts, ".benchmark.jsonl")
    wanted = parse_tasks(tasks)
    candidates = candidates_of(read_stage(texts))
    with stage_run("the texts", texts, output, run_options) as run:
        engine = run.open()
        written_by, scores = writing.texts(engine, run.book, SCHEMA), KeptEngine(engine, run.book)
        building = Building(scores, written_by, min_mass=min_mass, least=least)
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
    tell(done, f"What {texts.name} gave")
    print(f"scores: {scores.asked} computed, {scores.remembered} from the journal")
    tell_texts(written_by.counts)
    counts = ", ".join(f"{sum(row['task'] == task for row in rows)} {task}" for task in wanted)
    say(f"benchmark: {output} ({counts})", f"dropped: {part_beside(output, 'dropped')}")
    check_left(output, rows, "a lower --least or --min-mass, other --tasks, or a larger --model")


def _reasons(made: Passed[dict[str, Any]]) -> Iterator[str | None]:
    """Why transfers that the model was asked for are missing, and None for those that are there."""
    for drop in made.dropped:
        if drop.row.kind in TRANSFERS and drop.reason != "too_short":
            yield drop.reason
    yield from (None for row in made.kept if row["disturbance"]["kind"] in TRANSFERS)
