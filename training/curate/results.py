"""What a search for principles leaves: the file a judge reads, and the curve of its rounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from adjudge.engine.whole_file import write_whole
from adjudge.training.curate.search import Round, best
from adjudge.training.pictures import check_picture, new_figure, save_picture

LINES: dict[str, Callable[[Round], float | None]] = {
    "texts held out: judged as labelled": lambda one: one.hits,
    "texts held out: F1": lambda one: one.held_out.f1,
    "bad texts caught": lambda one: one.caught / one.written if one.written else None,
    "labelled texts judged wrongly": lambda one: one.wrong / one.looked_at if one.looked_at else None,
}
"""What the curve shows of a round."""


def write_principles(path: Path, rounds: Sequence[Round]) -> None:
    """Write the best round's principles as TOML for `read_principles`, the whole file or nothing.

    Raises OSError when it cannot.
    """
    found, first = best(rounds), rounds[0]
    texts = found.held_out.judged + found.held_out.abstained
    about = (
        f"Round {found.number} of {rounds[-1].number}: {found.hits:.1%} of the {texts} texts held out are judged as"
        f" labelled ({first.hits:.1%} by the principles at the start)."
    )
    listed = "".join(f"    {_quoted(principle)},\n" for principle in found.principles)
    write_whole(path, f"# {about}\nprinciples = [\n{listed}]\n".encode())


def draw_rounds(rounds: Sequence[Round], path: Path, title: str) -> None:
    """Draw the rounds into a .png, .svg or .pdf, the best one marked; `check_picture` says whether that can be."""
    check_picture(path)
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(7.5, 4)
    axes = figure.subplots()
    for number, (name, value) in enumerate(LINES.items()):
        points = [(one.number, shown) for one in rounds if (shown := value(one)) is not None]
        if points:
            style = {"marker": "o"} if number < 2 else {"linestyle": "--", "linewidth": 1}
            axes.plot(*zip(*points, strict=True), label=name, markersize=4, **style)
    axes.axvline(best(rounds).number, color="gray", linestyle=":", linewidth=1)
    axes.set_ylim(-0.03, 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    axes.set_title(title, loc="left", fontsize=11)
    save_picture(figure, path)


def _quoted(text: str) -> str:
    """A TOML string: JSON's, but that TOML wants DEL written out too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
