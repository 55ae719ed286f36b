from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.group import Group
from adjudge.rewards.grouping import grouped, place_of, same, text_of


def test_runs_of_equal_prompts_and_references_are_groups_and_the_reference_is_theirs() -> None:
    groups = grouped(
        ["p", "p", "p", "q", "p"],
        ["1", "2", "3", "4", "5"],
        {"reference": ["r", "r", "s", None, ""], "genre": ["a"] * 5, "log_extra": print, "trainer_state": 7},
    )
    assert groups == [
        Group("p", ("1", "2"), "r", columns={"genre": "a"}),
        Group("p", ("3",), "s", columns={"genre": "a"}),
        Group("q", ("4",), None, columns={"genre": "a"}),
        Group("p", ("5",), None, columns={"genre": "a"}),
    ]
    assert grouped([], [], {}) == []


def test_an_id_tells_groups_of_one_prompt_apart_and_is_no_column() -> None:
    groups = grouped(["p"] * 3, ["1", "2", "3"], {"id": [7, 7, 8], "genre": ["a"] * 3})
    assert groups == [
        Group("p", ("1", "2"), None, "7", {"genre": "a"}),
        Group("p", ("3",), None, "8", {"genre": "a"}),
    ]


def test_conversations_are_their_text() -> None:
    assert text_of([{"role": "user", "content": "Tell."}], "x") == "Tell."
    assert text_of([{"role": "system", "content": "Be."}, {"role": "user", "content": "Tell."}], "x") == (
        "system: Be.\n\nuser: Tell."
    )
    assert text_of([{"role": "assistant", "content": None}], "x") == ""
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert text_of([{"role": "user", "content": parts}], "x") == "ab"
    assert text_of([], "x") == ""
    prompt = [{"role": "user", "content": "p"}]
    plain = grouped(["p", "p"], ["a", "b"], {})
    [talked] = grouped([prompt, prompt], [[{"role": "assistant", "content": text}] for text in "ab"], {})
    assert talked.conversation == (("user", "p"),)
    assert [msgspec.structs.replace(talked, conversation=())] == plain


@pytest.mark.parametrize(
    ("prompts", "completions", "columns", "message"),
    [
        (["p"], ["a", "b"], {}, '"prompts" has 1 values for 2 completions'),
        (["p"], ["a"], {"genre": ["x", "y"]}, '"genre" has 2 values for 1 completions'),
        (["p"], ["a"], {"genre": 3}, '"genre" is int for 1 completions'),
        (["p"], ["a"], {"genre": "x"}, '"genre" is str for 1 completions'),
        (["p"], ["a"], {"genre": {"x": 1}}, '"genre" is dict for 1 completions'),
        (["p"], ["a"], {"genre": np.array(3)}, '"genre" is ndarray for 1 completions'),
        (["p"], [3], {}, r"completions\[0\] is int"),
        (["p"], [None], {}, r"completions\[0\] is None"),
        ([["p"]], ["a"], {}, r"prompts\[0\] is list"),
        (["p"], [[{"role": "user", "content": 3}]], {}, r"completions\[0\] has a message whose content is int"),
        (["p"], ["a"], {"reference": [3]}, r'"reference"\[0\] is int'),
    ],
)
def test_what_is_no_text_and_lists_of_unequal_length_are_named(
    prompts: Any, completions: Any, columns: Any, message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        grouped(prompts, completions, columns)


def test_other_columns_part_no_group_and_are_kept_for_each_response_where_they_differ() -> None:
    columns = {"step": [1, 2, 3], "genre": ("a",) * 3, "completion_ids": np.array([[1, 2], [1, 3], [1, 2]])}
    [group] = grouped(("p",) * 3, ["1", "2", "3"], columns)
    assert group == Group(
        "p",
        ("1", "2", "3"),
        columns={"genre": "a"},
        by_response={"step": [1, 2, 3], "completion_ids": [[1, 2], [1, 3], [1, 2]]},
    )


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_arrays_part_groups_by_their_shapes_and_entries(make: Any) -> None:
    values = [[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [1.0], [1.0], [[1.0]], [], []]
    for column in ([make(value) for value in values], [{"notes": [make(value)]} for value in values]):
        groups = grouped(["p"] * 8, list("abcdefgh"), {"id": column})
        assert [group.responses for group in groups] == [("a", "b"), ("c",), ("d", "e"), ("f",), ("g", "h")]
    prompt = [{"role": "user", "content": "p", "pixels": make([1.0, 2.0])}]
    other = [{"role": "user", "content": "p", "pixels": make([1.0, 3.0])}]
    assert [len(group.responses) for group in grouped([prompt, prompt, other], ["a", "b", "c"], {})] == [2, 1]


def test_values_of_columns_are_equal_where_they_say_the_same() -> None:
    nan = float("nan")
    alike: list[tuple[Any, Any]] = [
        (nan, float("nan")), (np.array([1.0, nan]), np.array([1.0, nan])), (1, 1.0), (np.float32(2), 2.0), ("a", "a"),
        ({"a": [1, nan]}, {"a": [1, float("nan")]}), (None, None), (np.array(["a", None]), np.array(["a", None])),
        (np.array([]), np.array([])),
    ]  # fmt: skip
    assert all(same(a, b) for a, b in alike)

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("not to be compared")

    different: list[tuple[Any, Any]] = [
        (np.array([1, 2]), np.array([1, 2, 3])), (np.array([1]), np.array([1, 1])), (torch.ones(2), torch.ones(3)),
        ([1], (1,)), ([1], [1, 2]), ({"a": 1}, {"b": 1}), ("1", 1), (None, 0.0), (nan, 0.0), (Odd(), Odd()),
        (np.array(["a"]), np.array([1])), (torch.ones(1), None), ({}, []), ("ab", ["a", "b"]),
    ]  # fmt: skip
    assert not any(same(a, b) or same(b, a) for a, b in different)


def test_errors_call_a_group_by_one_line_that_can_be_printed() -> None:
    assert place_of(Group("Tell\n me\ud800.", ()), 3) == 'group 3, prompt "Tell me\ufffd."'
    assert place_of(Group("word " * 100, (), id="x"), 3).startswith('group "x", prompt "word word')
    assert len(place_of(Group("word " * 10_000, ()), 3)) < 100
