from __future__ import annotations

import logging
import pickle
import random

import pytest
import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.kernels.advantages import group_advantages
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers import filling as module
from adjudge.rewards.trainers.filling import Filling, LoneAbstention, Member, checked_fill, filled


def of(*rewards: float | None) -> GroupReward:
    return GroupReward(rewards, tuple("low_mass" if reward is None else None for reward in rewards))


def given(filling: Filling, *groups: GroupReward) -> list[list[float]]:
    """What the groups of a call get."""
    filling.note(groups)
    return [[member.filled for member in filling.members(group)] for group in groups]


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
    assert filled(GroupReward((3.0, None), (None, "timeout"))) == [3.0, 3.0]
    assert filled(of(None, None), fill=0.5) == filled(of(None, None), usual=0.5) == [0.5, 0.5]
    assert filled(of(None, None)) == [0.0, 0.0]
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


def test_a_group_that_all_get_one_number_has_no_advantage_in_any_trainers_float32() -> None:
    random.seed(7)
    for size in (*range(2, 33), 64, 4096):
        for number in (0.1, 0.3, 0.7, 0.85, -4.7, 1e3 * random.random(), 1e-9):
            one, nobody = (filled(of(*few, *[None] * (size - len(few))), usual=number) for few in ([number], []))
            assert one == nobody == pytest.approx([number] * size, rel=1 / 4096)
            rewards = torch.tensor([one, nobody], dtype=torch.float32)
            apart = rewards - rewards.mean(-1, keepdim=True)
            others = (rewards.sum(-1, keepdim=True) - rewards) / (size - 1)
            assert not apart.any() and not (rewards - others).any()  # what OpenRLHF divides by the deviation + 1e-9
    equal = torch.full((2, 8), 0.85)
    assert (equal - equal.mean(-1, keepdim=True)).any()  # numbers as they come have one


def test_a_group_without_any_reward_gets_the_mean_of_the_latest_those_of_its_call_among_them() -> None:
    filling = Filling()
    assert given(filling, of(None, None)) == [[0.0, 0.0]]
    assert given(filling, of(None, None), of(1.0, 3.0, None), of(5.0, None)) == [[3.0] * 2, [1.0, 3.0, 2.0], [5.0] * 2]
    assert given(filling, of(None, None)) == [[3.0, 3.0]]
    assert given(filling, of(7.0)) + given(filling, of(None, None)) == [[7.0], [4.0, 4.0]]


def test_rewards_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECENT", 3)
    filling = Filling()
    assert given(filling, of(100.0, 1.0), of(2.0, 3.0), of(None, None))[2] == [2.0, 2.0]


def test_the_number_that_the_user_gives_goes_before_the_mean_of_others_but_not_before_a_reward() -> None:
    filling = Filling(0.25)
    assert given(filling, of(1.0, 3.0), of(None, None), of(5.0, None)) == [[1.0, 3.0], [0.25] * 2, [5.0] * 2]


def test_members_say_what_they_learn_from_and_that_their_group_has_too_few() -> None:
    filling = Filling()
    assert filling.members(of(1.0, None, 3.0)) == [
        *(Member(1.0, 1.0, None), Member(None, 2.0, "low_mass"), Member(3.0, 3.0, None))
    ]
    assert filling.members(of(2.0, None)) == [Member(None, 2.0, None, True), Member(None, 2.0, "low_mass", True)]
    assert filling.members(of(2.0)) == [Member(2.0, 2.0, None)]


def test_what_stands_for_a_reward_is_in_the_midst_of_a_batch_that_is_whitened_as_a_whole() -> None:
    scored = (0.82, 0.9, 0.86, 0.88), (0.84, 0.8, 0.87, 0.91)
    numbers = given(Filling(), *(of(*group) for group in scored), of(0.85, None, None, None), of(*[None] * 4))
    batch = torch.tensor(numbers).flatten()
    gains = (batch - batch.mean()) / batch.std()
    assert batch.mean().item() == pytest.approx(7.73 / 9, abs=2e-3)  # of the nine that have one: .4299 with zeros
    assert gains[8:].abs().max().item() < 0.3 and gains[:8].min() < -2 and gains[:8].max() > 1.9


def test_a_copy_in_another_process_goes_on_from_what_was_noted() -> None:
    filling = Filling()
    filling.note([of(1.0, 3.0)])
    assert given(pickle.loads(pickle.dumps(filling)), of(None, None)) == [[2.0, 2.0]]
