from __future__ import annotations

import asyncio
import inspect
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.parts.combining import WeightedSum
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.layer import learning
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.trl import AsyncTrlReward, TrlReward, for_trl
from tests.rewards.trainers.processes import PROMPTS, STORIES, no_time_for
from tests.rewards.trainers.rewards import Judged, Patient, Relative, Told


class Trainer:
    """As much of a trainer as a reward function can see."""

    def __init__(self, functions: int = 1, training: bool = True) -> None:
        self.reward_funcs = [len] * functions
        self.model = SimpleNamespace(training=training)
        self.num_generations, self.num_generations_eval = 2, 3
        self.metrics: list[tuple[str, float]] = []

    def log_metric(self, name: str, value: float) -> None:
        self.metrics.append((name, value))


def told(abstaining: str = "") -> Told:
    return Told(lambda response: None if response in abstaining else float(len(response)))


def test_a_part_that_comes_late_stands_in_a_column_as_long_as_the_others() -> None:
    nothing, table = Told(lambda response: None), dict[str, list[Any]]()
    nothing.name = "relative"
    function = for_trl(nothing, 2)

    def log_extra(column: str, values: list[Any]) -> None:
        table.setdefault(column, []).extend(values)

    for reward in (nothing, Relative(), nothing):
        function.scorer.reward = reward
        function(PROMPTS, STORIES, log_extra=log_extra)
    lengths = [float(len(story)) for story in STORIES]
    assert table["relative/length"] == [None] * 6 + lengths + [None] * 6 and len(table["relative/abstained"]) == 18


def test_conversations_are_judged_by_their_texts() -> None:
    reward = Relative()
    function = for_trl(reward)
    prompts = [[{"role": "user", "content": "Tell one."}]] * 2
    completions = [[{"role": "assistant", "content": text}] for text in ("A", "A A")]
    assert isinstance(function, TrlReward)
    assert function(prompts=prompts, completions=completions) == [-1.0, 1.0]
    assert reward.asked == [Group("Tell one.", ["A", "A A"], conversation=(("user", "Tell one."),))]


def test_the_reference_and_other_columns_reach_the_reward() -> None:
    reward = Relative()
    function = for_trl(reward, reference="story")
    assert isinstance(function, TrlReward)
    environments = [object()] * 2
    function(
        ["Tell."] * 2, ["A", "B"], [[1], [2]],
        story=["Once."] * 2, rubric=["r"] * 2, environments=environments, trainer_state=object(),
    )  # fmt: skip
    assert reward.asked == [Group("Tell.", ["A", "B"], "Once.", columns={"story": "Once.", "rubric": "r"})]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_column_may_be_called_self(asynchronous: bool) -> None:
    reward, columns = Relative(), {"self": ["I", "I"]}
    given = for_trl(reward, asynchronous=asynchronous)(["Tell."] * 2, ["A", "B"], **columns)
    _ = asyncio.run(given) if asynchronous else given
    reward(["Tell."] * 2, ["A", "B"], **columns)
    assert [group.columns for group in reward.asked] == [{"self": "I"}] * 2


@pytest.mark.parametrize("columns", [None, ("env_reward",)])
@pytest.mark.parametrize("prompts", [["p", "p", "q", "q"], ["p", "q", "p", "q"]])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_an_environment_says_of_each_completion_reaches_a_function(
    asynchronous: bool, prompts: list[str], columns: Any
) -> None:
    function = for_trl(
        FunctionReward(lambda completions, env_reward: env_reward), columns=columns, asynchronous=asynchronous
    )
    given: Any = function(prompts, list("abcd"), env_reward=[0.0, 1.0, 2.0, 3.0])
    assert (asyncio.run(given) if asynchronous else given) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("columns", [None, ()])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_trls_functions_of_lengths_are_parts_like_any_other(asynchronous: bool, columns: Any) -> None:
    rewards = pytest.importorskip("trl.rewards", reason="needs the extra train")
    parts = {"own": lambda completions, **_: [1.0] * len(completions)}
    parts |= {"long": rewards.get_soft_overlong_punishment(4, 2), "again": rewards.get_repetition_penalty_reward(2)}
    function: Any = for_trl(WeightedSum(parts), 2, columns=columns, asynchronous=asynchronous)
    given = function(["p"] * 2, ["a", "b"], [[1, 2, 3], [1, 1, 1, 1]])
    assert (asyncio.run(given) if asynchronous else given) == [0.5, pytest.approx(1 - 1 - 2 / 3)]


