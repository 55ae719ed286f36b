"""Agreement of judges with people, each figure with a bootstrap interval over prompts.

Correlations and errors are of scores; accuracy is of pairs; calibration is of distributions over labels. Every function
takes one entry a row and `clusters`, the prompt of each row. A figure that does not exist, of too few rows or of a side
that does not vary, is None with the reason, never NaN.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import coo_array

from adjudge.bench.agreement.resampling import (
    ALIKE,
    FEWEST_CLUSTERS,
    USUAL,
    Bootstrap,
    Clusters,
    Estimate,
    columns,
    estimate,
    wilson,
)
from adjudge.engine.errors import AdjudgeError
from adjudge.training.evaluator.targets import nearest

FEWEST_ROWS = 3
"""With two rows every correlation is −1, 1 or nothing."""

BINS = 10
"""Of a calibration error."""

BLOCK = 1 << 22
"""Cells worked on at once: what keeps memory bounded."""

MOST_CLUSTERS = 3000
"""For an interval of Kendall's tau, whose time and memory grow with their square."""

MOST_KINDS = 50_000
"""Different pairs of a judge's and people's score for one, whose time grows with their square."""

Names = Sequence[Hashable]
Numbers = Sequence[float]


class Cell(msgspec.Struct, frozen=True):
    """One cell of a confusion matrix: of the rows that people gave `human`, the share that the judge gave `judge`."""

    human: float
    judge: float
    count: int
    share: Estimate


