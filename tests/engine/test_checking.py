from __future__ import annotations

import pytest

from adjudge.engine.checking import at_least
from adjudge.engine.errors import AdjudgeError


@pytest.mark.parametrize(("value", "told"), [(0, "0"), ("2", "'2'"), (None, "None")])
def test_what_is_no_number_or_too_small_is_named_in_a_sentence(value: object, told: str) -> None:
    at_least(1, sets=1, pages=2.5)
    with pytest.raises(AdjudgeError, match=f"^pages is {told}: give at least 1$"):
        at_least(1, sets=1, pages=value)
