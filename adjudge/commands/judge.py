"""`adjudge judge`: a file of pairs or items in, a file of verdicts out, resumable at any point."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from adjudge.bench.reports.run_cost import RunCost
from adjudge.commands.output import check_lines, is_stream, open_output
from adjudge.commands.results import intentions, show_results
from adjudge.commands.resumable import beside_earlier, check_answered, check_paths, journal_beside, keeping, opened
from adjudge.commands.rows import columns_suggested, rows_of
from adjudge.commands.run_options import RunOptions
from adjudge.commands.source import check_fit
from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import importable, is_own
from adjudge.rewards.judges.judge import check_rows
from adjudge.rewards.judges.kinds import Options, files_of, kind_of, named, prepare
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import label_of, verdict_line
from adjudge.rewards.run import record_run
from adjudge.training.progress import watched
from adjudge.training.terminal import say


class Judged(msgspec.Struct, frozen=True):
    """A file that has been judged: its rows, what was made of each, and what it cost; `judge` is as in `kind_of`."""

    judge: str
    what: Literal["pairs", "items"]
    rows: list[Row]
    subjects: list[Any]
    verdicts: list[Any]
    labels: list[bool | None] | None
    cost: RunCost


def judge_file(
    path: Path,
    output: Path,
    *,
    judge: str | None,
    options: Options,
    run_options: RunOptions,
    report: Path | None,
    limit: int | None = None,
    columns: str | None = None,
) -> None:
    """Judge every row of `path`, or only the first ones, and say what the verdicts come to.

    Mistakes are found before the model is loaded.
    """
    with beside_earlier(run_options, path, output):
        judged = judge_rows(
            path,
            output,
            judge=judge,
            options=options,
            run_options=run_options,
            report=report,
            limit=limit,
            columns=columns,
        )
    title = f"Verdicts on {path.name}"
    show_results(
        judged.judge,
        judged.what,
        judged.rows,
        judged.subjects,
        judged.verdicts,
        judged.cost,
        title=title,
        report=report,
        labels=judged.labels,
        to_stderr=is_stream(output),  # which may be where the verdicts are
    )
    say(f"verdicts: {output}", stderr=is_stream(output))
    check_answered(verdict.abstained for verdict in judged.verdicts)


def judge_rows(
    path: Path,
    output: Path,
    *,
    judge: str | None,
    options: Options,
    run_options: RunOptions,
    report: Path | None = None,
    limit: int | None = None,
    columns: str | None = None,
) -> Judged:
    """The same without a word about it; `report` is only kept apart from the other files."""
    rows = rows_of(path, limit, columns)
    name = named(judge or run_options.source.usual_judge(options), rows)
    if is_own(name):
        importable(Path())
    kind, open_judge = kind_of(name), prepare(name, options)
    if limit is not None and kind.gather is not None and len(rows) >= limit:
        raise AdjudgeError(f"each verdict of {name} rests on other rows too: leave out --limit, or take rows out")
    check_fit(run_options.source.model, run_options.source.adapter, name, options)
    with columns_suggested(columns):
        subjects = kind.subjects(rows, options)
    check_rows(open_judge, rows, subjects)
    if kind.what == "pairs":
        intentions(rows)
    labels = [label_of(row) for row in rows] if kind.labels else None
    journal = run_options.journal or journal_beside(output)
    check_lines(output)
    reads = files_of(options).values()
    check_paths(f"the {kind.what}", path, output, run_options.earlier, reads=reads, journal=journal, report=report)
    with opened(run_options, name, options, output) as (engine, book):
        asked = open_judge(engine, book)
        keys = [asked.key(subject) for subject in subjects]
        if run_options.earlier == "overwrite":
            book.forget()
        remembered = sum(key in book for key in keys)
        verdicts: list[Any] = []
        with keeping(output, lambda: f"{sum(key in book for key in keys)} of {len(subjects)} verdicts are kept"):
            record_run(
                book,
                what=kind.what,
                judge=name,
                source=path,
                options=options,
                card=Card.of(engine),
                rows=rows,
                keys=keys,
            )
            started = time.perf_counter()
            coming = watched("judging", asked.judge_iter(subjects), len(subjects))
            with open_output(output) as write:  # an earlier output is gone; its verdicts are in the journal
                for row, verdict in zip(rows, coming, strict=True):
                    verdicts.append(verdict)
                    write(verdict_line(verdict, row))
            seconds = time.perf_counter() - started
    return Judged(name, kind.what, rows, subjects, verdicts, labels, RunCost.of(engine, seconds, remembered))
