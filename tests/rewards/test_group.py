"""What goes into a tournament: a list of texts."""

from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.group import Group


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
