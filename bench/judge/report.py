"""The results of `adjudge bench judge` as tables for a terminal, as rows of CSV files, and as a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from rich.table import Column, Table
from rich.text import Text

from adjudge.bench.judge.load import Load
from adjudge.bench.judge.peers import Answer
from adjudge.bench.judge.questions import Questions
from adjudge.bench.judge.rounds import Runs
from adjudge.bench.machine import describe_machine
from adjudge.training.pictures import new_figure, save_figure
from adjudge.training.terminal import cell, plain_table, right

Rows = list[list[object]]


def largest_difference(runs: Runs, expected: Sequence[Answer]) -> float:
    """The largest difference of a label's log-probability from the reference in any round; NaN if one is."""
    differences = [
        abs(x - y)
        for rows in runs.answers
        for row, wanted in zip(rows, expected, strict=True)
        for x, y in zip(row, wanted, strict=True)
    ]
    return max(differences, key=lambda difference: (difference != difference, difference))  # NaN is the largest


def equal_texts(runs: Runs, expected: Sequence[Answer]) -> int:
    """How many texts have exactly the reference's tokens, in the round where fewest do."""
    return min(
        sum(list(text) == list(wanted) for text, wanted in zip(texts, expected, strict=True)) for texts in runs.answers
    )


def comparison_table(runs: Sequence[Runs], questions: Questions, found: Mapping[str, float]) -> Table:
    """A line a variant: what it computes a second, and how far its answers are the reference's, as was `found`."""
    if questions.writes:
        columns = ["written", "seconds (min-max)", "written/s", "all tokens/s", "adjudge is", "equal texts"]
    else:
        columns = ["seconds (min-max)", "pairs/s", "tokens/s", "adjudge is", "max |Δ log p|"]
    table = plain_table(Column("variant", no_wrap=True), *right("prompt tokens computed", *columns))
    for run in runs:
        if not run.failure:
            count = written(run)
            cells = {
                "written": f"{count:,}",
                "seconds (min-max)": _spread(run),
                "pairs/s": f"{questions.pairs / run.median:.3f}",
                "tokens/s": "" if run.tokens is None else f"{run.tokens / run.median:,.0f}",
                "written/s": f"{count / run.median:,.1f}",
                "all tokens/s": f"{(questions.prompt_tokens + count) / run.median:,.1f}",
                "adjudge is": _ratio(run, runs[0]),
                "max |Δ log p|": f"{found[run.name]:.1e}",
                "equal texts": f"{found[run.name]} of {len(questions.prompts)}",
            }
            table.add_row(_name(run.name), cell(run.tokens, ","), *(cells[column] for column in columns))
    return table


def load_table(loads: Sequence[Load]) -> Table:
    """A line a rate and variant: latencies from when a request was due, and what was answered a second."""
    heads = right("answered/s", "p50 s", "p99 s", "prompt tokens/s", "written tokens/s", no_wrap=True)
    table = plain_table("requests/s", Column("variant", no_wrap=True), *heads, "note")
    for load in loads:
        cells = [""] * 5
        if load.latencies:
            times = (load.percentile(50), load.percentile(99))
            paces = (load.prompt_tokens / load.seconds, load.written_tokens / load.seconds)
            cells = [f"{load.achieved:.2f}", *(f"{t:.2f}" for t in times), *(f"{pace:,.1f}" for pace in paces)]
        table.add_row(f"{load.rate:.2f}", _name(load.variant), *cells, Text(load.note, "yellow"))
    return table


def written(run: Runs) -> int:
    """Tokens of all texts of a round."""
    return sum(map(len, run.answers[-1]))


ABOUT = ("model", "dtype", "device", "machine")
SCORE_COLUMNS = ("variant", "pairs", "tokens", "seconds", "error", "note", *ABOUT)
TEXT_COLUMNS = (
    *("variant", "pairs", "texts", "prompt_tokens", "tokens", "written", "seconds", "equal", "note"),
    *ABOUT,
)
LOAD_COLUMNS = (
    *("variant", "mode", "rate", "requests", "p50", "p99", "answered_per_second", "prompt_tokens", "written"),
    *("seconds", "latencies", "note", *ABOUT),
)


def comparison_rows(
    runs: Sequence[Runs], questions: Questions, found: Mapping[str, float]
) -> tuple[Sequence[str], Rows]:
    """The columns and the rows of them; `prompt_tokens` were asked for, `tokens` of them computed."""
    columns = TEXT_COLUMNS if questions.writes else SCORE_COLUMNS
    asked: dict[str, object] = dict(zip(ABOUT, _about(questions), strict=True))
    asked |= {"pairs": questions.pairs, "texts": len(questions.prompts), "prompt_tokens": questions.prompt_tokens}
    rows: Rows = []
    for run in runs:
        cells = {"variant": run.name, "note": run.failure, **asked}
        if not run.failure:
            cells |= {"tokens": run.tokens, "written": written(run), "seconds": _seconds(run.seconds)}
            cells |= {"error": f"{found[run.name]:.2e}", "equal": found[run.name]}
        rows.append([cells.get(column, "") for column in columns])
    return columns, rows


def load_rows(loads: Sequence[Load], questions: Questions) -> Rows:
    """Rows of LOAD_COLUMNS; times in seconds."""
    mode, about = "generate" if questions.writes else "score", _about(questions)
    rows: Rows = []
    for load in loads:
        row: list[object] = [load.variant, mode, f"{load.rate:.4g}", len(load.latencies)]
        if load.latencies:
            times = [f"{load.percentile(percent):.3f}" for percent in (50, 99)]
            row += [*times, f"{load.achieved:.4g}", load.prompt_tokens, load.written_tokens, f"{load.seconds:.3f}"]
        else:
            row += [""] * 6
        rows.append([*row, _seconds(load.latencies), load.note, *about])
    return rows


def _about(questions: Questions) -> list[str]:
    """The cells of ABOUT."""
    device = torch.device(questions.device)
    return [Path(questions.model).name, questions.dtype, device.type, describe_machine(device)]


def plot_load(loads: Sequence[Load], path: Path, title: str) -> None:
    """Latency against rate, a colour for each variant: p99 drawn through, p50 dashed.

    Raises AdjudgeError where matplotlib is missing or the file cannot be written.
    """
    figure = new_figure()
    axes = figure.add_subplot()
    for color, name in enumerate(dict.fromkeys(load.variant for load in loads if load.latencies)):
        points = [load for load in loads if load.variant == name and load.latencies]
        rates = [load.rate for load in points]
        for percent, line in ((99, "-"), (50, "--")):
            label = f"{name}, p{percent}"
            axes.plot(
                rates, [load.percentile(percent) for load in points], line, marker=".", c=f"C{color}", label=label
            )
    axes.set(yscale="log", xlabel="requests/s, due at random", ylabel="seconds from due to answered")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7)
    save_figure(figure, path, title)


def _name(variant: str) -> Text:
    return Text(variant, "bold" if variant == "adjudge" else "")


def _spread(run: Runs) -> str:
    places = 2 if run.median >= 1 else 3
    return f"{run.median:.{places}f} ({min(run.seconds):.{places}f}-{max(run.seconds):.{places}f})"


def _ratio(run: Runs, ours: Runs) -> str:
    if run is ours:
        return ""
    return f"{statistics.median(t / o for t, o in zip(run.seconds, ours.seconds, strict=True)):.2f} x"


def _seconds(seconds: Sequence[float]) -> str:
    return " ".join(f"{second:.4f}" for second in seconds)
