from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.group import Group
from adjudge.rewards.grouping import grouped, place_of, text_of


def test_runs_of_equal_prompts_and_columns_are_groups_and_the_reference_is_theirs() -> None:
    groups = grouped(
        ["p", "p", "p", "q", "p"],
        ["1", "2", "3", "4", "5"],
        {"reference": ["r", "r", "s", None, ""], "genre": ["a"] * 5, "completion_ids": [[1]] * 2, "trainer_state": 7},
    )
    assert groups == [
        Group("p", ("1", "2"), "r", columns={"genre": "a"}),
        Group("p", ("3",), "s", columns={"genre": "a"}),
        Group("q", ("4",), None, columns={"genre": "a"}),
        Group("p", ("5",), None, columns={"genre": "a"}),
    ]
    assert grouped([], [], {}) == []


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


def test_errors_call_a_group_by_one_line_that_can_be_printed() -> None:
    assert place_of(Group("Tell\n me\ud800.", ()), 3) == 'group 3, prompt "Tell me\ufffd."'
    assert place_of(Group("word " * 100, (), id="x"), 3).startswith('group "x", prompt "word word')
    assert len(place_of(Group("word " * 10_000, ()), 3)) < 100
