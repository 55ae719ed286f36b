from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.training.grpo.unrewarded import unrewarded


def line(abstained: float, split: str = "train", **reasons: float) -> dict[str, Any]:
    return {"split": split, "r/abstained": abstained} | {f"r/abstained/{name}": one for name, one in reasons.items()}


def test_a_tenth_without_a_reward_is_told_with_the_commonest_reason() -> None:
    told = unrewarded([line(0.5, timeout=0.5, low_mass=0.0), line(0.0, timeout=0.0, low_mass=0.25)], "r")
    assert told == '25% of the completions got no reward, most often as "timeout" (r/abstained in the metrics)'
    assert unrewarded([line(0.1, timeout=0.1), line(1.0, "held_out", timeout=1.0)], "r") is None


@pytest.mark.parametrize("lines", [[], [{"split": "train", "loss": 0.0}], [line(1.0, "held_out")]])
def test_what_was_not_logged_is_not_told(lines: list[dict[str, Any]]) -> None:
    assert unrewarded(lines, "r") is None


def test_a_run_without_any_reward_is_an_error_that_says_why() -> None:
    with pytest.raises(AdjudgeError, match=r'no completion .* a reward \("low_mass"\), .* learned: lower min_mass'):
        unrewarded([line(1.0, low_mass=0.75, timeout=0.25)] * 2, "r")
    with pytest.raises(AdjudgeError, match=r'\("unparsable"\), .*: mend what the log says'):
        unrewarded([line(1.0, unparsable=1.0)], "r")
