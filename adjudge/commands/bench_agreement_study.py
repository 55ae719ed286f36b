"""A judge's study of rated texts or pairs: judged through the journal, and compared with people and with baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from adjudge.bench.agreement import protocols
from adjudge.bench.agreement.baselines import bag_of_words, length_only
from adjudge.bench.agreement.comparison import (
    Line,
    Scores,
    confusion_of,
    ensemble_line,
    listed_of,
    raters_line,
    scores_of,
    targets_of,
    whole_labels,
)
from adjudge.bench.agreement.dataset import OVERALL, DataSet, judged_row
from adjudge.bench.agreement.likelihood import BareModel, by_likelihood
from adjudge.bench.agreement.preferring import Choices, Rater, choices_between, choices_of, rater_lines, sureness
from adjudge.bench.agreement.resampling import Bootstrap
from adjudge.bench.agreement.statistics import Cell
from adjudge.bench.reports.run_cost import RunCost
from adjudge.commands.judge import Judged, judge_rows
from adjudge.commands.options.runs import Earlier, RunOptions
from adjudge.commands.options.source import Source
from adjudge.commands.runs.output import check_apart, check_writable
from adjudge.commands.runs.resumable import ANOTHER_FOLDER, PUT_BACK, alone, check_earlier, keeping
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import bare
from adjudge.engine.whole_file import write_whole
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.ensemble import EnsembleVerdict, ensemble, pooled
from adjudge.rewards.judges.kinds import Options, kind_of, named, prepare
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of, json_line
from adjudge.rewards.run import run_of
from adjudge.training.terminal import say
from adjudge.training.unanswered import UnansweredEngine


class Study(msgspec.Struct, frozen=True):
    """What is to be judged, by whom, and where it goes; `folder` holds the texts, the verdicts and their journal.

    `files` are those that the texts were read from.
    """

    dataset: DataSet
    judge: str
    options: Options
    source: Source
    earlier: Earlier
    folder: Path
    how: Bootstrap
    baselines: bool
    seed: int
    files: Sequence[Path] = ()

    @property
    def journal(self) -> Path:
        """Of all its runs."""
        return self.folder / "verdicts.jsonl.journal"


class Found(msgspec.Struct, frozen=True):
    """What came of a study; the points are for plots, empty where there is nothing to draw, `labels` people's.

    `cost` is of its last run: a protocol has several.
    """

    lines: list[Line]
    verdicts: list[Any]
    cost: RunCost
    cells: list[Cell] = []
    labels: Sequence[float] = ()
    scored: tuple[Sequence[float], Sequence[float]] = ((), ())
    sure: tuple[Sequence[float], Sequence[float]] = ((), ())


def plain(study: Study) -> Found:
    """The judge beside people and baselines, on single texts or on pairs."""
    dataset, how = study.dataset, study.how
    judged, own = _judged(study)
    targets = targets_of(dataset, own) if isinstance(own, Scores) else []
    raters = [own, length_only(dataset, targets)]
    if study.baselines:
        raters.append(bag_of_words(dataset, targets, study.seed))
        with _bare_model(study) as asked:
            raters += [by_likelihood(dataset, targets, *asked)] if asked else []
    lines = [line for rater in raters for line in rater_lines(dataset, rater, targets, how)]
    if isinstance(own, Choices):
        return _of_pairs(dataset, judged, own, lines)
    return _of_texts(study, judged, own, targets or [OVERALL], lines)


def _of_pairs(dataset: DataSet, judged: Judged, own: Choices, lines: Sequence[Line]) -> Found:
    kept = [(one, row) for one, row in zip(own.overall, dataset.rows, strict=True) if one.preference is not None]
    chosen, said = [one for one, _ in kept], [row.preferred for _, row in kept]
    return Found(
        _by_target(lines),
        judged.verdicts,
        judged.cost,
        labels=(0.0, 0.5, 1.0),
        scored=([one.preference or 0.0 for one in chosen], said),
        sure=sureness(chosen, said) if all(one.sure for one in chosen) else ((), ()),
    )


def _of_texts(study: Study, judged: Judged, own: Scores, targets: Sequence[str], lines: list[Line]) -> Found:
    dataset, how = study.dataset, study.how
    if study.judge == "ensemble":
        verdicts = protocols.fitting(dataset, all_scores(study, judged, [study.options.get("partners", 4)])[0])
        scale = own.scale or dataset.scale
        lines.append(ensemble_line(dataset, "all scores", study.judge, pooled(verdicts), scale, how))
    if among := raters_line(dataset, targets, how):
        lines.append(among)
    listed = listed_of(dataset, own, targets)
    return Found(
        _by_target(lines),
        judged.verdicts,
        judged.cost,
        confusion_of(dataset, own, targets, how),
        whole_labels(dataset.scale),
        scored=(listed.judge, listed.human),
        sure=(listed.confidence, listed.correct),
    )


def _judged(study: Study) -> tuple[Judged, Rater]:
    """The verdicts, and what the judge says by them; a judge of single texts scores both of a pair."""
    dataset, name = study.dataset, study.judge
    rows = [judged_row(row) for row in dataset.rows]
    compares = kind_of(named(name, [Row("", rows[0])])).what == "pairs"
    if dataset.what == "items":
        if compares:
            raise AdjudgeError(
                f"--judge {name} compares pairs, and {dataset.name} has single texts: name pointwise or ensemble"
            )
        judged = judge_texts(study, rows)
        return judged, scores_of(name, dataset, judged.verdicts)
    judged = judge_texts(study, rows if compares else [side for row in rows for side in _sides(row)])
    if compares:
        return judged, choices_of(name, dataset, judged.verdicts)
    return judged, choices_between(name, [one.score for one in judged.verdicts], logits=name == "scalar")


def _sides(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Both texts of a pair, as rows of their own."""
    return [
        {
            "id": f"{row['id']}/{side}",
            "prompt": row.get(f"prompt_{side}", row.get("prompt", "")),
            "response": row[f"story_{side}"],
        }
        for side in "ab"
    ]


