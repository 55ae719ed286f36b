from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

import msgspec
import pytest

from adjudge.bench.perse import Chosen, Rated, Rating
from adjudge.bench.personal import agreement, compare_choosers, compare_raters, order_study
from adjudge.bench.personal_baselines import MatrixFactorisation, PriorChoice, ReviewerMean
from adjudge.engine.engine import Engine
from adjudge.rewards.judges.aspects import PERSE
from adjudge.rewards.judges.personal import PersonalJudge, PersonalPairJudge
from adjudge.rewards.verdict import Comparison, Item, Pair, Review, Verdict

RATED = [
    Rated(
        Item(
            "",
            f"New plot {n}.",
            id=str(n),
            reviews=tuple(Review(f"Old {m}.", "Words.", 1 + m) for m in range(n, 4 + n)),
        ),
        "ann",
        float(score),
    )
    for n, score in enumerate((4, 2, 6, 8, 5))
]
CHOSEN = [
    Chosen(Pair(f"One {n}.", "Two.", id=str(n), reviews=(Comparison("c", "d", prior, aspect),)), "ann", aspect, own)  # type: ignore[arg-type]
    for n, (prior, aspect, own) in enumerate([("a", "ending", "a"), ("b", "ending", "a"), ("b", "surprise", "b")])
]


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return Engine("dummy:tiny-llama", kv_cache_gb=0.2)


def test_correlations_are_those_by_hand_over_what_was_not_abstained_from() -> None:
    row = agreement("x", [1.0, 2.0, None, 4.0, 3.0], [2.0, 1.0, 9.0, 8.0, 5.0])
    assert (row.count, row.abstained) == (4, 1)
    given, own = [1, 2, 4, 3], [2, 1, 8, 5]
    moments = [(x - fmean(given), y - fmean(own)) for x, y in zip(given, own, strict=True)]
    by_hand = sum(x * y for x, y in moments) / (sum(x * x for x, _ in moments) * sum(y * y for _, y in moments)) ** 0.5
    assert row.pearson == pytest.approx(by_hand, abs=1e-6)
    assert row.spearman == pytest.approx(1 - 6 * 2 / (4 * 15), abs=1e-6)  # squared differences of ranks: 1 + 1
    assert row.kendall == pytest.approx((5 - 1) / 6, abs=1e-6)


@pytest.mark.parametrize("scores", [[], [1.0], [None, None], [3.0, 3.0, 3.0]])
def test_a_correlation_that_is_not_defined_is_none(scores: list[float | None]) -> None:
    row = agreement("x", scores, [float(n) for n in range(len(scores))])
    assert (row.pearson, row.spearman, row.kendall) == (None, None, None)


def test_judge_and_baselines_stand_side_by_side(tiny: Engine) -> None:
    ratings = [Rating("bob", f"Old {n}.", 9 - n) for n in range(6)]
    raters = {
        "k = 3": PersonalJudge(tiny, min_mass=0.0),
        "no texts": PersonalJudge(tiny, texts=False, min_mass=0.0),
        "mean": ReviewerMean(3),
        "factors": MatrixFactorisation(ratings),
        "unsure": PersonalJudge(tiny, min_mass=1.0),
    }
    rows = compare_raters(raters, RATED)
    assert [(row.name, row.count, row.abstained) for row in rows] == [
        *((name, 5, 0) for name in ("k = 3", "no texts", "mean", "factors")),
        ("unsure", 0, 5),
    ]
    assert rows[0].pearson != rows[1].pearson
    assert rows[2] == agreement("mean", [3.0, 4.0, 5.0, 6.0, 7.0], [4.0, 2.0, 6.0, 8.0, 5.0])


def test_accuracy_is_by_aspect_and_an_even_preference_is_half_a_hit(tiny: Engine) -> None:
    even = [msgspec.structs.replace(row, pair=msgspec.structs.replace(row.pair, b=row.pair.a)) for row in CHOSEN]
    prior, own = compare_choosers(
        {"prior": PriorChoice(PERSE[2:]), "judge": PersonalPairJudge(tiny, PERSE, min_mass=0.0)}, even
    )
    assert prior.aspects == {"ending": 0.5, "surprise": 1.0}
    assert own.aspects == {"ending": 0.5, "surprise": 0.5} and (own.count, own.abstained) == (3, 0)
    [unsure] = compare_choosers({"unsure": PersonalPairJudge(tiny, min_mass=1.0)}, CHOSEN)
    assert (unsure.count, unsure.abstained) == (0, 3) and set(unsure.aspects.values()) <= {None}


class FirstReview(PersonalJudge):
    """Scores a plot by the first review shown, and notes what was asked."""

    def judge(self, subjects: Iterable[Item]) -> list[Verdict]:
        self.asked = list(subjects)
        return [Verdict(item.id, item.reviews[0].score, {}, None, False, "", "") for item in self.asked]


def test_the_order_study_shuffles_what_would_be_shown_and_reports_the_spread(tiny: Engine) -> None:
    judge = FirstReview(tiny, k=3)
    study = order_study(judge, RATED, shuffles=3, seed=1)
    asked = [judge.asked[turn * 5 : turn * 5 + 5] for turn in range(3)]
    for turn in asked:
        for item, row in zip(turn, RATED, strict=True):
            assert sorted(item.reviews, key=lambda review: review.score) == list(row.item.reviews[-3:])
    scores = [[item.reviews[0].score for item in turn] for turn in asked]
    assert study.spread == pytest.approx(fmean(max(column) - min(column) for column in zip(*scores, strict=True)))
    assert study.spread > 0
    human = [row.score for row in RATED]
    assert list(study.agreements) == [agreement(f"order {n}", turn, human) for n, turn in enumerate(scores, 1)]
    assert order_study(judge, RATED, seed=1) == study != order_study(judge, RATED, seed=2)


def test_a_real_judge_goes_through_the_order_study(tiny: Engine) -> None:
    study = order_study(PersonalJudge(tiny, k=2, min_mass=0.0), RATED)
    assert study.spread is not None and study.spread > 0 and len(study.agreements) == 3
    unsure = order_study(PersonalJudge(tiny, min_mass=1.0), RATED[:2])
    assert unsure.spread is None and {row.abstained for row in unsure.agreements} == {2}
