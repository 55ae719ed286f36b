"""`adjudge prompts`: list the prompts of all judges, or show what one asks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.options import (
    Examples,
    Form,
    HowMany,
    JudgeAspects,
    JudgeCut,
    Language,
    Layout,
    Mode,
    Principles,
    PromptOrders,
    Rubric,
    Scheme,
    TreeWeights,
    Without,
    judge_options,
)

prompts = typer.Typer(help="List the prompts of all judges, or show what one asks.", invoke_without_command=True)


@prompts.callback()
def prompts_command(context: typer.Context) -> None:
    """List the prompts of all judges: their languages, and the versions that journals record."""
    from adjudge.commands.prompts import list_prompts

    if context.invoked_subcommand is None:
        list_prompts()


@prompts.command("show")
def show_prompts(
    judge: Annotated[str, typer.Argument(help="Which judge, as in `adjudge judge --judge`.")],
    rows: Annotated[Path | None, typer.Option(help="Show it for a row of this file (default: an example).")] = None,
    row: Annotated[int, typer.Option(help="Which row.", min=1)] = 1,
    model: Annotated[
        str | None, typer.Option(help="In this model's chat template; only its tokenizer is loaded.")
    ] = None,
    question: Annotated[str | None, typer.Option(help="Which question (default: the first).")] = None,
    every: Annotated[bool, typer.Option("--all", help="All questions.")] = False,
    aspects: JudgeAspects = None,
    orders: PromptOrders = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    examples: Examples = None,
    without: Without = None,
    weights: TreeWeights = None,
    k: HowMany = None,
    form: Form = None,
    mode: Mode = None,
    language: Language = None,
    layout: Layout = None,
    cut: JudgeCut = None,
) -> None:
    """Show what a judge asks, word for word; of a judge of several rounds, the first.

    Texts of the data stand between ⟦ and ⟧, or in colour on a terminal, and their invisible characters are written out.
    They are shown whole: those too long for a model are shortened when it is asked.
    """
    from adjudge.commands.prompts import show_prompts as show

    options = judge_options(locals())
    show(judge, options=options, rows=rows, row=row, model=model, question=question, every=every)
