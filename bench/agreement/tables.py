"""Agreement in tables: on the terminal, as CSV and as JSON, with what it was measured on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Column, Table
from rich.text import Text

from adjudge.bench.agreement.comparison import Line
from adjudge.bench.agreement.resampling import FEWEST_CLUSTERS, Bootstrap, Estimate
from adjudge.bench.agreement.statistics import Cell
from adjudge.bench.csv_table import write_rows
from adjudge.bench.words import by_reason
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.whole_file import write_whole
from adjudge.rewards.visible import in_a_line
from adjudge.training.terminal import cell, counted, right, ruled_table

HEADINGS = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "kendall": "Kendall",
    "length_bias": "length bias",
    "error": "mean error",
    "mse": "MSE",
    "f1": "F1",
    "accuracy": "accuracy",
    "accuracy_with_ties": "with ties",
    "consistency": "same in both orders",
    "bias": "bias",
    "ece": "ECE",
}
"""The figures in the order of their columns."""

COLUMNS = ("of", "judge", "figure", "value", "low", "high", "rows", "prompts", "why", "data", "model", "machine")


class Setting(msgspec.Struct, frozen=True):
    """What figures were measured on, and how; of the judge's `verdicts` the `abstained` have no value, by reason."""

    data: str
    files: tuple[str, ...]
    rows: int
    prompts: int
    judge: str
    options: dict[str, Any]
    model: str
    machine: str
    abstained: dict[str, int]
    bootstrap: Bootstrap
    limit: int | None = None
    draw_seed: int = 0
    protocol: str | None = None
    truncated: int = 0
    unrated: int = 0
    verdicts: int = 0


def agreement_table(lines: Sequence[Line], title: str | None = None) -> Table:
    """A line for each target and rater; a figure with its interval, and a dash where there is none."""
    names = [name for name in HEADINGS if any(name in line.figures for line in lines)]
    columns = [Column(name, overflow="fold") for name in ("of", "judge")]
    columns += right("rows", *(HEADINGS[name] for name in names))
    table = ruled_table(*columns, title=None if title is None else Text(in_a_line(title)))
    earlier = None
    for line in lines:
        cells = [_cell(line.figures.get(name)) for name in names]
        of = "" if line.target == earlier else line.target
        rows = str(line.rows or "") if line.asked in (msgspec.UNSET, line.rows) else f"{line.rows} of {line.asked}"
        table.add_row(Text(in_a_line(of)), Text(in_a_line(line.judge)), rows, *cells)
        earlier = line.target
    return table


def is_small(line: Line) -> bool:
    """Whether the line is of a group too small for intervals."""
    return line.of_group and all(figure.clusters < FEWEST_CLUSTERS for figure in line.figures.values())


def reasons(lines: Sequence[Line]) -> list[str]:
    """Why figures or intervals are missing, each reason once with the figures it holds for."""
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        for name, figure in line.figures.items():
            if figure.why:
                found.setdefault(figure.why, {})[f"{line.target} ({line.judge}): {HEADINGS[name]}"] = None
    told = []
    for why, which in found.items():
        first, more = next(iter(which)), len(which) - 1
        told.append(f"{first}{f' and {more} more' if more else ''}: {why}")
    return told


def confusion_table(cells: Sequence[Cell]) -> Table:
    """People's labels down, the judge's across: rows, and the share of the row."""
    labels = list(dict.fromkeys(cell.human for cell in cells))
    table = ruled_table("people gave", *right(*(f"judge {label:g}" for label in labels)))
    by_place = {(cell.human, cell.judge): cell for cell in cells}
    for human in labels:
        row = [by_place[human, judge] for judge in labels]
        table.add_row(f"{human:g}", *(_share(cell) for cell in row))
    return table


def abstention_line(setting: Setting) -> str:
    """How many verdicts there are, and how many have no value, by reason."""
    found = by_reason(setting.abstained) or "0"
    shortened = f"; {counted(setting.truncated, 'text')} shortened to fit" if setting.truncated else ""
    unrated = f"; {counted(setting.unrated, 'row')} of the files left out: nobody rated them" if setting.unrated else ""
    rows = f"{counted(setting.rows, 'row')} of {counted(setting.prompts, 'prompt')}"
    verdicts = f"; {counted(setting.verdicts, 'verdict')}" if setting.verdicts > setting.rows else ""
    return f"{rows}{verdicts}; abstained: {found}{shortened}{unrated}"


def write_tables(folder: Path, lines: Sequence[Line], cells: Sequence[Cell], setting: Setting) -> list[Path]:
    """Write agreement.csv, a row for each figure, and agreement.json, all of it; raises AdjudgeError."""
    table, whole = folder / "agreement.csv", folder / "agreement.json"
    rows = []
    for line in lines:
        for name, figure in line.figures.items():
            counts = (figure.rows, figure.clusters, figure.why or "", setting.data, setting.model, setting.machine)
            rows.append((line.target, line.judge, name, *(cell(value, ".6f") for value in figure.numbers), *counts))
    write_rows(table, COLUMNS, rows)
    record = {"setting": setting, "lines": lines, "confusion": cells}
    try:
        write_whole(whole, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    except OSError as error:
        raise AdjudgeError(f"cannot write {folder} ({error.strerror}): name another folder with -o") from error
    return [table, whole]


def _cell(figure: Estimate | None) -> str:
    if figure is None:
        return ""
    if figure.value is None:
        return "–"
    value = f"{figure.value:z.3f}".replace("-", "−")
    if figure.interval is None:
        return value
    digits = 2 if figure.interval[1] - figure.interval[0] > 0.02 else 3  # a narrow one would not hold its value
    low, high = (f"{bound:z.{digits}f}".replace("-", "−") for bound in figure.interval)
    return f"{value} \\[{low}, {high}]"


def _share(cell: Cell) -> str:
    return "–" if cell.share.value is None else f"{cell.count} ({100 * cell.share.value:.0f} %)"
