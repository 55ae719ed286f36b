"""What goes into a judge: texts, and nothing that merely looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rubric import Criterion, Level, Rubric
from adjudge.rewards.records.verdict import Comparison, Item, Pair, each_of

NO_TEXTS = (["A story."], ("A story.",), {"text": "A story."}, [{"role": "user"}], b"A story.", float("nan"), 3)


@pytest.mark.parametrize("value", [*NO_TEXTS, None])
def test_what_is_no_text_is_refused_where_it_is_given(value: Any) -> None:
    for name in ("prompt", "response"):
        with pytest.raises(AdjudgeError, match=rf'item "7": {name} is .*, not a string: give its text'):
            Item(**{"prompt": "p", "response": "r", "id": "7", name: value})
    for name in ("a", "b", "prompt"):
        with pytest.raises(AdjudgeError, match=rf'pair "7": {name} is .*, not a string: give its text'):
            Pair(**{"a": "a", "b": "b", "prompt": "p", "id": "7", name: value})


@pytest.mark.parametrize("value", NO_TEXTS)
def test_what_may_be_left_out_is_a_text_where_it_is_given(value: Any) -> None:
    for name in ("reference", "genre"):
        with pytest.raises(AdjudgeError, match=f'item "": {name} is '):
            Item(**{"prompt": "p", "response": "r", name: value})
    for name in ("prompt_a", "prompt_b"):
        with pytest.raises(AdjudgeError, match=f'pair "": {name} is '):
            Pair(**{"a": "a", "b": "b", "prompt": "p", name: value})


@pytest.mark.parametrize("preferred", ["A", "first", "", None, 1])
def test_a_choice_is_one_of_the_two_plots(preferred: Any) -> None:
    with pytest.raises(AdjudgeError, match='say which plot it was, "a" or "b"'):
        Comparison("One.", "Other.", preferred)


def test_a_story_beside_one_with_a_prompt_of_its_own_needs_one_too() -> None:
    for name, other in (("prompt_a", "prompt_b"), ("prompt_b", "prompt_a")):
        with pytest.raises(AdjudgeError, match=f'pair "7": {other} is missing: give each story its prompt'):
            Pair("a", "b", id="7", **{name: "p"})
    assert Pair("a", "b", "both", prompt_a="p").prompts == ("p", "both")


def test_reviews_and_a_rubric_are_objects_of_their_own_kinds() -> None:
    review: Any = {"plot": "x", "review": "y", "score": 3}
    for build, message in [
        (
            lambda: Item("p", "r", "7", reviews=(review,)),
            r'item "7": .* is among its reviews: give Review\(…\) objects',
        ),
        (lambda: Pair("a", "b", "p", id="7", reviews=(review,)), r'pair "7": .* give Comparison\(…\) objects'),
        (lambda: Item("p", "r", "7", rubric=[review]), r'item "7": rubric is .*: give a Rubric'),  # type: ignore[arg-type]
        (lambda: Item("p", "r", "7", rubric=review), r'item "7": rubric: .* unknown field `plot` \(a rubric has'),
    ]:
        with pytest.raises(AdjudgeError, match=message):
            build()


def test_a_list_holds_one_kind_of_thing() -> None:
    groups: Any = Group("p", ("a",))
    for given, message in ((groups, "is no list of Groups"), ([Item("p", "r")], "is no Group")):
        with pytest.raises(AdjudgeError, match=message):
            list(each_of(given, Group))
    assert list(each_of(iter([groups]), Group)) == [groups]


@pytest.mark.parametrize("columns", [5, "x", None, [1], {1: "x"}])
def test_columns_of_an_item_are_given_by_their_names(columns: Any) -> None:
    with pytest.raises(AdjudgeError, match=r'item "a": columns is .*: give them by their names'):
        Item("p", "r", id="a", columns=columns)


def test_items_are_told_apart_in_a_set_whatever_their_columns_hold() -> None:
    some = [Item("p", "r", columns={"level": [number]}) for number in (1, 2, 1)]
    assert len({*some}) == 2 and some[2] in {*some}


def test_an_items_rubric_may_be_written_as_files_have_it() -> None:
    own = {"criteria": [{"name": "Plot", "text": "Is there one?", "levels": {"1": "no", "2-3": "yes"}}]}
    criterion = Criterion("Plot", "Is there one?", levels=(Level(1, 1, "no"), Level(2, 3, "yes")))
    assert Item("p", "r", rubric=own) == Item("p", "r", rubric=Rubric((criterion,)))  # type: ignore[arg-type]


def test_items_are_equal_and_one_in_a_set_whatever_the_order_of_their_columns() -> None:
    columns = [("a", 1), ("b", [2])]
    one, other = (Item("p", "r", columns=dict(named)) for named in (columns, columns[::-1]))
    assert one == other and len({one, other}) == 1
