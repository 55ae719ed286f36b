"""`adjudge bench personal-studies`: questions about readers in, what their reviews are worth out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from rich.console import Console

from adjudge.bench.machine import describe_machine
from adjudge.bench.personal_studies import Line, plan_of, sides_of, study, study_table, write_study
from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.commands.source import Source
from adjudge.rewards.aspects import PERSE, parse_aspects
from adjudge.rewards.journal import Journal
from adjudge.rewards.judge import How
from adjudge.rewards.kinds import Options, how_of
from adjudge.training.readers.questions import read_questions


def study_file(
    path: Path,
    output: Path,
    *,
    ks: Sequence[int] | None,
    shuffles: int,
    limit: int | None,
    seed: int,
    options: Options,
    source: Source,
    earlier: Earlier,
    journal: Path | None,
) -> None:
    """Study the questions of `path`; mistakes in it are found before the model is loaded."""
    sides = sides_of(read_questions(path), limit)
    plan = plan_of(ks, sides.asked, shuffles, seed)
    aspects = parse_aspects(options["aspects"], PERSE) if "aspects" in options else PERSE
    how = how_of(options)
    journal = journal or output.with_name(output.name + ".journal")
    check_paths("the questions", path, output, journal)
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    lines: list[Line] = []
    with alone(journal), Journal(journal) as book:
        check_earlier(output, book, earlier)
        if earlier == "overwrite":
            book.clear()
        with keeping(output, lambda: f"{len(book)} verdicts are kept"), source.open() as engine:
            for line in study(engine, sides, plan, cast(How, {**how, "journal": book}), aspects):
                lines.append(line)
                write_study(output, lines)
        name = engine.name
    console.print(f"{len(sides.asked)} questions of {len({one.reviewer for one in sides.asked})} readers, {name}")
    console.print(study_table(lines))
    console.print("tokens: computed in this run; what the journal had is not in them")
    console.print(describe_machine())
    console.print(f"written: {output}", soft_wrap=True)
