from __future__ import annotations

import logging

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.kernels.advantages import group_advantages
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.filling import LoneAbstention, checked_fill, filled


def test_who_abstained_gets_the_mean_of_the_others_and_moves_nothing() -> None:
    reward = GroupReward((1.0, None, 4.0, None), (None, "timeout", None, "low_mass"))
    assert filled(reward) == [1.0, 2.5, 4.0, 2.5]
    gains = group_advantages(filled(reward), group_size=4).advantages
    assert gains[[1, 3]].tolist() == pytest.approx([0.0, 0.0], abs=1e-7)
    alone = group_advantages([1.0, 4.0], group_size=2, scale="none")
    assert group_advantages(filled(reward), group_size=4, scale="none").mean.tolist() == alone.mean.tolist()


def test_the_mean_of_equal_rewards_is_that_reward_and_the_group_has_no_variance() -> None:
    for value in (0.1, 0.7, -0.3):  # three times 0.1, divided by three, is more than 0.1
        reward = GroupReward((value, value, value, None), (None, None, None, "low_mass"))
        assert filled(reward) == [value] * 4


def test_a_group_without_two_rewards_is_all_alike() -> None:
    assert filled(GroupReward((3.0, None), (None, "timeout"))) == [0.0, 0.0]
    assert filled(GroupReward((3.0,), (None,))) == [3.0]
    assert filled(GroupReward((), ())) == []


def test_who_abstained_alone_has_no_mean_and_gets_what_is_given_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    alone = GroupReward((None,), ("timeout",))
    with pytest.raises(LoneAbstention, match=r"came alone abstained \(timeout\), .*or give a number as fill"):
        filled(alone)
    with caplog.at_level(logging.WARNING, "adjudge"):
        assert filled(alone, 0.5) == [0.5]
    assert caplog.messages == ["a sample that came alone abstained (timeout): its reward is fill, 0.5"]
    assert filled(GroupReward((3.0,), (None,)), 0.5) == [3.0]
    with pytest.raises(AdjudgeError, match="fill is nan: give a finite number"):
        checked_fill(float("nan"))
