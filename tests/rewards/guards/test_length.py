from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.length import LengthGuard
from tests.rewards.guards.made_reward import of_words, rewarded


def watched(slope: float, noise: float = 0.02, groups: int = 32, **how: float) -> LengthGuard:
    guard, random = LengthGuard(**how), np.random.default_rng(5)  # type: ignore[arg-type]
    for _ in range(groups):
        counts = random.integers(20, 200, 8).tolist()
        level = random.normal()
        guard.observe(
            [of_words(*counts)], [rewarded([level + slope * n / 100 + random.normal(0, noise) for n in counts])]
        )
    return guard


def test_the_slope_is_in_words_and_worked_out_by_hand() -> None:
    guard = LengthGuard(enough=5)
    guard.observe([of_words(1, 2, 3), of_words(2, 4)], [rewarded([1.0, 2.0, 4.0]), rewarded([0.0, 1.0])])
    half = 100 * 4.302652729911 * math.sqrt(7 / 48)
    readings = guard.readings()
    assert readings["slope"] == pytest.approx(100, abs=1e-6)
    assert (readings["low"], readings["high"]) == pytest.approx((100 - half, 100 + half), abs=1e-6)
    assert readings["correlation"] == pytest.approx(4 / math.sqrt(4 * 31 / 6), abs=1e-6)
    assert readings["grip"] == 0.0


@pytest.mark.parametrize(("slope", "tripped"), [(0.1, True), (-0.1, True), (0.0, False)])
def test_a_known_slope_is_found_inside_its_interval_and_trips_in_either_direction(slope: float, tripped: bool) -> None:
    guard = watched(slope)
    readings = guard.readings()
    assert readings["slope"] == pytest.approx(slope, abs=0.01)
    assert readings["low"] < slope < readings["high"]
    assert (readings["grip"] > guard.limits["grip"]) == tripped


def test_a_slope_that_is_little_beside_the_rest_does_not_trip() -> None:
    readings = watched(0.1, noise=0.5, groups=64).readings()
    assert 0 < readings["correlation"] < 0.3 and readings["grip"] < 0.3


def test_members_without_a_finite_reward_and_groups_of_one_count_nowhere() -> None:
    plain, gaps = LengthGuard(enough=5), LengthGuard(enough=5)
    plain.observe([of_words(1, 2, 3), of_words(2, 4)], [rewarded([1.0, 2.0, 4.0]), rewarded([0.0, 1.0])])
    gaps.observe(
        [of_words(1, 99, 2, 3), of_words(2, 4, 5), of_words(7, 8), of_words(9)],
        [rewarded([1, None, 2, 4]), rewarded([0, 1, math.nan]), rewarded([None, 3]), rewarded([math.inf])],
    )
    assert gaps.readings() == plain.readings()


def test_it_forgets_what_left_the_window() -> None:
    guard = watched(0.1, window=4)
    assert len(guard.groups) == 4
    for _ in range(4):
        guard.observe([of_words(1, 2, 3, 5)], [rewarded([2.0, 1.0, 0.5, -1.0])])
    assert guard.readings()["slope"] < 0


def test_before_there_is_enough_nothing_is_told_and_nothing_trips() -> None:
    guard = LengthGuard()
    assert set(guard.readings()) == set(guard.measures)
    assert all(map(math.isnan, guard.readings().values()))


def test_few_rewards_trip_nothing_however_they_go_with_length() -> None:
    guard = watched(0.1, noise=0.0, groups=7)
    readings = guard.readings()
    assert readings["correlation"] > 0.99 and readings["low"] > 0 and math.isnan(readings["grip"])  # 56 rewards
    assert watched(0.1, noise=0.0, groups=8).readings()["grip"] > 0.99


def test_its_state_pickles() -> None:
    guard = watched(0.1)
    assert pickle.loads(pickle.dumps(guard)).readings() == guard.readings()


@pytest.mark.parametrize("how", [{"window": 0}, {"enough": 1}, {"limit": math.nan}, {"limit": "0.3"}])
def test_options_that_say_nothing_are_mistakes(how: dict[str, float]) -> None:
    with pytest.raises(AdjudgeError, match="give"):
        LengthGuard(**how)  # type: ignore[arg-type]
