"""A judge's study of rated texts or pairs: judged through the journal, and compared with people and with baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from adjudge.bench.agreement import protocols
from adjudge.bench.agreement.baselines import length_choices, length_scores, word_choices, word_scores
from adjudge.bench.agreement.comparison import (
    Line,
    confusion_of,
    ensemble_line,
    lines_of,
    listed_of,
    raters_line,
    scores_of,
    targets_of,
    whole_labels,
)
from adjudge.bench.agreement.dataset import OVERALL, DataSet, judged_row
from adjudge.bench.agreement.perplexity import likelihood_choices, likelihood_scores
from adjudge.bench.agreement.preferring import choices_between, choices_of, preference_lines, sureness
from adjudge.bench.agreement.resampling import Bootstrap
from adjudge.bench.agreement.statistics import Cell
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
from adjudge.training.bare_model import BareModel
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
    """What came of a study; the points are for plots, empty where there is nothing to draw, `labels` people's."""

    lines: list[Line]
    verdicts: list[Any]
    model: str
    cells: list[Cell] = []
    labels: Sequence[float] = ()
    scored: tuple[Sequence[float], Sequence[float]] = ((), ())
    sure: tuple[Sequence[float], Sequence[float]] = ((), ())


def plain(study: Study) -> Found:
    """The judge beside people and baselines, on single texts or on pairs."""
    return _pairs(study) if study.dataset.what == "pairs" else _texts(study)


def _texts(study: Study) -> Found:
    dataset, how = study.dataset, study.how
    if kind_of(study.judge).what == "pairs":
        raise AdjudgeError(
            f"--judge {study.judge} compares pairs, and {dataset.name} has single texts: name pointwise or ensemble"
        )
    judged = judge_texts(study, [judged_row(row) for row in dataset.rows])
    scores = scores_of(study.judge, dataset, judged.verdicts)
    aspects = targets_of(dataset, scores)
    raters = [scores, length_scores(dataset, aspects)]
    if study.baselines:
        raters.append(word_scores(dataset, aspects, study.seed))
        with _bare_model(study) as asked:
            raters += [likelihood_scores(dataset, aspects, *asked)] if asked else []
    lines = [line for rater in raters for line in lines_of(dataset, rater, aspects, how)]
    if study.judge == "ensemble":
        verdicts = protocols.fitting(dataset, all_scores(study, judged, [study.options.get("partners", 4)])[0])
        scale = scores.scale or dataset.scale
        lines.append(ensemble_line(dataset, "all scores", study.judge, pooled(verdicts), scale, how))
    if among := raters_line(dataset, aspects or [OVERALL], how):
        lines.append(among)
    listed = listed_of(dataset, scores, aspects or [OVERALL])
    return Found(
        _by_target(lines),
        judged.verdicts,
        judged.cost.model,
        confusion_of(dataset, scores, aspects or [OVERALL], how),
        whole_labels(dataset.scale),
        (listed.judge, listed.human),
        (listed.confidence, listed.correct),
    )


def _pairs(study: Study) -> Found:
    dataset, how = study.dataset, study.how
    rows = [judged_row(row) for row in dataset.rows]
    if kind_of(named(study.judge, [Row("", rows[0])])).what == "pairs":
        judged = judge_texts(study, rows)
        choices = choices_of(study.judge, dataset, judged.verdicts)
    else:
        judged = judge_texts(study, [side for row in rows for side in _sides(row)])
        both = list(zip(judged.verdicts[::2], judged.verdicts[1::2], strict=True))
        choices = choices_between(study.judge, both, logits=study.judge == "scalar")
    deciders = [choices, length_choices(dataset)]
    if study.baselines:
        deciders.append(word_choices(dataset, study.seed))
        with _bare_model(study) as asked:
            deciders += [likelihood_choices(dataset, *asked)] if asked else []
    lines = [line for decider in deciders for line in preference_lines(dataset, decider, how)]
    kept = [(one, row) for one, row in zip(choices.overall, dataset.rows, strict=True) if one.preference is not None]
    sure = sureness([one for one, _ in kept], [row.preferred for _, row in kept])
    said = ([one.preference or 0.0 for one, _ in kept], [row.preferred for _, row in kept])
    drawn_sure = sure if all(one.sure for one, _ in kept) else ((), ())
    model, lines = judged.cost.model, _by_target(lines)
    return Found(lines, judged.verdicts, model, labels=(0.0, 0.5, 1.0), scored=said, sure=drawn_sure)


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
    with (
        alone(path, mend=ANOTHER_FOLDER),
        Journal(path, mend=ANOTHER_FOLDER) as book,
        keeping(path, lambda: f"{len(book)} likelihoods are kept"),
    ):
        yield BareModel(bare(source.model or ""), source.device, source.dtype), book


def judge_texts(study: Study, rows: Sequence[dict[str, Any]], name: str = "verdicts.jsonl") -> Judged:
    """The rows, written as a file of texts and judged as `adjudge judge` does, in one journal for the study."""
    texts = study.folder / name.replace("verdicts", "texts")
    for written in (texts, study.folder / name):
        check_apart(written, *study.files)
        check_writable(written)
    content = b"".join(map(json_line, rows))
    with alone(study.journal, mend=ANOTHER_FOLDER), Journal(study.journal, mend=ANOTHER_FOLDER) as book:
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
