"""How well a tree judge ranks systems: its mean scores beside published ones, and how steady its weights are.

Convert, judge, compare:

    python -m adjudge.bench.tree_agreement convert HOWTOBENCH/*.jsonl -o sample.jsonl --per-task 1 --characters 400
    adjudge judge sample.jsonl --judge tree -o verdicts.jsonl
    python -m adjudge.bench.tree_agreement compare verdicts.jsonl
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from adjudge.bench.agreement.statistics import coefficients
from adjudge.bench.howtobench import TABLE_4, items_of
from adjudge.bench.words import counted
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.wire import json_line, read_rows


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


app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def convert(
    files: Annotated[list[Path], typer.Argument(help="JSONL of HoWToBench, one file or several.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Lines for adjudge judge --judge tree.")],
    per_task: Annotated[int | None, typer.Option(help="Instructions of each task (default: all).", min=1)] = None,
    characters: Annotated[int | None, typer.Option(help="Longest text; the middle goes (default: any).", min=2)] = None,
) -> None:
    """Write HoWToBench as a tree judge reads it, one line for each system's output."""
    rows = [row for file in files for row in read_rows(file)]
    lines = [json_line(item) for item in items_of(rows, per_task, characters)]
    try:
        output.write_bytes(b"".join(lines))
    except OSError as error:
        raise AdjudgeError(f"cannot write {output} ({error.strerror}): name another with -o") from error
    print(f"{counted(len(lines), 'item')}: {output}")


@app.command()
def compare(verdicts: Annotated[Path, typer.Argument(help="What adjudge judge wrote.")]) -> None:
    """Compare mean scores of systems with those of the paper's Table 4, by task and over all."""
    rows = read_rows(verdicts)
    for row in rows:
        for name in ("instruction", "system", "task"):
            row.text(name, "the comparison")
        if not isinstance(row.columns.get("score", ""), (int, float, type(None))):
            raise AdjudgeError(f'{row.place}: "score" is missing or no number (needed by the comparison)')
    lines = [row.columns for row in rows]
    console = Console(width=None if sys.stdout.isatty() else 120)
    for task in ("completion", "guide", "open", "all"):
        means = system_means([line for line in lines if task in ("all", line["task"])])
        if not means.scores:
            console.print(f"{task}: no instruction has a score for every system")
            continue
        console.print(_table(task, means))
        found = agreement(means.scores, TABLE_4[task])
        told = [f"{name} {_number(getattr(found, name))}" for name in ("pearson", "spearman", "kendall")]
        left_out = f"; {counted(means.left_out, 'instruction')} left out" if means.left_out else ""
        console.print(
            f"{task}: {', '.join(told)} over {counted(found.systems, 'system')},"
            f" {counted(means.instructions, 'instruction')}{left_out}"
        )


def _table(task: str, means: Means) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", title=task)
    for name in ("system", "mean score", "published"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for system, score in sorted(means.scores.items(), key=lambda entry: -entry[1]):
        table.add_row(system, f"{score:.3f}", _number(TABLE_4[task].get(system)))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    try:
        app()
    except AdjudgeError as error:
        print(f"tree_agreement: {error}", file=sys.stderr)
        sys.exit(2)
