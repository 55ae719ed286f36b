"""A judge of one's own has what all judges have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import HOUSE
from adjudge.engine.text.labels import Labels
from adjudge.rewards.engines.specification import JudgeSource
from adjudge.rewards.journal import Journal
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.kinds import kind_name
from adjudge.rewards.judges.own import OwnJudge, Worded
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.judges.principle import PrincipleJudge
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.verdict import Item
from tests.rewards.judges.homework import DIGITS, ITEM, Homework
from tests.rewards.scripted import ScriptedEngine


class Lowest(Homework):
    range = (0.0, 9.0)

    def score_of(self, parts: Any) -> float:
        return min(part.score for part in parts.values())


class Unranged(Homework):
    def score_of(self, parts: Any) -> float:
        return 3.0


class Boundless(Unranged):
    range = (-math.inf, math.inf)


def test_a_verdict_has_a_part_for_each_question_and_their_mean_or_what_its_author_makes_of_them(tiny: Engine) -> None:
    [mean], [least] = (made(tiny, min_mass=0.0).judge([ITEM]) for made in (Homework, Lowest))
    a, b = (part.score or 0.0 for part in mean.breakdown.values())
    assert list(mean.breakdown) == ["a", "b"] and a != b and mean.id == "mine"
    assert mean.score == pytest.approx((a + b) / 2) and least.score == min(a, b)
    assert mean.breakdown["a"].mass is not None and len(mean.breakdown["a"].distribution or ()) == 10


def test_its_journal_is_read_again_and_other_words_or_another_content_are_other_verdicts(
    tiny: Engine, tmp_path: Path
) -> None:
    with Journal(tmp_path / "j") as journal:
        judge = Homework(tiny, journal=journal, min_mass=0.0)
        first, computed = judge.judge([ITEM]), tiny.stats.tokens_computed
        assert Homework(tiny, journal=journal, min_mass=0.0).judge([ITEM]) == first
        assert tiny.stats.tokens_computed == computed
        other = Homework(tiny, words="{task} {answer} Wrong?", min_mass=0.0)
        assert len({judge.key(ITEM), other.key(ITEM), Lowest(tiny, min_mass=0.0).key(ITEM)}) == 3
        other.words, key = judge.words, judge.key(ITEM)
        assert other.key(ITEM) == key
        other.content = 2
        assert other.key(ITEM) != key
        again = Homework(AbsentEngine(Card.of(tiny)), journal=journal, min_mass=0.0)
        assert again.judge([ITEM]) == first  # so that a training run can be replayed without its model


def test_long_texts_are_shortened_and_what_the_model_does_not_answer_abstains(tiny: Engine) -> None:
    long = Item("2 + 2?", "four " * 3000)
    [kept] = Homework(tiny, min_mass=0.0).judge([long])
    [refused] = Homework(tiny, min_mass=0.0, cut="never").judge([long])
    [unsure] = Homework(tiny, min_mass=0.999).judge([ITEM])
    assert kept.truncated and kept.score is not None
    assert (refused.score, refused.abstained) == (None, "too_long")
    assert (unsure.score, unsure.abstained) == (None, "low_mass")


def test_house_reads_the_texts_as_they_would_be_typed(tiny: Engine) -> None:
    judge = Homework(AbsentEngine(Card(fingerprint=HOUSE.fingerprint)))
    [first, _] = judge.questions(Item("p", "One.\n\nTwo."))
    assert [one.text for one in first.words.segments if not one.trusted] == ["p", "One. Two."]


def test_it_writes_first_where_it_is_to_reason(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "Well done. <ANSWER>7</ANSWER>")
    [verdict] = Homework(engine, mode="reasoned", min_mass=0.0).judge([ITEM])
    assert verdict.score is not None and verdict.analysis == dict.fromkeys("ab", ("Well done. <ANSWER>7</ANSWER>",))
    assert not any(shown.endswith(("A:", "B:")) for shown in engine.asked)  # the slot is where the score is written


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda judge: [], r"Wrong.questions has the names \[\]: ask one or more, each by its own name"),
        (lambda judge: None, r"Wrong.questions has None: make each with self.question"),
        (lambda judge: ["How good?"], r"Wrong.questions has 'How good\?': make each with self.question"),
        (lambda judge: [judge.question("a", "x", DIGITS)] * 2, "has the names"),
        (lambda judge: [judge.question("a", "{story}", DIGITS)], 'names "{story}" but no story='),
        (lambda judge: [judge.question("a", "x", "yes no")], "labels must be a list"),
        (lambda judge: [judge.question("a", "x", ["yes", "no"])], "question a are no numbers: give Labels"),
    ],
)
def test_what_an_author_gets_wrong_is_one_sentence(tiny: Engine, asked: Any, message: str) -> None:
    class Wrong(OwnJudge):
        def questions(self, item: Item) -> Any:
            return asked(self)

    with pytest.raises(AdjudgeError, match=message):
        Wrong(tiny, min_mass=0.0).judge([ITEM])


def test_a_score_of_that_takes_labels_for_numbers_is_told_which_are_none(tiny: Engine) -> None:
    class Lowest(OwnJudge):
        labels = Labels(("yes", "no"))

        def questions(self, item: Item) -> Any:
            return [self.question(name, name, self.labels) for name in ("right", "shown")]

        def score_of(self, parts: Any) -> float:
            return min(part.score for part in parts.values())  # type: ignore[no-any-return]

    with pytest.raises(AdjudgeError, match=r"score_of ends in TypeError.* question right are no numbers: Labels"):
        Lowest(tiny, min_mass=0.0).judge([ITEM])
    Lowest.labels = Labels(("yes", "no"), values=(1.0, 0.0))
    [verdict] = Lowest(tiny, min_mass=0.0).judge([ITEM])
    assert verdict.score is not None and 0 <= verdict.score <= 1


class Odd(Homework):
    """Its score is what it has been given."""

    score: Any = None

    def score_of(self, parts: Any) -> Any:
        return self.score


@pytest.mark.parametrize("score", ["good", True, 1j])
def test_a_score_that_is_no_number_is_refused(tiny: Engine, score: Any) -> None:
    judge = Odd(tiny, min_mass=0.0)
    judge.score = score
    with pytest.raises(AdjudgeError, match="Odd.score_of gave .*: give a number, or None"):
        judge.judge([ITEM])


@pytest.mark.parametrize(
    "score", [None, math.nan, math.inf, -math.inf, np.float32("nan"), pytest.param(10**400, id="vast")]
)  # None is no score
def test_a_score_that_is_not_finite_abstains_and_the_run_goes_on(tiny: Engine, tmp_path: Path, score: Any) -> None:
    with Journal(tmp_path / "j") as journal:
        judge = Odd(tiny, min_mass=0.0, journal=journal)
        judge.score, why = score, None if score is None else "non_finite"
        [verdict] = judge.judge([ITEM])
        assert (verdict.score, verdict.abstained) == (None, why) and len(verdict.breakdown) == 2
        assert judge.judge([ITEM]) == [verdict]
        [group] = JudgeReward(judge, scale="own").score_groups([Group("p", ("r",))])
    assert (group.rewards, group.abstained) == ((None,), (why or "unsupported",))


def test_a_score_may_be_a_number_of_any_kind(tiny: Engine, tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        judge = Odd(tiny, min_mass=0.0, journal=journal)
        judge.score = np.float32(2.5)
        assert judge.judge([ITEM])[0].score == 2.5


class Failing(Homework):
    def questions(self, item: Item) -> Any:
        yield from super().questions(item)
        assert item.prompt != "fail", "no such\nprompt"
        if item.prompt == "refuse":
            raise AdjudgeError("as it is")
        math.fsum([item.prompt == "fail", *item.reviews, *(["x"] if item.prompt == "sum" else [])])  # type: ignore[list-item]

    def score_of(self, parts: Any) -> Any:
        return parts["c"].score


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("fail", r"^Failing.questions ends in AssertionError: no such \(test_own.py, line \d+\): mend it there$"),
        ("sum", r"^Failing.questions ends in TypeError: must be real number, not str \(test_own.py, line \d+\): mend"),
        ("refuse", "^as it is$"),
        ("p", r"^Failing.score_of ends in KeyError: 'c' \(test_own.py, line \d+\): mend it there$"),
    ],
)
def test_what_an_authors_code_raises_is_one_sentence_with_its_place(tiny: Engine, prompt: str, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        Failing(tiny, min_mass=0.0).judge([Item(prompt, "r")])


def test_a_reward_is_the_share_of_its_range_and_refuses_a_judge_without_one(tiny: Engine) -> None:
    group = [Group("2 + 2?", ("4", "five"))]
    scores = [verdict.score or 0.0 for verdict in Homework(tiny, min_mass=0.0).judge([Item("2 + 2?", "4")])]
    assert JudgeReward(Homework(tiny, min_mass=0.0)).score_groups(group)[0].rewards[0] == pytest.approx(scores[0] / 9)
    with pytest.raises(AdjudgeError, match=r'Unranged declares no range, .* write range = .* or choose scale="own"'):
        JudgeReward(Unranged(tiny))
    assert JudgeReward(Unranged(tiny, min_mass=0.0), scale="own").score_groups(group)[0].rewards == (3.0, 3.0)
    boundless = JudgeReward(Boundless(tiny, min_mass=0.0))
    assert boundless.score_groups(group)[0].rewards == (3.0, 3.0) and boundless.below_zero


@pytest.mark.parametrize("scale", ["unit", "own"])
@pytest.mark.parametrize("ends", [(1.0, 1.0), (5.0, 1.0), "1-5", (1.0,), 5, ("1", "5"), (0.0, math.nan), (False, True)])
def test_a_range_that_is_none_is_refused_before_anything_is_scored(tiny: Engine, ends: Any, scale: Any) -> None:
    class Ranged(Homework):
        range = ends

    with pytest.raises(AdjudgeError, match=r"the range of Ranged is .*: write range = \(lowest, highest\)"):
        JudgeReward(Ranged(tiny), scale=scale)


@pytest.mark.parametrize("ends", [(1, 5), [1.0, 5.0], (0.0, math.inf), (-math.inf, math.inf)])
def test_a_range_may_have_whole_numbers_and_no_bounds(tiny: Engine, ends: Any) -> None:
    class Ranged(Homework):
        range = ends

    assert JudgeReward(Ranged(tiny, min_mass=0.0))(["p"], ["r"])[0] is not None


def test_a_judge_derived_from_another_keeps_its_range_unless_it_asks_otherwise(tiny: Engine) -> None:
    class Plain(PointwiseJudge):
        def __init__(self, engine: Any, **how: Any) -> None:
            super().__init__(engine, "wit=Is it funny?", **how)

    class Tenths(PointwiseJudge):
        def _questions(self, item: Item) -> Any:
            return super()._questions(item)

    class Declared(Tenths):
        range = (0.0, 10.0)

    assert (Plain.range, Tenths.range, Declared.range) == ((1.0, 5.0), None, (0.0, 10.0))
    assert PrincipleJudge.range == (0.0, 1.0)
    JudgeReward(Plain(tiny))
    with pytest.raises(AdjudgeError, match="Tenths declares no range"):
        JudgeReward(Tenths(tiny))


def test_a_class_beside_a_judge_that_concludes_otherwise_leaves_it_without_its_range(tiny: Engine) -> None:
    class Hundred:
        def score_of(self, parts: Any) -> float:
            return 100.0

    class Percent(Hundred):
        range = (0.0, 100.0)

    class Mixed(Hundred, Homework):
        pass

    class Again(Mixed):
        range = (0.0, 100.0)

    class Ranged(Percent, Homework):
        pass

    class Later(Ranged):
        def questions(self, item: Item) -> Sequence[Worded]:
            return super().questions(item)[:1]

    class Both(Lowest, Again):
        pass

    assert (Mixed.range, Again.range, Both.range) == (None, (0.0, 100.0), (0.0, 9.0))
    assert (Ranged.range, Later.range) == ((0.0, 100.0), None)
    with pytest.raises(AdjudgeError, match="Mixed declares no range"):
        JudgeReward(Mixed(tiny))
    assert JudgeReward(Again(tiny, min_mass=0.0))(["p"], ["r"]) == [1.0]


def test_a_judge_of_ones_own_with_the_name_of_another_kind_is_its_authors_own(tiny: Engine) -> None:
    for name in ("pairwise", "rubric", "personal", "scalar"):
        made: Any = type(name, (Homework,), {"range": (0.0, 9.0)})
        judge = made(tiny, min_mass=0.0)
        assert kind_name(made) is None and kind_name(judge) is None and JudgeSource(judge).kind is None
        assert JudgeReward(judge)(["p"], ["r"]) == JudgeReward(Homework(tiny, min_mass=0.0))(["p"], ["r"])


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (lambda tiny: tiny, r"which is no open judge: give a judge on it, as PointwiseJudge\(engine\)"),
        (lambda tiny: PointwiseJudge, r"which is no open judge: open it, as PointwiseJudge\(engine\)"),
        (lambda tiny: len, r"which is no open judge: derive its class from OwnJudge, or give FunctionReward"),
        (lambda tiny: None, "which is no open judge"),
    ],
)
def test_a_reward_refuses_what_is_no_judge(tiny: Engine, judge: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        JudgeReward(judge(tiny))
