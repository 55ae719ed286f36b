"""The protocol tables of the papers, from verdicts that are there: partners and orders, and the tree without nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from adjudge.bench.agreement import published
from adjudge.bench.agreement.comparison import (
    SYSTEMS,
    Line,
    ensemble_line,
    lines_of,
    scale_of,
    scores_of,
)
from adjudge.bench.agreement.dataset import OVERALL, DataSet
from adjudge.bench.agreement.published import published_line
from adjudge.bench.agreement.resampling import USUAL, Bootstrap
from adjudge.bench.tree.figures import ABLATIONS, CORRELATIONS, TABLE_3, TABLE_5
from adjudge.rewards.judges.ensemble import EnsembleAspect, EnsembleVerdict, holistic, pooled
from adjudge.rewards.records.verdict import Verdict

PARTNERS = (0, 1, 2, 4, 8, 16)
"""EvolvR, Table 11."""

HEADLINE = 4
"""The number of partners of its Tables 1 and 12."""


def partners_lines(
    dataset: DataSet, ensembles: dict[int, list[EnsembleVerdict]], name: str, how: Bootstrap = USUAL
) -> Iterator[Line]:
    """EvolvR's Tables 11 and 12: by N, all 2N scores in one list and the mean of each story; then by place."""
    scale = scale_of("ensemble") or dataset.scale
    ensembles = {count: fitting(dataset, verdicts) for count, verdicts in ensembles.items()}
    source = "EvolvR 7B on HANNA"
    for count, verdicts in ensembles.items():
        target = f"N = {count}"
        yield ensemble_line(dataset, target, f"{name}, all scores", pooled(verdicts), scale, how)
        yield ensemble_line(dataset, target, f"{name}, story means", _means(verdicts), scale, how)
        if count in published.EVOLVR_PARTNERS:
            values = published.EVOLVR_PARTNERS[count]
            yield published_line(target, source, published.EVOLVR_FIGURES, values)
    several = [count for count in ensembles if count]
    if not several:
        return
    count = HEADLINE if HEADLINE in several else max(several)
    for target, places in (("(A, B)", slice(None, count)), ("(B, A)", slice(count, None))):
        halves = [_part_of(verdict, places) for verdict in ensembles[count]]
        yield ensemble_line(dataset, target, f"{name}, N = {count}", pooled(halves), scale, how)
        yield published_line(target, source, published.EVOLVR_FIGURES, published.EVOLVR_ORDERS[target])


def fitting(dataset: DataSet, verdicts: Sequence[EnsembleVerdict]) -> list[EnsembleVerdict]:
    """The verdicts as people's scores can be compared with them: by aspect, or over all where no aspect is shared."""
    rated = {name for row in dataset.rows for name in row.scores}
    shared = any(name.lower() in rated for verdict in verdicts for name in verdict.aspects)
    return list(verdicts) if shared else [_over_all(verdict) for verdict in verdicts]


def tree_lines(
    dataset: DataSet,
    judged: Callable[[tuple[str, ...], Sequence[int]], Sequence[Verdict]],
    rubric: Sequence[Verdict],
    name: str,
    how: Bootstrap = USUAL,
) -> Iterator[Line]:
    """Tree of Writing's Tables 3 and 5: systems, or texts where people rated these, by task and with nodes left out.

    `judged` gives the verdicts of the rows at some places with these nodes left out, `rubric` are those of one rubric
    for all rows. A completion has no format, so nothing is left of one of which only that counts, and it is out of
    that line.
    """
    tasks = dict.fromkeys(row.item.task or "all tasks" for row in dataset.rows)
    by_task = {
        task: [place for place, row in enumerate(dataset.rows) if (row.item.task or "all tasks") == task]
        for task in tasks
    }
    if len(by_task) > 1:
        by_task["all tasks"] = list(range(len(dataset.rows)))
    for task, places in by_task.items():
        for label, without in ABLATIONS.items():
            if kept := [place for place in places if _has(dataset.rows[place], without)]:
                yield from _tree_lines(dataset, kept, judged(without, kept), "tree", name, f"{task}: {label}", how)
            if not without:
                yield from _methods(f"{task}: {label}", task, ("ToW", "ToW with equal weights"))
            elif values := TABLE_5.get(task, {}).get(label):
                yield published_line(f"{task}: {label}", "ToW, GPT-4o", CORRELATIONS, values)
        target = f"{task}: one rubric"
        yield from _tree_lines(dataset, places, [rubric[place] for place in places], "rubric", "rubric", target, how)
        yield from _methods(target, task, ("elaborated rubric", "auto-plan"))


