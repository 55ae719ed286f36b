"""The results of `adjudge bench policy`: tables for a terminal, rows of a CSV file, and a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from adjudge.bench.policy.bouts import Against
from adjudge.bench.policy.wins import HUMAN, PolicyResult, Spread, Wins
from adjudge.bench.reports.length import length_line
from adjudge.bench.words import by_reason, percent, signed, span
from adjudge.engine.score import Reason
from adjudge.rewards.visible import visible
from adjudge.training.pictures import new_figure, save_figure
from adjudge.training.terminal import cell, right, ruled_table

AGAINST: dict[Against, str] = {"base": "the base model's texts", "human": "people's texts"}

MEAN = "mean of aspects"
"""What EvolvR's Table 14 calls "Overall": see `PolicyResult.mean_of_aspects`."""


def wins_table(results: Sequence[PolicyResult]) -> Table:
    """A line for each policy: how often it wins, and how it writes."""
    shown = [against for against in AGAINST if any(against in result.wins for result in results)]
    table = _table(*(f"wins over {against}" for against in shown), "score", "words", "ends by itself", "abstained")
    for result in results:
        table.add_row(
            _name(result),
            *(_rate(result.wins.get(against)) for against in shown),
            _spread(result.overall),
            _spread(result.words, 0),
            f"{result.whole} of {result.texts}" if result.name != HUMAN else "–",
            _reasons(list(result.wins.values())) or ("0" if result.wins else "–"),
        )
    return table


def aspect_table(results: Sequence[PolicyResult]) -> Table:
    """A line for each policy: mean ± standard deviation of its texts on each aspect, and the mean of both over aspects.

    As Table 14 of EvolvR has them; the deviation of texts' own scores stands in `wins_table`.
    """
    names = list(dict.fromkeys(name for result in results for name in result.aspects))
    table = _table(*(Text(visible(name)) for name in names), MEAN)
    for result in results:
        each = (result.aspects.get(name) for name in names)
        table.add_row(_name(result), *map(_spread, (*each, result.mean_of_aspects)))
    return table


def result_lines(results: Sequence[PolicyResult], base: str) -> list[str]:
    """What the tables cannot say: what the control says of the measure, position bias, and length."""
    lines = []
    for result in results:
        if result.name == base and (control := result.wins.get("base")) is not None and control.rate is not None:
            lines.append(f"control: {base} against other texts of its own wins {_rate(control)}; it should win half")
    for result in results:
        if result.bias is not None:
            lines.append(
                f"{result.name}: position bias {signed(result.bias)} log-odds for the text shown first; the winner"
                f" depends on the order in {result.turned} of {result.both_orders}"
            )
        if result.length is not None:
            lines.append(f"{result.name}: length: {length_line(result.length)}")
    return [visible(line) for line in lines]


COLUMNS = (
    *("policy", "of", "mean", "deviation", "count", "low", "high", "won", "tied", "lost", "prompts", "abstained"),
    *("judge", "judge_model", "machine"),
)


def result_rows(results: Sequence[PolicyResult], judge: str, model: str, machine: str) -> list[list[object]]:
    """Rows of COLUMNS: a line for each policy and number, so that runs of other aspects have the same columns."""
    rows: list[list[object]] = []
    for result in results:
        about = [judge, model, machine]
        for against, wins in result.wins.items():
            low, high = wins.interval or (None, None)
            counts = [wins.won, wins.tied, wins.lost, wins.prompts, _reasons([wins])]
            rate = [cell(wins.rate, ".6g"), "", wins.counted, cell(low, ".6g"), cell(high, ".6g")]
            rows.append([result.name, f"wins over {against}", *rate, *counts, *about])
        spreads = {"score": result.overall, **result.aspects, MEAN: result.mean_of_aspects, "words": result.words}
        for name, spread in spreads.items():
            if spread is not None:
                numbers = [cell(spread.mean, ".6g"), cell(spread.deviation, ".6g"), spread.count]
                rows.append([result.name, name, *numbers, *([""] * 7), *about])
        ends = None if result.name == HUMAN or not result.texts else result.whole / result.texts
        plain = {"position bias": (result.bias, result.biased), "ends by itself": (ends, result.texts)}
        for name, (value, count) in plain.items():
            if value is not None:
                rows.append([result.name, name, cell(value, ".6g"), "", count, *([""] * 7), *about])
    return rows


def plot_wins(results: Sequence[PolicyResult], path: Path, title: str) -> None:
    """The win rates with their intervals, a panel for each opponent; a policy's place is the same in all.

    Raises AdjudgeError where matplotlib is missing or the file cannot be written.
    """
    shown = [against for against in AGAINST if any(against in result.wins for result in results)]
    fought = [result for result in results if result.wins]
    figure = new_figure(1.5 + 4.2 * len(shown), 1.4 + 0.45 * len(fought))
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, against in zip(panels, shown, strict=True):
        axes.axvline(0.5, color="gray", linewidth=0.8)
        for height, result in enumerate(fought):
            wins = result.wins.get(against)
            if wins is not None and wins.rate is not None:
                low, high = wins.interval or (wins.rate, wins.rate)
                axes.plot([low, high], [height, height], color=f"C{height}", linewidth=2)
                axes.plot(wins.rate, height, "o", color=f"C{height}")
        axes.set(xlim=(-0.02, 1.02), xlabel=f"wins over {AGAINST[against]}", ylim=(len(fought) - 0.5, -0.5))
        axes.set_yticks(range(len(fought)), [_ending(visible(result.name)) for result in fought])
        axes.grid(axis="x", alpha=0.3)
    save_figure(figure, path, title)


def _table(*heads: str | Text) -> Table:
    return ruled_table(Column("policy", overflow="fold"), *right(*heads))


def _name(result: PolicyResult) -> Text:
    return Text(visible(result.name), "dim" if result.name == HUMAN else "")


def _ending(name: str, length: int = 40) -> str:
    """A name, or of a long path its end."""
    return name if len(name) <= length else "…" + name[1 - length :]


def _rate(wins: Wins | None) -> str:
    if wins is None:
        return "–"
    if wins.rate is None:
        return "undecided"
    return percent(wins.rate) + ("" if wins.interval is None else f" ({span(wins.interval)})") + f" of {wins.counted}"


def _spread(spread: Spread | None, digits: int = 2) -> str:
    if spread is None:
        return "–"
    deviation = "" if spread.deviation is None else f" ± {spread.deviation:.{digits}f}"
    return f"{spread.mean:.{digits}f}{deviation}"


def _reasons(all_wins: Sequence[Wins]) -> str:
    return by_reason(sum((Counter(wins.abstained) for wins in all_wins), Counter[Reason]()))
