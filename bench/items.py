"""Reports of judged items: a table and lines for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from adjudge.bench.report import visible
from adjudge.bench.summary import counted
from adjudge.rewards.verdict import Verdict

MIN_ID, PART = 12, 8
"""Columns of the terminal for an id at least, and for a part."""


def item_table(verdicts: Sequence[Verdict], *, width: int) -> Table:
    """One line for each item; its parts have columns of their own where a terminal of `width` columns holds them."""
    names = list(dict.fromkeys(name for verdict in verdicts for name in verdict.breakdown))
    shown = names if MIN_ID + PART * (len(names) + 3) <= width else []
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("item", overflow="fold", min_width=8)
    for head in ("score", *map(_short, shown), "mass"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    for number, verdict in enumerate(verdicts, 1):
        parts = [verdict.breakdown.get(name) for name in shown]
        table.add_row(
            Text(visible(verdict.id) or str(number)),
            Text(f"abstained:\n{verdict.abstained}", "yellow") if verdict.score is None else f"{verdict.score:.2f}",
            *("–" if part is None or part.score is None else f"{part.score:.1f}" for part in parts),
            "–" if verdict.mass is None else f"{verdict.mass:.3f}",
        )
    return table


def item_lines(
    verdicts: Sequence[Verdict], model: str, seconds: float, computed: int, asked: int, *, remembered: int = 0
) -> list[str]:
    """The run in a few plain sentences: scores, abstentions, tokens, time; `remembered` came from the journal."""
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    reasons = Counter(verdict.abstained for verdict in verdicts if verdict.abstained)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    spread = f", standard deviation {stdev(scores):.2f}" if len(scores) > 1 else ""
    lines = [
        f"{model}: {counted(len(verdicts), 'item')}",
        f"mean score {fmean(scores):.2f}{spread}" if scores else "no item has a score",
        f"abstained on {reasons.total()} of {len(verdicts)}" + (f": {told}" if told else ""),
        f"texts shortened in {sum(verdict.truncated for verdict in verdicts)} of {len(verdicts)}",
        f"computed {computed:,} of {asked:,} tokens asked for"
        + (f" (1 in {asked / computed:.1f})" if computed else ""),
        f"{seconds:.1f} s" + (f", {counted(remembered, 'item')} remembered" if remembered else ""),
    ]
    return [visible(line) for line in lines]


def _short(name: str) -> str:
    name = visible(name).rpartition("/")[2]  # a leaf of a tree by its own name
    return name if len(name) < PART else name[: PART - 3] + "."
