"""How well a tree judge ranks systems: its mean scores beside published ones, and how steady its weights are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from adjudge.bench.agreement.statistics import coefficients
from adjudge.engine.errors import AdjudgeError


class Agreement(msgspec.Struct, frozen=True):
    """Correlations over systems (Pearson, Spearman, Kendall's tau-b), None where one side does not vary."""

    systems: int
    pearson: float | None
    spearman: float | None
    kendall: float | None


class Means(msgspec.Struct, frozen=True):
    """Mean scores by system over the instructions on which every system has a score; `left_out` are the others."""

    scores: dict[str, float]
    instructions: int
    left_out: int


def system_means(verdicts: Sequence[Mapping[str, Any]]) -> Means:
    """Mean scores of systems from lines with `instruction`, `system` and `score` (null where the judge abstained).

    An instruction counts for all systems or for none, so that no system gains by what was not judged.
    """
    systems = {verdict["system"]: None for verdict in verdicts}
    by_instruction: dict[str, dict[str, float]] = {}
    for verdict in verdicts:
        scores = by_instruction.setdefault(verdict["instruction"], {})
        if verdict["score"] is not None:
            scores[verdict["system"]] = verdict["score"]
    whole = [scores for scores in by_instruction.values() if scores.keys() == systems.keys()]
    means = {system: fmean(scores[system] for scores in whole) for system in systems} if whole else {}
    return Means(means, len(whole), len(by_instruction) - len(whole))


def agreement(ours: Mapping[str, float], published: Mapping[str, float]) -> Agreement:
    """Correlations of two scores of systems, over the systems that have both."""
    systems = [system for system in ours if system in published]
    a, b = [ours[system] for system in systems], [published[system] for system in systems]
    return Agreement(len(systems), *coefficients(a, b))


def fluctuation(trials: Sequence[float]) -> tuple[float, float]:
    """(delta, sigma) of one share over trials: sum of |l(t) - l(1)|, and the root of the sum of (l(t) - mean) squared.

    A share is a weight that was written, or in a judge that weighs by itself a sub-score over the total. Source: Tree
    of Writing, 5.3 (five trials; no division by their number). Raises AdjudgeError for no trials.
    """
    if not trials:
        raise AdjudgeError("fluctuation needs at least one trial")
    mean = math.fsum(trials) / len(trials)
    delta = math.fsum(abs(share - trials[0]) for share in trials[1:])
    return delta, math.sqrt(math.fsum((share - mean) ** 2 for share in trials))
