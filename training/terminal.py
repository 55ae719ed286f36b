"""Tables and consoles that commands print to, and numbers in words."""

from __future__ import annotations

import sys
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from adjudge.rewards.visible import in_a_line


def cell(value: float | None, form: str = "", missing: str = "") -> str:
    """A number as a cell of a table has it, and what stands there for want of one."""
    return missing if value is None else format(value, form)


def counted(number: int, noun: str) -> str:
    """Such as "1 pair" or "2 pairs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def open_console(width: int, *, stderr: bool = False, highlight: bool = True) -> Console:
    """A console as wide as the terminal, or of `width` columns where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(width=None if stream.isatty() else width, stderr=stderr, highlight=highlight)


def say(*lines: str, stderr: bool = False) -> None:
    """Print lines in which nothing acts on a terminal, whatever the files in them are called."""
    for line in lines:
        print(in_a_line(line), file=sys.stderr if stderr else sys.stdout)


def right(*heads: str | Text, **how: Any) -> list[Column]:
    """Columns of numbers."""
    return [Column(head, justify="right", **how) for head in heads]


def plain_table(*columns: str | Column, **how: Any) -> Table:
    """A table without lines, its title on the left."""
    return Table(*columns, **how, title_justify="left", box=None, pad_edge=False, header_style="bold")


def ruled_table(*columns: str | Column, **how: Any) -> Table:
    """A table of close columns with a line below their heads."""
    return Table(*columns, **how, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
