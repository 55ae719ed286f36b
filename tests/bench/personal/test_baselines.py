from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from adjudge.bench.personal import baselines
from adjudge.bench.personal.baselines import MatrixFactorisation, prior_choice, reviewer_mean
from adjudge.bench.personal.perse import Rating
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.records.verdict import Comparison, Item, Pair, Review

REVIEWS = tuple(Review(f"Plot {n}.", "", score) for n, score in enumerate((9.0, 2.0, 7.0, 6.0)))


def test_the_mean_is_that_of_the_last_k_scores() -> None:
    item = Item("", "New.", id="x", reviews=REVIEWS)
    for k, mean in ((1, 6.0), (2, 6.5), (3, 5.0), (4, 6.0), (5, 6.0)):
        [verdict] = reviewer_mean([item], k)
        assert verdict.score == pytest.approx(mean, abs=1e-6) and verdict.breakdown["rating"].score == verdict.score
        assert (verdict.id, verdict.abstained) == ("x", None)
    for k, unread in ((0, item), (3, Item("", "New."))):
        [verdict] = reviewer_mean([unread], k)
        assert (verdict.score, verdict.abstained) == (None, "unsupported")


def test_the_latest_choice_on_an_aspect_is_chosen_again() -> None:
    reviews = (
        Comparison("c", "d", "a", "ending"),
        Comparison("e", "f", "b", "ending"),
        Comparison("e", "f", "a", "surprise"),
    )
    aspects = [Aspect("ending", "?", 3.0), Aspect("surprise", "?")]
    [verdict] = prior_choice([Pair("a", "b", id="x", reviews=reviews)], aspects)
    assert {name: aspect.preference for name, aspect in verdict.aspects.items()} == {"ending": 0.0, "surprise": 1.0}
    assert verdict.preference == pytest.approx(0.25, abs=1e-6)
    assert (verdict.aspects["ending"].score_a, verdict.aspects["ending"].score_b) == (0.0, 1.0)
    [verdict] = prior_choice([Pair("a", "b", reviews=reviews)], [*aspects, Aspect("wit", "?")])
    assert (verdict.preference, verdict.abstained, verdict.aspects["wit"].abstained) == (None,) + ("unsupported",) * 2
    [verdict] = prior_choice([Pair("a", "b", reviews=(Comparison("c", "d", "b"),))])
    assert verdict.preference == 0.0


# Matrix factorisation


def low_rank(reviewers: int = 40, plots: int = 30, seed: int = 1) -> Any:
    """Scores of rank two around biases, without noise, within the scale."""
    random = np.random.default_rng(seed)
    tastes, abouts = random.normal(0, 0.8, (reviewers, 2)), random.normal(0, 0.8, (plots, 2))
    biases = random.normal(0, 0.4, (reviewers, 1)) + random.normal(0, 0.4, (1, plots))
    return np.clip(5.5 + biases + tastes @ abouts.T, 1, 10)


def constants(monkeypatch: pytest.MonkeyPatch, **values: float) -> None:
    for name, value in values.items():
        monkeypatch.setattr(baselines, name, value)


def rating(scores: Any, row: int, column: int) -> Rating:
    return Rating(f"r{row}", f"p{column}", float(scores[row, column]))


def test_missing_scores_of_a_low_rank_matrix_are_found_and_those_of_an_unseen_reviewer_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constants(monkeypatch, FACTORS=2, PENALTY=0.02, SWEEPS=60)
    scores = low_rank()
    given = np.random.default_rng(2).random(scores.shape) < 0.6
    given[30:] = False
    fitted = MatrixFactorisation([rating(scores, *place) for place in np.argwhere(given)], k=5)
    assert fitted.losses[-1] < 0.01 * fitted.losses[0]
    missing = [place for place in np.argwhere(~given) if place[0] < 30]
    order = list(dict.fromkeys(column for _, column in np.argwhere(given)))
    plots = fitted.plots[np.argsort(order)]
    found = fitted.mean + fitted.reviewers[:, :1] + plots[:, 0] + fitted.reviewers[:, 1:] @ plots[:, 1:].T
    errors = [found[row, column] - scores[row, column] for row, column in missing]
    assert len(missing) > 250 and np.sqrt(np.mean(np.square(errors))) < 0.15 * scores.std()
    unseen, by_mean = [], []
    for row in range(30, 40):
        reviews = tuple(Review(f"p{column}", "", float(scores[row, column])) for column in range(5))
        items = [Item("", f"p{column}", reviews=reviews) for column in range(5, 30)]
        for errors, verdicts in ((unseen, fitted.judge(items)), (by_mean, reviewer_mean(items, 5))):
            errors += [(verdict.score or 0.0) - scores[row, n] for n, verdict in enumerate(verdicts, 5)]
    assert np.sqrt(np.mean(np.square(unseen))) < 0.4 * np.sqrt(np.mean(np.square(by_mean)))


