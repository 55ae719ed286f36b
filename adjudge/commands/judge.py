"""`adjudge judge`: a file of pairs in, a file of verdicts out, resumable at any point."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adjudge.commands.output import Write, make_folder_of, open_output
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.aspects import parse_aspects
from adjudge.rewards.journal import Journal
from adjudge.rewards.verdict import Pair, PairVerdict
from adjudge.rewards.wire import Row, pair_of, read_rows, verdict_line

if TYPE_CHECKING:
    from adjudge.rewards.pairwise import PairwiseJudge

Earlier = Literal["resume", "overwrite", "refuse"]

EXPECTED = ("a", "b", "tie")


def judge_file(
    path: Path,
    output: Path,
    *,
    model: str,
    aspects: str,
    orders: Literal["both", "ab"],
    cut: Literal["middle", "head", "tail", "never"],
    earlier: Earlier,
    report: Path | None,
    journal: Path | None,
    device: str,
    dtype: str,
) -> None:
    """Judge every pair of `path`; mistakes in the file or the options are found before the model is loaded."""
    chosen = parse_aspects(aspects)
    rows = read_rows(path)
    pairs = [pair_of(row, number) for number, row in enumerate(rows, 1)]
    expected = [_expected(row) for row in rows]
    for written in (output, report):
        if written is not None:
            make_folder_of(written)
    journal = journal or output.with_name(output.name + ".journal")
    _check_earlier(output, journal, earlier)
    with Journal(journal) as book, open_output(output) as write:
        from adjudge.engine.engine import Engine
        from adjudge.rewards.pairwise import PairwiseJudge

        engine = Engine(model, device=device, dtype=dtype)
        judge = PairwiseJudge(engine, chosen, orders=orders, cut=cut, journal=book)
        started = time.perf_counter()
        verdicts = _judge_all(judge, pairs, rows, write, output)
        seconds = time.perf_counter() - started
    from adjudge.bench.report import pair_table, summary_lines, write_pair_report
    from adjudge.bench.summary import PairRow, summarise

    lines = [
        PairRow(pair, verdict, known, row.optional_text("note", "the report"))
        for pair, verdict, known, row in zip(pairs, verdicts, expected, rows, strict=True)
    ]
    summary = summarise(lines, engine.name, chosen, seconds, engine.stats.tokens_computed, engine.stats.prompt_tokens)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(pair_table(lines, summary, width=console.width))
    for line in summary_lines(summary):
        console.print(line, highlight=False)
    console.print(f"verdicts: {output}", highlight=False, soft_wrap=True)
    if report is not None:
        try:
            write_pair_report(report, lines, summary, title=f"Verdicts on {path.name}")
        except OSError as error:
            raise AdjudgeError(f"cannot write {report} ({error.strerror}): name another with --report") from error
        console.print(f"report:   {report}", highlight=False, soft_wrap=True)


def _judge_all(
    judge: PairwiseJudge, pairs: Sequence[Pair], rows: Sequence[Row], write: Write, output: Path
) -> list[PairVerdict]:
    """Judge and write in input order; whatever stops it, the finished verdicts are in the journal."""
    verdicts: list[PairVerdict] = []
    kept = f"{{}} of {len(pairs)} verdicts are kept; run again with --resume to go on"
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("judging", total=len(pairs))
            for row, verdict in zip(rows, judge.compare_iter(pairs), strict=True):
                verdicts.append(verdict)
                write(verdict_line(verdict, row))
                progress.advance(task)
    except KeyboardInterrupt:
        print(f"adjudge: stopped; {kept.format(len(verdicts))}", file=sys.stderr)
        raise SystemExit(130) from None
    except (OSError, sqlite3.Error) as error:
        print(
            f"adjudge: cannot write {output} ({_why(error)}): make room; {kept.format(len(verdicts))}", file=sys.stderr
        )
        raise SystemExit(1) from None
    return verdicts


def _why(error: OSError | sqlite3.Error) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _expected(row: Row) -> Literal["a", "b", "tie"] | None:
    value = row.optional_text("expected", "the comparison")
    if value is None:
        return None
    if value not in EXPECTED:
        raise AdjudgeError(f'{row.place}: "expected" is "{value[:40]}": write a, b or tie, or leave it out')
    return value  # type: ignore[return-value]


def _check_earlier(output: Path, journal: Path, earlier: Earlier) -> None:
    """Refuse to touch an earlier run's files unless the user has said what is to become of them."""
    found = [path for path in (output, journal) if path.is_file() and path.stat().st_size]
    if earlier == "refuse" and found:
        raise AdjudgeError(
            f"{found[0]} exists: --resume continues that run, --overwrite starts again, -o names another"
        )
    if earlier == "overwrite":
        for path in (journal, journal.with_name(journal.name + "-wal"), journal.with_name(journal.name + "-shm")):
            path.unlink(missing_ok=True)
