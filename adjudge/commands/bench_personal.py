"""`adjudge bench personal-studies`: questions about readers in, what their reviews are worth out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from adjudge.bench.machine import describe_machine
from adjudge.bench.personal.personal import StudyLine
from adjudge.bench.personal.studies import plan_of, sides_of, study, study_table, write_study
from adjudge.commands.readers import check_aspects
from adjudge.commands.resumable import check_answered
from adjudge.commands.run_options import RunOptions
from adjudge.commands.source import check_fit
from adjudge.commands.stage_run import stage_run
from adjudge.rewards.judges.aspects import PERSE, parse_aspects
from adjudge.rewards.judges.judge import How
from adjudge.rewards.judges.kinds import Options
from adjudge.rewards.judges.options import how_of
from adjudge.training.kept_engine import keeping_analyses
from adjudge.training.readers.questions import read_questions
from adjudge.training.terminal import counted, open_console, say


def study_file(
    path: Path,
    output: Path,
    *,
    ks: Sequence[int] | None,
    shuffles: int,
    limit: int | None,
    seed: int,
    options: Options,
    run_options: RunOptions,
) -> None:
    """Study the questions of `path`; mistakes in it are found before the model is loaded."""
    questions = read_questions(path)
    check_aspects(options.get("aspects"), questions)
    sides = sides_of(questions, limit)
    plan = plan_of(ks, sides.asked, shuffles, seed)
    aspects = parse_aspects(options["aspects"], PERSE) if "aspects" in options else PERSE
    how = how_of(options)
    check_fit(run_options.source.model, run_options.source.adapter, "personal", options)
    console = open_console(150, highlight=False)
    lines: list[StudyLine] = []
    with stage_run("the questions", path, output, run_options, others=(), table=True) as run:
        engine = run.open()
        asked = keeping_analyses(engine, run.book, how.get("mode"))
        for line in study(asked, sides, plan, cast(How, {**how, "journal": run.book}), aspects):
            lines.append(line)
            check_answered(reason for one in lines for reason in one.reasons)
            write_study(output, lines)
    console.print(
        f"{counted(len(sides.asked), 'question')} of {counted(len({one.reviewer for one in sides.asked}), 'reader')},"
        f" {engine.name}"
    )
    console.print(study_table(lines))
    console.print("tokens: computed in this run; what the journal had is not in them")
    console.print(describe_machine())
    say(f"written: {output}")
