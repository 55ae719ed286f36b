from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest

from adjudge.bench.reports.group_page import members_of, render_groups
from adjudge.bench.reports.groups import GroupRow, group_lines, summarise_groups
from adjudge.bench.reports.run_cost import RunCost
from adjudge.rewards.records.group import Group, GroupVerdict, Outcome
from tests.bench.reports.parsed_page import HOSTILE, Page, check_first_rows


def row(words: str = "calm") -> GroupRow:
    group = Group(words, [f"{words} one", f"{words} two", f"{words} one", words], f"{words} reference", words)
    outcomes = (
        Outcome(0, 1, 0.3, None, "k"),
        Outcome(1, None, 0.9, None, "k"),
        Outcome(None, 0, 0.2, None, "k"),
        Outcome(0, 3, None, "low_mass", "k"),
    )
    verdict = GroupVerdict(
        words, (0.5, 1.0, 0.5, None), (0.25, 0.5, 0.25, None), -1.5, (0.88, 0.92, 0.88, None), outcomes, None, False,
        "tiny", "key",
    )  # fmt: skip
    return GroupRow(group, verdict)


def page(rows: list[GroupRow]) -> Page:
    return Page(render_groups(rows, summarise_groups(rows, RunCost("tiny", 1.0, 10, 20)), title="A title"))


def test_members_come_strongest_first_with_what_they_won() -> None:
    members = members_of(row())
    assert [member.name for member in members] == ["response 1", "response 0", "response 2", "reference", "response 3"]
    assert [(member.won, member.met) for member in members] == [(2, 2), (1, 2), (1, 2), (0, 2), (0, 0)]
    assert members[0].interval == pytest.approx((0.02, 1.98)) and members[3].interval is None


def test_the_page_draws_strengths_with_their_intervals() -> None:
    found = page([row()])
    assert len(found.all("circle", "dot")) == 4 and len(found.all("line", "error")) == 3
    places = [float(dot["cx"].rstrip("%")) for dot in found.all("circle", "dot")]
    assert places == sorted(places, reverse=True) and places[-1] == 0.0
    assert len(found.stories) == 5 and "Pairs without an answer: 1 low_mass" in found.source
    assert "response 1 is strongest" in found.source


def test_hostile_texts_change_nothing_but_themselves() -> None:
    hostile, calm = ([tag for tag, _ in page([row(words)]).tags if tag != "i"] for words in (HOSTILE, "calm"))
    assert hostile == calm
    assert not re.search(r"url\(|@import|\u202e|\x1b|<script", page([row(HOSTILE)]).source)


def test_a_group_without_answers_and_no_groups_make_pages_too() -> None:
    verdict = msgspec.structs.replace(
        row().verdict, strengths=(None,) * 4, errors=(None,) * 4, reference_strength=None, preferences=None,
        abstained="low_mass",
    )  # fmt: skip
    silent = page([GroupRow(row().group, verdict)])
    assert "no ranking" in silent.source and "No pair was answered" in silent.source
    assert "0 groups ranked" in page([]).source


def test_the_lines_count_pairs_abstentions_and_work() -> None:
    lines = group_lines(summarise_groups([row()], RunCost("tiny", 1.0, 10, 20)))
    assert lines[:2] == ["tiny: 1 group, 4 pairs", "abstained on 1 of 4: 1 low_mass"]
    assert lines[-2:] == ["computed 10 of 20 tokens asked for (1 in 2.0)", "1.0 s, 4.00 pairs/s"]


class Counted(tuple[Outcome, ...]):
    """Outcomes that count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[Outcome]:
        self.times += 1
        return super().__iter__()


def test_the_outcomes_of_a_group_are_gone_through_once_for_all_of_its_members() -> None:
    counted = msgspec.structs.replace(row().verdict, outcomes=Counted(row().verdict.outcomes))
    assert members_of(GroupRow(row().group, counted)) == members_of(row())
    assert isinstance(counted.outcomes, Counted) and counted.outcomes.times == 1


def test_of_many_groups_the_first_are_drawn_and_the_page_says_how_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    check_first_rows(page, [row(f"group {place}") for place in range(5)], monkeypatch)
