"""`adjudge bench personal-studies`: questions about readers in, what their reviews are worth out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from adjudge.bench.machine import describe_machine
from adjudge.bench.personal.personal import StudyLine
from adjudge.bench.personal.studies import plan_of, sides_of, study, study_table, write_study
from adjudge.commands.options.files import output_beside
from adjudge.commands.options.judges import ANALYSES, WORDING, ReaderAspects, of_judge
from adjudge.commands.options.runs import RunToJudge
from adjudge.commands.options.source import check_fit
from adjudge.commands.readers import check_aspects
from adjudge.commands.runs.output import beside
from adjudge.commands.runs.resumable import check_answered
from adjudge.commands.runs.stage_run import stage_run
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import PERSE, parse_aspects
from adjudge.rewards.judges.judge import How
from adjudge.rewards.judges.kinds import Options
from adjudge.rewards.judges.options import how_of
from adjudge.training.kept_engine import keeping_analyses
from adjudge.training.readers.questions import read_questions
from adjudge.training.terminal import counted, open_console, say


def bench_personal(
    items: Annotated[Path, typer.Argument(help="Questions, as `adjudge readers group` writes them.")],
    output: Annotated[Path | None, output_beside("The table as CSV", ".studies.csv")] = None,
    k: Annotated[
        str | None, typer.Option(help="Numbers of reviews to show, after commas (default: 0 to all there are).")
    ] = None,
    shuffles: Annotated[int, typer.Option(help="Orders of the reviews to try; 0 for none.", min=0)] = 3,
    limit: Annotated[int | None, typer.Option(help="Only the first questions.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other orders.")] = 0,
    *,
    options: Annotated[Options, of_judge("aspects", *ANALYSES, *WORDING, aspects=ReaderAspects)],
    run_options: RunToJudge,
) -> None:
    """Ask for unseen readers' scores (or choices) after k = 0 to 5 of their reviews, and hold them against theirs.

    With review texts and without, with the reviews in several orders (the mean of each correlation with its standard
    deviation, and how far the orders' scores of a plot lie apart), beside the reviewer's mean, matrix factorisation (of
    choices: the prior choice again) and the paper's own figures, which are of other plots. Questions on the test side
    of the split are asked, all where nothing is split; matrix factorisation learns from the train side.

    A run can be stopped at any time and continued with --resume; nothing is asked twice.
    """
    ks = None if k is None else _numbers(k)
    output = output or beside(items, ".studies.csv")
    questions = read_questions(items)
    check_aspects(options.get("aspects"), questions)
    sides = sides_of(questions, limit)
    plan = plan_of(ks, sides.asked, shuffles, seed)
    aspects = parse_aspects(options["aspects"], PERSE) if "aspects" in options else PERSE
    how = how_of(options)
    check_fit(run_options.source.model, run_options.source.adapter, "personal", options)
    console = open_console(150, highlight=False)
    lines: list[StudyLine] = []
    with stage_run("the questions", items, output, run_options, others=(), table=True) as run:
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


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise AdjudgeError(f'--k is "{text}": write whole numbers after commas, such as 0,1,3') from error
