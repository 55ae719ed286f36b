from __future__ import annotations

import math
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.length import LengthGuard
from adjudge.rewards.guards.length_free import LengthFree, LengthState
from adjudge.rewards.parts.combining import WeightedSum
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.parts.gates import FormatReward, LengthReward
from adjudge.rewards.parts.section_reward import SectionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.trainers.measures import logged
from adjudge.rewards.words import count_words
from tests.rewards.guards.made_reward import Made, of_words

GROUPS = [of_words(1, 2, 3), of_words(2, 4)]
BY_HAND = {1: 1.0, 2: 2.0, 3: 4.0}


def by_length(group: Group, text: str) -> float:
    return 0.5 + 0.01 * count_words(text)


def by_hand(group: Group, text: str) -> float:
    return BY_HAND[count_words(text)] if len(group.responses) == 3 else float(count_words(text) == 4)


def test_the_state_is_worked_out_by_hand() -> None:
    """xx: 2, then 2/2 + 2; xy: 3, then 3/2 + 1."""
    free = LengthFree(Made(by_hand), half_life=1, warmup=2)
    before = free.score_groups(GROUPS)
    assert [row.rewards for row in before] == [(1, 2, 4), (0, 1)]
    assert free.state.groups == 2
    assert (free.state.xx, free.state.xy, free.state.slope) == pytest.approx((3, 2.5, 2.5 / 3), abs=1e-6)
    after = free.score_groups(GROUPS)
    b = 2.5 / 3
    assert after[0].rewards == pytest.approx((1 + b, 2, 4 - b), abs=1e-6)
    assert after[1].rewards == pytest.approx((b, 1 - b), abs=1e-6)
    assert after[1].parts["length_trend"] == pytest.approx((b, -b), abs=1e-6)


def test_a_known_slope_is_gone_after_the_warm_up_and_the_means_stay() -> None:
    free, guard = LengthFree(Made(by_length), warmup=8), LengthGuard()
    groups = [of_words(10 + n, 80 - n, 40, 3 * n + 1) for n in range(8)]
    assert free.score_groups(groups) == [
        msgspec.structs.replace(
            row,
            parts={
                "with_length_trend": row.rewards,
                "length_trend": (0.0,) * 4,
                "length_words": tuple(float(count_words(text)) for text in group.responses),
            },
        )
        for group, row in zip(groups, Made(by_length).score_groups(groups), strict=True)
    ]
    rewards = free.score_groups(groups)
    assert free.state.slope == pytest.approx(0.01)
    for group, row in zip(groups, rewards, strict=True):
        mean = sum(by_length(group, text) for text in group.responses) / 4
        assert row.rewards == pytest.approx((mean,) * 4)
    guard.observe(groups, rewards)
    assert not guard.readings()["slope"] > 1e-9


def test_what_a_gate_has_shut_out_is_paid_for_the_gate_and_not_for_its_length() -> None:
    def good(completions: list[str], **_: object) -> list[float]:
        return [float(count_words(text) > 1) for text in completions]

    gated, groups = Gated(Made(by_length), {"good": good}), [of_words(20, 1, 40, 1)]
    free = LengthFree(gated, warmup=2)
    for _ in range(4):
        [row] = free.score_groups(groups)
    assert free.state.slope == pytest.approx(0.01)
    assert row.rewards == pytest.approx((0.8, 0.0, 0.8, 0.0)) and row.rewards[1] == 0.0
    assert row.parts["with_length_trend"] == pytest.approx((0.7, None, 0.9, None))
    assert row.measures["shut"] == (0.0, 1.0, 0.0, 1.0)
    guard = LengthGuard(enough=2)
    guard.observe(groups * 8, [row] * 8)
    assert not guard.readings()["grip"] > 0.1  # nor is it held against length
    [row] = Gated(gated, {"always": lambda completions, **_: [1.0] * len(completions)}).score_groups(groups)
    assert row.measures["shut"] == (0.0, 1.0, 0.0, 1.0)


def test_where_a_section_is_judged_its_own_words_count() -> None:
    thoughts = [400, 30, 200, 90]
    groups = [
        Group("p", [f"<think>{'hm ' * n}</think><answer>{'w ' * (10 + n * step % 70)}</answer>" for n in thoughts])
        for step in range(1, 9)
    ]
    free, guard = LengthFree(SectionReward(Made(by_length)), warmup=8), LengthGuard(enough=2)
    guard.observe(groups, free.score_groups(groups))
    assert free.state.slope == pytest.approx(0.01) and guard.readings()["slope"] == pytest.approx(1.0)
    for row in free.score_groups(groups):
        assert row.rewards == pytest.approx((sum(row.rewards) / 4,) * 4)  # type: ignore[arg-type]
        assert logged(groups, [row] * 8)["mean/words"] < 90


