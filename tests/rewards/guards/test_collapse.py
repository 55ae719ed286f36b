from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.collapse import CollapseGuard, entropy
from adjudge.rewards.parts.accuracy_reward import AccuracyReward
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.parts.gates import FormatReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from tests.rewards.guards.made_reward import rewarded


def seen(guard: CollapseGuard, *rows: list[float | None]) -> dict[str, float]:
    guard.observe([Group("", ("",) * len(row)) for row in rows], [rewarded(row) for row in rows])
    return guard.readings()


def test_the_measures_are_worked_out_by_hand() -> None:
    readings = seen(CollapseGuard([1, 2, 3, 4], enough=4), [2.0, 2.0], [2.0, 3.0])
    spread = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert readings == pytest.approx(
        {
            "entropy": spread,
            "reference_entropy": math.log(4),
            "loss": 1 - spread / math.log(4),
            "commonest": 0.75,
            "zero_variance": 0.5,
        },
        abs=1e-6,
    )


def test_constant_scores_are_a_collapse() -> None:
    guard = CollapseGuard([1, 2, 3, 4, 5])
    readings = seen(guard, *[[3.0] * 8] * 8)
    assert readings["loss"] == 1.0 > guard.limits["loss"]
    assert readings["zero_variance"] == 1.0 > guard.limits["zero_variance"]


def test_scores_spread_like_the_data_are_none() -> None:
    readings = seen(CollapseGuard([1, 2, 3, 4, 5], bins=5), *[[1.0, 2.0, 3.0, 4.0, 5.0]] * 16)
    assert (readings["loss"], readings["zero_variance"]) == (pytest.approx(0), 0.0)
    assert readings["commonest"] == pytest.approx(0.2)


def test_without_a_reference_the_first_scores_stand_for_it_and_the_window_moves_on() -> None:
    guard = CollapseGuard(window=16, enough=64)
    start = seen(guard, *[[float(n) for n in range(8)]] * 8)
    assert start["loss"] == pytest.approx(0) and len(guard.reference) == 64
    end = seen(guard, *[[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.05]] * 16)
    assert end["loss"] == 1.0 and end["zero_variance"] == 0.0
    assert end["reference_entropy"] == start["reference_entropy"]


def test_rewards_that_rise_with_the_same_spread_are_no_collapse_and_equal_ones_are_wherever_they_stand() -> None:
    guard = CollapseGuard(window=16)
    for step in range(40):
        risen = seen(guard, *[[step * 0.1 + n / 8 for n in range(8)]] * 8)
    assert risen["loss"] < 0.05 and max(guard.reference) < 1
    assert seen(guard, *[[3.9 + n / 8 for n in range(8)]] * 16)["loss"] == pytest.approx(0)
    assert seen(guard, *[[9.0] * 8] * 16)["loss"] == 1.0


def test_scores_beyond_the_reference_fall_into_the_outer_bins() -> None:
    readings = seen(CollapseGuard([0.0, 1.0], bins=2, enough=4), [-9.0, 9.0, 0.1, 0.9])
    assert readings["entropy"] == pytest.approx(math.log(2)) and readings["commonest"] == 0.5


def test_too_few_scores_tell_nothing_and_abstentions_count_nowhere() -> None:
    guard = CollapseGuard([1, 2], enough=4)
    assert all(map(math.isnan, seen(guard, [1.0, None, math.nan], [None, None], [2.0]).values()))
    assert not math.isnan(seen(guard, [1.0, 2.0])["loss"])
    assert list(guard.equal) == [False]


def test_parts_are_watched_in_place_of_the_reward() -> None:
    guard = CollapseGuard([1, 2, 3], parts=("a", "b"), enough=4)
    scored = GroupReward((0.1, 0.2), (None,) * 2, {"a": (2.0, None), "b": (2.0, 2.0), "c": (1.0, 3.0)})
    guard.observe([Group("", ("",) * 2)] * 3, [scored, GroupReward((0.0, 0.0), (None,) * 2), scored])
    assert guard.readings()["commonest"] == 1.0
    assert list(guard.scores) == [(2.0,) * 3] * 2 and list(guard.equal) == [False, True, False]


def test_parts_that_are_never_there_are_named_and_the_step_is_noted_all_the_same() -> None:
    guard = CollapseGuard(parts=("juge",))
    guard.observe([], [])
    with pytest.raises(AdjudgeError, match="no part juge for the collapse guard: choose from judge"):
        guard.observe([Group("", ("", ""))], [GroupReward((1.0, 1.0), (None,) * 2, {"judge": (2.0, 2.0)})])
    assert list(guard.equal) == [True]


