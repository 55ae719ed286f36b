"""Scores of texts beside people's: by aspect, all aspects in one list, over all, and by the systems that wrote them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pkgutil import resolve_name
from statistics import fmean
from typing import Any

import msgspec

from adjudge.bench.agreement import statistics
from adjudge.bench.agreement.dataset import OVERALL, DataSet, RatedText
from adjudge.bench.agreement.resampling import USUAL, Bootstrap, Estimate
from adjudge.bench.agreement.statistics import Cell
from adjudge.bench.agreement.systems import system_level
from adjudge.rewards import judges
from adjudge.rewards.imported import is_own
from adjudge.rewards.judges.ensemble import EnsembleJudge
from adjudge.rewards.judges.kinds import kind_of
from adjudge.rewards.judges.own import own_class
from adjudge.rewards.records.verdict import Verdict
from adjudge.training.evaluator.targets import nearest

POOLED = "all aspects"
SYSTEMS = "systems"

Scale = tuple[float, float]
Column = Sequence[float | None]


class Scores(msgspec.Struct, frozen=True):
    """What one rater gave every text of a set, by target: an aspect's name, or `overall`; None where it abstained.

    `distributions` are over the whole numbers of people's scale. Without a `scale` scores can only be ranked.
    """

    name: str
    by_target: Mapping[str, Column]
    scale: Scale | None = None
    distributions: Mapping[str, Sequence[Sequence[float] | None]] = {}


class Line(msgspec.Struct, frozen=True):
    """How far one rater agrees with people on one target: figures by name, over the rows that both have rated.

    `of_group` says that the target is some of the rows, `asked` how many rows the rater was asked about,
    where that is kept.
    """

    target: str
    judge: str
    rows: int
    figures: dict[str, Estimate]
    of_group: bool = False
    asked: int | msgspec.UnsetType = msgspec.UNSET


class Listed(msgspec.Struct):
    """Rows of several targets in one list: the rater's score, people's, the prompt, how many characters the text has,
    and what both said of each label."""

    judge: list[float] = []
    human: list[float] = []
    clusters: list[str] = []
    characters: list[int] = []
    confidence: list[float] = []
    correct: list[float] = []
    sure_clusters: list[str] = []

    def add(self, judge: float, human: float, cluster: str) -> None:
        """One more row."""
        self.judge.append(judge)
        self.human.append(human)
        self.clusters.append(cluster)


def scores_of(judge: str, dataset: DataSet, verdicts: Sequence[Verdict], name: str | None = None) -> Scores:
    """A judge's verdicts, text by text, as scores of its parts and over all."""
    parts = dict.fromkeys(part for verdict in verdicts for part in verdict.breakdown)
    by_target: dict[str, Column] = {  # people's aspects are in small letters
        part.lower(): [None if (found := one.breakdown.get(part)) is None else found.score for one in verdicts]
        for part in parts
    }
    labels = whole_labels(dataset.scale)
    distributions: dict[str, Sequence[Sequence[float] | None]] = {
        part.lower(): [_over(labels, one, part) for one in verdicts] for part in parts
    }
    by_target[OVERALL] = [verdict.score for verdict in verdicts]
    scale = scale_of(judge)
    if scale == dataset.scale == (0.0, 1.0):  # a probability of good is a distribution over bad and good
        distributions[OVERALL] = [None if one.score is None else (1 - one.score, one.score) for one in verdicts]
    elif len(parts) == 1:
        distributions[OVERALL] = distributions[next(iter(parts)).lower()]
    return Scores(name or judge, by_target, scale, distributions)


def targets_of(dataset: DataSet, scores: Scores) -> list[str]:
    """The aspects that both people and the judge have rated, in the judge's order."""
    rated = {name for row in dataset.rows for name in row.scores}
    return [name for name in scores.by_target if name in rated and name != OVERALL]


def lines_of(dataset: DataSet, scores: Scores, aspects: Sequence[str], how: Bootstrap = USUAL) -> Iterator[Line]:
    """A line for each of the aspects, for all of them in one list, for the whole, and for the systems."""
    listed = {name: listed_of(dataset, scores, [name]) for name in aspects}
    for name, one in listed.items():
        yield line_of(name, scores, one, dataset.scale, how)
    if len(aspects) > 1:
        yield line_of(POOLED, scores, listed_of(dataset, scores, aspects), dataset.scale, how)
    whole = listed_of(dataset, scores, [OVERALL])
    if whole.human or not aspects:
        yield line_of(OVERALL, scores, whole, dataset.scale, how)
    systems = _system_line(dataset, scores, how)
    if systems is not None:
        yield systems