def correlations(judge: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> dict[str, Estimate]:
    """Pearson, Spearman and Kendall of two columns, by name."""
    return {measure.__name__: measure(judge, human, clusters, how) for measure in (pearson, spearman, kendall)}


def coefficients(judge: Numbers, human: Numbers) -> tuple[float | None, float | None, float | None]:
    """Pearson, Spearman and Kendall alone, without intervals; None where they do not exist."""
    found = correlations(judge, human, [0] * len(judge))
    return found["pearson"].value, found["spearman"].value, found["kendall"].value


def pearson(judge: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """Pearson's r."""
    grouped, (x_N, y_N) = columns(clusters, judge=judge, human=human)
    if absent := _uncorrelated(x_N, y_N):
        return _nothing(grouped, absent)
    sums_C6 = grouped.sums(_products(x_N, y_N))
    return estimate(lambda weights_RC: _moments(weights_RC @ sums_C6), grouped, how, "it does not exist")


def spearman(judge: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """Spearman's rho: Pearson's r of the ranks, ties at their mean rank; each draw is ranked anew."""
    grouped, (x_N, y_N) = columns(clusters, judge=judge, human=human)
    if absent := _uncorrelated(x_N, y_N):
        return _nothing(grouped, absent)
    codes = [np.unique(column, return_inverse=True)[1] for column in (x_N, y_N)]

    def measure(weights_RC: NDArray[np.float64]) -> NDArray[np.float64]:
        at_once = max(1, BLOCK // len(x_N))
        parts = [weights_RC[start : start + at_once] for start in range(0, len(weights_RC), at_once)]
        return np.concatenate([_rank_correlation(part[:, grouped.of_row], *codes) for part in parts])

    return estimate(measure, grouped, how, "it does not exist")


def kendall(judge: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """Kendall's tau-b: concordant less discordant pairs of rows, over the geometric mean of those untied on each side.

    Each is a quadratic form in the weights of the clusters, so the pairs of rows are looked at once for all draws.
    """
    grouped, (x_N, y_N) = columns(clusters, judge=judge, human=human)
    if absent := _uncorrelated(x_N, y_N):
        return _nothing(grouped, absent)
    kinds = len(set(zip(x_N.tolist(), y_N.tolist(), strict=True)))
    for count, what, most in ((grouped.count, "prompts", MOST_CLUSTERS), (kinds, "pairs of scores", MOST_KINDS)):
        if count > most:
            value = float(stats.kendalltau(x_N, y_N).statistic)
            why = f"no interval: {count:,} {what}, at most {most:,}"
            return Estimate(value, None, grouped.rows, grouped.count, why)
    both_CC, judge_CC, human_CC = _concordance(x_N, y_N, grouped)

    def measure(weights_RC: NDArray[np.float64]) -> NDArray[np.float64]:
        net, untied_x, untied_y = (
            np.einsum("rc,rc->r", weights_RC @ pairs_CC, weights_RC) for pairs_CC in (both_CC, judge_CC, human_CC)
        )
        return ratio(net, np.sqrt(untied_x * untied_y))

    return estimate(measure, grouped, how, "it does not exist")


def length_bias(
    judge: Numbers, human: Numbers, characters: Numbers, clusters: Names, how: Bootstrap = USUAL
) -> Estimate:
    """What length buys beyond people's score: the judge's partial correlation with it, people's score held equal.

    (r_jc − r_jh r_hc) / √((1 − r_jh²)(1 − r_hc²)), of Pearson's r; 0 where longer texts gain no more than people say.
    """
    grouped, (x_N, y_N, z_N) = columns(clusters, judge=judge, human=human, characters=characters)
    if absent := _uncorrelated(x_N, y_N) or (None if np.ptp(z_N) else "all texts are equally long"):
        return _nothing(grouped, absent)
    sums = [grouped.sums(_products(a_N, b_N)) for a_N, b_N in ((x_N, y_N), (x_N, z_N), (y_N, z_N))]

    def measure(weights_RC: NDArray[np.float64]) -> NDArray[np.float64]:
        xy_R, xz_R, yz_R = (_moments(weights_RC @ sums_C6) for sums_C6 in sums)
        left_R = (1 - xy_R**2) * (1 - yz_R**2)
        return ratio(xz_R - xy_R * yz_R, np.sqrt(np.where(left_R > ALIKE, left_R, np.nan)))

    return estimate(measure, grouped, how, "people's scores leave nothing over of the judge's, or of length")


def accuracy(preference: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """The share of decided pairs on which the judge prefers what people preferred.

    Both sides are probabilities that a is better; people's ties (0.5) are left out, a judge's count as half a hit.
    """
    _, (p_N, y_N) = columns(clusters, preference=preference, human=human)
    decided_N = y_N != 0.5
    grouped = Clusters([name for name, decided in zip(clusters, decided_N, strict=True) if decided])
    hits_N = np.where(p_N == 0.5, 0.5, (p_N > 0.5) == (y_N > 0.5))[decided_N]
    return _share(hits_N, grouped, how, "no pair on which people decided")


def accuracy_with_ties(preference: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """The share of all pairs on which the judge says what people say: a, b or tie.

    A preference of 0.5 is a tie.
    """
    grouped, (p_N, y_N) = columns(clusters, preference=preference, human=human)
    return _share(np.sign(p_N - 0.5) == np.sign(y_N - 0.5), grouped, how, "no pairs")


def mean(values: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """The mean of one column."""
    grouped, (x_N,) = columns(clusters, values=values)
    return _mean(x_N, grouped, how, "no rows")


def share(hits: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """How large a part of the rows is a hit (1), a row with 0.5 half of one.

    Where every cluster has the same share, drawing cannot tell how sure that is: its interval is Wilson's then, of as
    many trials as clusters.
    """
    grouped, (x_N,) = columns(clusters, hits=hits)
    return _share(x_N, grouped, how, "no rows")


def squared_error(judge: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """The mean squared error; give both sides in [0, 1] (see `normalised`) to compare scales."""
    grouped, (x_N, y_N) = columns(clusters, judge=judge, human=human)
    return _mean((x_N - y_N) ** 2, grouped, how, "no rows")


def f1(judge: Numbers, human: Numbers, clusters: Names, how: Bootstrap = USUAL) -> Estimate:
    """F1 of the rows that people put above 0.5, called so by the judge: 2 TP / (2 TP + FP + FN)."""
    grouped, (x_N, y_N) = columns(clusters, judge=judge, human=human)
    called_N, good_N = x_N > 0.5, y_N > 0.5
    absent = "neither people nor the judge put a row above 0.5" if len(x_N) else "no rows"
    return _quotient(_sums(grouped, 2.0 * (called_N & good_N), 1.0 * called_N + good_N), grouped, how, absent)


def calibration_error(confidence: Numbers, correct: Numbers, clusters: Names) -> Estimate:
    """Expected calibration error: |mean confidence − share correct|, averaged over equal bins by their rows.

    `confidence` is the probability of the label the judge holds likeliest, `correct` 1 where that is the label
    `nearest` to what people gave. It has no interval: of few rows it is above the true error, and of draws of them
    above that again. Source: Guo et al., 2017, eq. 3 (see `bins_of`).
    """
    grouped, (p_N, hit_N) = columns(clusters, confidence=confidence, correct=correct)
    _check_within(p_N, "confidence", 0.0, 1.0)
    if not len(p_N):
        return _nothing(grouped, "no rows")
    gaps_B = np.bincount(bins_of(p_N), weights=p_N - hit_N, minlength=BINS)
    error = float(np.abs(gaps_B).sum() / len(p_N))
    return Estimate(error, None, grouped.rows, grouped.count, "no interval: draws of prompts overstate it")


def bins_of(p_N: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bin of each probability, of BINS of equal width: bin m of 1, 2, … is ((m − 1)/BINS, m/BINS], the first has 0.

    Source: Guo et al., 2017, 2, I_m.
    """
    return np.searchsorted(np.arange(1, BINS) / BINS, p_N)


def confusion(judge: Numbers, human: Numbers, clusters: Names, labels: Numbers, how: Bootstrap = USUAL) -> list[Cell]:
    """What the judge gave where people gave each label, cell by cell; a score counts as the label `nearest` to it."""
    _, (x_N, y_N) = columns(clusters, judge=judge, human=human)
    scale = np.array(labels, dtype=float)
    given_N, said_N = (
        np.searchsorted(scale, [nearest(score, labels) for score in column.tolist()]) for column in (x_N, y_N)
    )
    cells = []
    for said, label in enumerate(scale):
        here_N = said_N == said
        grouped = Clusters([name for name, here in zip(clusters, here_N, strict=True) if here])
        for given, other in enumerate(scale):
            hits_M = given_N[here_N] == given
            share = _share(hits_M, grouped, how, f"people gave no row {label:g}")
            cells.append(Cell(float(label), float(other), int(hits_M.sum()), share))
    return cells


def normalised(values: Numbers, low: float, high: float, name: str = "a score") -> list[float]:
    """Scores of a scale in [0, 1]; raises AdjudgeError for one outside the scale."""
    array = np.array(values, dtype=float)
    _check_within(array, name, low, high)
    return [float(value) for value in (array - low) / (high - low)]


def _mean(values_N: NDArray[np.float64], grouped: Clusters, how: Bootstrap, absent: str) -> Estimate:
    if not len(values_N):
        return _nothing(grouped, absent)
    return _quotient(_sums(grouped, values_N, np.ones(len(values_N))), grouped, how, absent)


def _share(hits_N: NDArray[Any], grouped: Clusters, how: Bootstrap, absent: str) -> Estimate:
    found = _mean(hits_N, grouped, how, absent)
    shares_C = np.divide(*_sums(grouped, hits_N, np.ones(len(hits_N))).T)
    if found.value is None or grouped.count < FEWEST_CLUSTERS or np.ptp(shares_C) > 0:
        return found
    sure = wilson(found.value * grouped.count, grouped.count, how.confidence)
    return msgspec.structs.replace(found, interval=sure, why=None)


def _sums(grouped: Clusters, part_N: NDArray[Any], whole_N: NDArray[Any]) -> NDArray[np.float64]:
    return grouped.sums(np.stack([part_N, whole_N], axis=1).astype(float))


def _quotient(sums_C2: NDArray[np.float64], grouped: Clusters, how: Bootstrap, absent: str) -> Estimate:
    """The sum of one column over that of another."""
    return estimate(lambda weights_RC: ratio(*(weights_RC @ sums_C2).T), grouped, how, absent)


def _products(x_N: NDArray[np.float64], y_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """What `_moments` sums, [N, 6], each column counted from its mean."""
    x_N, y_N = x_N - x_N.mean(), y_N - y_N.mean()
    return np.stack([np.ones_like(x_N), x_N, y_N, x_N * x_N, y_N * y_N, x_N * y_N], axis=1)


def _moments(sums_R6: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's r of sums of (1, x, y, xx, yy, xy)."""
    n, x, y, xx, yy, xy = sums_R6.T
    with np.errstate(invalid="ignore", divide="ignore"):
        spread_x, spread_y = xx - x * x / n, yy - y * y / n
        varied = (spread_x > ALIKE * xx) & (spread_y > ALIKE * yy)
        r = (xy - x * y / n) / np.sqrt(spread_x * spread_y)
    return np.where(varied, np.clip(r, -1.0, 1.0), np.nan)


def _rank_correlation(
    weights_RN: NDArray[np.float64], x_N: NDArray[np.int64], y_N: NDArray[np.int64]
) -> NDArray[np.float64]:
    a_RN, b_RN = (_ranks(weights_RN, codes_N) for codes_N in (x_N, y_N))
    total_R = weights_RN.sum(axis=1)
    middle_R1 = (total_R[:, None] + 1) / 2  # the mean rank, whatever the ties
    a_RN, b_RN = a_RN - middle_R1, b_RN - middle_R1
    columns_6 = (np.ones_like(a_RN), a_RN, b_RN, a_RN * a_RN, b_RN * b_RN, a_RN * b_RN)
    return _moments(np.stack([np.einsum("rn,rn->r", weights_RN, column) for column in columns_6], axis=1))


def _ranks(weights_RN: NDArray[np.float64], codes_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean ranks of the values `codes_N` (0, 1, … in their order) where each row stands so many times."""
    order = np.argsort(codes_N, kind="stable")
    starts = np.searchsorted(codes_N[order], np.arange(codes_N.max() + 1))
    ties_RV = np.add.reduceat(weights_RN[:, order], starts, axis=1)
    ranks_RV: NDArray[np.float64] = np.cumsum(ties_RV, axis=1) - (ties_RV - 1) / 2
    return ranks_RV[:, codes_N]


def _concordance(
    x_N: NDArray[np.float64], y_N: NDArray[np.float64], grouped: Clusters
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Sums over the pairs of rows of two clusters, [C, C] each: agreement in sign, and whether a side is untied.

    Rows that are alike on both sides are looked at as one: of people's scores there are few kinds.
    """
    codes_N2 = np.stack([np.unique(column, return_inverse=True)[1] for column in (x_N, y_N)], axis=1).astype(np.int32)
    kinds_K2, kind_N = np.unique(codes_N2, axis=0, return_inverse=True)
    rows_CK = coo_array((np.ones(len(x_N)), (grouped.of_row, kind_N)), (grouped.count, len(kinds_K2))).tocsc()
    sums = np.zeros((3, grouped.count, grouped.count))
    at_once = max(1, BLOCK // len(kinds_K2))
    for start in range(0, len(kinds_K2), at_once):
        here = slice(start, start + at_once)
        a_BK, b_BK = (np.sign(codes_K[here, None] - codes_K[None, :]) for codes_K in kinds_K2.T)
        for place, signs_BK in enumerate((a_BK * b_BK, np.abs(a_BK), np.abs(b_BK))):
            sums[place] += rows_CK[:, here] @ (signs_BK @ rows_CK.T)
    return sums[0], sums[1], sums[2]


def ratio(part: NDArray[np.float64], whole: NDArray[np.float64], least: float = 0.0) -> NDArray[np.float64]:
    """One over the other; not a number where the whole is `least` or less."""
    ratios = np.full(np.shape(whole), np.nan)
    np.divide(part, whole, out=ratios, where=whole > least)
    return ratios


def _uncorrelated(x_N: NDArray[np.float64], y_N: NDArray[np.float64]) -> str | None:
    """Why two columns have no correlation; None where they have one."""
    if len(x_N) < FEWEST_ROWS:
        return f"{len(x_N)} of at least {FEWEST_ROWS} rows"
    for name, column in (("the judge's", x_N), ("people's", y_N)):
        if np.ptp(column) <= ALIKE * np.abs(column).max():
            return f"all of {name} scores are equal"
    return None


def _nothing(grouped: Clusters, why: str) -> Estimate:
    return Estimate(None, None, grouped.rows, grouped.count, why)


def _check_within(values: NDArray[np.float64], name: str, low: float, high: float) -> None:
    wrong = np.flatnonzero(~((values >= low) & (values <= high)))
    if wrong.size:
        raise AdjudgeError(f"number {wrong[0] + 1} of {name} is {values[wrong[0]]:g}, outside {low:g} to {high:g}")
