"""Agreement about systems: the mean scores of what each has written, beside people's (Tree of Writing, Table 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from adjudge.bench.agreement.resampling import USUAL, Bootstrap, Clusters, Estimate, estimate
from adjudge.bench.agreement.statistics import ratio

Array = NDArray[np.float64]


def system_level(
    judge: Sequence[float | None],
    human: Sequence[float | None],
    systems: Sequence[str],
    clusters: Sequence[str],
    how: Bootstrap = USUAL,
) -> dict[str, Estimate]:
    """Pearson, Spearman and Kendall over systems, with intervals over prompts; an Estimate's rows are systems here.

    A prompt counts for all systems or for none, so that no system gains by what was not judged; of several texts of a
    system for one prompt their mean counts.
    """
    names = list(dict.fromkeys(systems))
    by_prompt: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for score, said, system, prompt in zip(judge, human, systems, clusters, strict=True):
        if score is not None and said is not None:
            by_prompt.setdefault(prompt, {}).setdefault(system, []).append((score, said))
    whole = {
        prompt: {system: np.mean(both, axis=0) for system, both in scores.items()}
        for prompt, scores in by_prompt.items()
        if len(scores) == len(names)
    }
    if not whole:
        absent = Estimate(None, None, len(names), 0, "no prompt has a score for every system")
        return dict.fromkeys(MEASURES, absent)
    scores_C2S = np.array([[scores[name] for name in names] for scores in whole.values()]).transpose(0, 2, 1)
    grouped = Clusters(list(whole))
    return {name: _estimated(measure, scores_C2S, grouped, how) for name, measure in MEASURES.items()}


def _estimated(
    measure: Callable[[Array, Array], Array], scores_C2S: Array, grouped: Clusters, how: Bootstrap
) -> Estimate:
    def over(weights_RC: Array) -> Array:
        means_R2S = np.einsum("rc,ctS->rtS", weights_RC, scores_C2S) / weights_RC.sum(axis=1)[:, None, None]
        return measure(means_R2S[:, 0].round(12), means_R2S[:, 1].round(12))

    found = estimate(over, grouped, how, "all systems are equal on one side")
    return Estimate(found.value, found.interval, scores_C2S.shape[2], grouped.count, found.why)


def _pearson(a_RS: Array, b_RS: Array) -> Array:
    a_RS, b_RS = (column - column.mean(axis=1, keepdims=True) for column in (a_RS, b_RS))
    return ratio((a_RS * b_RS).sum(axis=1), np.sqrt((a_RS**2).sum(axis=1) * (b_RS**2).sum(axis=1)), 1e-12)


def _spearman(a_RS: Array, b_RS: Array) -> Array:
    return _pearson(rankdata(a_RS, axis=1), rankdata(b_RS, axis=1))


def _kendall(a_RS: Array, b_RS: Array) -> Array:
    a_RP, b_RP = (np.sign(column[:, :, None] - column[:, None, :]).reshape(len(column), -1) for column in (a_RS, b_RS))
    return ratio((a_RP * b_RP).sum(axis=1), np.sqrt(np.abs(a_RP).sum(axis=1) * np.abs(b_RP).sum(axis=1)))


MEASURES: dict[str, Callable[[Array, Array], Array]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}
