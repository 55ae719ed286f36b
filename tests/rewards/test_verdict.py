"""What goes into a judge: texts, and nothing that merely looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.verdict import Comparison, Item, Pair

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
