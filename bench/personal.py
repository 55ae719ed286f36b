"""Personal judges and their baselines measured against the readers themselves (PerSE, 5)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Protocol

import msgspec

from adjudge.bench.agreement.statistics import coefficients
from adjudge.bench.perse import Chosen, Rated
from adjudge.rewards.judges.personal import PersonalJudge, last_reviews
from adjudge.rewards.verdict import Item, Pair, PairVerdict, Verdict


class Rater(Protocol):
    """What scores plots: a personal judge, or a baseline."""

    def judge(self, items: Iterable[Item], /) -> list[Verdict]:
        """A verdict for every item, in order."""


class Chooser(Protocol):
    """What chooses between plots: a personal judge of pairs, or a baseline."""

    def compare(self, pairs: Iterable[Pair], /) -> list[PairVerdict]:
        """A verdict for every pair, in order."""


class Agreement(msgspec.Struct, frozen=True):
    """How scores go with the readers' own, over the `count` that were not abstained from.

    A correlation is None where it is not defined: with fewer than three scores, or where all on one side are equal.
    """

    name: str
    count: int
    abstained: int
    pearson: float | None
    spearman: float | None
    kendall: float | None


class Accuracy(msgspec.Struct, frozen=True):
    """The share of choices that are the readers' own, by aspect; an even preference counts as half a hit."""

    name: str
    count: int
    abstained: int
    aspects: dict[str, float | None]


class OrderStudy(msgspec.Struct, frozen=True):
    """The same plots with their reviews in several random orders.

    `spread` is the mean over the plots of the highest score less the lowest, of those without abstention (None where
    there is none); `agreements` are those of each order.
    """

    spread: float | None
    agreements: tuple[Agreement, ...]


def agreement(name: str, scores: Sequence[float | None], human: Sequence[float]) -> Agreement:
    """Pearson, Spearman and Kendall (tau-b) of scores with the readers' own; None is an abstention."""
    known = [(score, own) for score, own in zip(scores, human, strict=True) if score is not None]
    given, own = [score for score, _ in known], [score for _, score in known]
    return Agreement(name, len(known), len(scores) - len(known), *coefficients(given, own))


def compare_raters(raters: Mapping[str, Rater], rated: Sequence[Rated]) -> list[Agreement]:
    """Every rater, by name, on the same plots: k = 0 to 5, with and without texts, the baselines."""
    human = [row.score for row in rated]
    return [
        agreement(name, [verdict.score for verdict in rater.judge([row.item for row in rated])], human)
        for name, rater in raters.items()
    ]


def compare_choosers(choosers: Mapping[str, Chooser], chosen: Sequence[Chosen]) -> list[Accuracy]:
    """Every chooser, by name, on the same pairs; each pair counts for the aspect its reader was asked about.

    Raises KeyError for an aspect that a chooser was not opened with.
    """
    return [
        _accuracy(name, chooser.compare([row.pair for row in chosen]), chosen) for name, chooser in choosers.items()
    ]


def order_study(judge: PersonalJudge, rated: Sequence[Rated], shuffles: int = 3, seed: int = 0) -> OrderStudy:
    """The judge on the reviews it would show, shuffled several times; all are asked in one call."""
    shuffled: list[Item] = []
    for turn in range(shuffles):
        drawn = random.Random(f"{seed} {turn}")
        for row in rated:
            reviews = last_reviews(row.item, judge.k, f'item "{row.item.id}"')
            shuffled.append(msgspec.structs.replace(row.item, reviews=tuple(drawn.sample(reviews, len(reviews)))))
    scores = [verdict.score for verdict in judge.judge(shuffled)]
    turns = [scores[turn * len(rated) : (turn + 1) * len(rated)] for turn in range(shuffles)]
    human = [row.score for row in rated]
    known = [[score for score in column if score is not None] for column in zip(*turns, strict=True)]
    spreads = [max(column) - min(column) for column in known if len(column) == shuffles]
    agreements = tuple(agreement(f"order {turn}", row, human) for turn, row in enumerate(turns, 1))
    return OrderStudy(fmean(spreads) if spreads else None, agreements)


def _accuracy(name: str, verdicts: Sequence[PairVerdict], chosen: Sequence[Chosen]) -> Accuracy:
    hits: dict[str, list[float]] = {row.aspect: [] for row in chosen}
    for row, verdict in zip(chosen, verdicts, strict=True):
        preference = verdict.aspects[row.aspect].preference
        if preference is not None:
            hit = 0.5 if preference == 0.5 else float((preference > 0.5) == (row.preferred == "a"))
            hits[row.aspect].append(hit)
    count = sum(map(len, hits.values()))
    means = {aspect: fmean(values) if values else None for aspect, values in hits.items()}
    return Accuracy(name, count, len(chosen) - count, means)
