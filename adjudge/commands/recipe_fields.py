"""`adjudge train fields`: what the recipes of a command can say."""

from __future__ import annotations

from rich.text import Text

from adjudge.engine.errors import AdjudgeError
from adjudge.training.recipe_fields import field_lines
from adjudge.training.recipe_kinds import KINDS, recipe_kind
from adjudge.training.terminal import open_console


def print_fields(command: str) -> None:
    """Print every table and field of the recipes that a command reads, as TOML; on a terminal what is text is dim."""
    if command not in KINDS:
        raise AdjudgeError(f'there are no recipes of adjudge train "{command}": choose {", ".join(KINDS)}')
    console = open_console(120, highlight=False)
    for line in "\n".join(field_lines(recipe_kind(command))).splitlines():
        console.print(_styled(line), soft_wrap=True)


def _styled(line: str) -> Text:
    if line.startswith("# "):
        return Text(line, "dim")
    said, mark, about = line.partition("  # ")
    text = Text(said, "bold" if said.lstrip("#").startswith("[") else "")
    return text.append(mark + about, "dim")