def test_no_sweep_raises_the_loss_and_the_last_is_a_minimum_in_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    constants(monkeypatch, FACTORS=3, PENALTY=0.5)
    scores = low_rank(12, 9)
    random = np.random.default_rng(3)
    noisy = scores + random.normal(0, 0.5, scores.shape)
    places = np.argwhere(random.random(scores.shape) < 0.5)
    fitted = MatrixFactorisation([rating(noisy, *place) for place in places])
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(fitted.losses))
    least = fitted.loss()
    for row in range(len(fitted.plots)):
        for change in (1e-3, -1e-3):
            for column in range(4):
                fitted.plots[row, column] += change
                assert fitted.loss() > least
                fitted.plots[row, column] -= change


def test_the_taste_of_an_unseen_reviewer_is_the_ridge_regression_of_the_reviews_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constants(monkeypatch, FACTORS=1, PENALTY=0.3)
    ratings = [Rating("ann", "p", 9), Rating("ann", "q", 3), Rating("bob", "p", 4), Rating("bob", "q", 8)]
    fitted = MatrixFactorisation(ratings, seed=4)
    (b_p, q_p), (b_q, q_q) = fitted.plots
    assert fitted.mean == 6.0 and abs(q_p) > 0.1
    # one review of p: minimise (s − mean − b_p − b − t q_p)² + 0.3 (b² + t²), so b = e / (0.3 + 1 + q_p²), t = b q_p
    bias = (8 - 6 - b_p) / (0.3 + 1 + q_p**2)
    expected = 6 + bias + b_q + bias * q_p * q_q
    assert fitted.score("q", (Review("p", "", 8),)) == pytest.approx(expected, abs=1e-6)
    # a plot that nobody rated tells the bias alone: b = e / (0.3 + 1); and nothing is known of it but that
    assert fitted.score("new", (Review("old", "", 8),)) == pytest.approx(6 + 2 / 1.3, abs=1e-6)
    assert fitted.score("p") == pytest.approx(6 + b_p, abs=1e-6) and fitted.score("new") == 6.0


def test_scores_rise_with_the_reviews_and_stay_on_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    constants(monkeypatch, PENALTY=0.01)
    ratings = [Rating("ann", "p", 9), Rating("ann", "q", 3), Rating("bob", "p", 8), Rating("bob", "q", 2)]
    fitted = MatrixFactorisation(ratings)
    grid = [fitted.score("new", (Review("old", "", score),)) for score in np.arange(1, 10.5, 0.5)]
    assert all(low < high for low, high in itertools.pairwise(grid))
    fitted.plots[:, 0] = 5.0, -5.0
    assert fitted.mean == 5.5 and (fitted.score("p"), fitted.score("q")) == (10.0, 1.0)


def test_the_seed_decides_and_k_limits_the_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    constants(monkeypatch, SWEEPS=2)
    scores = low_rank(8, 8)
    ratings = [rating(scores, *place) for place in np.ndindex(8, 8)]
    first, again, other = (MatrixFactorisation(ratings, seed=seed) for seed in (0, 0, 1))
    assert (first.plots == again.plots).all() and (first.plots != other.plots).any()
    [few] = first.judge([Item("", "p1", reviews=REVIEWS)])
    assert few.score == first.score("p1", REVIEWS[-3:]) != first.score("p1", REVIEWS)
    assert MatrixFactorisation(ratings, k=0).judge([Item("", "new", reviews=REVIEWS)])[0].score == first.mean


def test_too_many_reviews_and_no_ratings_are_refused() -> None:
    with pytest.raises(AdjudgeError, match="show 0 to 5"):
        MatrixFactorisation([Rating("ann", "p", 9)], k=9)
    with pytest.raises(AdjudgeError, match="no ratings"):
        MatrixFactorisation([])
