from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.checks import Check, CheckReward, SectionReward, count_sentences, section_after, section_of
from adjudge.rewards.group import Group
from adjudge.rewards.reward import GroupReward, Reward


@pytest.mark.parametrize(
    ("check", "text", "score"),
    [
        (Check(ends_with=(".", "!")), "Yes! ", 1.0),
        (Check(ends_with=(".", "!")), "Yes", 0.0),
        (Check(mentions=("sea", "old boat")), "The SEA and the boat", 0.5),
        (Check(mentions=("sea",)), "the season", 0.0),
        (Check(mentions=("海",)), "大海啊", 1.0),
        (Check(avoids=("I", "as an AI")), "It is.", 1.0),
        (Check(avoids=("I", "as an AI")), "As an AI, no.", 0.0),
        (Check(sentences=(1, 2)), "One. Two? Three!", 0.0),
        (Check(sentences=(1, 2)), "One... Two", 1.0),
        (Check(avoids=("x",)), " \n", 0.0),
        (Check(mentions=("a.b",)), "aXb", 0.0),
        (Check(avoids=("!", "—", "**")), "He ran—then fell.", 0.0),
        (Check(avoids=("!", "—", "**")), "some **bold** text", 0.0),
        (Check(avoids=("!", "—", "**")), "Hello! Wow!", 0.0),
        (Check(mentions=("?", "…")), "What? Why?", 0.5),
        (Check(mentions=("sea?",)), "To sea? Yes.", 1.0),
        (Check(mentions=("sea?",)), "Overseas? No.", 0.0),
    ],
)
def test_a_text_is_worth_the_share_of_checks_that_hold(check: Check, text: str, score: float) -> None:
    assert CheckReward(check).value(text) == score


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a check checks nothing"),
        ({"mentions": ("",)}, "looks for a text in which nothing is to be seen"),
        ({"avoids": ("sea", "\u200b\ufe0f")}, "looks for a text in which nothing is to be seen"),
        ({"ends_with": ("\ufe0f",)}, "looks for a text in which nothing is to be seen"),
        ({"sentences": (0, 2)}, "give the least and the most, above 0"),
        ({"sentences": (3, 2)}, "give the least and the most, above 0"),
    ],
)
def test_a_check_of_nothing_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        Check(**fields)  # type: ignore[arg-type]


def test_a_word_is_the_same_however_its_letters_are_put_together() -> None:
    decomposed, parted = "a cafe\u0301", "the s\u200bea"
    for check, text, worth in [
        (Check(mentions=("café",)), decomposed, 1.0),
        (Check(avoids=("café",)), decomposed, 0.0),
        (Check(avoids=("sea",)), parted, 0.0),
        (Check(ends_with=("café",)), decomposed, 1.0),
    ]:
        [scored] = CheckReward(check).score_groups([Group("p", (text,))])
        assert scored.rewards == (worth,)


def test_sentences_are_counted_in_linear_time() -> None:
    assert count_sentences("") == 0 and count_sentences("。。。") == 0
    assert count_sentences("." * 1_000_000 + "a") == 1


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


@pytest.mark.parametrize(
    "phrase, text, held",
    [
        ("кот", "Который час?", 0.0),
        ("кот", "Тут кот.", 1.0),
        ("über", "überall", 0.0),
        ("à la", "Soupe à la reine", 1.0),
        ("猫", "一只猫在家", 1.0),
        ("猫 cat", "黑猫 cats", 0.0),
    ],
)
def test_words_of_every_script_with_blanks_are_whole_words(phrase: str, text: str, held: float) -> None:
    assert CheckReward(Check(mentions=(phrase,))).value(text) == held


@pytest.mark.parametrize("given", [{"mentions": "sea"}, {"ends_with": "."}, {"avoids": (1,)}, {"sentences": (1,)}])
def test_what_is_no_list_of_texts_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(AdjudgeError, match=next(iter(given))):
        Check(**given)
