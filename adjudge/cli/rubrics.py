"""`adjudge rubrics`: mine a rubric for each question, and compare the ways to score by rubrics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.groups import RunToWrite, with_groups, written
from adjudge.cli.options import beside, output_beside
from adjudge.commands.writing_options import Writing

rubrics = typer.Typer(
    help="Mine a rubric for each question from texts that people wrote, and compare the ways to score by rubrics.",
    no_args_is_help=True,
)

MinMass = Annotated[
    float, typer.Option(help="Probability the labels must have together, or the judge abstains.", min=0.0, max=1.0)
]
Form = Annotated[
    Literal["fixed", "parity"],
    typer.Option(help="parity: the formulas as published; fixed (default): without their flaws."),
]


@rubrics.command("mine")
@with_groups
def mine(
    questions: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet: prompt; optionally id, answers, pages.")
    ],
    corpus: Annotated[
        Path | None, typer.Option(help="Folder of .txt, .md and .jsonl (text, title) files to search.")
    ] = None,
    output: Annotated[Path | None, output_beside("Questions with their rubrics, JSONL", ".rubrics.jsonl")] = None,
    items: Annotated[
        Path | None, typer.Option(help="Also write every answer as an item with its question's rubric, to be judged.")
    ] = None,
    search: Annotated[
        Literal["words", "meaning"],
        typer.Option(help="words: BM25, costs nothing; meaning: the model's embeddings of pages and questions."),
    ] = "words",
    pages: Annotated[int, typer.Option(help="Pages of the corpus a question.", min=1)] = 5,
    sets: Annotated[int, typer.Option(help="Rubric sets written for a question.", min=1)] = 10,
    answers: Annotated[
        int, typer.Option(help="Answers that each writer gives to a question without answers of its own.", min=2)
    ] = 5,
    writer: Annotated[
        list[str] | None,
        typer.Option(help="A model that writes answers; several by repeating it (default: --model)."),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Sets that spread the answers by less than this share of the scale are dropped.")
    ] = 0.15,
    form: Form = "fixed",
    without: Annotated[
        str | None,
        typer.Option(help="Leave out, after commas: rubrics (six fixed dimensions instead), filter, texts."),
    ] = None,
    language: Annotated[str, typer.Option(help="Language of what the writing model is told: en, zh.")] = "en",
    min_mass: MinMass = 0.01,
    *,
    writing: Annotated[Writing, written(2048, 0.8)],
    run_options: RunToWrite,
) -> None:
    """Mine a rubric of its own for each open question (QuRL).

    Pages about the question are searched in the corpus (or stand in its row, `pages`: texts, or objects with text and
    source) and the passages that bear on it copied out; from these the model writes several rubric sets; those that
    give all answers nearly the same score are dropped; of the rest one rubric is made, whose points sum to 10.

    Each line of the output is a question with its `rubric`, which `adjudge judge --judge rubric` reads beside a
    `response`, and the recipe "qurl" as training data. Beside it, OUTPUT.dropped.jsonl has every row that was left out,
    and why, and the folder OUTPUT.stages what each stage made. A run that was stopped goes on with --resume; nothing is
    asked twice.
    """
    from adjudge.commands.rubrics import mine_file
    from adjudge.rewards.judges.options import names_of
    from adjudge.training.rubrics.mining import Mining

    mining = Mining(
        pages=pages,
        sets=sets,
        answers=answers,
        alpha=alpha,
        form=form,
        without=frozenset(names_of(without)),  # type: ignore[arg-type]
        language=language,
        min_mass=min_mass,
        attempts=writing.attempts,
        seed=writing.seed,
    )
    mine_file(
        questions,
        output or beside(questions, ".rubrics.jsonl"),
        mining=mining,
        sampling=writing.sampling,
        corpus=corpus,
        search=search,
        items=items,
        writers=writer or [],
        run_options=run_options,
    )


@rubrics.command("compare")
@with_groups
def compare(
    items: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet: prompt, response, and rubric or checklist.")
    ],
    output: Annotated[Path | None, output_beside("Each row's score by scheme, JSONL", ".schemes.jsonl")] = None,
    rubric: Annotated[
        Path | None,
        typer.Option(help="TOML or JSON, six, igniting or writing; for rows without a rubric of their own."),
    ] = None,
    schemes: Annotated[str, typer.Option(help="Which to compare, after commas.")] = "fixed,free,binary",
    label: Annotated[str, typer.Option(help="The column with people's scores: numbers, or empty.")] = "label",
    form: Form = "fixed",
    min_mass: MinMass = 0.01,
    *,
    run_options: RunToWrite,
) -> None:
    """Score the same rows by each scheme, and compare: rank correlation with people, variance, abstentions.

    fixed: points that sum to 10 (or to the rubric's own total); free: points, levels or a scale, normalised; binary:
    each criterion met or not.
    """
    from adjudge.commands.rubrics import compare_file
    from adjudge.rewards.judges.options import names_of

    compare_file(
        items,
        output or beside(items, ".schemes.jsonl"),
        rubric=rubric,
        schemes=names_of(schemes),
        label=label,
        form=form,
        min_mass=min_mass,
        run_options=run_options,
    )