def test_a_reward_of_ones_own_that_says_so_gets_the_tokens_too() -> None:
    class Long(Relative):
        takes_ids = True

        def _scored(self, group: Group) -> GroupReward:
            return GroupReward(tuple(float(len(ids)) for ids in group.values("completion_ids")), (None, None))

    assert for_trl(Long(), 2)(["p"] * 2, ["a", "b"], [[1, 2, 3], [1]]) == [3.0, 1.0]


def test_the_columns_named_are_given_besides_the_reference_and_the_id() -> None:
    reward = Relative()
    columns = {"story": ["Once."] * 2, "id": ["x"] * 2, "rubric": ["short"] * 2, "other": [1, 1]}
    for_trl(reward, columns=("rubric",), reference="story")(["p"] * 2, ["a", "b"], **columns)
    for_trl(reward, columns=("rubric", "id"))(["p"] * 2, ["a", "b"], **columns)
    for_trl(reward, columns=())(["p"] * 2, ["a", "b"], reference=None)
    assert reward.asked == [
        Group("p", ["a", "b"], "Once.", "x", {"rubric": "short", "story": "Once."}),
        Group("p", ["a", "b"], None, "x", {"rubric": "short"}),
        Group("p", ["a", "b"]),
    ]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_systems_turn_of_the_recipe_is_asked_of_the_policy_and_not_shown_to_judges(asynchronous: bool) -> None:
    reward = Relative()
    function = for_trl(reward, system="Use tags.", asynchronous=asynchronous)
    tags, brief = ({"role": "system", "content": text} for text in ("Use tags.", "Be brief."))
    user = {"role": "user", "content": "Tell one."}
    from_arrow = [turn | {"tool_calls": None, "name": None} for turn in (tags, user)]
    for prompt in ([tags, user], [brief, user], [tags], "Tell one.", from_arrow):
        given = function([prompt] * 2, ["a", "b"])
        assert (asyncio.run(given) if asynchronous else given) == [0.0, 0.0]  # type: ignore[arg-type]
    assert [group.prompt for group in reward.asked] == [
        "Tell one.", "system: Be brief.\n\nuser: Tell one.", "Use tags.", "Tell one.", "Tell one."
    ]  # fmt: skip
    assert reward.asked[0].conversation == (("system", "Use tags."), ("user", "Tell one."))


