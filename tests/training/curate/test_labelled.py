from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item
from adjudge.training.curate.labelled import Labelled, divide, labelled_of
from tests.training.curate.world import labelled


def row(n: int, **columns: Any) -> Row:
    return Row(f"line {n}", {"prompt": f"p{n}", "response": "r", "label": n % 2, **columns})


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row(0), row(1, label=None)], 'line 1: "label" is missing'),
        ([row(0), row(1, label=0.7)], 'line 1: "label" is 0.7'),
        ([row(0), row(2)], "every label is 0: give good texts"),
        ([row(0), row(1, prompt="p0")], "line 1: this text has the other label in an earlier row"),
        ([row(0), row(1, response=3)], 'line 1: "response" is 3, not a string'),
    ],
)
def test_rows_that_cannot_be_learnt_from_are_refused(rows: list[Row], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        labelled_of(rows)


def test_no_prompt_is_on_both_sides_and_each_side_has_both_labels() -> None:
    texts = [Labelled(Item(f"p{n // 3}", f"r{n}", id=str(n)), n % 4 == 0) for n in range(60)]
    division = divide(texts, 0.3, 0)
    sides = [{one.item.prompt for one in side} for side in (division.learnt, division.held_out)]
    assert sides[0].isdisjoint(sides[1]) and len(sides[1]) == 6
    assert all({one.good for one in side} == {True, False} for side in (division.learnt, division.held_out))
    assert sorted((*division.learnt, *division.held_out), key=lambda one: int(one.item.id)) == texts


def test_a_prompt_is_on_one_side_however_it_is_spaced() -> None:
    texts = [Labelled(Item(f"p {n // 3}" + ("", " ", "\n")[n % 3], "r", id=str(n)), n % 2 == 0) for n in range(60)]
    division = divide(texts, 0.3, 0)
    sides = [{one.item.prompt.strip() for one in side} for side in (division.learnt, division.held_out)]
    assert sides[0].isdisjoint(sides[1]) and len(sides[1]) == 6


def test_the_division_depends_on_the_seed_and_not_on_the_order() -> None:
    def held(texts: list[Labelled], seed: int) -> set[str]:
        return {one.item.id for one in divide(texts, 0.3, seed).held_out}

    assert held(labelled(), 0) == held(labelled()[::-1], 0) != held(labelled(), 1)
    assert len(held(labelled(), 0)) == 6


@pytest.mark.parametrize(
    ("texts", "share", "reason"),
    [
        (labelled(2), 0.3, "no good texts held out"),
        (labelled(2), 0.9, "no good texts to learn from"),
        (labelled(), 0.0, "the share held out is 0.0"),
        (labelled(), 1.0, "the share held out is 1.0"),
    ],
)
def test_a_side_without_both_labels_is_refused(texts: list[Labelled], share: float, reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        divide(texts, share, 0)


def test_rounds_see_as_many_good_texts_as_others_and_each_round_its_own() -> None:
    division = divide(labelled(40), 0.3, 0)
    first, second = (division.some_texts(8, 0, number) for number in (1, 2))
    assert [one.good for one in first] == [True] * 4 + [False] * 4 and first != second
    assert first == division.some_texts(8, 0, 1) and len(division.some_texts(100, 0, 1)) == len(division.learnt)
    assert len(set(division.some_prompts(5, 0, 1))) == 5 and division.some_prompts(5, 0, 1) != division.some_prompts(
        5, 1, 1
    )
