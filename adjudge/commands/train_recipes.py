"""`adjudge train fields` and `presets`: what recipes can say, and those that there are."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from adjudge.engine.errors import AdjudgeError
from adjudge.training.presets import preset_about, preset_names, preset_text
from adjudge.training.recipe_fields import field_lines
from adjudge.training.recipe_kinds import KINDS, recipe_kind
from adjudge.training.terminal import open_console, plain_table


def train_fields(
    command: Annotated[str, typer.Argument(metavar="KIND", help="grpo, sft, direct, reward or house.")],
) -> None:
    """Show what a recipe can say: every table and field, what may stand in it, and what holds where it is left out.

    It is printed as TOML, of which each line can be copied; what has no default is commented out.
    """
    if command not in KINDS:
        raise AdjudgeError(f'there are no recipes of adjudge train "{command}": choose {", ".join(KINDS)}')
    console = open_console(120, highlight=False)
    for line in "\n".join(field_lines(recipe_kind(command))).splitlines():
        console.print(_styled(line), soft_wrap=True)


def train_presets(
    name: Annotated[str | None, typer.Argument(help="Show the file of this one.")] = None,
) -> None:
    """List the recipes of the papers: what a paper does not give is ours, and marked so."""
    if name is not None:
        print(preset_text(name), end="")
        return
    table = plain_table("preset", "what")
    for preset in preset_names():
        table.add_row(preset, preset_about(preset))
    open_console(120).print(table)
    print('\nLay a recipe over one with preset = "NAME"; `adjudge train presets NAME` shows what it says.')


def _styled(line: str) -> Text:
    if line.startswith("# "):
        return Text(line, "dim")
    said, mark, about = line.partition("  # ")
    text = Text(said, "bold" if said.lstrip("#").startswith("[") else "")
    return text.append(mark + about, "dim")
