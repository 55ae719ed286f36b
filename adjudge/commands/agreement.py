"""`adjudge bench agreement`: public files judged, and how far the judge agrees with the people who rated them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Console

from adjudge.bench.agreement import protocols
from adjudge.bench.agreement.baselines import length_choices, length_scores, word_choices, word_scores
from adjudge.bench.agreement.comparison import (
    Line,
    confusion_of,
    lines_of,
    listed_of,
    pooled_line,
    raters_line,
    scores_of,
    targets_of,
    whole_labels,
)
from adjudge.bench.agreement.dataset import OVERALL, DataSet, drawn, line_of
from adjudge.bench.agreement.formats import load
from adjudge.bench.agreement.perplexity import BareModel, likelihood_choices, likelihood_scores
from adjudge.bench.agreement.plots import plot_reliability, plot_scores
from adjudge.bench.agreement.preferring import choices_between, choices_of, preference_lines, sureness
from adjudge.bench.agreement.resampling import FEWEST_CLUSTERS, Bootstrap
from adjudge.bench.agreement.statistics import Cell
from adjudge.bench.agreement.tables import (
    Setting,
    abstention_line,
    agreement_table,
    confusion_table,
    is_small,
    reasons,
    write_tables,
)
from adjudge.bench.machine import describe_machine
from adjudge.bench.words import counted
from adjudge.commands.judge import Judged, judge_rows
from adjudge.commands.output import make_folder_of, open_output
from adjudge.commands.resumable import Earlier
from adjudge.commands.source import Source
from adjudge.engine.absent import AbsentEngine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.ensemble import EnsembleVerdict, ensemble
from adjudge.rewards.journal import Journal
from adjudge.rewards.kinds import KINDS, Options, named, prepare
from adjudge.rewards.rescoring import Rescoring
from adjudge.rewards.run import run_of
from adjudge.rewards.wire import Row, item_of, json_line

Protocol = Literal["evolvr", "tree", "qurl"]

JUDGES: dict[str, str] = {"evolvr": "ensemble", "tree": "tree", "qurl": "rubric"}
"""The judge of each protocol."""


class Study(msgspec.Struct, frozen=True):
    """What is to be judged, by whom, and where it goes; `folder` holds the texts, the verdicts and their journal."""

    dataset: DataSet
    judge: str
    options: Options
    source: Source
    earlier: Earlier
    folder: Path
    how: Bootstrap
    baselines: bool
    seed: int

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


def measure_agreement(
    files: Sequence[Path],
    output: Path,
    *,
    judge: str | None,
    options: Options,
    source: Source,
    earlier: Earlier,
    format: str | None,
    scale: tuple[float, float] | None,
    characters: int | None,
    limit: int | None,
    draw_seed: int,
    draws: int,
    baselines: bool,
    protocol: Protocol | None,
) -> None:
    """Judge a sample of the files, print the tables, and write them into the folder `output`."""
    if protocol is not None and judge not in (None, JUDGES[protocol]):
        raise AdjudgeError(f"--protocol {protocol} is for --judge {JUDGES[protocol]}: leave out --judge {judge}")
    whole = load(files, named=format, scale=scale, characters=characters)
    dataset = drawn(whole, limit, draw_seed)
    judge = judge or (JUDGES[protocol] if protocol else "pairwise" if dataset.what == "pairs" else "pointwise")
    options = _fitted(options, judge, dataset)
    make_folder_of(output / "verdicts.jsonl")
    study = Study(dataset, judge, options, source, earlier, output, Bootstrap(draws=draws), baselines, draw_seed)
    found = _PROTOCOLS[protocol](study)
    setting = Setting(
        data=dataset.name,
        files=tuple(file.name for file in files),
        rows=len(dataset.rows),
        prompts=len(set(dataset.clusters)),
        judge=judge,
        options={name: str(value) if isinstance(value, Path) else value for name, value in options.items()},
        model=found.model,
        machine=describe_machine(),
        abstained=dict(Counter(verdict.abstained for verdict in found.verdicts if verdict.abstained)),
        bootstrap=study.how,
        limit=limit,
        draw_seed=draw_seed,
        protocol=protocol,
        truncated=sum(verdict.truncated for verdict in found.verdicts),
    )
    _show(found, setting, output)


def _fitted(options: Options, judge: str, dataset: DataSet) -> Options:
    """The options, with the aspects that the data were rated on where nobody has named others."""
    if dataset.aspects and "aspects" not in options and judge in ("pointwise", "ensemble", "pairwise", "personal"):
        takes = KINDS[judge + " of pairs" if judge == "personal" and dataset.what == "pairs" else judge].options
        if "aspects" in takes:
            return {**options, "aspects": dataset.aspects}
    return options


# Without a protocol


def _plain(study: Study) -> Found:
    return _pairs(study) if study.dataset.what == "pairs" else _texts(study)


def _texts(study: Study) -> Found:
    dataset, how = study.dataset, study.how
    if KINDS[study.judge].what == "pairs":
        raise AdjudgeError(f"--judge {study.judge} compares pairs, and {dataset.name} has single texts: try ensemble")
    judged = _judged(study, [line_of(row) for row in dataset.rows])
    scores = scores_of(study.judge, dataset, judged.verdicts)
    aspects = targets_of(dataset, scores)
    raters = [scores, length_scores(dataset, aspects)]
    if study.baselines:
        raters.append(word_scores(dataset, aspects, study.seed))
        with _bare_model(study) as (model, kept):
            raters += [] if model is None else [likelihood_scores(dataset, aspects, model, kept)]
    lines = [line for rater in raters for line in lines_of(dataset, rater, aspects, how)]
    if study.judge == "ensemble":
        verdicts = protocols.fitting(dataset, _ensembles(study, judged, [study.options.get("partners", 4)])[0])
        lines.append(pooled_line(dataset, verdicts, study.judge, scores.scale or dataset.scale, how))
    if among := raters_line(dataset, aspects or [OVERALL], how):
        lines.append(among)
    listed = listed_of(dataset, scores, aspects or [OVERALL])
    return Found(
        _by_target(lines),
        judged.verdicts,
        judged.work.model,
        confusion_of(dataset, scores, aspects or [OVERALL], how),
        whole_labels(dataset.scale),
        (listed.judge, listed.human),
        (listed.confidence, listed.correct),
    )


def _pairs(study: Study) -> Found:
    dataset, how = study.dataset, study.how
    rows = [line_of(row) for row in dataset.rows]
    if KINDS[named(study.judge, [Row("", rows[0])])].what == "pairs":
        judged = _judged(study, rows)
        choices = choices_of(study.judge, dataset, judged.verdicts)
    else:
        judged = _judged(study, [side for row in rows for side in _sides(row)])
        both = list(zip(judged.verdicts[::2], judged.verdicts[1::2], strict=True))
        choices = choices_between(study.judge, both, logits=study.judge == "scalar")
    deciders = [choices, length_choices(dataset)]
    if study.baselines:
        deciders.append(word_choices(dataset, study.seed))
        with _bare_model(study) as (model, kept):
            deciders += [] if model is None else [likelihood_choices(dataset, model, kept)]
    lines = [line for decider in deciders for line in preference_lines(dataset, decider, how)]
    kept = [(one, row) for one, row in zip(choices.overall, dataset.rows, strict=True) if one.preference is not None]
    sure = sureness([one for one, _ in kept], [row.preferred for _, row in kept])
    said = ([one.preference or 0.0 for one, _ in kept], [row.preferred for _, row in kept])
    drawn_sure = sure if all(one.sure for one, _ in kept) else ((), ())
    model, lines = judged.work.model, _by_target(lines)
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
def _bare_model(study: Study) -> Iterator[tuple[BareModel | None, Journal]]:
    """The judge's model without its adapter, and what it was asked before; None of a server's and of a reward model."""
    with Journal(study.folder / "likelihoods.journal") as kept:
        bare = study.source.url is None and study.judge != "scalar"
        source = study.source
        yield BareModel(source.model or "", source.device, source.dtype) if bare else None, kept


# Protocols


def _evolvr(study: Study) -> Found:
    dataset = _of_texts(study, "evolvr")
    sizes = [size for size in protocols.PARTNERS if size < len(dataset.rows)]
    if left_out := [size for size in protocols.PARTNERS if size not in sizes]:
        print(f"left out, for want of texts: N = {', '.join(map(str, left_out))}", file=sys.stderr)
    rows = [line_of(row) for row in dataset.rows]
    alone = msgspec.structs.replace(study, options={**study.options, "partners": 0})
    _judged(alone, rows, "verdicts-0.jsonl")
    most = msgspec.structs.replace(
        study,
        options={**study.options, "partners": max(sizes)},
        earlier="resume",  # of the same journal
    )
    judged = _judged(most, rows)
    ensembles = dict(zip(sizes, _ensembles(study, judged, sizes), strict=True))
    lines = list(protocols.partners_lines(dataset, ensembles, "ensemble", study.how))
    return Found(lines, judged.verdicts, judged.work.model)


def _tree(study: Study) -> Found:
    dataset = _of_texts(study, "tree")
    judged = _judged(study, [line_of(row) for row in dataset.rows])
    if "without" in study.options:
        raise AdjudgeError("--protocol tree leaves out each node in turn: leave out --without")
    with Journal(study.journal) as book:
        card = run_of(book).card
        earlier = prepare("tree", study.options)(AbsentEngine(card), book)

        def without(nodes: tuple[str, ...], places: Sequence[int]) -> list[Any]:
            if not nodes:
                return [judged.verdicts[place] for place in places]
            options = {**study.options, "without": ",".join(nodes)}
            judge: Any = prepare("tree", options)(AbsentEngine(card), book)
            asked = Rescoring(earlier, judge, book)  # type: ignore[arg-type]
            return list(asked.judge_iter([judged.subjects[place] for place in places]))

        lines = list(protocols.tree_lines(dataset, without, "tree", study.how))
    return Found(lines, judged.verdicts, judged.work.model)


def _qurl(study: Study) -> Found:
    dataset = _of_texts(study, "qurl")
    rows = [line_of(row) for row in dataset.rows]
    plain = [{name: value for name, value in row.items() if name != "checklist"} for row in rows]
    runs = {scheme: (rows, {**study.options, "scheme": scheme}) for scheme in ("fixed", "free", "binary")}
    kept = {name: value for name, value in study.options.items() if name not in ("rubric", "scheme")}
    runs["six dimensions"] = (plain, {**kept, "rubric": "six"})
    verdicts: dict[str, Sequence[Any] | str] = {}
    latest: Judged | None = None
    for name, (texts, options) in runs.items():
        own = msgspec.structs.replace(study, options=options, earlier=study.earlier if latest is None else "resume")
        try:
            latest = _judged(own, texts, f"verdicts-{name.replace(' ', '-')}.jsonl")
            verdicts[name] = latest.verdicts
        except AdjudgeError as error:
            if name == "six dimensions":
                raise
            verdicts[name] = str(error)
    assert latest is not None
    lines = list(protocols.scheme_lines(dataset, verdicts, study.how))
    every = [verdict for found in verdicts.values() if not isinstance(found, str) for verdict in found]
    return Found(lines, every, latest.work.model)


_PROTOCOLS = {None: _plain, "evolvr": _evolvr, "tree": _tree, "qurl": _qurl}


def _of_texts(study: Study, protocol: str) -> DataSet:
    if study.dataset.what == "pairs":
        raise AdjudgeError(f"--protocol {protocol} is of single texts, and {study.dataset.name} has pairs: name others")
    return study.dataset


# Judging


def _judged(study: Study, rows: Sequence[dict[str, Any]], name: str = "verdicts.jsonl") -> Judged:
    """The rows, written as a file of texts and judged as `adjudge judge` does, in one journal for the study."""
    texts = study.folder / name.replace("verdicts", "texts")
    with open_output(texts) as write:
        for row in rows:
            write(json_line(row))
    return judge_rows(
        texts,
        study.folder / name,
        judge=study.judge,
        options=study.options,
        source=study.source,
        earlier=study.earlier,
        journal=study.journal,
    )


def _ensembles(study: Study, judged: Judged, sizes: Sequence[int]) -> list[list[EnsembleVerdict]]:
    """Every score of every text beside so many partners, from the journal; the most were asked for already."""
    items = [item_of(row, number) for number, row in enumerate(judged.rows, 1)]
    with Journal(study.journal) as book:
        judge: Any = prepare("ensemble", study.options)(AbsentEngine(run_of(book).card), book)
        return [ensemble(judge.pairwise, items, size, study.options.get("seed", 0)) for size in sizes]


# Showing


def _by_target(lines: Sequence[Line]) -> list[Line]:
    """The lines of one target together, in the order of first appearance."""
    order = {target: place for place, target in enumerate(dict.fromkeys(line.target for line in lines))}
    return sorted(lines, key=lambda line: order[line.target])


def _show(found: Found, setting: Setting, output: Path) -> None:
    console = Console(width=None if sys.stdout.isatty() else 190)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    told = [line for line in found.lines if not is_small(line)]
    console.print(agreement_table(told, title=f"{setting.data}, {setting.model}"))
    if left_out := len(found.lines) - len(told):
        say(f"{counted(left_out, 'line')} of groups of fewer than {FEWEST_CLUSTERS} prompts are in agreement.csv alone")
    if found.cells:
        console.print(confusion_table(found.cells))
    say(abstention_line(setting))
    say(f"[low, high]: {100 * setting.bootstrap.confidence:.0f} % of {setting.bootstrap.draws} draws of prompts")
    for line in reasons(told):
        say(line)
    say(setting.machine)
    written = write_tables(output, found.lines, found.cells, setting)
    title = f"{setting.data}, {setting.judge}, {setting.model}\n{setting.machine}"
    try:
        if found.scored[0]:
            plot_scores(output / "scores.png", *found.scored, found.labels, title)
            written.append(output / "scores.png")
        if found.sure[0]:
            plot_reliability(output / "reliability.png", *found.sure, title)
            written.append(output / "reliability.png")
    except AdjudgeError as error:  # the figures are there without plots
        say(str(error))
    say(f"written: {', '.join(map(str, written))}")
