from __future__ import annotations

import math

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.function_reward import FunctionReward
from adjudge.rewards.reward import GroupReward, ResponseReward, together


def test_a_group_is_put_together_from_its_responses() -> None:
    group = together(
        [
            ResponseReward(1.0, None, {"a": 0.5}, {"mass": 0.9}),
            ResponseReward(None, "timeout", {}, {"words": 2.0}),
            ResponseReward(math.nan, None, {"a": math.nan}),
        ]
    )
    assert group.rewards == (1.0, None, None) and group.abstained == (None, "timeout", "non_finite")
    assert group.parts["a"][:2] == (0.5, None)
    assert group.measures == {"mass": (0.9, None, None), "words": (None, 2.0, None)}
    assert together([]) == GroupReward((), ())


@pytest.mark.parametrize(
    ("rewards", "settled"),
    [
        ((1.0, None, 2.0), (1.0, None, 2.0)),
        ((1.0, None, None), (None, None, None)),
        ((None, None), (None, None)),
        ((1.0,), (1.0,)),
        ((None,), (None,)),
        ((), ()),
    ],
)
def test_fewer_than_two_rewards_of_two_or_more_are_none(
    rewards: tuple[float | None, ...], settled: tuple[float | None, ...]
) -> None:
    assert GroupReward(rewards, (None,) * len(rewards)).settled == settled


def test_columns_of_another_length_are_refused() -> None:
    for group in ({"parts": {"a": (1.0,)}}, {"measures": {"a": ()}}, {"abstained": (None,)}):
        with pytest.raises(AdjudgeError, match="entries for 2 rewards: give one for each"):
            GroupReward(**{"rewards": (1.0, 2.0), "abstained": (None, None), **group})


def test_a_trainer_that_calls_a_reward_as_it_is_hears_of_for_trl() -> None:
    reward = FunctionReward(lambda prompts, completions, **columns: [1.0] * len(prompts), "mine")
    with pytest.warns(UserWarning, match=r'reward "mine" is called by a trainer as it is: .*for_trl\(\)'):
        assert reward(["p", "p"], ["a", "b"], trainer_state=[None, None]) == [1.0, 1.0]
