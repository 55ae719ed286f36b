"""`adjudge evolve`: stories with human scores in, rationales that lead to them out (EvolvR)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adjudge.commands.resumable import check_answered
from adjudge.commands.run_options import RunOptions
from adjudge.commands.stage_run import check_left, part_beside, stage_run, write_parts
from adjudge.commands.writing_options import Writing, tell_texts
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


def synthesize_file(
    path: Path,
    output: Path,
    *,
    aspects: str | None,
    personas: str | None,
    each: int,
    pointwise: bool,
    raters: Raters,
    examples: Path | None,
    shots: int,
    structured: bool,
    writing: Writing,
    run_options: RunOptions,
) -> None:
    """Write rationales for the stories of `path`; mistakes are found before the model is loaded."""
    asked = parse_aspects(aspects) if aspects else HANNA
    voices = tuple(dict.fromkeys(chosen(personas, PERSONAS, "persona")))
    once = without_repeats(read_stories(path, raters), lambda one: (one.prompt, one.story), "same_story")
    questions, strata = sample_questions(once.kept, asked, each=each, pointwise=pointwise, seed=writing.seed)
    if not questions:
        raise AdjudgeError(f"{path.name} gives no two different stories to pair: give more, or --pointwise")
    shown = read_rationales(examples) if examples else []
    if shown and len(shown[0].stories) != len(questions[0].stories):
        raise AdjudgeError(f"{examples}: give examples of {'single stories' if pointwise else 'pairs'}, as asked for")
    _show_strata(strata)
    with stage_run("the stories", path, output, run_options, reads=[examples] if examples else ()) as run:
        engine = run.open()
        form = form_of(questions[0], engine.tokenizer, writing.max_tokens) if structured else None
        texts = writing.texts(engine, run.book, regex=form)
        made = synthesize(questions, texts, voices, examples=shown, shots=shots, seed=writing.seed)
        write_parts(output, made.kept, [once, made])
    if once.dropped:
        tell([once], f"Stories of {path.name}")
    tell([made], f"Rationales for {path.name}")
    tell_texts(texts.counts)
    say(f"rationales: {output}")
    form_helps = "" if structured else "--structured holds texts to their form; "
    check_left(output, made.kept, f"{form_helps}more --max-tokens, or a larger --model")


def filter_file(
    path: Path,
    output: Path,
    *,
    stages: str | None,
    mode: Mode,
    writing: Writing,
    run_options: RunOptions,
    plot: Path | None,
) -> None:
    """Take the rationales of `path` through stages, and tell what each left."""
    names = chosen(stages, PIPELINE, "stage")
    check_picture(plot)
    rationales = read_rationales(path)
    with stage_run("the rationales", path, output, run_options, plot=plot) as run:
        how: dict[str, Any] = {"mode": mode, "sampling": writing.sampling}
        filters = Filters(run.open(), run.book, **how, attempts=writing.attempts, seed=writing.seed)
        done = list(filters.evolve(rationales, names))
        write_parts(output, done[-1].kept, done)
    tell(done, f"What each stage left of {path.name}", plot, PUBLISHED if names == PIPELINE else ())
    tell_texts(filters.texts.counts)
    say(f"evolved: {output}", f"dropped: {part_beside(output, 'dropped')}")
    if plot is not None:
        say(f"plot: {plot}")
    check_left(output, done[-1].kept, "fewer --stages, or a larger --model")


def validate_file(
    path: Path,
    output: Path,
    *,
    dropped: Path | None,
    sample: int,
    mode: Mode,
    writing: Writing,
    run_options: RunOptions,
) -> None:
    """Ask a judge about what `evolve filter` kept in `path` and dropped beside it."""
    dropped = dropped or part_beside(path, "dropped")
    stages = stages_of(_read_part(path), _read_part(dropped))
    with stage_run("the rationales", path, output, run_options, others=(), reads=[dropped]) as run:
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
