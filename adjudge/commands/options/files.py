"""Options of files: what a command reads and how its columns are called, and what it writes where."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

run_option = partial(typer.Option, rich_help_panel="Run")

Table = Annotated[Path | None, typer.Option("-o", "--output", help="Also write the table as CSV.")]
Plot = Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf.")]
OverwriteFile = Annotated[bool, run_option("--overwrite", help="Write over the files that are there.")]
Limit = Annotated[int | None, run_option(help="Only the first rows; --resume goes on with the others.", min=1)]
JudgeLimit = Annotated[
    int | None, run_option(help="Only the first rows (not ensemble); --resume goes on with the others.", min=1)
]
Columns = Annotated[
    str | None, run_option(help="What the file calls its columns, as in prompt=question,response=answer.")
]
Report = Annotated[Path | None, run_option(help="Also write a self-contained HTML report here.")]


def output_beside(what: str, ending: str) -> Any:
    """The option of an output that is `beside` the input, unless the user says where."""
    return typer.Option("-o", "--output", help=f"{what} (default: beside the input, {ending}).")
