from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, ResponseReward, Reward, checked, together
from tests.rewards.written_judges import WrittenJudge


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


def test_none_without_a_reason_is_unsupported() -> None:
    group = together([ResponseReward(None), ResponseReward(None, "timeout"), ResponseReward(math.inf)])
    assert group.rewards == (None,) * 3 and group.abstained == ("unsupported", "timeout", "non_finite")


def test_what_a_reward_returns_must_fit_its_groups() -> None:
    groups = [Group("Tell one.", ["A", "A A"]), Group("Tell two.", ["A B", "A"])]
    good = GroupReward((1.0, 1.0), (None, None))
    cases: list[tuple[Any, str]] = [
        ([good], 'reward "r" returned 1 for 2 groups'),
        (None, "returned NoneType for 2 groups"),
        ([good, [1.0, 2.0]], 'prompt "Tell two.": this is list'),
        ([good, GroupReward((1.0,), (None,))], "1 rewards for 2 completions"),
        ([good, GroupReward((1.0, "5"), (None, None))], "a reward is str: give a number"),  # type: ignore[arg-type]
    ]
    for answer, message in cases:
        with pytest.raises(AdjudgeError, match=message):
            checked(answer, groups, 'reward "r"')
    [reward] = checked([GroupReward((None, 1.0), (None, "timeout"))], groups[:1], "it")
    assert reward.abstained == ("unsupported", None)


@pytest.mark.parametrize("vast", [10**400, -(10**400), Fraction(10**400)], ids=["above", "below", "fraction"])
def test_a_number_that_no_float_can_hold_is_not_finite(vast: Any) -> None:
    class Own(Reward):
        def score_groups(self, groups: Any) -> list[GroupReward]:
            return [GroupReward((1, vast, 3), (None,) * 3, {"own": (1, vast, 3)}) for _ in groups]

    function = FunctionReward(lambda completions: [1, vast, 3])
    for reward in (Own(), function):
        assert reward(["p"] * 3, ["a", "b", "c"]) == [1.0, None, 3.0]
        trained = reward.for_trl(3)
        assert trained(["p"] * 3, ["a", "b", "c"]) == [1.0, None, 3.0]
        assert trained.measures["abstained/non_finite"] == 1 / 3
        assert trained.measures.get("mean/own", 2.0) == 2.0
    responses = [ResponseReward(1), ResponseReward(vast)]
    assert together(responses) == GroupReward((1.0, None), (None, "non_finite"))


def test_a_layer_can_pay_what_the_reward_inside_can_and_without_its_length_trend_anything() -> None:
    number, logit = (
        FunctionReward(lambda completions, **_: [1.0]),
        JudgeReward(JudgeSpec("scalar", engine=EngineSpec("dummy:tiny-llama"))),
    )
    assert Guarded(logit, []).below_zero and not Guarded(number, []).below_zero
    assert LengthFree(number).below_zero


def test_a_judge_whose_range_begins_below_zero_pays_less_than_0_on_its_own_scale_alone() -> None:
    judge = WrittenJudge(lambda response: -0.5)
    judge.range = (-1.0, 1.0)
    own, unit = JudgeReward(judge, scale="own"), JudgeReward(judge)
    assert own(["p"], ["a"]) == [-0.5] and own.below_zero
    assert unit(["p"], ["a"]) == [0.25] and not unit.below_zero
    assert not JudgeReward(WrittenJudge(lambda response: 0.5), scale="own").below_zero


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


def test_a_function_gets_the_columns_that_it_takes() -> None:
    group = Group("p", ("a", "bb"), columns={"genre": "tale", "year": 3}, id="g", reference="r")

    def by_length(completions: list[str], genre: list[str]) -> list[float]:
        assert genre == ["tale", "tale"]
        return [float(len(text)) for text in completions]

    def all_of_them(**given: list[object]) -> list[float]:
        assert set(given) == {"prompts", "completions", "genre", "year", "id", "reference"}
        return [1.0, 2.0]

    for function in (by_length, all_of_them):
        assert FunctionReward(function).score_groups([group])[0].rewards == (1.0, 2.0)


def test_what_a_reward_of_ones_own_returns_is_checked_in_a_plain_call_too() -> None:
    class Plain(Reward):
        name = "plain"

        def score_groups(self, groups: Any) -> Any:
            return [[1.0, 2.0] for _ in groups]

    with pytest.raises(AdjudgeError, match='reward "plain", prompt "p": this is list: return one GroupReward for each'):
        Plain()(["p", "p"], ["a", "b"])
