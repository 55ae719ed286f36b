from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean, stdev

import msgspec
import pytest

from adjudge.bench.personal.baselines import MatrixFactorisation, prior_choice, reviewer_mean
from adjudge.bench.personal.perse import Rating
from adjudge.bench.personal.personal import CORRELATIONS, StudyLine, choices_line, orders_line, rating_line
from adjudge.engine.engine import Engine
from adjudge.rewards.judges.aspects import PERSE
from adjudge.rewards.judges.personal import PersonalJudge, PersonalPairJudge
from adjudge.rewards.records.verdict import Comparison, Item, Pair, Review, Verdict
from adjudge.training.readers.questions import ChoiceQuestion, RatingQuestion

RATED = [
    RatingQuestion(
        Item(
            "",
            f"New plot {n}.",
            id=str(n),
            reviews=tuple(Review(f"Old {m}.", "Words.", 1 + m) for m in range(n, 4 + n)),
        ),
        "ann",
        "",
        "",
        float(score),
    )
    for n, score in enumerate((4, 2, 6, 8, 5))
]
CHOSEN = [
    ChoiceQuestion(
        Pair(f"One {n}.", "Two.", id=str(n), reviews=(Comparison("c", "d", prior, aspect),)),  # type: ignore[arg-type]
        "ann",
        "",
        aspect,
        own,  # type: ignore[arg-type]
    )
    for n, (prior, aspect, own) in enumerate([("a", "ending", "a"), ("b", "ending", "a"), ("b", "surprise", "b")])
]


def rated_by(scores: Sequence[float | None], human: Sequence[float]) -> StudyLine:
    rows = [msgspec.structs.replace(RATED[0], score=score) for score in human]
    verdicts = [Verdict("", score, {}, None, False, "", "") for score in scores]
    return rating_line("k", "x", 3, lambda items: verdicts, rows)


def test_correlations_are_those_by_hand_over_what_was_not_abstained_from() -> None:
    line = rated_by([1.0, 2.0, None, 4.0, 3.0], [2.0, 1.0, 9.0, 8.0, 5.0])
    assert (line.count, line.abstained) == (4, 1)
    given, own = [1, 2, 4, 3], [2, 1, 8, 5]
    moments = [(x - fmean(given), y - fmean(own)) for x, y in zip(given, own, strict=True)]
    by_hand = sum(x * y for x, y in moments) / (sum(x * x for x, _ in moments) * sum(y * y for _, y in moments)) ** 0.5
    assert line.measures["Pearson"] == pytest.approx(by_hand, abs=1e-6)
    assert line.measures["Spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15), abs=1e-6)  # squared rank differences: 1 + 1
    assert line.measures["Kendall"] == pytest.approx((5 - 1) / 6, abs=1e-6)


@pytest.mark.parametrize("scores", [[], [1.0], [None, None], [3.0, 3.0, 3.0]])
def test_a_correlation_that_is_not_defined_is_none(scores: list[float | None]) -> None:
    line = rated_by(scores, [float(n) for n in range(len(scores))])
    assert line.measures == dict.fromkeys(CORRELATIONS)


def test_judge_and_baselines_stand_side_by_side(tiny: Engine) -> None:
    ratings = [Rating("bob", f"Old {n}.", 9 - n) for n in range(6)]
    raters = {
        "k = 3": PersonalJudge(tiny, min_mass=0.0).judge,
        "no texts": PersonalJudge(tiny, texts=False, min_mass=0.0).judge,
        "mean": reviewer_mean,
        "factors": MatrixFactorisation(ratings).judge,
        "unsure": PersonalJudge(tiny, min_mass=1.0).judge,
    }
    lines = [rating_line("k", name, 3, rater, RATED) for name, rater in raters.items()]
    assert [(line.who, line.count, line.abstained) for line in lines] == [
        *((name, 5, 0) for name in ("k = 3", "no texts", "mean", "factors")),
        ("unsure", 0, 5),
    ]
    assert lines[0].measures["Pearson"] != lines[1].measures["Pearson"]
    assert lines[2].measures == rated_by([3.0, 4.0, 5.0, 6.0, 7.0], [4.0, 2.0, 6.0, 8.0, 5.0]).measures


def test_accuracy_is_by_aspect_and_an_even_preference_is_half_a_hit(tiny: Engine) -> None:
    even = [msgspec.structs.replace(row, pair=msgspec.structs.replace(row.pair, b=row.pair.a)) for row in CHOSEN]
    aspects = ("ending", "surprise")
    prior = choices_line("baseline", "prior", 1, dict.fromkeys(aspects, partial(prior_choice, aspects=PERSE[2:])), even)
    assert prior.measures == {"ending": 0.5, "surprise": 1.0, "average": 0.75}
    judge = PersonalPairJudge(tiny, PERSE, min_mass=0.0)
    own = choices_line("k", "judge", 1, dict.fromkeys(aspects, judge.compare), even)
    assert own.measures == dict.fromkeys((*aspects, "average"), 0.5) and (own.count, own.abstained) == (3, 0)
    unsure = choices_line(
        "k", "unsure", 1, dict.fromkeys(aspects, PersonalPairJudge(tiny, min_mass=1.0).compare), CHOSEN
    )
    assert (unsure.count, unsure.abstained) == (0, 3) and set(unsure.measures.values()) == {None}


class FirstReview(PersonalJudge):
    """Scores a plot by the first review shown, and notes what was asked."""

    def judge(self, subjects: Iterable[Item]) -> list[Verdict]:
        self.asked = list(subjects)
        return [Verdict(item.id, item.reviews[0].score, {}, None, False, "", "") for item in self.asked]


def test_the_order_study_shuffles_what_would_be_shown_and_reports_the_spread(tiny: Engine) -> None:
    judge = FirstReview(tiny, k=3)
    line = orders_line(judge, RATED, shuffles=3, seed=1)
    asked = [judge.asked[turn * 5 : turn * 5 + 5] for turn in range(3)]
    for turn in asked:
        for item, row in zip(turn, RATED, strict=True):
            assert sorted(item.reviews, key=lambda review: review.score) == list(row.item.reviews[-3:])
    scores = [[item.reviews[0].score for item in turn] for turn in asked]
    assert line.spread == pytest.approx(fmean(max(column) - min(column) for column in zip(*scores, strict=True)))
    assert line.spread > 0 and (line.count, line.abstained) == (15, 0)
    for name in CORRELATIONS:
        each = [rated_by(turn, [row.score for row in RATED]).measures[name] or 0.0 for turn in scores]
        assert line.measures[name] == pytest.approx(fmean(each))
        assert line.deviations[name] == pytest.approx(stdev(each))
    assert orders_line(judge, RATED, 3, seed=1) == line != orders_line(judge, RATED, 3, seed=2)


def test_a_real_judge_goes_through_the_order_study(tiny: Engine) -> None:
    line = orders_line(PersonalJudge(tiny, k=2, min_mass=0.0), RATED, 3, 0)
    assert line.spread is not None and line.spread > 0 and line.count == 15
    unsure = orders_line(PersonalJudge(tiny, min_mass=1.0), RATED[:2], 3, 0)
    assert unsure.spread is None and (unsure.count, unsure.abstained) == (0, 6)