def _tree_lines(
    dataset: DataSet,
    places: Sequence[int],
    verdicts: Sequence[Verdict],
    judge: str,
    name: str,
    target: str,
    how: Bootstrap,
) -> Iterator[Line]:
    """How a judge of some rows agrees with people over all, by system and by what else was rated."""
    part = msgspec.structs.replace(dataset, rows=tuple(dataset.rows[place] for place in places))
    for line in lines_of(part, scores_of(judge, part, verdicts, name), (), how):
        if line.rows:
            of = target if line.target == SYSTEMS else f"{target}, {line.target}"
            yield msgspec.structs.replace(line, target=of)


def _methods(target: str, task: str, names: Sequence[str]) -> Iterator[Line]:
    """The published figures of some methods, where there are any of the task."""
    for name in names:
        if values := TABLE_3[name].get(task):
            yield published_line(target, f"{name}, GPT-4o", CORRELATIONS, values)


def scheme_lines(
    dataset: DataSet, verdicts: dict[str, Sequence[Verdict] | str], how: Bootstrap = USUAL
) -> Iterator[Line]:
    """QuRL: the three ways to score a rubric, and a plain judge of six dimensions, on the same texts.

    A scheme that cannot be had says why instead of having verdicts. The paper's Table 3 compares what policies trained
    with each scheme reach, not agreement; what it publishes of agreement is Table 2.
    """
    for name, found in verdicts.items():
        if isinstance(found, str):
            yield Line(name, f"not judged: {found}", 0, {})
            continue
        scores = scores_of("rubric", dataset, found, "rubric")
        for line in lines_of(dataset, scores, (), how):
            yield msgspec.structs.replace(line, target=name if line.target != SYSTEMS else f"{name}, {SYSTEMS}")
        source = "plain judge" if name == "six dimensions" else "case-wise rubrics" if name == "fixed" else None
        if source is not None:
            value = (published.QURL_SPEARMAN[source],)
            yield published_line(name, f"QuRL, {source}, HelloBench", ("spearman",), value)


def _means(verdicts: Sequence[EnsembleVerdict]) -> Iterator[tuple[str, str, float]]:
    for verdict in verdicts:
        for aspect, found in verdict.aspects.items():
            if found.mean is not None:
                yield verdict.id, aspect, found.mean


def _part_of(verdict: EnsembleVerdict, places: slice) -> EnsembleVerdict:
    aspects = {
        name: msgspec.structs.replace(found, scores=found.scores[places], abstained=found.abstained[places])
        for name, found in verdict.aspects.items()
    }
    return msgspec.structs.replace(verdict, aspects=aspects)


def _has(row: Any, without: tuple[str, ...]) -> bool:
    return not (row.item.task == "completion" and {"content", "impression"} <= set(without))


def _over_all(verdict: EnsembleVerdict) -> EnsembleVerdict:
    """OpenMEVA's protocol: each time a story was shown, the mean over its aspects, for people's one score."""
    columns = zip(*(found.scores for found in verdict.aspects.values()), strict=True)
    scores = tuple(holistic(column) for column in columns)
    return msgspec.structs.replace(verdict, aspects={OVERALL: EnsembleAspect(scores, (None,) * len(scores))})
