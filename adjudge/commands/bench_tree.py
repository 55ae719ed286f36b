"""`adjudge bench tree`: what Tree of Writing analyses of its judge, of ours, from a run's journal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from adjudge.bench.csv_table import write_rows
from adjudge.bench.tree.analyses import Cell, Judged, disturbance_cells, fluctuation_cells, length_cells
from adjudge.bench.tree.figures import FLUCTUATION
from adjudge.commands.options.judges import of_judge
from adjudge.commands.options.models import Asked
from adjudge.commands.options.source import Source, check_fit
from adjudge.commands.runs.output import check_table
from adjudge.commands.runs.resumable import alone, check_answered, keeping
from adjudge.commands.runs.rows import holds_run, rows_of
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import ANOTHER_FILE, Journal, is_journal
from adjudge.rewards.judges.kinds import Options, kind_of, prepare
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.judges.tree_weights import Weights, Wish
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item, Verdict
from adjudge.rewards.run import Run, run_of
from adjudge.rewards.visible import visible
from adjudge.training.terminal import counted, open_console, ruled_table, say

TRIALS = 5
"""As published."""


def bench_tree(
    path: Annotated[
        Path,
        typer.Argument(metavar="VERDICTS", help="What adjudge judge --judge tree wrote, its journal, or texts."),
    ],
    trials: Annotated[
        int | None,
        typer.Option(help="Have weights written so often for each instruction (default: 5 of plain texts, else 0)."),
    ] = None,
    run: Annotated[int | None, typer.Option(help="Which run of the journal (default: the latest).", min=1)] = None,
    *,
    options: Annotated[Options, of_judge("form", "without", "language", "layout")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write all numbers as CSV.")] = None,
    source: Asked,
) -> None:
    """Analyse a tree judge as Tree of Writing does, beside the paper's own figures.

    From the journal of a run, without a model: how scores go with the lengths of prompts and texts, and how far each
    disturbance lowers them (rows of `adjudge writing disturb`). With --trials, or of plain texts, the model writes the
    weights of each instruction several times: how far do they differ? Nothing is asked twice. How the parts of the
    tree rank systems, `adjudge bench agreement --protocol tree` tells.
    """
    found = _journal_of(path)
    if found is None and run is not None:
        raise AdjudgeError(f"{path} is no journal, and there is none beside it: leave out --run")
    if found is not None and options and not trials:
        raise AdjudgeError(f"--{next(iter(options))} is for weights that are to be written: add --trials")
    check_table(output, path, *([] if found is None else [found]))
    if found is None:
        rows = rows_of(path)
        if any("breakdown" in row.columns for row in rows):
            raise AdjudgeError(f"{path} holds verdicts, and their journal is not beside it: name the journal")
        asked = dict(options)
        empty = [Row(row.place, {"response": "", **row.columns}) for row in rows]  # weights are the instructions'
        items = kind_of("tree").subjects(empty, asked)
        journal = path.with_name(path.name + ".weights.journal")
        with alone(journal, mend="make room, or name another file") as book:
            cells = _fluctuation(book, items, asked, TRIALS if trials is None else trials, source)
    else:
        with Journal(found, mend=ANOTHER_FILE) as book, TemporaryDirectory() as folder:
            earlier = run_of(book, run)
            if earlier.judge != "tree":
                raise AdjudgeError(f"the run in {found} is of {earlier.judge}: judge the texts with --judge tree")
            asked = earlier.read_options(book, Path(folder))
            cells = _analyses(book, earlier)
            if trials:
                items = kind_of("tree").subjects(earlier.read_rows(book), asked)
                cells += _fluctuation(book, items, {**asked, **options}, trials, source)
    if output is not None:  # before anything is printed
        write_rows(output, Cell.__struct_fields__, map(msgspec.structs.astuple, cells))
    _show(cells)
    if output is not None:
        say(f"numbers: {output}")


def _analyses(book: Journal, run: Run) -> list[Cell]:
    rows, keys = run.read_rows(book), run.read_keys(book)
    stored = book.get(keys)
    held = [place for place, key in enumerate(keys) if key in stored]
    if len(held) < len(keys):
        print(f"adjudge: {len(keys) - len(held)} of {len(keys)} rows have no verdict yet", file=sys.stderr)
    judged = [Judged(rows[place], book.decoded(stored[keys[place]], Verdict)) for place in held]
    plain = [one for one in judged if one.disturbance is None or one.disturbance[1] == "none"]
    return [*length_cells(plain), *disturbance_cells(judged)] if plain else disturbance_cells(judged)


def _fluctuation(book: Journal, items: Sequence[Item], options: Options, trials: int, source: Source) -> list[Cell]:
    """Weights of the items' instructions, written `trials` times, each with a seed of its own."""
    if trials < 2:
        raise AdjudgeError(f"{trials} trial shows no fluctuation: give --trials 2 or more")
    check_fit(source.model, source.adapter, "tree", {"weights": "generated"})
    first = options.get("seed", 0)
    asked = [{**options, "weights": "generated", "seed": first + trial} for trial in range(trials)]
    opening = [prepare("tree", how) for how in asked]
    written: list[Mapping[Wish, Weights]] = []
    kept = f"answers are kept in {book.path}"
    with keeping(book.path, lambda: f"{len(book)} {kept}", "run it again to go on"), source.open() as engine:
        for open_judge in opening:
            judge = open_judge(engine, book)
            assert isinstance(judge, TreeJudge)
            written.append(judge.weights_of(items))
    check_answered((weights.abstained for trial in written for weights in trial.values()), "run this again")
    abstained = sum(any(trial[wish].values is None for trial in written) for wish in written[0])
    if abstained:
        print(f"adjudge: {abstained} of {len(written[0])} sets of weights could not be read in a trial: left out")
    return fluctuation_cells(written)


