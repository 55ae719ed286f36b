from __future__ import annotations

import math
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.accuracy_reward import AccuracyReward, scores_at_end
from adjudge.rewards.records.group import Group

GOLD = {"score_a": 4, "score_b": 2.5}


def text(a: Any, b: Any) -> str:
    return f"Both are fine. <ANSWER> {a} </ANSWER> | <ANSWER> {b} </ANSWER>"


def test_the_published_formula_by_hand() -> None:
    group = Group("Rate.", (text(4, 2), text(5, 5), text(1, 1)), columns=GOLD)
    [rewarded] = AccuracyReward(rate=0.5).score_groups([group])
    assert rewarded.rewards == pytest.approx((math.exp(-0.25), math.exp(-1.75), math.exp(-2.25)), abs=1e-6)
    assert rewarded.parts == {"error": (0.5, 3.5, 4.5), "score/score_a": (4, 5, 1), "score/score_b": (2, 5, 1)}
    [steep] = AccuracyReward(rate=2.0).score_groups([group])
    assert steep.rewards[0] == pytest.approx(math.exp(-1.0), abs=1e-6)
    [exact] = AccuracyReward().score_groups([Group("Rate.", (text(3, 3),), columns={"score_a": 3, "score_b": 3})])
    assert exact.rewards == (1.0,)


def test_one_column_is_for_pointwise_evaluators() -> None:
    group = Group("Rate.", ("<ANSWER>3</ANSWER>",), columns={"coherence": 4.0})
    [rewarded] = AccuracyReward(["coherence"], rate=1.0).score_groups([group])
    assert rewarded.rewards == pytest.approx((math.exp(-1),), abs=1e-6)


@pytest.mark.parametrize("written", [text("**4**", 2), text(4, ": 2") + ".\n", text(4, 2).lower()])
def test_what_the_judge_reads_is_rewarded(written: str) -> None:
    assert scores_at_end(written, 2) == [4, 2]


@pytest.mark.parametrize(
    "unreadable",
    [
        "",
        "<ANSWER> 4 </ANSWER>",
        text(4, 2) + "<ANSWER> 1 </ANSWER>",
        text(4, "five"),
        text(4, 2) + "<ANSWER> five </ANSWER>",
        text(4, 11),
        text(4, 0),
        text(4, "２"),
        text(4, "2.5"),
        "<ANSWER> 4 <ANSWER> 2 </ANSWER></ANSWER>",
        "<ANSWER> 4 </ANSWER> | <ANSWER> 2",
        text(4, 2) + " Or the other way round.",
        "<answer> 5 </answer> at first; " + text(4, 2),
        "<ANSWER>" * 100_000,
        "<ANSWER> 4 </ANSWER> <ANSWER>" + " " * 1_000_000,
    ],
    ids=range(15),
)
def test_answers_that_cannot_be_read_earn_nothing_or_abstain(unreadable: str) -> None:
    group = Group("Rate.", (unreadable, text(4, 2)), columns=GOLD)
    [rewarded] = AccuracyReward().score_groups([group])
    assert rewarded.rewards[0] == 0.0 and rewarded.abstained == (None, None)
    assert rewarded.measures["readable"] == (0.0, 1.0)
    [abstaining] = AccuracyReward(unreadable=None).score_groups([group])
    assert abstaining.rewards[0] is None and abstaining.abstained == ("unparsable", None)
    assert scores_at_end(unreadable, 2) is None


def test_only_a_fine_for_what_cannot_be_read_is_below_0() -> None:
    assert [AccuracyReward(unreadable=paid).below_zero for paid in (-0.5, 0.0, None)] == [True, False, False]


def test_a_score_with_a_comma_for_its_point_is_told_so() -> None:
    with pytest.raises(AdjudgeError, match=r"\"score_a\" is '3,5': give people's score, from 1 to 5, with a point for"):
        AccuracyReward().score_groups([Group("Rate.", ("x",), columns={"score_a": "3,5", "score_b": "4.5"})])


@pytest.mark.parametrize(
    "gold",
    [
        {},
        {**GOLD, "score_b": True},
        {"score_a": 4},
        {**GOLD, "score_b": "2 or 3"},
        {**GOLD, "score_b": 6},
        {**GOLD, "score_b": math.nan},
    ],
)
def test_peoples_scores_that_are_missing_are_named_with_prompt_and_column(gold: Any) -> None:
    with pytest.raises(AdjudgeError, match=r'group 2, prompt "Rate it\.": "score_[ab]" is'):
        AccuracyReward().score_groups([Group("Rate.", (), columns=GOLD), Group("Rate it.", ("x",), columns=gold)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "score"}, "give a list"),
        ({"columns": ()}, "give a list"),
        ({"columns": (1,)}, "give a list"),
        ({"rate": "1"}, "rate is '1'"),
        ({"unreadable": "0"}, "unreadable is '0'"),
        ({"rate": 0}, "rate is 0"),
        ({"rate": math.inf}, "rate is inf"),
        ({"unreadable": math.nan}, "unreadable is nan"),
    ],
)
def test_mistakes_are_named(options: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        AccuracyReward(**options)


def test_peoples_scores_may_be_the_texts_of_a_csv_file() -> None:
    texts = {column: str(score) for column, score in GOLD.items()}
    [of_texts], [of_numbers] = (
        AccuracyReward().score_groups([Group("Rate.", (text(4, 2),), columns=columns)]) for columns in (texts, GOLD)
    )
    assert of_texts == of_numbers


def test_peoples_score_is_one_for_the_whole_group_or_a_mistake() -> None:
    group = Group("Rate.", ("a", "b"), by_response={"score": [1, 2]})
    with pytest.raises(
        AdjudgeError, match='prompt "Rate.": the responses differ in "score", of which one value is read'
    ):
        AccuracyReward(("score",)).score_groups([group])
