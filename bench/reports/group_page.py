"""The report of ranked groups as one HTML file that needs nothing else."""

from __future__ import annotations

from collections import Counter
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
    return render_page("groups.html.jinja", groups, title=title, summary=summary, axis=Axis.over(ends))


def members_of(row: GroupRow) -> list[Member]:
    """The members of a group, the strongest first, those without a strength last."""
    group, verdict = row.group, row.verdict
    preferences = verdict.preferences or (None,) * len(verdict.strengths)
    won, met = Counter[int | None](), Counter[int | None]()
    for outcome in verdict.outcomes:
        if outcome.preference is not None:
            met.update((outcome.a, outcome.b))
            won[outcome.a] += outcome.preference > 0.5
            won[outcome.b] += 1 - outcome.preference > 0.5
    first: dict[str, int] = {}  # of equal texts, in whose name they were compared
    for place, text in enumerate(group.responses):
        first.setdefault(text, place)
    members = [
        Member(place, text, strength, error, preference, won[first[text]], met[first[text]])
        for place, (text, strength, error, preference) in enumerate(
            zip(group.responses, verdict.strengths, verdict.errors, preferences, strict=True)
        )
    ]
    if group.reference is not None:
        members.append(Member(None, group.reference, verdict.reference_strength, None, None, won[None], met[None]))
    return sorted(members, key=lambda member: (member.strength is None, -(member.strength or 0.0)))
