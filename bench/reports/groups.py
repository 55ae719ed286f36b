"""What ranked groups add up to: numbers, a table and lines for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from rich.table import Table
from rich.text import Text

from adjudge.bench.reports.length import LengthEffect, length_line, length_of_groups
from adjudge.bench.reports.run_cost import RunCost
from adjudge.bench.words import abstentions
from adjudge.engine.score import Reason
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.visible import in_a_line, visible
from adjudge.training.terminal import cell, counted, ruled_table


class GroupRow(msgspec.Struct, frozen=True):
    """A group, and how its responses rank."""

    group: Group
    verdict: GroupVerdict


class GroupSummary(msgspec.Struct, frozen=True):
    """Counts over the groups of one run; `abstained` are pairs, by reason, `truncated` are groups."""

    cost: RunCost
    groups: int
    pairs: int
    abstained: dict[Reason, int]
    truncated: int
    length: LengthEffect


def summarise_groups(rows: Sequence[GroupRow], cost: RunCost) -> GroupSummary:
    """The summary of `rows`."""
    verdicts = [row.verdict for row in rows]
    return GroupSummary(
        cost=cost,
        groups=len(rows),
        pairs=sum(len(verdict.outcomes) for verdict in verdicts),
        abstained=dict(sum((verdict.abstentions for verdict in verdicts), Counter())),
        truncated=sum(verdict.truncated for verdict in verdicts),
        length=length_of_groups([(row.group, row.verdict) for row in rows]),
    )


def group_table(verdicts: Sequence[GroupVerdict]) -> Table:
    """One line for each group."""
    table = ruled_table("group", "responses", "pairs", "abstained", "best (from 0)", "strength", "P(beats reference)")
    for verdict in verdicts:
        best = verdict.best
        over = None if best is None or verdict.preferences is None else verdict.preferences[best]
        table.add_row(
            Text(in_a_line(verdict.id)),
            str(len(verdict.strengths)),
            str(len(verdict.outcomes)),
            str(verdict.abstentions.total()),
            cell(best),
            "" if best is None else f"{verdict.strengths[best]:+z.2f}",
            cell(over, ".2f"),
        )
    return table


def group_lines(summary: GroupSummary) -> list[str]:
    """The run in a few plain sentences."""
    cost = summary.cost
    lines = [
        f"{cost.model}: {counted(summary.groups, 'group')}, {counted(summary.pairs, 'pair')}",
        abstentions(summary.abstained, summary.pairs),
        f"length: {length_line(summary.length)}",
        *cost.lines(summary.pairs, "pair"),
    ]
    return [visible(line) for line in lines]
