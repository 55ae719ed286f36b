"""What a run comes to: a table and lines on the terminal, and one HTML file if it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Console

from adjudge.bench.reports.run_cost import RunCost
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.kinds import OF_PAIRS
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.rows import Row
from adjudge.rewards.visible import in_a_line
from adjudge.training.terminal import open_console

EXPECTED = ("a", "b", "tie")
SHOWN = 40
"""Rows of the table on a terminal; all are in the output and the report."""


def intentions(rows: Sequence[Row]) -> list[tuple[Literal["a", "b", "tie"] | None, str | None]]:
    """Which story of each pair was meant to be better, and the author's note; raises AdjudgeError naming the line."""
    notes = (row.columns.get("note") for row in rows)
    return [(_expected(row), None if note is None else str(note)) for row, note in zip(rows, notes, strict=True)]


def show_results(
    judge: str,
    what: Literal["pairs", "items"],
    rows: Sequence[Row],
    subjects: Sequence[Any],
    verdicts: Sequence[Any],
    cost: RunCost,
    *,
    title: str,
    report: Path | None,
    labels: Sequence[bool | None] | None = None,
    to_stderr: bool = False,
) -> None:
    """Print what the verdicts of a judge on `what` say, and write it as `report`.

    Beside people's labels, where there are any.
    """
    console = open_console(120, stderr=to_stderr)
    if what == "items":
        from adjudge.bench.reports.item_page import render_items
        from adjudge.bench.reports.items import ItemRow, item_lines, item_table, summarise_items
        from adjudge.bench.reports.labels import label_lines

        items = [ItemRow(item, verdict) for item, verdict in zip(subjects, verdicts, strict=True)]
        totals = summarise_items(items, _named(cost, judge))
        console.print(item_table(verdicts[:SHOWN], width=console.width))
        _print_more(console, len(verdicts))
        _print(console, item_lines(totals) + ([] if labels is None else label_lines(verdicts, labels)))
        _write(console, report, lambda: render_items(items, totals, title=title))
        return
    from adjudge.bench.reports.pair_summary import PairRow, summarise
    from adjudge.bench.reports.pairs import pair_table, render, summary_lines

    pairs = [
        PairRow(pair, verdict, expected, note)
        for pair, verdict, (expected, note) in zip(subjects, verdicts, intentions(rows), strict=True)
    ]
    summary = summarise(pairs, _named(cost, judge))
    console.print(pair_table(pairs[:SHOWN], summary, width=console.width))
    _print_more(console, len(pairs))
    _print(console, summary_lines(summary))
    _write(console, report, lambda: render(pairs, summary, title=title))


def show_rankings(
    judge: str,
    groups: Sequence[Group],
    verdicts: Sequence[GroupVerdict],
    cost: RunCost,
    *,
    title: str,
    report: Path | None,
    to_stderr: bool = False,
) -> None:
    """The same for groups."""
    from adjudge.bench.reports.group_page import render_groups
    from adjudge.bench.reports.groups import GroupRow, group_lines, group_table, summarise_groups

    console = open_console(120, stderr=to_stderr)
    rows = [GroupRow(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)]
    totals = summarise_groups(rows, _named(cost, judge))
    console.print(group_table(verdicts[:SHOWN]))
    _print_more(console, len(verdicts))
    _print(console, group_lines(totals))
    _write(console, report, lambda: render_groups(rows, totals, title=title))


def _named(cost: RunCost, judge: str) -> RunCost:
    """The cost, with the judge as which the model was asked beside its name."""
    return msgspec.structs.replace(cost, model=f"{cost.model}, {judge.removesuffix(OF_PAIRS)}")


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=console.file)


def _print_more(console: Console, rows: int) -> None:
    if rows > SHOWN:
        _print(console, [f"… and {rows - SHOWN:,} more, which the output has", ""])


def _write(console: Console, report: Path | None, page: Callable[[], str]) -> None:
    if report is None:
        return
    from adjudge.bench.reports.page import write_page

    try:
        write_page(report, page())
    except OSError as error:
        raise AdjudgeError(f"cannot write {report} ({error.strerror}): name another with --report") from error
    _print(console, [in_a_line(f"report:   {report}")])


def _expected(row: Row) -> Literal["a", "b", "tie"] | None:
    value = row.optional_text("expected", "the comparison")
    if value is None:
        return None
    if value not in EXPECTED:
        raise AdjudgeError(f'{row.place}: "expected" is "{value[:40]}": write a, b or tie, or leave it out')
    return value  # type: ignore[return-value]