def test_beside_a_gate_and_other_parts_the_words_of_the_section_count() -> None:
    group = Group("p", ["<think>a b c</think><answer>one two</answer>", "<answer>no thought here</answer>"])
    section, whole = SectionReward(Made(by_length)), LengthReward()
    for reward in (
        Gated(section, {"format": FormatReward()}),
        WeightedSum({"section": section, "whole": whole}),
        WeightedSum({"whole": whole, "section": section}),
    ):
        [found] = reward.score_groups([group])
        assert found.measures["words"][0] == 2.0


def test_nothing_is_taken_out_during_the_warm_up() -> None:
    for groups, slope in ((5, 0.0), (6, 0.5)):
        free = LengthFree(Made(by_hand), warmup=6, state=LengthState(2.0, 1.0, groups))
        assert free.score_groups(GROUPS[1:])[0].rewards == (slope, 1 - slope)


def test_the_rewards_of_a_call_do_not_depend_on_the_order_of_its_groups() -> None:
    one, other = (LengthFree(Made(by_hand), warmup=2, state=LengthState(2.0, 1.0, 5)) for _ in range(2))
    assert one.score_groups(GROUPS) == other.score_groups(GROUPS[::-1])[::-1]


def test_a_step_can_be_replayed_from_the_state_before_it() -> None:
    free = LengthFree(Made(by_length), warmup=1)
    free.score_groups(GROUPS)
    kept = msgspec.json.decode(msgspec.json.encode(free.state), type=LengthState)
    expected = free.score_groups(GROUPS)
    again = LengthFree(Made(by_length), warmup=1, state=kept)
    assert again.score_groups(GROUPS) == expected and again.state == free.state
    assert pickle.loads(pickle.dumps(free)).state == free.state


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 50), st.none() | st.floats(-1e6, 1e6)), max_size=6), min_size=1, max_size=4
    )
)
def test_abstentions_and_group_means_stay(rows: list[list[tuple[int, float | None]]]) -> None:
    values = [[value for _, value in row] for row in rows]
    groups = [Group(str(n), tuple("w " * count for count, _ in row)) for n, row in enumerate(rows)]

    class Table(Made):
        def score_groups(self, groups):  # type: ignore[no-untyped-def]
            from tests.rewards.guards.made_reward import rewarded

            return [rewarded(values[int(group.prompt)]) for group in groups]

    free = LengthFree(Table(), state=LengthState(4.0, 3.0, 99))
    for before, after in zip(values, free.score_groups(groups), strict=True):
        assert [value is None for value in before] == [value is None for value in after.rewards]
        known = [value for value in before if value is not None]
        assert math.fsum(v for v in after.rewards if v is not None) == pytest.approx(math.fsum(known), abs=1e-3)
        if len(known) == 1:
            assert [v for v in after.rewards if v is not None] == known


def test_a_reward_too_large_to_train_on_teaches_nothing_whether_a_trainer_calls_or_anybody_else() -> None:
    def pays(completions: list[str]) -> list[float]:
        return [-1e300 if "boom" in text else len(text) / 8 for text in completions]

    called, trained = (LengthFree(FunctionReward(pays), warmup=0) for _ in range(2))
    function = trained.for_trl(3)
    for texts in (["a b", "c", "boom " * 9], ["a b c", "d", "e e"]):
        rewards = called(["p"] * 3, texts)
        assert rewards == function(["p"] * 3, texts)
        assert [value is None for value in rewards] == ["boom" in text for text in texts]
    assert called.state == trained.state and called.state.groups == 2


def test_rewards_that_are_not_finite_abstain_and_leave_the_state_alone() -> None:
    odd = {1: math.nan, 2: 1e308, 3: -1e308}
    free = LengthFree(Made(lambda group, text: odd[count_words(text)]), warmup=0, state=LengthState(1.0, 0.5, 9))
    [row] = free.score_groups([of_words(1, 2, 3)])
    assert row.rewards == (None,) * 3 and row.abstained == ("non_finite",) * 3
    assert row.parts["length_trend"] == (None,) * 3 and free.state == LengthState(1.0, 0.5, 9)
    free.after([of_words(1, 2, 3)], free.reward.score_groups([of_words(1, 2, 3)]))
    assert math.isfinite(free.state.slope)


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.inf, math.nan, "64"])
def test_a_half_life_must_be_a_number_above_0(half_life: Any) -> None:
    with pytest.raises(AdjudgeError, match="half_life"):
        LengthFree(Made(), half_life=half_life)


@pytest.mark.parametrize("warmup", [-1, 1.5, "16"])
def test_a_warmup_must_be_a_number_of_groups(warmup: Any) -> None:
    with pytest.raises(AdjudgeError, match="warmup is"):
        LengthFree(Made(), warmup=warmup)
