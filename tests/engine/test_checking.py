from __future__ import annotations

import math

import numpy as np
import pytest

from adjudge.engine.checking import at_least
from adjudge.engine.errors import AdjudgeError


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0"), ("2", "'2'"), (None, "None"), (2.5, "2.5"), (math.nan, "nan"), (math.inf, "inf")]
)
def test_what_is_no_whole_number_or_too_small_is_named_in_a_sentence(value: object, told: str) -> None:
    at_least(1, sets=1, pages=np.int64(2))
    with pytest.raises(AdjudgeError, match=f"^pages is {told}: give (a whole number of )?at least 1$"):
        at_least(1, sets=1, pages=value)
