"""The report of ranked groups as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adjudge.bench.reports.groups import GroupRow, GroupSummary
from adjudge.bench.reports.page import Axis, render_page

REACH = 1.96
"""Standard errors on each side of a strength: a 95 % interval."""


class Member(msgspec.Struct, frozen=True):
    """A response (or the reference, place None) with its strength, and how its comparisons went."""

    place: int | None
    text: str
    strength: float | None
    error: float | None
    preference: float | None
    won: int
    met: int

    @property
    def name(self) -> str:
        """What it is called."""
        return "reference" if self.place is None else f"response {self.place}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the strength, None where its error is not known."""
        if self.strength is None or self.error is None:
            return None
        return self.strength - REACH * self.error, self.strength + REACH * self.error


def render_groups(rows: Sequence[GroupRow], summary: GroupSummary, *, title: str) -> str:
    """The rows as one HTML page without scripts or references."""
    groups = [(row, members_of(row)) for row in rows]
    ends = [
        value
        for _, members in groups
        for member in members
        for value in (member.interval or (member.strength, member.strength))
        if value is not None
    ]
    return render_page("groups.html.jinja", title=title, groups=groups, summary=summary, axis=Axis.over(ends))


def members_of(row: GroupRow) -> list[Member]:
    """The members of a group, the strongest first, those without a strength last."""
    group, verdict = row.group, row.verdict
    preferences = verdict.preferences or (None,) * len(verdict.strengths)
    members = [
        Member(place, text, strength, error, preference, *_met(row, place))
        for place, (text, strength, error, preference) in enumerate(
            zip(group.responses, verdict.strengths, verdict.errors, preferences, strict=True)
        )
    ]
    if group.reference is not None:
        members.append(Member(None, group.reference, verdict.reference_strength, None, None, *_met(row, None)))
    return sorted(members, key=lambda member: (member.strength is None, -(member.strength or 0.0)))


def _met(row: GroupRow, place: int | None) -> tuple[int, int]:
    """How many answered comparisons a member won, and was in; of equal texts the first one's."""
    if place is not None:
        place = list(row.group.responses).index(row.group.responses[place])
    asked = [(outcome.a, outcome.b, outcome.preference) for outcome in row.verdict.outcomes]
    as_a = [p for a, _, p in asked if a == place and p is not None]
    as_b = [1 - p for _, b, p in asked if b == place and p is not None]
    return sum(p > 0.5 for p in as_a + as_b), len(as_a) + len(as_b)
