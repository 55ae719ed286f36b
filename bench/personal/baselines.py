"""What a personal judge must beat (PerSE, 5.1): the reviewer's mean, the earlier choice again, matrix factorisation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np
import numpy.typing as npt

from adjudge.bench.personal.perse import Rating
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.judges.aspects import PERSE, Aspect, checked_aspects
from adjudge.rewards.judges.personal import checked_k
from adjudge.rewards.records.verdict import (
    AspectVerdict,
    Comparison,
    Item,
    Pair,
    PairVerdict,
    Part,
    Review,
    Verdict,
    abstention,
    weighted_mean,
)

Floats = npt.NDArray[np.float64]

LEAST, MOST = 1.0, 10.0
"""The ends of PerSE's scale."""

FACTORS, PENALTY, SWEEPS = 4, 1.0, 30
"""Of the matrix factorisation."""


def reviewer_mean(items: Iterable[Item], k: int = 3) -> list[Verdict]:
    """The mean of the last `k` scores a reviewer gave, y = Σ y_i / k; without reviews it abstains (unsupported)."""
    k, verdicts = checked_k(k), []
    for item in items:
        given = [review.score for review in _last(item, k)]
        verdicts.append(_verdict(item, fmean(given) if given else None, "reviewer mean"))
    return verdicts


def prior_choice(pairs: Iterable[Pair], aspects: Sequence[Aspect] = PERSE) -> list[PairVerdict]:
    """The reviewer's latest choice on an aspect (or on none by name), chosen again: a preference of 1 or 0.

    An aspect without one abstains (unsupported), and with it the pair, if it counts; else the pair's preference is the
    weighted mean of its aspects', log-odds being infinite here.
    """
    verdicts = []
    for pair in pairs:
        chosen = {aspect: _latest(pair.reviews, aspect.name) for aspect in checked_aspects(aspects)}
        parts = {one.name: Part(p, one.weight, abstained=_unsupported(p)) for one, p in chosen.items()}
        told = {
            one.name: AspectVerdict(p, None if p is None else 1 - p, p, None, None, abstained=_unsupported(p))
            for one, p in chosen.items()
        }
        preference, why = weighted_mean(parts), abstention(parts)
        verdicts.append(PairVerdict(pair.id, preference, told, why, False, "prior choice", ""))
    return verdicts


class MatrixFactorisation:
    """Scores as mean + reviewer's bias + plot's bias + reviewer · plot, over FACTORS factors (Koren et al., 2009).

    Fitted to `ratings` by alternating ridge regressions, which never raise `loss`: squared errors plus PENALTY times
    the squares of all biases and factors. A reader is known by the last `k` reviews alone, from which the same
    regression takes bias and factors; a plot that nobody rated has none; a score beyond the scale is its end. `seed`
    draws the first factors. Raises AdjudgeError for no ratings, and for a `k` that makes no sense.
    """

    def __init__(self, ratings: Sequence[Rating], *, seed: int = 0, k: int = 3) -> None:
        if not ratings:
            raise AdjudgeError("matrix factorisation has no ratings to learn from: give some")
        self.k = checked_k(k)
        reviewer_of = {name: row for row, name in enumerate(dict.fromkeys(r.reviewer for r in ratings))}
        self._plot_of = {text: row for row, text in enumerate(dict.fromkeys(r.plot for r in ratings))}
        self._rows = np.array([reviewer_of[rating.reviewer] for rating in ratings])
        self._columns = np.array([self._plot_of[rating.plot] for rating in ratings])
        scores = np.array([rating.score for rating in ratings], dtype=np.float64)
        self.mean = float(scores.mean())
        self._rest = scores - self.mean
        random = np.random.default_rng(seed % 2**63)
        self.reviewers, self.plots = (  # a bias, then the factors
            np.concatenate([np.zeros((count, 1)), random.normal(0.0, 0.1, (count, FACTORS))], axis=1)
            for count in (len(reviewer_of), len(self._plot_of))
        )
        self.losses = [self.loss(), *(self._sweep() for _ in range(SWEEPS))]

    def judge(self, items: Iterable[Item]) -> list[Verdict]:
        """A verdict for every item, in order; its reviewer is known by the reviews alone."""
        return [
            _verdict(item, self.score(item.response, _last(item, self.k)), "matrix factorisation") for item in items
        ]

    def score(self, plot: str, reviews: Sequence[Review] = ()) -> float:
        """What a reviewer who is known by these reviews gives a plot."""
        taste, about = self._taste(reviews), self._about(plot)
        return float(np.clip(self.mean + taste[0] + about[0] + taste[1:] @ about[1:], LEAST, MOST))

    def loss(self) -> float:
        """The sum that is made small: squared errors, and the penalty on biases and factors."""
        reviewers, plots = self.reviewers[self._rows], self.plots[self._columns]
        errors = self._rest - reviewers[:, 0] - plots[:, 0] - (reviewers[:, 1:] * plots[:, 1:]).sum(1)
        squares = float((self.reviewers**2).sum() + (self.plots**2).sum())
        return float((errors**2).sum()) + PENALTY * squares

    def _sweep(self) -> float:
        for row in range(len(self.reviewers)):
            given = self._rows == row
            self.reviewers[row] = self._fit(self.plots[self._columns[given]], self._rest[given])
        for column in range(len(self.plots)):
            given = self._columns == column
            self.plots[column] = self._fit(self.reviewers[self._rows[given]], self._rest[given])
        return self.loss()

    def _fit(self, others: Floats, rest: Floats) -> Floats:
        """Bias and factors of one side from those of the other: ridge regression of what the other's bias leaves."""
        design = np.concatenate([np.ones((len(others), 1)), others[:, 1:]], axis=1)
        square = design.T @ design + PENALTY * np.eye(design.shape[1])
        fitted: Floats = np.linalg.solve(square, design.T @ (rest - others[:, 0]))
        return fitted

    def _taste(self, reviews: Sequence[Review]) -> Floats:
        if not reviews:
            return np.zeros(self.plots.shape[1])
        known = np.stack([self._about(review.plot) for review in reviews])
        return self._fit(known, np.array([review.score for review in reviews], dtype=np.float64) - self.mean)

    def _about(self, plot: str) -> Floats:
        column = self._plot_of.get(plot)
        return np.zeros(self.plots.shape[1]) if column is None else self.plots[column]


def _last(item: Item, k: int) -> tuple[Review, ...]:
    return item.reviews[max(len(item.reviews) - k, 0) :]


def _latest(reviews: Sequence[Comparison], aspect: str) -> float | None:
    """1 where a was preferred, 0 where b was, None where nothing was chosen on that aspect."""
    return next((float(old.preferred == "a") for old in reversed(reviews) if old.aspect in (aspect, "")), None)


def _unsupported(value: float | None) -> Reason | None:
    return "unsupported" if value is None else None


def _verdict(item: Item, score: float | None, model: str) -> Verdict:
    parts = {"rating": Part(score, abstained=_unsupported(score))}
    return Verdict(item.id, score, parts, _unsupported(score), False, model, "")