def test_abstentions_are_none_and_a_lone_reward_is_left_out() -> None:
    trainer = Trainer()
    function = for_trl(told("abd"))
    assert isinstance(function, TrlReward)
    rewards = function(["p"] * 2 + ["q"] * 2, ["a", "b", "cc", "d"], log_metric=trainer.log_metric)
    assert rewards == [None, None, None, None]
    metrics = dict(trainer.metrics)
    assert metrics["told/abstained"] == 1.0
    assert metrics["told/abstained/low_mass"] == 0.75
    assert metrics["told/abstained/too_few"] == 0.25
    assert function.measures["abstained"] == 1.0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_trainer_that_takes_no_metrics_has_abstentions_in_its_log(
    asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    function = for_trl(told("abd"), 3, asynchronous=asynchronous)

    def step(*completions: str) -> Any:
        given = function(["p"] * 3, completions)
        return asyncio.run(given) if asynchronous else given  # type: ignore[arg-type]

    step("ee", "ff", "gg")
    assert not caplog.messages
    for _ in range(4):
        step("a", "ff", "gg")
    assert caplog.messages == [
        'reward "told": 1 of the 6 completions so far abstained (low_mass 1)',
        'reward "told": 2 of the 9 completions so far abstained (low_mass 2)',
        'reward "told": 4 of the 15 completions so far abstained (low_mass 4)',
    ]
    step("a", "b", "gg")  # too few of the group are left
    assert function.measures["abstained"] == 1.0
    assert caplog.messages[3:] == []
    step("a", "ff", "gg")
    assert caplog.messages[3:] == ['reward "told": 8 of the 21 completions so far abstained (low_mass 7, too_few 1)']


def test_empty_completions_are_scored_like_others() -> None:
    function = for_trl(Judged())
    assert isinstance(function, TrlReward)
    assert None not in function(["p"] * 2, ["", " "])
    assert function([], []) == []


def test_the_trainers_own_group_size_decides_in_training_and_in_evaluation() -> None:
    reward = Relative()
    function = for_trl(reward)
    assert isinstance(function, TrlReward)
    function(["p"] * 6, list("abcdef"), log_metric=Trainer().log_metric)
    function(["p"] * 6, list("abcdef"), log_metric=Trainer(training=False).log_metric)
    assert [len(group.responses) for group in reward.asked] == [2, 2, 2, 3, 3]
    told_otherwise = for_trl(Relative(), 3)
    assert isinstance(told_otherwise, TrlReward)
    with pytest.raises(AdjudgeError, match="num_generations is 3 here and 2 in the trainer"):
        told_otherwise(["p"] * 6, list("abcdef"), log_metric=Trainer().log_metric)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_prompts_that_come_twice_over_have_groups_of_two_and_rewards_in_the_order_given(asynchronous: bool) -> None:
    reward, table = Relative(), dict[str, list[Any]]()
    function = for_trl(reward, asynchronous=asynchronous)
    prompts, completions = ["p", "q", "r"] * 2, ["a", "bbbb", "cc", "aaa", "b", "cc"]
    given: Any = function(prompts, completions, reference=["x", "y", "z"] * 2, log_extra=table.__setitem__)
    assert (asyncio.run(given) if asynchronous else given) == [-1.0, 1.5, 0.0, 1.0, -1.5, 0.0]
    assert [group.responses for group in reward.asked] == [["a", "aaa"], ["bbbb", "b"], ["cc", "cc"]]
    assert table["relative/length"] == [float(len(one)) for one in completions]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_guards_and_length_trends_see_nothing_of_a_trainers_evaluation(asynchronous: bool) -> None:
    free = LengthFree(Relative())
    function = for_trl(Guarded(free, []), asynchronous=asynchronous)
    for training in (True, False):
        given: Any = function(["p"] * 6, list("abcdef"), log_metric=Trainer(training=training).log_metric)
        assert None not in (asyncio.run(given) if asynchronous else given)
        assert ("guards/over" in function.measures) == training
    assert (function.scorer.reward.step, free.state.groups) == (1, 3)  # type: ignore[attr-defined]
    with learning(False):  # somebody else says so
        given = function(["p"] * 2, ["a", "b"], log_metric=Trainer().log_metric)
        assert None not in (asyncio.run(given) if asynchronous else given)
    assert free.state.groups == 3 and free.learning


def test_it_warns_once_when_it_is_one_of_several_reward_functions() -> None:
    function = for_trl(told())
    assert isinstance(function, TrlReward)
    with pytest.warns(UserWarning, match="one of 2 reward functions: TRL counts an abstention as 0"):
        function(["p"] * 2, ["a", "b"], log_metric=Trainer(functions=2).log_metric)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(["p"] * 2, ["a", "b"], log_metric=Trainer(functions=2).log_metric)
        other = for_trl(told())
        assert isinstance(other, TrlReward)
        other(["p"] * 2, ["a", "b"], log_metric=Trainer().log_metric)


def test_the_table_of_completions_has_the_same_columns_in_every_step() -> None:
    class Sometimes(Relative):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            if groups[0].prompt == "q":
                return [GroupReward((None, None), ("timeout", "timeout"))]
            return super().score_groups(groups)

    function = for_trl(Sometimes(), on_failure="abstain")
    assert isinstance(function, TrlReward)
    logged: list[tuple[str, list[Any]]] = []
    for prompt in "pq":
        function([prompt] * 2, ["a", "bb"], log_extra=lambda *entry: logged.append(entry))
    assert logged == [
        ("relative/abstained", [None, None]),
        ("relative/length", [1.0, 2.0]),
        ("relative/abstained", ["timeout", "timeout"]),
        ("relative/length", [None, None]),
    ]


def test_what_a_reward_measures_of_itself_is_logged_too() -> None:
    reward = Relative()
    reward.metrics = {"guards/length/grip": 0.25, "guards/canary/drift": float("nan")}  # type: ignore[attr-defined]
    function = for_trl(reward)
    assert isinstance(function, TrlReward)
    trainer = Trainer()
    function(["p"] * 2, ["a", "bb"], log_metric=trainer.log_metric)
    metrics = dict(trainer.metrics)
    assert metrics["relative/guards/length/grip"] == 0.25
    assert "relative/guards/canary/drift" not in metrics


def test_a_judge_that_does_not_answer_costs_a_steps_rewards_and_is_logged() -> None:
    class Dead(Relative):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            Event().wait()
            raise AssertionError

    trainer = Trainer()
    function = for_trl(Dead(), deadline=0.01)
    assert isinstance(function, TrlReward)
    assert function(["p"] * 2, ["a", "bb"], log_metric=trainer.log_metric) == [None, None]
    assert dict(trainer.metrics)["relative/abstained/timeout"] == 1.0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_it_pickles_and_is_called_as_the_reward(asynchronous: bool) -> None:
    function = for_trl(Judged(), 2, deadline=60.0, columns=("rubric",), asynchronous=asynchronous)
    list(function.scorer.score([Group("p", ["a"])]).rewards)  # the engine is open now, and stays behind
    copy = pickle.loads(pickle.dumps(function))
    assert type(copy) is type(function)
    assert (copy.__name__, copy.num_generations, copy.columns, copy.scorer.deadline) == ("judged", 2, ("rubric",), 60.0)
    assert function.scorer.reward.engines and not copy.scorer.reward.engines


def test_options_are_checked() -> None:
    for count in (0, 2.5, "8"):
        with pytest.raises(AdjudgeError, match="num_generations is"):
            for_trl(Relative(), count)  # type: ignore[arg-type]
    for columns in ("rubric", 7):
        with pytest.raises(AdjudgeError, match=f"columns is {columns!r}: give a list of names"):
            for_trl(Relative(), columns=columns)  # type: ignore[arg-type]


# The asynchronous form


def test_the_asynchronous_form_scores_its_own_slice() -> None:
    function = for_trl(Relative(), 2, asynchronous=True)
    assert isinstance(function, AsyncTrlReward) and inspect.iscoroutinefunction(function.__call__)
    trainer = Trainer()
    rewards = asyncio.run(function(PROMPTS[:3], STORIES[:3], log_metric=trainer.log_metric))
    assert rewards == [-1.0, 1.0, 0.0]  # the third is all of its group that is here
    assert dict(trainer.metrics)["relative/abstained"] == 0.0


def test_a_slice_without_answers_ends_no_run_but_three_in_a_row_do() -> None:
    late = for_trl(no_time_for("Tell two."), 2, asynchronous=True)
    assert isinstance(late, AsyncTrlReward)
    for prompt in ("two", "two", "one", "two", "two"):
        assert asyncio.run(late([f"Tell {prompt}."] * 2, ["A", "A A"])) == ([1, 3] if prompt == "one" else [None] * 2)
    with pytest.raises(AdjudgeError, match='every completion of the last 3 calls is "timeout"'):
        asyncio.run(late(["Tell two."] * 2, ["A", "A A"]))


def test_the_event_loop_goes_on_while_the_asynchronous_form_scores() -> None:
    async def train() -> list[float | None]:
        reward = Patient()
        function = for_trl(reward, asynchronous=True)
        assert isinstance(function, AsyncTrlReward)
        rewards, _ = await asyncio.gather(function(["p"] * 2, ["a", "bb"]), reward.others())
        return rewards

    assert asyncio.run(train()) == [-0.5, 0.5]


def test_the_adapter_needs_nothing_of_the_trainers_it_is_for() -> None:
    for path in Path(inspect.getfile(for_trl)).parent.glob("*.py"):
        source = path.read_text()
        for package in ("trl", "verl", "openrlhf", "slime", "accelerate", "ray"):
            assert f"import {package}" not in source and f"from {package}" not in source


def test_a_part_that_is_called_abstained_has_a_column_beside_the_reasons() -> None:
    class Aspects(Relative):
        def _scored(self, group: Group) -> GroupReward:
            return GroupReward((1.0, None), (None, "timeout"), {"abstained": (0.5, 0.25), "plot": (1.0, 2.0)})

    table: dict[str, list[Any]] = {}
    Aspects().for_trl(2)(["p"] * 2, ["a", "b"], log_extra=table.__setitem__)
    assert table == {
        "relative/abstained": [None, "timeout"],
        "relative/part/abstained": [0.5, 0.25],
        "relative/plot": [1.0, 2.0],
    }
