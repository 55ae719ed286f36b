from __future__ import annotations

from typing import get_args

from adjudge.engine.completion import Completion, FinishReason


def test_a_text_is_missing_for_its_reason_unless_it_came_to_an_end_or_was_cut_short() -> None:
    found = {ended: Completion(0, 0, "", (), ended).missing for ended in get_args(FinishReason)}
    assert found.pop("stop") is found.pop("length") is None
    assert found == {ended: ended for ended in found} and len(found) == 4
