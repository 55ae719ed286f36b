"""`adjudge judge`: a file of pairs or items in, a file of verdicts out, resumable at any point."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adjudge.commands.kinds import KINDS, Options, named, prepare
from adjudge.commands.output import Write, open_output
from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.wire import Row, read_rows, verdict_line

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.judge import Judge

EXPECTED = ("a", "b", "tie")


def judge_file(
    path: Path,
    output: Path,
    *,
    judge: str,
    options: Options,
    model: str | None,
    adapter: Path | None,
    url: str | None,
    earlier: Earlier,
    report: Path | None,
    journal: Path | None,
    device: str,
    dtype: str,
    replicas: int,
) -> None:
    """Judge every row of `path`; mistakes in the file or the options are found before the model is loaded."""
    rows = read_rows(path)
    name = named(judge, rows)
    kind, open_judge = KINDS[name], prepare(name, options)
    pairwise = kind.what == "pairs"
    if report is not None and not pairwise:
        raise AdjudgeError("--report is for pairs: leave it out, or judge pairs with --judge pairwise")
    subjects = kind.subjects(rows, options)
    expected = [_expected(row) for row in rows] if pairwise else []
    notes = [row.optional_text("note", "the report") for row in rows] if pairwise else []
    journal = journal or output.with_name(output.name + ".journal")
    check_paths(f"the {kind.what}", path, output, journal, report)
    with alone(journal), Journal(journal) as book, ExitStack() as closing:
        check_earlier(output, book, earlier)
        engine = closing.enter_context(_engine(model, adapter, url, replicas, device, dtype))
        opened = open_judge(engine, book)
        if earlier == "overwrite":
            book.clear()
        remembered = sum(opened.key(subject) in book for subject in subjects)
        with open_output(output) as write:  # from here on an earlier output is gone; its verdicts are in the journal
            started = time.perf_counter()
            verdicts = _judge_all(opened, subjects, rows, write, output)
            seconds = time.perf_counter() - started
    console = Console(width=None if sys.stdout.isatty() else 120)
    counters = (seconds, engine.stats.tokens_computed, engine.stats.prompt_tokens)
    if not pairwise:
        from adjudge.bench.items import item_lines, item_table

        console.print(item_table(verdicts, width=console.width))
        for line in item_lines(verdicts, engine.name, *counters, remembered=remembered):
            console.print(line, highlight=False)
        console.print(f"verdicts: {output}", highlight=False, soft_wrap=True)
        return
    from adjudge.bench.report import pair_table, summary_lines, write_pair_report
    from adjudge.bench.summary import PairRow, summarise

    lines = [
        PairRow(pair, verdict, known, note)
        for pair, verdict, known, note in zip(subjects, verdicts, expected, notes, strict=True)
    ]
    summary = summarise(lines, engine.name, *counters, remembered=remembered)
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


@contextmanager
def _engine(
    model: str | None, adapter: Path | None, url: str | None, replicas: int, device: str, dtype: str
) -> Iterator[EngineFace]:
    if url is not None:
        from adjudge.engine.remote.remote_engine import RemoteEngine

        with RemoteEngine(url, model, api_key=os.environ.get("ADJUDGE_API_KEY")) as remote:
            yield remote
        return
    assert model is not None
    if replicas == 1:
        from adjudge.engine.engine import Engine

        yield Engine(model, adapter=adapter, device=device, dtype=dtype)
    else:
        from adjudge.engine.cluster.cluster_engine import ClusterEngine

        with ClusterEngine(model, replicas, adapter=adapter, device=device, dtype=dtype) as cluster:
            yield cluster


def _judge_all(
    judge: Judge[Any, Any], subjects: Sequence[Any], rows: Sequence[Row], write: Write, output: Path
) -> list[Any]:
    """Judge and write in input order; whatever stops it, the finished verdicts are in the journal."""
    verdicts: list[Any] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        keeping(output, lambda: f"{len(verdicts)} of {len(subjects)} verdicts are kept"),
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        task = progress.add_task("judging", total=len(subjects))
        for row, verdict in zip(rows, judge.judge_iter(subjects), strict=True):
            verdicts.append(verdict)
            write(verdict_line(verdict, row))
            progress.advance(task)
    return verdicts


def _expected(row: Row) -> Literal["a", "b", "tie"] | None:
    value = row.optional_text("expected", "the comparison")
    if value is None:
        return None
    if value not in EXPECTED:
        raise AdjudgeError(f'{row.place}: "expected" is "{value[:40]}": write a, b or tie, or leave it out')
    return value  # type: ignore[return-value]