def test_equal_scores_at_the_beginning_do_not_stand_for_the_data() -> None:
    guard = CollapseGuard(window=16, enough=64)
    assert math.isnan(seen(guard, *[[0.0] * 8] * 8)["loss"]) and not guard.reference
    assert math.isnan(seen(guard, [float(n) for n in range(8)])["loss"])
    assert seen(guard, *[[float(n) for n in range(8)]] * 16)["loss"] == pytest.approx(0)
    assert seen(guard, *[[3.0] * 8] * 16)["loss"] == 1.0


def test_parts_behind_a_gate_that_let_nobody_pass_are_no_mistake() -> None:
    gated = Gated(AccuracyReward(), {"format": FormatReward()})
    guard = CollapseGuard(parts=("reward/score/score_a",))
    group = Group("", ("no", "none"), columns={"score_a": 2, "score_b": 3})
    guard.observe([group], gated.score_groups([group]))
    assert not guard.scores and list(guard.equal) == [True]
    wrong = CollapseGuard(parts=("reward/scores",))
    passed = Group("", ("<think>Hm.</think><answer>2</answer>",) * 2)
    with pytest.raises(AdjudgeError, match="no part reward/scores for the collapse guard"):
        wrong.observe([passed], Gated(FormatReward(), {"format": FormatReward()}).score_groups([passed]))


def test_an_evaluator_that_writes_the_commonest_score_is_caught() -> None:
    """EvolvR's collapse: half of the data are threes, and always writing a three is well paid."""
    people = [3, 3, 3, 3, 1, 2, 4, 5]
    reward, guard = AccuracyReward(), CollapseGuard(people, parts=("score/score_a", "score/score_b"))
    groups = [
        Group("p", ("<ANSWER> 3 </ANSWER> | <ANSWER> 3 </ANSWER>", "unreadable"), columns={"score_a": a, "score_b": b})
        for a, b in zip(people, people[::-1], strict=True)
    ]
    for _ in range(4):
        guard.observe(groups, reward.score_groups(groups))
    readings = guard.readings()
    assert readings["loss"] == 1.0 and readings["zero_variance"] == 0.0
    assert readings["reference_entropy"] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(8))


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=6), max_size=12), st.integers(2, 20))
def test_entropy_is_between_nothing_and_the_even_spread(rows: list[list[float]], bins: int) -> None:
    for reference, most in (([0.0, 1.0], bins), (None, sum(map(len, rows)))):
        readings = seen(CollapseGuard(reference, bins=bins, enough=2), *rows)  # type: ignore[arg-type]
        if not math.isnan(readings["entropy"]):
            assert 0 <= readings["entropy"] <= math.log(most) + 1e-9
            assert 1 / most - 1e-9 <= readings["commonest"] <= 1 and readings["loss"] <= 1


def test_entropy_of_one_bin_is_zero_and_its_state_pickles() -> None:
    assert str(entropy([1.0, 0.0])) == "0.0"
    guard = CollapseGuard([1, 2, 3], enough=4)
    readings = seen(guard, [1.0, 2.0, 3.0, 3.0])
    assert pickle.loads(pickle.dumps(guard)).readings() == pytest.approx(readings, nan_ok=True)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"reference": [3.0, 3.0]}, "no two different"),
        ({"reference": []}, "no two different"),
        ({"reference": [1.0, math.nan]}, "no two different"),
        ({"reference": ["good", "bad"]}, "reference is .*: give the data's scores, as numbers"),
        ({"reference": 3}, "reference is 3: give the data's scores, as numbers"),
        ({"parts": "judge"}, 'parts are "judge"'),
        ({"bins": 1}, "bins is 1: give at least 2"),
        ({"window": 0}, "window is 0: give at least 1"),
        ({"loss": math.nan}, "loss is nan"),
    ],
)
def test_options_that_say_nothing_are_mistakes(how: dict[str, Any], said: str) -> None:
    with pytest.raises(AdjudgeError, match=said):
        CollapseGuard(**how)


def test_a_reward_that_comes_to_the_end_of_its_range_is_no_collapse() -> None:
    guard = CollapseGuard(window=32)
    seen(guard, *[[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]] * 16)
    risen = seen(guard, *[[1.0] * 7 + [0.0]] * 16, *[[1.0] * 8] * 16)
    assert risen["loss"] > 0.5 and risen["zero_variance"] == 0.5
    assert not any(risen[name] > limit for name, limit in guard.limits.items())
    assert "loss" in CollapseGuard(loss=0.5).limits and "loss" in CollapseGuard([1.0, 2.0]).limits
