from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Score
from adjudge.rewards.engines.colocated import Colocated
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judge_rewards.story_reward import StoryReward
from adjudge.rewards.parts.accuracy_reward import AccuracyReward
from adjudge.rewards.parts.combining import Product, WeightedSum
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.parts.gates import FormatReward, LengthReward
from adjudge.rewards.parts.section_reward import SectionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.measures import logged
from tests.rewards.written_judges import WrittenJudge

GROUPS = [Group("p", ("1", "2", "3")), Group("q", ("4",)), Group("r", ())]


def number(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    return [float(text) for text in completions]


def constant(value: Any) -> Any:
    return lambda prompts, completions, **columns: [value] * len(completions)


logit = JudgeReward(JudgeSpec("scalar", engine=EngineSpec("dummy:tiny-llama")))
STORY = JudgeSpec("pointwise")


def tree(**options: Any) -> JudgeReward:
    return JudgeReward(JudgeSpec("tree", options, EngineSpec("dummy:tiny-llama")))


def judge(says: Any) -> JudgeReward:
    return JudgeReward(WrittenJudge(says))


def test_a_sum_by_hand_with_every_part_in_the_breakdown() -> None:
    reward = WeightedSum(
        {"judge": judge(float), "number": number, "watched": constant(7.0)},
        {"judge": 0.5, "number": -0.25, "watched": 0.0},
    )
    first, second, empty = reward.score_groups(GROUPS)
    assert first.rewards == pytest.approx((0.25, 0.5, 0.75), abs=1e-6)
    assert second.rewards == pytest.approx((1.0,), abs=1e-6) and empty.rewards == ()
    assert first.parts == {
        "judge": (1.0, 2.0, 3.0),
        "judge/all": (1.0, 2.0, 3.0),
        "number": (1.0, 2.0, 3.0),
        "watched": (7.0, 7.0, 7.0),
    }
    assert first.measures["judge/mass"] == (0.75,) * 3 and first.measures["words"] == (1.0,) * 3
    nested = WeightedSum({"outer": reward, "more": number}, {"more": 0.5})
    [group] = nested.score_groups(GROUPS[:1])
    assert group.rewards == pytest.approx((0.75, 1.5, 2.25), abs=1e-6)
    assert "outer/judge/all" in group.parts and "outer/judge/mass" in group.measures and "words" in group.measures


def test_a_product_by_hand() -> None:
    [group] = Product({"a": number, "b": constant(0.5), "c": number}).score_groups(GROUPS[:1])
    assert group.rewards == pytest.approx((0.5, 2.0, 4.5), abs=1e-6)


def test_a_part_that_abstains_makes_the_reward_abstain_unless_it_weighs_nothing() -> None:
    parts = {"judge": judge(lambda text: "timeout" if text == "2" else 1.0), "number": number}
    [group] = WeightedSum(parts).score_groups(GROUPS[:1])
    assert group.rewards == (2.0, None, 4.0) and group.abstained == (None, "timeout", None)
    assert group.parts["number"] == (1.0, 2.0, 3.0) and group.parts["judge"] == (1.0, None, 1.0)
    [watched] = WeightedSum(parts, {"judge": 0.0}).score_groups(GROUPS[:1])
    assert watched.rewards == (1.0, 2.0, 3.0) and watched.abstained == (None,) * 3
    [product] = Product({**parts, "zero": constant(0.0)}).score_groups(GROUPS[:1])
    assert product.rewards == (0.0, None, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_abstains_and_its_part_is_named(bad: float, caplog: pytest.LogCaptureFixture) -> None:
    def odd(prompts: Any, completions: Sequence[str], **columns: Any) -> list[float]:
        return [bad if text == "2" else 1.0 for text in completions]

    [group] = WeightedSum({"odd": odd, "number": number}).score_groups(GROUPS[:1])
    assert group.rewards == (2.0, None, 4.0) and group.abstained == (None, "non_finite", None)
    assert group.parts["odd"] == (1.0, None, 1.0)
    assert group.measures["odd/non_finite"] == (0.0, 1.0, 0.0)
    assert 'part "odd" gave 1 of 3 rewards that are not finite' in caplog.text
    assert group.measures["number/non_finite"] == (0.0, 0.0, 0.0)
    assert 'part "number"' not in caplog.text


def test_how_often_a_part_is_not_finite_is_a_rate_over_all_groups_and_known_where_it_never_is() -> None:
    def odd(prompts: Any, completions: Sequence[str], **columns: Any) -> list[float]:
        return [math.nan if text == "2" else 1.0 for text in completions]

    groups = [GROUPS[0], Group("q", ("1", "3", "4"))]
    rates = logged(groups, WeightedSum({"odd": odd, "number": number}).score_groups(groups))
    assert rates["mean/odd/non_finite"] == pytest.approx(1 / 6) and rates["mean/number/non_finite"] == 0.0


def test_a_part_of_the_users_own_that_returns_a_group_with_nan_is_caught_too() -> None:
    class Own(Reward):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            return [GroupReward((math.nan,) * len(g.responses), (None,) * len(g.responses)) for g in groups]

    [group] = WeightedSum({"own": Own()}).score_groups(GROUPS[:1])
    assert group.rewards == (None,) * 3 and group.abstained == ("non_finite",) * 3


def test_a_sum_that_overflows_abstains() -> None:
    for weights in ({"a": 1.5e270, "b": 1.5e270}, {"a": 1e300}):
        [group] = WeightedSum({"a": constant(1e38), "b": constant(1e38)}, weights).score_groups(GROUPS[1:2])
        assert group.rewards == (None,) and group.abstained == ("non_finite",)
        assert group.parts["a"] == (1e38,)


def test_a_part_with_the_wrong_number_of_values_is_named() -> None:
    class Short(Reward):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            return [GroupReward((1.0,), (None,)) for _ in groups]

    class Fewer(Reward):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            return []

    for part, message in (
        (Short(), 'part "wrong", prompt "p": 1 rewards for 3 completions'),
        (Fewer(), 'part "wrong" returned 0 for 1 groups'),
        (lambda **_: [1.0], "wrong returned 1 rewards for 3 completions: return one for each"),
        (lambda **_: 1.0, "wrong returned float: return a list of numbers"),
        (lambda **_: "123", "wrong returned str: return a list of numbers"),
        (lambda **_: b"123", "wrong returned bytes: return a list of numbers"),
        (lambda **_: bytearray(b"123"), "wrong returned bytearray: return a list of numbers"),
        (lambda **_: {0.5, 1.5, 2.5}, "wrong returned set: return a list of numbers"),
        (lambda **_: frozenset({0.5, 1.5, 2.5}), "wrong returned frozenset: return a list of numbers"),
        (lambda **_: {1: 0.0, 2: 0.0, 3: 0.0}, "wrong returned dict: return a list of numbers"),
        (lambda **_: ["good", None, None], "wrong returned str for completion 0: return a number, or None"),
        (lambda **_: [1.0, "0.5", 1.0], "wrong returned str for completion 1: return a number, or None"),
        (lambda **_: [b"1"] * 3, "wrong returned bytes for completion 0: return a number, or None"),
        (lambda **_: [1.0, (None, "lazy"), None], r"wrong returned tuple for completion 1: .* of unparsable, low_mass"),
        (lambda **_: [(1.0, None)] * 3, "wrong returned tuple for completion 0"),
        (lambda **_: [Score(("a",), mass=1.0)] * 3, "wrong returned Score for completion 0: .* whose labels are numb"),
        (3, 'part "wrong" is int: give a reward or a function'),
    ):
        with pytest.raises(AdjudgeError, match=message):
            WeightedSum({"wrong": part}).score_groups(GROUPS[:1])  # type: ignore[dict-item]


def test_a_function_gets_what_trainers_give_and_none_abstains() -> None:
    seen: list[Any] = []

    def function(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        seen.append((prompts, completions, columns))
        return [None if text == "1" else 1 for text in completions]

    groups = [Group("p", ("1", "2"), "theirs", columns={"genre": "a"}), Group("q", ("3",))]
    first, second = FunctionReward(function).score_groups(groups)
    assert seen == [
        (["p", "p", "q"], ["1", "2", "3"], {"genre": ["a", "a", None], "reference": ["theirs", "theirs", None]})
    ]
    assert first.rewards == (None, 1.0) and first.abstained == ("unsupported", None) and second.rewards == (1.0,)
    assert FunctionReward(function).name == "function"
    assert FunctionReward(function).score_groups([Group("p", ())])[0].rewards == () and len(seen) == 1


def test_a_function_may_say_why_it_abstains_and_give_an_engines_scores_with_reason_and_mass() -> None:
    read, sure = Score.of(("1", "3"), [math.log(0.2), math.log(0.6)], (1.0, 3.0), 9), Score(("1",), expected=2.0)
    said = [(None, "timeout"), Score.abstained(("1",), "too_long", 9), read, sure]
    low = Score.of(("1", "3"), [math.log(0.002), math.log(0.006)], (1.0, 3.0), 9)
    [group] = FunctionReward(lambda completions: [*said, low]).score_groups([Group("p", tuple("abcde"))])
    assert group.rewards == (None, None, pytest.approx(2.5), 2.0, None)
    assert group.abstained == ("timeout", "too_long", None, None, "low_mass")
    assert group.measures["mass"] == (None, None, pytest.approx(0.8), None, pytest.approx(0.008))


def test_a_function_may_have_its_texts_as_messages() -> None:
    seen: list[Any] = []

    def function(prompts: list[Any], completions: list[Any]) -> list[float]:
        seen.append((prompts, completions))
        return [float(one[0]["content"] == "b") for one in completions]

    turns = (("system", "Be kind."), ("user", "Hi."))
    groups = [Group("p", ("a", "b")), Group("Hi.", ("b",), conversation=turns)]
    assert [one.rewards for one in FunctionReward(function, messages=True).score_groups(groups)] == [(0, 1), (1,)]
    prompts = [[{"role": "user", "content": "p"}]] * 2 + [[{"role": r, "content": t} for r, t in turns]]
    assert seen == [(prompts, [[{"role": "assistant", "content": text}] for text in "abb"])]


def test_only_what_passes_the_gates_is_judged() -> None:
    written = WrittenJudge(lambda text: float(text) / 10)
    reward = Gated(JudgeReward(written), {"odd": lambda completions, **_: [float(int(t) % 2) for t in completions]})
    first, second, empty = reward.score_groups(GROUPS)
    assert first.rewards == pytest.approx((0.1, 0.0, 0.3), abs=1e-6) and first.abstained == (None,) * 3
    assert second.rewards == (0.0,) and empty.rewards == ()
    assert written.calls == [["1", "3"]]
    assert first.parts["odd"] == (1.0, 0.0, 1.0) and first.parts["reward/all"] == (0.1, None, 0.3)
    assert first.measures["words"] == (1.0, None, 1.0)
    [shut] = Gated(number, {"never": constant(0.4)}, least=0.5, shut=-1.0).score_groups(GROUPS[:1])
    assert shut.rewards == (-1.0,) * 3


def test_a_tree_whose_leaves_all_weigh_the_same_pays_nothing_below_0() -> None:
    for equal in ("equal", ["equal"], " equal,"):
        assert not Gated(tree(weights=equal), {"c": number}).below_zero
    assert not Gated(tree(), {"c": number}).below_zero and tree(weights="generated").below_zero


def test_a_gate_that_abstains_makes_the_reward_abstain_unless_another_is_shut() -> None:
    doubt = judge(lambda text: "low_mass" if text == "1" else 1.0)
    [group] = Gated(number, {"doubt": doubt}).score_groups(GROUPS[:1])
    assert group.rewards == (None, 2.0, 3.0) and group.abstained == ("low_mass", None, None)
    [shut] = Gated(number, {"doubt": doubt, "never": constant(0.0)}).score_groups(GROUPS[:1])
    assert shut.rewards == (0.0,) * 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: WeightedSum([number]), "no parts are given by name"),  # type: ignore[arg-type]
        (lambda: LengthReward((200, 800)), r"window is \(200, 800\): give LengthWindow"),  # type: ignore[arg-type]
        (lambda: JudgeSpec("pointwise", EngineSpec("house")), "options are .*: give a dict of them, and an engine as"),  # type: ignore[arg-type]
        (lambda: JudgeSpec("pointwise", engine="house"), "engine is 'house': give an EngineSpec"),  # type: ignore[arg-type]
        (lambda: Gated(WeightedSum({"a": number, "b": number}, {"b": -1}), {"c": number}), "can pay less than 0, what"),
        (lambda: Gated(SectionReward(logit), {"c": number}), "can pay less than 0, what a shut gate pays"),
        (lambda: Gated(logit.during_training(), {"c": number}), "can pay less than 0, what a shut gate pays"),
        (lambda: Gated(StoryReward(STORY, form="parity"), {"c": number}), "can pay less than 0, what a shut gate pays"),
        (lambda: Gated(tree(weights="generated"), {"c": number}), "can pay less than 0, what a shut gate pays"),
        (lambda: Gated(constant(-2.0), {"c": number})(["p"], ["1"]), "paid -2, less than what a shut gate pays"),
        (lambda: Product({"n": number, "b": constant(-2.0)})(["p"], ["1"]), 'the part "b" paid -2, which turns the'),
        (lambda: WeightedSum({"n": number}, [1.0]), "weights are list: give a dict of them by part"),  # type: ignore[arg-type]
        (lambda: Product({"n": number, "logit": logit}), 'the part "logit" can pay less than 0, which turns the sign'),
        (lambda: Product({"fined": AccuracyReward(unreadable=-1.0)}), 'the part "fined" can pay less than 0'),
        (lambda: WeightedSum({}), "no parts are given"),
        (lambda: WeightedSum({"a/b": number}), 'a part is called "a/b"'),
        (lambda: WeightedSum({3: number}), 'a part is called "3": give it a name, a text'),  # type: ignore[dict-item]
        (lambda: Product({"words": number}), 'a part is called "words": that is something else in logs'),
        (lambda: WeightedSum({"abstained": number}), 'a part is called "abstained"'),
        (lambda: WeightedSum({"a": number}, {"b": 1.0}), 'there is a weight for "b", but no such part: choose a'),
        (lambda: WeightedSum({"a": number}, {"a": math.nan}), 'the weight of "a" is nan'),
        (lambda: WeightedSum({"a": number}, {"a": 0.0}), "all weights are 0"),
        (lambda: Gated(number, {}), "no parts are given"),
        (lambda: Gated(number, {"reward": number}), 'a gate is called "reward"'),
        (lambda: Gated(number, {"a": number}, shut=math.inf), "shut is inf"),
        (lambda: WeightedSum({"a": number}, {"a": "2"}), """the weight of "a" is '2': give a finite number"""),  # type: ignore[dict-item]
        (lambda: Gated(number, {"a": number}, shut="1"), "shut is '1' and least 0.5: give numbers"),  # type: ignore[arg-type]
        (lambda: Gated(number, {"a": number}, least=None), "shut is None and least None: give numbers"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_named(build: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        build()


def test_a_composition_is_called_like_a_function_and_pickles() -> None:
    reward = Product({"sum": WeightedSum({"number": number}, {"number": 2.0}), "number": number})
    prompts, completions = ["p", "p", "q"], ["1", "2", "3"]
    assert reward(prompts, completions) == [2.0, 8.0, 18.0]
    assert pickle.loads(pickle.dumps(reward))(prompts, completions) == [2.0, 8.0, 18.0]
    assert reward(prompts=prompts, completions=completions, reference=["r"] * 3, completion_ids=[[1]] * 3) == [
        2.0,
        8.0,
        18.0,
    ]
    assert reward([], []) == []


def test_what_looks_at_whole_steps_is_the_outermost() -> None:
    free = LengthFree(FunctionReward(lambda completions, **_: [1.0] * len(completions)))
    within: list[Callable[[], Reward]] = [
        lambda: WeightedSum({"a": free}),
        lambda: Product({"a": Guarded(free)}),
        lambda: Gated(free, {"a": FormatReward()}),
        lambda: Gated(FormatReward(), {"a": free}),
        lambda: SectionReward(free),
        lambda: Colocated(free),
    ]
    for made in within:
        with pytest.raises(AdjudgeError, match=r"is (LengthFree|Guarded), which looks at whole steps: put \1 around"):
            made()


def test_a_function_may_take_the_id_of_its_groups() -> None:
    seen: list[Any] = []

    def named(prompts: Any, completions: Any, id: Any) -> list[float]:
        seen.extend(id)
        return [1.0] * len(prompts)

    groups = [Group("p", ("a", "b"), id="7"), Group("p", ("c",))]
    assert FunctionReward(named).score_groups(groups)[1].rewards == (1.0,) and seen == ["7", "7", None]
    plain = FunctionReward(lambda prompts, completions: [2.0] * len(prompts))
    assert plain.score_groups(groups)[0].rewards == (2.0, 2.0)  # as before
    assert FunctionReward(named)(["p"] * 2, ["a", "b"], id=["1", "2"]) == [1.0, 1.0] and seen[3:] == ["1", "2"]
