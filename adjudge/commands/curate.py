"""`adjudge curate`: texts in, preference pairs or principles out, resumable at any point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from rich.console import Console

from adjudge.bench.labels import label_lines
from adjudge.bench.words import counted
from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.commands.source import Source
from adjudge.rewards.debate import DebateJudge
from adjudge.rewards.journal import Journal
from adjudge.rewards.kinds import Options, prepare
from adjudge.rewards.label_agreement import LabelAgreement, compare_labels
from adjudge.rewards.verdict import Verdict
from adjudge.rewards.wire import verdict_record
from adjudge.training.attrition import Count, check_picture, draw_attrition, show_attrition
from adjudge.training.curate.pairs import Rules, Rulings, candidates_of, judge_candidates, make_pairs
from adjudge.training.kept_engine import KeptEngine
from adjudge.training.stages import read_stage, write_stage


def curate_pairs_file(
    path: Path,
    output: Path,
    *,
    rules: Rules,
    options: Options,
    source: Source,
    earlier: Earlier,
    plot: Path | None,
    journal: Path | None,
) -> None:
    """Make preference pairs of the texts of `path`; mistakes are found before the model is loaded."""
    rows = read_stage(path, needs=("prompt", "response"))
    candidates, open_judge = candidates_of(rows), prepare("debate", options)
    if plot is not None:
        check_picture(plot)
    verdicts: list[Verdict] = []
    with _journaled("the texts", path, output, journal, plot, earlier) as book, ExitStack() as closing:
        engine = closing.enter_context(source.open())
        judge = cast(DebateJudge, open_judge(KeptEngine(engine, book), book))
        if earlier == "overwrite":
            book.clear()
        with keeping(output, lambda: "what was asked so far is kept"):
            debated, verdicts = judge_candidates(judge, candidates)
            pairs, stages = make_pairs(debated.kept, rules)
            stages = [debated, *stages]
            write_stage(
                beside(output, "verdicts.jsonl"),
                (verdict_record(verdict, row) for verdict, row in zip(verdicts, rows, strict=True)),
            )
            write_stage(beside(output, "dropped.jsonl"), (drop.record for stage in stages for drop in stage.dropped))
            labels = [candidate.label for candidate in candidates]
            counts, rulings = [Count.of(stage) for stage in stages], Rulings.of(verdicts)
            agreement = compare_labels(verdicts, labels)
            summary = {
                "pairs": len(pairs),
                "stages": counts,
                "rulings": rulings,
                "agreement": measures(agreement),
                "model": engine.name,
                "options": {name: str(value) for name, value in options.items()},
            }
            write_stage(beside(output, "summary.json"), [summary])
            write_stage(output, pairs)
    title = f"Pairs of {path.name}"
    show_attrition(counts, title)
    if plot is not None:
        draw_attrition(counts, plot, title)
    _say(
        f"{counted(len(debated.kept), 'ruling')}: {rulings.ratified} ratified, {rulings.overridden} overridden,"
        f" {rulings.alone} without judge or without review; {rulings.again} debated twice",
        *label_lines(verdicts, labels),
        *_one_class(labels),
        f"{counted(len(pairs), 'pair')}: {output}",
    )
    if not pairs:
        _say("no pair could be made: the table says what became of the texts")


def beside(output: Path, ending: str) -> Path:
    """The file of that ending that goes with an output."""
    return output.with_name(f"{output.stem}.{ending}")


def measures(agreement: LabelAgreement) -> dict[str, Any]:
    """An agreement with all that follows from its counts."""
    names = ("judged", "accuracy", "precision", "recall", "f1")
    return {**msgspec.structs.asdict(agreement), **{name: getattr(agreement, name) for name in names}}


@contextmanager
def _journaled(
    what: str, path: Path, output: Path, journal: Path | None, plot: Path | None, earlier: Earlier
) -> Iterator[Journal]:
    """The journal of a run that nobody else is in; refuses an earlier run's unless the user said what becomes of it."""
    journal = journal or output.with_name(output.name + ".journal")
    check_paths(what, path, output, journal, plot)
    with alone(journal), Journal(journal) as book:
        check_earlier(output, book, earlier)
        yield book


def _one_class(labels: Sequence[bool | None]) -> list[str]:
    """A warning where people's labels are all the same."""
    known = {label for label in labels if label is not None}
    if len(known) != 1:
        return []
    [label] = known
    return [f"every label is {int(label)}: precision and recall say nothing about a judge of good and bad"]


def _say(*lines: str) -> None:
    for line in lines:
        Console(highlight=False).print(line, markup=False, soft_wrap=True)
