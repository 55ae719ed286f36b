from __future__ import annotations

import pytest

from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.measures import REASONS, length_slope, logged


def test_rates_count_completions_and_groups_and_leave_nothing_out_that_is_zero() -> None:
    groups = [Group("a", ["x"] * 4), Group("b", ["x"] * 2), Group("c", ["x"] * 2)]
    rewards = [
        GroupReward((1.0, 1.0, None, None), (None, None, "timeout", "low_mass"), {}, {"mass": (0.5, 0.7, None, 0.0)}),
        GroupReward((1.0, None), (None, "timeout")),
        GroupReward((1.0, 3.0), (None, None), parts={"plot": (2.0, 4.0)}, measures={"mass": (None, float("nan"))}),
    ]  # fmt: skip
    found = logged(groups, rewards)
    assert found["abstained"] == 4 / 8
    assert found["abstained/timeout"] == 2 / 8
    assert found["abstained/low_mass"] == 1 / 8
    assert found["abstained/too_few"] == 1 / 8
    assert {name for name, value in found.items() if value == 0} == {
        f"abstained/{reason}" for reason in REASONS if reason not in ("timeout", "low_mass")
    }
    assert found["zero_variance"] == 2 / 3  # a group without rewards teaches as little as equal ones
    assert found["mean/mass"] == pytest.approx(0.4)
    assert found["mean/plot"] == 3.0
    assert "length_slope" not in found  # all of one length


def test_a_part_that_has_the_name_of_a_measure_is_told_apart() -> None:
    reward = GroupReward((1.0, 3.0), (None, None), {"bias": (1.0, 0.5), "plot": (1.0, 1.0)}, {"bias": (0.0, -0.5)})
    found = logged([Group("a", ["x", "y"])], [reward])
    assert (found["mean/part/bias"], found["mean/bias"], found["mean/plot"]) == (0.75, -0.25, 1.0)


def test_without_groups_every_rate_is_zero() -> None:
    found = logged([], [])
    assert set(found.values()) == {0.0} and "zero_variance" in found


def test_what_a_gate_has_shut_out_says_nothing_of_length() -> None:
    group = Group("a", [" ".join(["w"] * count) for count in (10, 20, 1, 40)])
    shut = {"shut": (0.0, 0.0, 1.0, 0.0)}
    lone = GroupReward((1.0, None, None, None), (None, *("timeout",) * 3))  # type: ignore[arg-type]
    reward = GroupReward((1.0, 2.0, 0.0, None), (None, None, None, "timeout"), {}, shut)
    assert logged([group, group], [reward, lone])["length_slope"] == pytest.approx(10.0)


def test_the_length_slope_is_that_of_what_was_judged() -> None:
    group = Group("a", [" ".join(["w"] * count) for count in (40, 30, 20)])
    section = GroupReward((1.0, 2.0, 3.0), (None,) * 3, {}, {"words": (10.0, 20.0, 30.0)})
    assert logged([group], [section])["length_slope"] == pytest.approx(10.0)


def test_the_length_slope_is_that_within_groups() -> None:
    words = [(10, 20, 30), (10, 20), (10, 20, 30)]
    # Two groups on lines of slope 0.1 a word, far apart, and a member without a reward: between groups nothing counts.
    rewards = [(1.0, 2.0, 3.0), (101.0, 102.0), (5.0, None, 7.0)]
    assert length_slope(words, rewards) == pytest.approx(10.0)
    assert length_slope(words[:1], [(1.0, None, None)]) is None
