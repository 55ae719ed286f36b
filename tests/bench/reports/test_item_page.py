from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from adjudge.bench.reports.item_page import bins_of, lines_of, render_items, scale_of
from adjudge.bench.reports.items import ItemRow, summarise_items
from adjudge.bench.reports.run_cost import RunCost
from adjudge.rewards.records.verdict import Item, Part, Verdict
from tests.bench.reports.parsed_page import HOSTILE, Page, check_first_rows

TREE = {
    "content/opening": Part(7.0, 0.5, (0.1,) * 10, 0.8),
    "content/argument": Part(None, 0.5, mass=0.001, abstained="low_mass"),
    "content": Part(7.0, 1.0),
    "impression": Part(3.0, 1.0, (0.1, 0.2, 0.3, 0.4), 0.9),
}


def row(name: str = "one", score: float | None = 3.0, words: str = "A story.") -> ItemRow:
    reason = None if score is not None else "timeout"
    verdict = Verdict(name, score, TREE, reason, False, "tiny", "key", analysis={"impression": (words, "Second.")})  # type: ignore[arg-type]
    return ItemRow(Item(prompt=words, response=words, id=name, reference=words), verdict)


def page(rows: list[ItemRow]) -> Page:
    return Page(render_items(rows, summarise_items(rows, RunCost("tiny", 1.0, 10, 20)), title="A title"))


def test_every_text_part_and_analysis_is_on_the_page() -> None:
    found = page([row(), row("two", 4.5)])
    assert found.stories == ["A story.", "A story.", "A story.", "Second."] * 2
    assert [link["href"] for link in found.all("a")] == ["#item-1", "#item-2"]
    assert len(found.all("svg", "histogram")) == 4 and len(found.all("article")) == 2
    assert len(found.all("svg", "scatter")) == 1 and len(found.all("svg", "bins")) == 1
    assert "abstained: the model gave the labels too little of its probability, mass 0.001" in found.source


def test_scores_stand_where_they_belong() -> None:
    rows = [row("low", 1.0), row("none", None), row("middle", 2.0), row("high", 5.0)]
    dots = [dot["cx"] for dot in page(rows).all("circle", "dot")]
    assert dots == ["0.00%", "25.00%", "100.00%"]


def test_hostile_texts_change_nothing_but_themselves() -> None:
    def tags(words: str) -> list[str]:
        branches = {f"{words}/leaf": Part(1.0, 1.0, (0.5, 0.5), 0.9), words: Part(None, abstained="unparsable")}
        verdict = msgspec.structs.replace(row(words=words).verdict, breakdown=branches, analysis={words: (words,)})
        found = page([ItemRow(Item(words, words, words, words), verdict)])
        assert "<script" not in found.source and "\u202e" not in found.source and "\x1b" not in found.source
        return [tag for tag, _ in found.tags if tag != "i"]

    assert tags(HOSTILE.replace("/", "")) == tags("calm")


def test_the_page_needs_nothing_else() -> None:
    found = page([row()])
    assert not re.search(r"https?:|url\(|@import|//[a-z]", found.source)
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "base", "form"})


def test_leaves_stand_under_their_branches() -> None:
    lines = [(line.label, line.depth, line.part is None) for line in lines_of(row().verdict)]
    assert lines == [("opening", 1, False), ("argument", 1, False), ("content", 0, False), ("impression", 0, False)]
    parts = {"a/b/x": Part(1.0), "a/b/y": Part(1.0), "a/z": Part(1.0)}
    verdict = msgspec.structs.replace(row().verdict, breakdown=parts)
    labels = [(line.label, line.depth) for line in lines_of(verdict)]
    assert labels == [("a", 0), ("b", 1), ("x", 2), ("y", 2), ("z", 1)]


def test_labels_are_shown_only_where_the_score_tells_them() -> None:
    assert scale_of(Part(3.0, 1.0, (0.1, 0.2, 0.3, 0.4))) == ["1", "2", "3", "4"]
    assert scale_of(Part(0.25, 1.0, (0.75, 0.25))) == ["0", "1"]
    assert scale_of(Part(5.0, 1.0, (0.0, 0.5, 0.5))) is None
    assert scale_of(Part(1.0)) is None


def test_bins_hold_every_score_once() -> None:
    scores = [1.0, 1.5, 2.0, 5.0, 5.0]
    bins = bins_of(scores)
    assert sum(count for _, _, count in bins) == 5 and (bins[0][0], bins[-1][1]) == (1.0, 5.0)
    assert bins_of([]) == [] and sum(count for _, _, count in bins_of([2.0])) == 1


def test_no_items_and_no_scores_make_a_page_too() -> None:
    assert "0 of 0" in page([]).source
    silent = page([row(score=None)])
    assert "and none has a score" in silent.source and not silent.all("circle", "dot")


class Asked(dict[str, Part]):
    """A breakdown that counts how often it is asked for a part."""

    times = 0

    def get(self, name: str, default: Any = None) -> Any:
        Asked.times += 1
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        Asked.times += 1
        return super().__contains__(name)

    def __getitem__(self, name: str) -> Part:
        Asked.times += 1
        return super().__getitem__(name)


def test_parts_that_only_one_item_has_are_not_looked_for_in_all_of_them() -> None:
    own = [{f"criterion {place}": Part(3.0, 1.0, mass=0.9), "style": Part(place, mass=0.9)} for place in range(20)]
    rows = [
        ItemRow(one.item, msgspec.structs.replace(one.verdict, breakdown=Asked(parts)))
        for one, parts in zip([row()] * len(own), own, strict=True)
    ]
    found = page(rows)
    assert [title["class"] for title in found.all("svg", "cloud")] == ["strip cloud"]
    assert "20 further parts, of single texts" in found.source
    assert Asked.times <= 2 * len(rows)


def test_of_many_items_the_first_are_drawn_and_the_page_says_how_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    check_first_rows(page, [row(f"item {place}") for place in range(5)], monkeypatch)
