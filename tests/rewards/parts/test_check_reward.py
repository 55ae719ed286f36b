from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.check_reward import Check, CheckReward, count_sentences
from adjudge.rewards.records.group import Group


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
        ({"sentences": 3}, "sentences is 3: give the least and the most"),
        ({"sentences": ("1", "2")}, "give the least and the most, above 0"),
    ],
)
def test_a_check_of_nothing_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        Check(**fields)  # type: ignore[arg-type]


def test_what_is_no_check_is_refused() -> None:
    with pytest.raises(AdjudgeError, match=r"check is 'sea': give Check\(mentions"):
        CheckReward("sea")  # type: ignore[arg-type]


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


def test_blanks_around_a_phrase_do_not_matter() -> None:
    for check in (Check(ends_with=(" end.\n",)), Check(mentions=("sea ",)), Check(mentions=("\nthe end.\n",))):
        assert CheckReward(check).value("The sea.\nThe end. ") == 1.0
    assert CheckReward(Check(avoids=("sea ",))).value("The sea") == 0.0
    with pytest.raises(AdjudgeError, match="nothing is to be seen"):
        Check(mentions=(" ",))


@pytest.mark.parametrize("given", [{"mentions": "sea"}, {"ends_with": "."}, {"avoids": (1,)}, {"sentences": (1,)}])
def test_what_is_no_list_of_texts_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(AdjudgeError, match=next(iter(given))):
        Check(**given)
