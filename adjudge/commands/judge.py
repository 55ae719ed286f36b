"""`adjudge judge`: a file of pairs in, a file of verdicts out, resumable at any point."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adjudge.commands.output import Write, open_output
from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.aspects import parse_aspects
from adjudge.rewards.journal import Journal
from adjudge.rewards.verdict import Pair, PairVerdict
from adjudge.rewards.wire import Row, pair_of, read_rows, verdict_line

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.pairwise import PairwiseJudge

EXPECTED = ("a", "b", "tie")


def judge_file(
    path: Path,
    output: Path,
    *,
    model: str,
    adapter: Path | None,
    aspects: str,
    orders: Literal["both", "ab"],
    cut: Literal["middle", "head", "tail", "never"],
    earlier: Earlier,
    report: Path | None,
    journal: Path | None,
    device: str,
    dtype: str,
    replicas: int,
) -> None:
    """Judge every pair of `path`; mistakes in the file or the options are found before the model is loaded."""
    chosen = parse_aspects(aspects)
    rows = read_rows(path)
    pairs = [pair_of(row, number) for number, row in enumerate(rows, 1)]
    expected = [_expected(row) for row in rows]
    notes = [row.optional_text("note", "the report") for row in rows]
    journal = journal or output.with_name(output.name + ".journal")
    check_paths("the pairs", path, output, journal, report)
    with alone(journal), Journal(journal) as book, ExitStack() as opened:
        check_earlier(output, book, earlier)
        from adjudge.rewards.pairwise import PairwiseJudge

        engine = opened.enter_context(_engine(model, adapter, replicas, device, dtype))
        judge = PairwiseJudge(engine, chosen, orders=orders, cut=cut, journal=book)
        if earlier == "overwrite":
            book.clear()
        remembered = sum(judge.key(pair) in book for pair in pairs)
        with open_output(output) as write:  # from here on an earlier output is gone; its verdicts are in the journal
            started = time.perf_counter()
            verdicts = _judge_all(judge, pairs, rows, write, output)
            seconds = time.perf_counter() - started
    from adjudge.bench.report import pair_table, summary_lines, write_pair_report
    from adjudge.bench.summary import PairRow, summarise

    lines = [
        PairRow(pair, verdict, known, note)
        for pair, verdict, known, note in zip(pairs, verdicts, expected, notes, strict=True)
    ]
    stats = engine.stats
    summary = summarise(
        lines, engine.name, chosen, seconds, stats.tokens_computed, stats.prompt_tokens, remembered=remembered
    )
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


@contextmanager
def _engine(model: str, adapter: Path | None, replicas: int, device: str, dtype: str) -> Iterator[EngineFace]:
    if replicas == 1:
        from adjudge.engine.engine import Engine

        yield Engine(model, adapter=adapter, device=device, dtype=dtype)
    else:
        from adjudge.engine.cluster.cluster_engine import ClusterEngine

        with ClusterEngine(model, replicas, adapter=adapter, device=device, dtype=dtype) as cluster:
            yield cluster


def _judge_all(
    judge: PairwiseJudge, pairs: Sequence[Pair], rows: Sequence[Row], write: Write, output: Path
) -> list[PairVerdict]:
    """Judge and write in input order; whatever stops it, the finished verdicts are in the journal."""
    verdicts: list[PairVerdict] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        keeping(output, lambda: f"{len(verdicts)} of {len(pairs)} verdicts are kept"),
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        task = progress.add_task("judging", total=len(pairs))
        for row, verdict in zip(rows, judge.compare_iter(pairs), strict=True):
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
