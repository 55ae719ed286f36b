from __future__ import annotations

from collections.abc import Sequence

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.check_reward import Check, CheckReward
from adjudge.rewards.parts.section_reward import SectionReward, section_after, section_of
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward


def test_a_section_is_what_stands_between_its_tags() -> None:
    assert section_of("<think>a</think> <answer> b\nc </answer> d", "answer") == "b\nc"
    assert section_of("<answer>a<answer>b</answer>", "answer") == "a<answer>b"
    for none in ("", "<answer>", "</answer>a<answer>", "<answer> </answer>"):
        assert section_of(none, "answer") == ""


def test_what_follows_a_thought_is_seen_and_a_thought_without_an_end_is_worth_nothing() -> None:
    reward = SectionReward(CheckReward(Check(ends_with=("end.",))), after="think")
    responses = ["<think>The end.</think>\nNo", "<think>Hm.</think>The end.", "Hm.</think> The end.", "The end."]
    [scored] = reward.score_groups([Group("p", responses)])
    assert scored.rewards == (0.0, 1.0, 1.0, 0.0)
    assert scored.measures["words"] == (1.0, 2.0, 2.0, None) and scored.measures["shut"] == (0.0, 0.0, 0.0, 1.0)
    assert section_after("a</think>b</think> c ", "think") == "b</think> c"
    with pytest.raises(AdjudgeError, match='the section "answer", or what comes after "think": give one of them'):
        SectionReward(reward, "answer", after="think")


def test_a_response_without_the_section_is_worth_nothing_and_not_judged() -> None:
    class Lengths(CheckReward):
        asked: list[str] = []  # noqa: RUF012

        def score_groups(self, groups: object) -> list[GroupReward]:
            self.asked += [text for group in groups for text in group.responses]  # type: ignore[attr-defined]
            return super().score_groups(groups)  # type: ignore[arg-type]

    reward = SectionReward(Lengths(Check(ends_with=(".",))))
    responses = ["<answer>Yes.</answer>", "Yes.", "<answer>Yes</answer> Yes."]
    [one, empty] = reward.score_groups([Group("p", responses), Group("p", ["no"])])
    assert Lengths.asked == ["Yes.", "Yes"]
    assert one.rewards == (1.0, 0.0, 0.0) and one.abstained == (None, None, None)
    assert one.measures["words"] == (1.0, None, 1.0) and one.measures["shut"] == (0.0, 1.0, 0.0)
    assert empty.rewards == (0.0,) and reward.name == "check" and reward.engines == ()


def test_a_reward_of_a_section_that_miscounts_is_a_mistake() -> None:
    class Miscounting(Reward):
        name = "miscounting"
        more = 1

        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            counts = [max(0, len(group.responses) + self.more) for group in groups]
            return [GroupReward((1.0,) * count, (None,) * count) for count in counts]

    reward = Miscounting()
    for reward.more in (1, -1):
        with pytest.raises(AdjudgeError, match=r'part "miscounting", prompt "p": \d rewards for 1 comp'):
            SectionReward(reward).score_groups([Group("p", ["<answer>Yes.</answer>", "No."])])
