from __future__ import annotations

import pytest

from adjudge.kernels.advantages import group_advantages
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.filling import filled


def test_who_abstained_gets_the_mean_of_the_others_and_moves_nothing() -> None:
    reward = GroupReward((1.0, None, 4.0, None), (None, "timeout", None, "low_mass"))
    assert filled(reward) == [1.0, 2.5, 4.0, 2.5]
    gains = group_advantages(filled(reward), group_size=4).advantages
    assert gains[[1, 3]].tolist() == pytest.approx([0.0, 0.0], abs=1e-7)
    alone = group_advantages([1.0, 4.0], group_size=2, scale="none")
    assert group_advantages(filled(reward), group_size=4, scale="none").mean.tolist() == alone.mean.tolist()


def test_a_group_without_two_rewards_is_all_alike() -> None:
    assert filled(GroupReward((3.0, None), (None, "timeout"))) == [0.0, 0.0]
    assert filled(GroupReward((3.0,), (None,))) == [3.0]
    assert filled(GroupReward((None,), ("timeout",))) == [0.0]
    assert filled(GroupReward((), ())) == []
