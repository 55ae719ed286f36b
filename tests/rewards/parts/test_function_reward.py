"""Functions as rewards: what they get, and what is said where they cannot be called so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.engines.colocated import Colocated
from adjudge.rewards.engines.specification import JudgeSpec
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.parts.combining import Product, WeightedSum
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.parts.gates import FormatReward
from adjudge.rewards.parts.section_reward import SectionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.scoring import Scorer
from tests.rewards.written_judges import WrittenJudge


def env(completions: list[str], env_reward: list[float]) -> list[float]:
    """What the environment says, by the place of a completion."""
    return env_reward


def long(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """How many tokens a completion has, as TRL's functions of lengths take them."""
    return [float(len(ids)) for ids in completion_ids]


def test_columns_in_which_the_responses_differ_reach_a_function_in_their_places() -> None:
    seen: list[Any] = []

    def function(completions: Any, **columns: Any) -> list[float]:
        seen.append(columns)
        return [0.0] * len(completions)

    groups = [
        Group("p", ("a", "b"), columns={"genre": "g"}, by_response={"turns": [1, 2], "id": [7, 8]}),
        Group("q", (), by_response={"turns": []}),
        Group("r", ("c",), id="9", columns={"turns": 3}),
    ]
    assert [one.rewards for one in FunctionReward(function).score_groups(groups)] == [(0.0, 0.0), (), (0.0,)]
    assert seen == [{"prompts": ["p", "p", "r"], "genre": ["g", "g", None], "turns": [1, 2, 3], "id": ["7", "8", "9"]}]


TEXTS = ("<answer>a</answer>", "b", "<answer>cc</answer>")


@pytest.mark.parametrize(
    "around", [SectionReward, partial(Guarded, guards=()), LengthFree, partial(Colocated, sleep=False), Scorer]
)
def test_what_is_around_a_reward_may_be_around_a_function_and_says_what_it_cannot_be_around(around: Any) -> None:
    group = Group("p", TEXTS, by_response={"env_reward": [1.0, 2.0, 3.0]})
    made, told = around(env), around(FunctionReward(env))
    score = (lambda one: one.score([group]).rewards) if around is Scorer else lambda one: one.score_groups([group])
    assert score(made) == score(told) and made.name == "env"
    with pytest.raises(AdjudgeError, match="is int: give a reward or a function, of a judge its JudgeReward"):
        around(7)


@pytest.mark.parametrize(
    ("reward", "rewards"),
    [
        (WeightedSum({"env": env}), (1.0, 2.0, 3.0)),
        (Gated(env, {"form": FormatReward(("answer",))}), (1.0, 0.0, 3.0)),
        (SectionReward(FunctionReward(env)), (1.0, 0.0, 3.0)),
        (LengthFree(Gated(SectionReward(FunctionReward(env)), {"x": lambda completions: [0, 1, 1]})), (0.0, 0.0, 3.0)),
        (Guarded(FunctionReward(env), []), (1.0, 2.0, 3.0)),
    ],
)
def test_what_is_left_of_a_group_keeps_its_own_values(reward: Reward, rewards: tuple[float, ...]) -> None:
    [scored] = reward.score_groups([Group("p", TEXTS, by_response={"env_reward": [1.0, 2.0, 3.0]})])
    assert scored.rewards == rewards
    assert reward(["p"] * 3, TEXTS, env_reward=(1.0, 2.0, 3.0)) == list(rewards)


def test_tokens_are_taken_where_some_part_takes_them_and_only_there() -> None:
    judged = JudgeReward(WrittenJudge(lambda response: 1.0))
    inside: list[Callable[[Any], Reward]] = [
        FunctionReward,
        lambda part: WeightedSum({"judge": judged, "part": part}),
        lambda part: Product({"part": part}),
        lambda part: Gated(part, {"judge": judged}),
        lambda part: Gated(judged, {"part": part}),
        lambda part: SectionReward(FunctionReward(part)),
        lambda part: Guarded(LengthFree(FunctionReward(part)), []),
    ]
    assert all(made(long).takes_ids and made(lambda **_: []).takes_ids and not made(env).takes_ids for made in inside)
    assert FunctionReward(dict).takes_ids and not judged.takes_ids  # nobody can tell what a function in C takes


def test_a_function_without_a_column_that_it_must_have_is_named_with_those_that_are_there() -> None:
    reward = WeightedSum({"checked": lambda completions, solution, cut=3, *, year, **_: [1.0] * len(completions)})
    message = (
        r'^checked takes "solution", which is no column \(there are: completions, id, prompts, year\): give the data'
        r" that column, or the parameter a default$"
    )
    with pytest.raises(AdjudgeError, match=message):
        reward(["p"], ["a"], id=[7], year=[1])
    with pytest.raises(AdjudgeError, match='checked takes "year", which is no column'):
        reward(["p"], ["a"], solution=["x"])
    assert reward(["p"], ["a"], solution=["x"], year=[1]) == [1.0]


@pytest.mark.parametrize("judge", [WrittenJudge(lambda response: 1.0), JudgeSpec("pointwise"), None])
def test_what_cannot_be_called_is_no_function(judge: Any) -> None:
    kind = type(judge).__name__
    with pytest.raises(AdjudgeError, match=f"{kind} is no function, for it cannot be called: .* its JudgeReward"):
        FunctionReward(judge)
    with pytest.raises(AdjudgeError, match=f'part "a" is {kind}: .* of a judge its JudgeReward'):
        WeightedSum({"a": judge})


class Awaited:
    async def __call__(self, completions: list[str]) -> list[float]:
        return [1.0] * len(completions)


def test_what_nobody_awaits_is_refused() -> None:
    async def awaited(completions: list[str]) -> list[float]:
        return [1.0] * len(completions)

    for function, name in ((awaited, "awaited"), (Awaited(), "Awaited")):
        with pytest.raises(AdjudgeError, match=f"{name} is asynchronous, and nobody awaits it here: give a function"):
            WeightedSum({"a": function})  # type: ignore[dict-item]


def test_it_pickles_as_its_function_does() -> None:
    assert pickle.loads(pickle.dumps(FunctionReward(env)))(["p"] * 2, ["a", "b"], env_reward=[0.0, 1.0]) == [0.0, 1.0]
