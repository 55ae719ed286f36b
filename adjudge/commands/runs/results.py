"""What a run comes to: a table and lines on the terminal, and one HTML file if it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Console

from adjudge.bench.reports.run_cost import RunCost
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.kinds import OF_PAIRS
from adjudge.rewards.records.rows import Row
from adjudge.rewards.visible import in_a_line
from adjudge.training.terminal import open_console

EXPECTED = ("a", "b", "tie")
SHOWN = 40
"""Rows of the table on a terminal; all are in the output."""


def intentions(rows: Sequence[Row]) -> list[tuple[Literal["a", "b", "tie"] | None, str | None]]:
    """Which story of each pair was meant to be better, and the author's note; raises AdjudgeError naming the line."""
    notes = (row.columns.get("note") for row in rows)
    return [(_expected(row), None if note is None else str(note)) for row, note in zip(rows, notes, strict=True)]


def show_results(
    judge: str,
    what: Literal["pairs", "items", "groups"],
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
    cost = msgspec.structs.replace(cost, model=f"{cost.model}, {judge.removesuffix(OF_PAIRS)}")  # as which it was asked
    both = zip(subjects, verdicts, strict=True)
    if what == "items":
        from adjudge.bench.reports.item_page import render_items
        from adjudge.bench.reports.items import ItemRow, item_lines, item_table, summarise_items
        from adjudge.bench.reports.labels import label_lines

        items = [ItemRow(*one) for one in both]
        of_items = summarise_items(items, cost)
        table = item_table(verdicts[:SHOWN], width=console.width)
        lines = item_lines(of_items) + ([] if labels is None else label_lines(verdicts, labels))
        page = partial(render_items, items, of_items, title=title)
    elif what == "groups":
        from adjudge.bench.reports.group_page import render_groups
        from adjudge.bench.reports.groups import GroupRow, group_lines, group_table, summarise_groups

        groups = [GroupRow(*one) for one in both]
        of_groups = summarise_groups(groups, cost)
        table, lines = group_table(verdicts[:SHOWN]), group_lines(of_groups)
        page = partial(render_groups, groups, of_groups, title=title)
    else:
        from adjudge.bench.reports.pair_summary import PairRow, summarise
        from adjudge.bench.reports.pairs import pair_table, render, summary_lines

        pairs = [PairRow(*one, *meant) for one, meant in zip(both, intentions(rows), strict=True)]
        of_pairs = summarise(pairs, cost)
        table, lines = pair_table(pairs[:SHOWN], of_pairs, width=console.width), summary_lines(of_pairs)
        page = partial(render, pairs, of_pairs, title=title)
    console.print(table)
    if len(verdicts) > SHOWN:
        lines = [f"… and {len(verdicts) - SHOWN:,} more, which the output has", "", *lines]
    for line in lines:
        print(line, file=console.file)
    _write(console, report, page)


def _write(console: Console, report: Path | None, page: Callable[[], str]) -> None:
    if report is None:
        return
    from adjudge.bench.reports.page import write_page

    try:
        write_page(report, page())
    except OSError as error:
        raise AdjudgeError(f"cannot write {report} ({error.strerror}): name another with --report") from error
    print(in_a_line(f"report:   {report}"), file=console.file)


def _expected(row: Row) -> Literal["a", "b", "tie"] | None:
    value = row.optional_text("expected", "the comparison")
    if value is None:
        return None
    if value not in EXPECTED:
        raise AdjudgeError(f'{row.place}: "expected" is "{value[:40]}": write a, b or tie, or leave it out')
    return value  # type: ignore[return-value]