@contextmanager
def _bare_model(study: Study) -> Iterator[tuple[()] | tuple[BareModel, Journal]]:
    """The judge's model without its adapter, and what it was asked before; () of a server's and of a reward model."""
    source = study.source
    if source.url is not None or study.judge == "scalar":
        what = "a reward model" if source.url is None else "a model behind a server"
        say(f"adjudge: without how likely the bare model finds the texts, which {what} does not tell", stderr=True)
        yield ()
        return
    path = study.folder / "likelihoods.journal"
    with alone(path, mend=ANOTHER_FOLDER) as book, keeping(path, lambda: f"{len(book)} likelihoods are kept"):
        yield BareModel(bare(source.model or ""), source.device, source.dtype), book


def judge_texts(study: Study, rows: Sequence[dict[str, Any]], name: str = "verdicts.jsonl") -> Judged:
    """The rows, written as a file of texts and judged as `adjudge judge` does, in one journal for the study.

    A mistake in one names where it stood in the files that people rated; a pair may be two rows.
    """
    places = [row.place for row in study.dataset.rows for _ in range(len(rows) // len(study.dataset.rows))]
    texts = study.folder / name.replace("verdicts", "texts")
    for written in (texts, study.folder / name):
        check_apart(written, *study.files)
        check_writable(written)
    content = b"".join(map(json_line, rows))
    with alone(study.journal, mend=ANOTHER_FOLDER) as book:
        check_earlier(study.folder / name, book, study.earlier, lost=PUT_BACK)
        if not (texts.is_file() and texts.read_bytes() == content):  # of a run that ended before a verdict
            check_earlier(texts, book, study.earlier, lost=PUT_BACK)  # before an earlier run's texts are written over
    with keeping(texts, lambda: "nothing is judged yet"):
        write_whole(texts, content)
    return judge_rows(
        texts,
        study.folder / name,
        judge=study.judge,
        options=study.options,
        run_options=RunOptions(study.source, study.earlier, study.journal),
        form=lambda read: [Row(place, row.columns) for place, row in zip(places, read, strict=True)],
    )


def all_scores(study: Study, judged: Judged, sizes: Sequence[int]) -> list[list[EnsembleVerdict]]:
    """Every score of every text beside so many partners, from the journal; the most were asked for already.

    A pair that had no answer, and so is not in the journal, abstains here too.
    """
    items = [item_of(row, number) for number, row in enumerate(judged.rows, 1)]
    with Journal(study.journal, mend=ANOTHER_FOLDER) as book:
        judge: Any = prepare("ensemble", study.options)(UnansweredEngine(run_of(book).card), book)
        return [ensemble(judge.pairwise, items, size, study.options.get("seed", 0)) for size in sizes]


def _by_target(lines: Sequence[Line]) -> list[Line]:
    """The lines of one target together, in the order of first appearance."""
    order = {target: place for place, target in enumerate(dict.fromkeys(line.target for line in lines))}
    return sorted(lines, key=lambda line: order[line.target])