def listed_of(dataset: DataSet, scores: Scores, targets: Sequence[str]) -> Listed:
    """Every (text, target) that both sides have rated, one after the other."""
    listed = Listed()
    labels = whole_labels(dataset.scale)
    for target in targets:
        column, said = scores.by_target.get(target, ()), scores.distributions.get(target)
        for place, (row, score) in enumerate(zip(dataset.rows, column, strict=True) if column else ()):
            human = human_of(row, target)
            if score is None or human is None:
                continue
            listed.add(score, human, row.cluster)
            listed.characters.append(len(row.item.response))
            if said is not None and (distribution := said[place]) is not None and target in row.scores:
                sure = max(range(len(labels)), key=lambda label: distribution[label])
                listed.confidence.append(min(distribution[sure], 1.0))
                listed.correct.append(fmean(nearest(one, labels) == labels[sure] for one in row.scores[target]))
                listed.sure_clusters.append(row.cluster)
    return listed


def line_of(target: str, scores: Scores, listed: Listed, scale: Scale, how: Bootstrap = USUAL) -> Line:
    """All figures of one list; MSE and F1 are of both sides in [0, 1]."""
    judge, human, clusters = listed.judge, listed.human, listed.clusters
    figures = statistics.correlations(judge, human, clusters, how)
    if listed.characters:
        figures["length_bias"] = statistics.length_bias(judge, human, listed.characters, clusters, how)
    if scores.scale is not None:
        low, high = scores.scale
        clipped = [min(max(score, low), high) for score in judge]  # negative weights of a tree go beyond
        given, said = statistics.normalised(clipped, low, high), statistics.normalised(human, *scale, "people's scores")
        figures["mse"] = statistics.squared_error(given, said, clusters, how)
        figures["f1"] = statistics.f1(given, said, clusters, how)
    if listed.confidence:
        figures["ece"] = statistics.calibration_error(listed.confidence, listed.correct, listed.sure_clusters)
    return Line(target, scores.name, len(judge), figures)


def ensemble_line(
    dataset: DataSet,
    target: str,
    name: str,
    scores: Iterable[tuple[str, str, float]],
    scale: Scale,
    how: Bootstrap = USUAL,
) -> Line:
    """Scores (text, aspect, score) of an ensemble in one list: all, not averaged (EvolvR, C.1.1), or their means."""
    rows = {row.id: row for row in dataset.rows}
    listed = Listed()
    for text, aspect, score in scores:
        human = human_of(rows[text], aspect.lower())
        if human is not None:
            listed.add(score, human, rows[text].cluster)
    return line_of(target, Scores(name, {}, scale), listed, dataset.scale, how)


def raters_line(dataset: DataSet, targets: Sequence[str], how: Bootstrap = USUAL) -> Line | None:
    """Each rater against the mean of the others, in one list: what people agree among themselves; None of one rater."""
    listed = Listed()
    for row in dataset.rows:
        for target in targets:
            given = row.scores.get(target, ())
            for place, score in enumerate(given if len(given) > 1 else ()):
                listed.add(score, fmean((*given[:place], *given[place + 1 :])), row.cluster)
    if not listed.judge:
        return None
    target = targets[0] if len(targets) == 1 else POOLED
    return line_of(target, Scores("one rater, by the others", {}, dataset.scale), listed, dataset.scale, how)


def confusion_of(dataset: DataSet, scores: Scores, targets: Sequence[str], how: Bootstrap = USUAL) -> list[Cell]:
    """The confusion matrix over the whole numbers of people's scale; none where the judge's is another."""
    listed = listed_of(dataset, scores, targets)
    if scores.scale != dataset.scale or not listed.judge:
        return []
    return statistics.confusion(listed.judge, listed.human, listed.clusters, whole_labels(dataset.scale), how)


def human_of(row: RatedText, target: str) -> float | None:
    """People's mean score of a text, of one aspect or over all."""
    if target == OVERALL:
        return row.overall
    return fmean(row.scores[target]) if target in row.scores else None


def whole_labels(scale: Scale) -> list[float]:
    """The whole numbers of a scale."""
    return [float(label) for label in range(round(scale[0]), round(scale[1]) + 1)]


def scale_of(judge: str) -> Scale | None:
    """The ends of what a judge gives, its `range`; None where there are none, as of a reward model's logits."""
    made: Any = EnsembleJudge
    if is_own(judge):
        made = own_class(judge)
    elif kind_of(judge).made:
        made = resolve_name(f"{judges.__name__}.{kind_of(judge).made}")
    ends: Scale | None = made.range
    return ends if ends is not None and all(map(math.isfinite, ends)) else None


def _over(labels: Sequence[float], verdict: Verdict, part: str) -> Sequence[float] | None:
    found = verdict.breakdown.get(part)
    if found is None or found.distribution is None or len(found.distribution) != len(labels):
        return None
    return found.distribution


def _system_line(dataset: DataSet, scores: Scores, how: Bootstrap) -> Line | None:
    both = zip(dataset.rows, scores.by_target[OVERALL], strict=True)
    known = [(row, score) for row, score in both if row.system is not None]
    systems = [row.system for row, _ in known]
    if len(set(systems)) < statistics.FEWEST_ROWS:
        return None
    human = [row.said for row, _ in known]
    figures = system_level([score for _, score in known], human, systems, [row.cluster for row, _ in known], how)
    return Line(SYSTEMS, scores.name, figures["pearson"].rows, figures)
