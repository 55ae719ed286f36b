"""Personal judges and their baselines measured against the readers themselves, a line each (PerSE, 5)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev

import msgspec

from adjudge.bench.agreement.statistics import FEWEST_ROWS, coefficients
from adjudge.engine.score import Reason
from adjudge.rewards.judges.personal import PersonalJudge, last_reviews
from adjudge.rewards.records.verdict import Item, Pair, PairVerdict, Verdict
from adjudge.training.readers.questions import ChoiceQuestion, RatingQuestion

CORRELATIONS = ("Pearson", "Spearman", "Kendall")


class StudyLine(msgspec.Struct, frozen=True):
    """One line of a study: who answered after `k` reviews, and what came of the `count` not abstained from.

    `measures` are correlations or accuracies by name, `deviations` their standard deviations over orders, `spread` the
    mean over the plots of the highest score less the lowest over them. `tokens` were computed for it (None: not ours).
    `reasons` are why answers are missing, each once, with None for answers that are not.
    """

    study: str
    who: str
    k: int | None
    count: int | None
    abstained: int | None
    measures: dict[str, float | None]
    deviations: dict[str, float | None] = {}
    spread: float | None = None
    tokens: int | None = None
    reasons: frozenset[Reason | None] = frozenset()


Rate = Callable[[list[Item]], list[Verdict]]
"""Scores plots, in order: a personal judge, or a baseline."""
Choose = Callable[[list[Pair]], list[PairVerdict]]
"""Chooses between plots, in order."""


def rating_line(study: str, who: str, k: int, rate: Rate, rated: Sequence[RatingQuestion]) -> StudyLine:
    """How scores go with the readers' own.

    A correlation is None where it is not defined: with fewer than three scores, or where all on one side are equal.
    """
    verdicts = rate([row.item for row in rated])
    scores = [verdict.score for verdict in verdicts]
    abstained = scores.count(None)
    reasons = frozenset(verdict.abstained for verdict in verdicts)
    measures = _correlations(scores, rated)
    return StudyLine(study, who, k, len(scores) - abstained, abstained, measures, reasons=reasons)


def random_line(rated: Sequence[RatingQuestion]) -> StudyLine:
    """What scores drawn at random from the scale come to, whatever the readers gave: the baseline for k = 0.

    The paper draws one score for each plot (5.3, Figure 5). The expected value of each correlation is exactly 0, where
    it is defined at all: every order of the drawn scores is equally likely, and the mean over the orders is 0. A draw
    of n scores is off by 1/√(n − 1), the standard deviation over orders of Pearson's and Spearman's.
    """
    defined = len(rated) >= FEWEST_ROWS and len({row.score for row in rated}) > 1
    expected: dict[str, float | None] = dict.fromkeys(CORRELATIONS, 0.0 if defined else None)
    return StudyLine("baseline", "random score, expected", 0, len(rated), 0, expected)


def orders_line(judge: PersonalJudge, rated: Sequence[RatingQuestion], shuffles: int, seed: int) -> StudyLine:
    """The judge on the reviews it would show, shuffled several times: the mean of each correlation, its deviation.

    All are asked in one call. The `spread` is over the plots without abstention.
    """
    shuffled: list[Item] = []
    for turn in range(shuffles):
        drawn = random.Random(f"{seed} {turn}")
        for row in rated:
            reviews = last_reviews(row.item, judge.k, f'item "{row.item.id}"')
            shuffled.append(msgspec.structs.replace(row.item, reviews=tuple(drawn.sample(reviews, len(reviews)))))
    verdicts = judge.judge(shuffled)
    scores = [verdict.score for verdict in verdicts]
    turns = [scores[turn * len(rated) : (turn + 1) * len(rated)] for turn in range(shuffles)]
    found = [_correlations(turn, rated) for turn in turns]
    known = {name: [value for one in found if (value := one[name]) is not None] for name in CORRELATIONS}
    whole = [column for column in zip(*turns, strict=True) if None not in column]
    spreads = [max(column) - min(column) for column in whole]
    abstained = scores.count(None)
    return StudyLine(
        "orders",
        f"judge, {shuffles} orders",
        judge.k,
        len(scores) - abstained,
        abstained,
        {name: fmean(values) if values else None for name, values in known.items()},
        {name: stdev(values) if len(values) > 1 else None for name, values in known.items()},
        fmean(spreads) if spreads else None,
        reasons=frozenset(verdict.abstained for verdict in verdicts),
    )


def choices_line(
    study: str, who: str, k: int, choosers: Mapping[str, Choose], chosen: Sequence[ChoiceQuestion]
) -> StudyLine:
    """The share of choices that are the readers' own, by aspect, each chosen its own way; an even one is half a hit."""
    measures: dict[str, float | None] = {}
    reasons: set[Reason | None] = set()
    count = 0
    for name, choose in choosers.items():
        asked = [row for row in chosen if row.aspect == name]
        verdicts = choose([row.pair for row in asked])
        hits = [
            0.5 if preference == 0.5 else float((preference > 0.5) == (row.preferred == "a"))
            for row, verdict in zip(asked, verdicts, strict=True)
            if (preference := verdict.aspects[name].preference) is not None
        ]
        measures[name] = fmean(hits) if hits else None
        reasons |= {verdict.aspects[name].abstained for verdict in verdicts}
        count += len(hits)
    known = [value for value in measures.values() if value is not None]
    measures["average"] = fmean(known) if known else None
    return StudyLine(study, who, k, count, len(chosen) - count, measures, reasons=frozenset(reasons))


def _correlations(scores: Sequence[float | None], rated: Sequence[RatingQuestion]) -> dict[str, float | None]:
    known = [(score, row.score) for score, row in zip(scores, rated, strict=True) if score is not None]
    given, own = [score for score, _ in known], [score for _, score in known]
    return dict(zip(CORRELATIONS, coefficients(given, own), strict=True))