def _show(cells: Sequence[Cell]) -> None:
    """The tables, each number with the published one in parentheses."""
    console = open_console(160)
    for name in dict.fromkeys(cell.table for cell in cells):
        some = [cell for cell in cells if cell.table == name]
        columns = dict.fromkeys(cell.column for cell in some)
        table = ruled_table(title_justify="left")
        table.title = Text(visible(name))
        for column in ("", *columns):
            table.add_column(Text(visible(column)), justify="right" if column else "left")
        for row in dict.fromkeys(cell.row for cell in some):
            found = {cell.column: cell for cell in some if cell.row == row}
            table.add_row(row, *(Text(_told(found.get(column))) for column in columns))
        console.print(table)
        console.print(_note(some), markup=False, soft_wrap=True)


def _told(cell: Cell | None) -> str:
    if cell is None or (cell.value is None and cell.published is None):
        return "–"
    value = "–" if cell.value is None else f"{cell.value:z.3f}{cell.mark}"
    digits = 3 if cell.table == "fluctuation" else 2  # as published
    return value + (f" ({cell.published:.{digits}f})" if cell.published is not None else "")


def _note(cells: Sequence[Cell]) -> str:
    """What the numbers of a table are."""
    counts = [cell.count for cell in cells]
    paper = "in parentheses: the paper's"
    if cells[0].table == "fluctuation":
        delta, sigma = FLUCTUATION["auto-plan"]
        told = f"weights in [-1, 1]; {paper} (its auto-planning: {delta:.3f} and {sigma:.3f})"
        return f"{told}, whose sigma is not of the formula it prints, but divided by the trials"
    if cells[0].table == "lengths":
        return f"Pearson, in characters, ** p < 0.05, * p < 0.1, over {counted(max(counts), 'text')} at most; {paper}"
    fooled = [f"{cell.row} by {visible(cell.column)}" for cell in cells if cell.mark]
    told = f"not lowered (!): {', '.join(fooled)}" if fooled else "every disturbance lowers every score"
    return f"initial scores and changes over {counted(max(counts), 'text')} at most; {told}; {paper}"


def _journal_of(path: Path) -> Path | None:
    """That journal, or the one beside that file; a stage's, which holds no run, says nothing of the file's verdicts."""
    if not path.name:
        raise AdjudgeError(f"{path} is a folder: name a file of texts, or a journal")
    beside = path.with_name(path.name + ".journal")
    return path if is_journal(path) else beside if is_journal(beside) and holds_run(beside) else None
