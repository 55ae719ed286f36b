"""What goes into a tournament: a list of texts."""

from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.group import Group


@pytest.mark.parametrize("responses", ["abc", {"a", "b"}, None, (text for text in "ab")])
def test_responses_are_a_list_and_no_letters_of_one(responses: Any) -> None:
    with pytest.raises(AdjudgeError, match='group "7": responses is .*: give a list of strings'):
        Group("p", responses, id="7")


def test_a_response_that_is_no_text_is_named() -> None:
    with pytest.raises(AdjudgeError, match='group "7": response 2 is None, not a string: give its text'):
        Group("p", ["a", None], id="7")  # type: ignore[list-item]
    for given in ({"prompt": None}, {"reference": 3}):
        with pytest.raises(AdjudgeError, match="not a string: give its text"):
            Group(**{"prompt": "p", "responses": ("a",), **given})  # type: ignore[arg-type]


def test_each_response_has_its_value_in_a_column_whether_they_share_it_or_not() -> None:
    group = Group("p", ("a", "b"), "r", "7", {"genre": "g"}, by_response={"turns": [1, 2]})
    assert group.names == ["genre", "turns", "reference", "id"]
    assert [[*group.values(name)] for name in (*group.names, "other")] == [
        ["g", "g"], [1, 2], ["r", "r"], ["7", "7"], [None, None],
    ]  # fmt: skip
    assert Group("p", ("a",)).names == []
    with pytest.raises(AdjudgeError, match='group "7": 1 values of "turns" for 2 responses: give one for each'):
        Group("p", ("a", "b"), id="7", by_response={"turns": [1]})


def test_other_texts_stand_in_the_places_of_the_responses_and_where_there_is_none_nothing_does() -> None:
    group = Group("p", ("a", "b", "c"), "r", "7", {"genre": "g"}, (("user", "p"),), {"turns": [1, 2, 3]})
    assert group.showing(["x", None, "z"]) == Group(
        "p", ["x", "z"], "r", "7", {"genre": "g"}, (("user", "p"),), {"turns": [1, 3]}
    )
    assert group.showing([None] * 3).by_response == {"turns": []}


def test_errors_call_a_group_by_one_line_that_can_be_printed() -> None:
    assert Group("Tell\n me\ud800.", ()).place(3) == 'group 3, prompt "Tell me\ufffd."'
    assert Group("word " * 100, (), id="x").place(3).startswith('group "x", prompt "word word')
    assert len(Group("word " * 10_000, ()).place(3)) < 100
