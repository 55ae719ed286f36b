"""`adjudge evolve`: stories with human scores in, rationales that lead to them out (EvolvR)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from adjudge.commands.lazy import Commands
from adjudge.commands.options.files import Plot, output_beside
from adjudge.commands.options.runs import RunToWrite
from adjudge.commands.options.writing import Writing, tell_texts, written
from adjudge.commands.runs.output import beside
from adjudge.commands.runs.resumable import check_answered
from adjudge.commands.runs.stage_run import check_left, part_beside, stage_run, write_parts
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.asking import Mode
from adjudge.rewards.judges.aspects import HANNA, parse_aspects
from adjudge.training.attrition import tell
from adjudge.training.chosen import chosen
from adjudge.training.evolve.filters import PIPELINE, PUBLISHED, Filters
from adjudge.training.evolve.judges import BetterJudge, QualityJudge
from adjudge.training.evolve.personas import PERSONAS
from adjudge.training.evolve.rationale import Rationale, read_rationales
from adjudge.training.evolve.rule import form_of
from adjudge.training.evolve.seeds import Raters, Strata, read_stories, sample_questions
from adjudge.training.evolve.synthesis import synthesize
from adjudge.training.evolve.validation import stages_of, validate, validation_table
from adjudge.training.kept_engine import keeping_analyses
from adjudge.training.pictures import check_picture
from adjudge.training.stages import without_repeats, write_stage
from adjudge.training.terminal import open_console, plain_table, say

evolve = Commands(help="Make rationales for human scores, and keep the sound ones (EvolvR).", no_args_is_help=True)

JudgeMode = Annotated[
    Mode,
    typer.Option(help="How the model judges: at once, by the label distribution, or after an analysis in writing."),
]


@evolve.command("synthesize")
def synthesize_rationales(
    stories: Annotated[Path, typer.Argument(help="JSONL: prompt, story and scores (or HANNA's ratings) by aspect.")],
    output: Annotated[Path | None, output_beside("Rationales, JSONL", ".rationales.jsonl")] = None,
    aspects: Annotated[str | None, typer.Option(help="hanna (default), storyer, or names after commas.")] = None,
    personas: Annotated[str | None, typer.Option(help="Names after commas (default: all five).")] = None,
    each: Annotated[int, typer.Option(help="Pairs for each combination of scores of an aspect.", min=1)] = 4,
    pointwise: Annotated[bool, typer.Option("--pointwise", help="Single stories instead of pairs.")] = False,
    raters: Annotated[
        Raters, typer.Option(help="Several raters: their mean, rounded, or each a score of its own.")
    ] = "mean",
    examples: Annotated[Path | None, typer.Option(help="Rationales, as this command writes them, to show.")] = None,
    shots: Annotated[int, typer.Option(help="How many of them are shown before each question.", min=0)] = 1,
    structured: Annotated[
        bool,
        typer.Option("--structured", help="Hold each text to its form, so that a small model's ends in scores too."),
    ] = False,
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
) -> None:
    """Have rationales written that lead to the scores people gave.

    Pairs are drawn evenly over all combinations of scores of each aspect, each comes in both orders, and each persona
    writes about it, told the scores. Every row has the stories with their scores, the judge's own question (`system`,
    `prompt`) and the rationale (`response`), as `adjudge train sft` takes them. What could not be used stands in
    OUTPUT.dropped.jsonl, with the reason, and so do stories that the file holds before.
    """
    output = output or beside(stories, ".rationales.jsonl")
    asked = parse_aspects(aspects) if aspects else HANNA
    voices = tuple(dict.fromkeys(chosen(personas, PERSONAS, "persona")))
    once = without_repeats(read_stories(stories, raters), lambda one: (one.prompt, one.story), "same_story")
    questions, strata = sample_questions(once.kept, asked, each=each, pointwise=pointwise, seed=writing.seed)
    if not questions:
        raise AdjudgeError(f"{stories.name} gives no two different stories to pair: give more, or --pointwise")
    shown = read_rationales(examples) if examples else []
    if shown and len(shown[0].stories) != len(questions[0].stories):
        raise AdjudgeError(f"{examples}: give examples of {'single stories' if pointwise else 'pairs'}, as asked for")
    _show_strata(strata)
    with stage_run("the stories", stories, output, run_options, reads=[examples] if examples else ()) as run:
        engine = run.open()
        form = form_of(questions[0], engine.tokenizer, writing.max_tokens) if structured else None
        texts = writing.texts(engine, run.book, regex=form)
        made = synthesize(questions, texts, voices, examples=shown, shots=shots, seed=writing.seed)
        write_parts(output, made.kept, [once, made])
    if once.dropped:
        tell([once], f"Stories of {stories.name}")
    tell([made], f"Rationales for {stories.name}")
    tell_texts(texts.counts)
    say(f"rationales: {output}")
    form_helps = "" if structured else "--structured holds texts to their form; "
    check_left(output, made.kept, f"{form_helps}more --max-tokens, or a larger --model")


@evolve.command("filter")
def filter_rationales(
    rationales: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet, as `adjudge evolve synthesize` writes them.")
    ],
    output: Annotated[Path | None, output_beside("Those that are left, JSONL", ".evolved.jsonl")] = None,
    stages: Annotated[
        str | None, typer.Option(help="In any order, after commas (default: rule,refine,rule,attack,confidence).")
    ] = None,
    plot: Plot = None,
    mode: JudgeMode = "direct",
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
) -> None:
    """Take rationales through stages, and keep those that pass all.

    **rule** keeps those whose own scores are the human ones. **refine** has them written again, better argued.
    **attack** inverts the scores, and keeps those in which the model sees the contradiction. **confidence** keeps
    those at whose score places the model gives the human score the highest probability of 1 to 5; nothing is
    generated for it. Every row that a stage dropped stands in OUTPUT.dropped.jsonl, with the stage and the reason.

    A row needs `aspect`, `prompt_a`, `story_a`, `score_a`, the same of b (of pairs) and `response`.
    """
    output = output or beside(rationales, ".evolved.jsonl")
    names = chosen(stages, PIPELINE, "stage")
    check_picture(plot)
    read = read_rationales(rationales)
    with stage_run("the rationales", rationales, output, run_options, plot=plot) as run:
        how: dict[str, Any] = {"mode": mode, "sampling": writing.sampling}
        filters = Filters(run.open(), run.book, **how, attempts=writing.attempts, seed=writing.seed)
        done = list(filters.evolve(read, names))
        write_parts(output, done[-1].kept, done)
    tell(done, f"What each stage left of {rationales.name}", plot, PUBLISHED if names == PIPELINE else ())
    tell_texts(filters.texts.counts)
    say(f"evolved: {output}", f"dropped: {part_beside(output, 'dropped')}")
    if plot is not None:
        say(f"plot: {plot}")
    check_left(output, done[-1].kept, "fewer --stages, or a larger --model")


@evolve.command("validate")
def validate_filtering(
    evolved: Annotated[Path, typer.Argument(help="What `adjudge evolve filter` has left.")],
    dropped: Annotated[Path | None, typer.Option(help="What it has dropped (default: EVOLVED.dropped.jsonl).")] = None,
    output: Annotated[Path | None, output_beside("The table as JSONL", ".validation.jsonl")] = None,
    sample: Annotated[int, typer.Option(help="Rationales, and pairs, of each stage at most.", min=1)] = 1000,
    mode: JudgeMode = "direct",
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
) -> None:
    """Ask a judge from outside whether the filtering kept the better rationales.

    For each stage it rates what the stage left, from 1 to 5, and compares rationales that the stage kept with ones of
    the same question that it dropped, in both orders. Take another model than the one that wrote and filtered them.
    """
    output = output or beside(evolved, ".validation.jsonl")
    kept = _read_part(evolved)
    usual = part_beside(evolved, "dropped")
    if dropped is None and not usual.is_file():
        raise AdjudgeError(
            f"{usual} is missing, which `adjudge evolve filter` writes beside what it keeps: name it by --dropped"
        )
    dropped = dropped or usual
    stages = stages_of(kept, _read_part(dropped))
    with stage_run("the rationales", evolved, output, run_options, others=(), reads=[dropped]) as run:
        engine = run.open()
        sampling = writing.sampling if mode == "reasoned" else None
        how: dict[str, Any] = {"mode": mode, "journal": run.book, "sampling": sampling, "attempts": writing.attempts}
        asked = keeping_analyses(engine, run.book, mode)
        judges = QualityJudge(asked, **how, seed=writing.seed), BetterJudge(asked, **how, seed=writing.seed)
        rows = list(validate(stages, *judges, sample=sample, seed=writing.seed))
        if not any(row.rated or row.compared for row in rows):
            check_answered(reason for row in rows for reason in row.reasons)
        write_stage(output, rows)
    open_console(120).print(validation_table(rows, engine.name))
    say(f"validation: {output}")


def _read_part(path: Path) -> list[Rationale]:
    """What `evolve filter` kept, or dropped: one of them may be nothing."""
    return [] if path.is_file() and not path.stat().st_size else read_rationales(path)


def _show_strata(strata: Sequence[Strata]) -> None:
    """How many questions each combination of scores gave: a combination that is rare in the data is told."""
    table = plain_table(title="Questions by score (taken/available)")
    combinations = sorted({scores for one in strata for scores in one.available})
    table.add_column("aspect")
    for scores in combinations:
        table.add_column("-".join(map(str, scores)), justify="right")
    for one in strata:
        cells = (f"{one.taken.get(scores, 0)}/{one.available.get(scores, 0)}" for scores in combinations)
        table.add_row(one.aspect, *cells)
    open_console(120, stderr=True).print(table)
