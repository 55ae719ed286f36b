"""Pictures of runs, pipelines and benchmarks: where they can be drawn, and how they are made and saved."""

from __future__ import annotations

import importlib.util
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.whole_file import write_whole

PICTURES = (".png", ".svg", ".pdf")

TITLE_LETTERS = 16
"""Letters of a title to the inch, of 7 points: 19 in the mean, fewer where they are wide."""


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def check_picture(path: Path | None) -> None:
    """Raise AdjudgeError where a picture cannot be drawn there, so that it is known before anything is computed."""
    if path is None:
        return
    if path.suffix not in PICTURES:
        raise AdjudgeError(f"{path} is no picture: name a {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
    _check_matplotlib()


def new_figure(width: float = 6.4, height: float = 4.8) -> Any:
    """A matplotlib figure of that size in inches; raises AdjudgeError where matplotlib is missing."""
    _check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_picture(figure: Any, path: Path) -> None:
    """Save a matplotlib figure, the whole file or nothing; raises OSError where it cannot be written.

    A dollar in a name is a dollar.
    """
    for text in figure.findobj(lambda artist: hasattr(artist, "set_parse_math")):
        text.set_parse_math(False)
    drawn = BytesIO()  # which takes a second: a run that is killed meanwhile is to leave nothing behind
    figure.savefig(drawn, dpi=110, format=path.suffix.removeprefix("."))
    write_whole(path, drawn.getvalue())


def save_figure(figure: Any, path: Path, title: str) -> None:
    """Save it under a small title as wide as it is at most, the whole file or nothing.

    Raises AdjudgeError where it cannot be written.
    """
    across = int(figure.get_figwidth() * TITLE_LETTERS)
    figure.suptitle("\n".join(fill(line, across) for line in title.splitlines()), fontsize=7)
    try:
        save_picture(figure, path)
    except OSError as error:
        raise AdjudgeError(f"{path} cannot be written ({error.strerror}): name another file with -o") from error


def _check_matplotlib() -> None:
    if not can_draw():
        raise AdjudgeError("plots need matplotlib: pip install 'adjudge[report]'")
