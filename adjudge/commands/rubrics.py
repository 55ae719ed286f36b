"""`adjudge rubrics`: questions in, their rubrics out; and rows scored by each scheme of rubrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.text import Text

from adjudge.commands.lazy import Commands
from adjudge.commands.options.files import output_beside
from adjudge.commands.options.runs import RunToWrite
from adjudge.commands.options.writing import Writing, tell_texts, written
from adjudge.commands.runs.output import beside, check_lines, make_folder_of
from adjudge.commands.runs.resumable import check_answered
from adjudge.commands.runs.stage_run import part_beside, stage_run
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.judges.kinds import files_of
from adjudge.rewards.judges.options import names_of
from adjudge.rewards.judges.published_rubrics import open_rubric
from adjudge.rewards.judges.retrieval import EngineEmbedder
from adjudge.rewards.judges.rubric_scoring import Form
from adjudge.rewards.records.rows import Row, number_of, with_point
from adjudge.rewards.records.wire import ITEM_COLUMNS, item_of
from adjudge.training.attrition import show_attrition
from adjudge.training.kept_engine import KeptEngine
from adjudge.training.rubrics.corpus import Page, read_corpus
from adjudge.training.rubrics.mining import Mined, Miner, Mining, check_sampling, fixed_rows, given_answers, item_rows
from adjudge.training.rubrics.questions import Question, read_questions
from adjudge.training.rubrics.schemes import SchemeRow, check_schemes, compare_schemes, judge_schemes
from adjudge.training.rubrics.search import MeaningSearch, Search, WordSearch
from adjudge.training.stages import read_stage, write_stage
from adjudge.training.terminal import cell, open_console, plain_table, say

rubrics = Commands(
    help="Mine a rubric for each question from texts that people wrote, and compare the ways to score by rubrics.",
    no_args_is_help=True,
)

MinMass = Annotated[
    float, typer.Option(help="Probability the labels must have together, or the judge abstains.", min=0.0, max=1.0)
]
Formulas = Annotated[
    Form,
    typer.Option(help="parity: the formulas as published; fixed (default): without their flaws."),
]


@rubrics.command("mine")
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
    form: Formulas = "fixed",
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
    output = output or beside(questions, ".rubrics.jsonl")
    check_sampling(writing.sampling)
    asked = read_questions(questions)
    found = _pages(asked, mining, corpus)
    if items is not None and mining.without & {"rubrics", "filter"} and not given_answers(asked):
        raise AdjudgeError("no answers are written without the filter: give the questions some, or leave --items out")
    if items is not None:
        check_lines(items)
    stages, dropped = output.with_name(f"{output.stem}.stages"), part_beside(output, "dropped")
    with stage_run("the questions", questions, output, run_options, items=items) as run:
        if "rubrics" in mining.without:
            rows = fixed_rows(asked)
            write_stage(output, rows)
            if items is not None:
                write_stage(items, item_rows(rows, given_answers(asked)))
            say(f"rubrics: {output} (the six fixed dimensions for each of {len(rows)} questions)")
            return
        engine = run.open()
        miner = Miner(
            engine,
            mining,
            search=_search(found, search, KeptEngine(engine, run.book), mining.language),
            sampling=writing.sampling,
            journal=run.book,
            writers=[
                msgspec.structs.replace(run_options.source, model=name, adapter=None).open for name in writer or ()
            ],
        )
        make_folder_of(stages / "any")
        mined = miner.mine(asked, lambda stage, rows: write_stage(stages / f"{stage}.jsonl", rows))
        write_stage(dropped, mined.dropped)
        _show(mined)
        tell_texts(miner.texts)
        if not mined.rows:
            check_answered(mined.unanswered)
            raise AdjudgeError(
                f"not one question is left with a rubric: {dropped} says why (sets of low_variance pass with a"
                " lower --alpha; a model that writes nothing usable needs more --max-tokens, or is too small)"
            )
        write_stage(output, mined.rows)
        if items is not None:
            write_stage(items, item_rows(mined.rows, mined.answers))
    say(f"rubrics: {output} ({len(mined.rows)} of {len(asked)} questions)", f"dropped: {dropped}")


@rubrics.command("compare")
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
    form: Formulas = "fixed",
    min_mass: MinMass = 0.01,
    *,
    run_options: RunToWrite,
) -> None:
    """Score the same rows by each scheme, and compare: rank correlation with people, variance, abstentions.

    fixed: points that sum to 10 (or to the rubric's own total); free: points, levels or a scale, normalised; binary:
    each criterion met or not.
    """
    chosen = names_of(schemes)
    output = output or beside(items, ".schemes.jsonl")
    rows = read_stage(items)
    general = None if rubric is None else open_rubric(rubric)
    read = {row.place: item_of(row, number, ("rubric",)) for number, row in enumerate(rows, 1)}
    labels = [_label(row, label) for row in rows]
    check_schemes(chosen, read, general, form)
    reads = files_of({} if rubric is None else {"rubric": rubric}).values()
    with stage_run("the items", items, output, run_options, others=(), reads=[*reads]) as run:
        verdicts = judge_schemes(
            run.open(),
            list(read.values()),
            chosen,  # type: ignore[arg-type]
            rubric=general,
            form=form,
            min_mass=min_mass,
            journal=run.book,
        )
        check_answered(verdict.abstained for found in verdicts.values() for verdict in found)
        write_stage(output, (_scored(row, number, verdicts) for number, row in enumerate(rows)))
    _show_schemes(compare_schemes(verdicts, labels), f"Schemes of {items.name}")
    say(f"scores: {output}")


def _pages(questions: Sequence[Question], mining: Mining, corpus: Path | None) -> list[Page]:
    """The pages to search; none where there is nothing to be searched for."""
    if mining.without & {"texts", "rubrics"} or all(question.pages for question in questions):
        return []
    if corpus is None:
        raise AdjudgeError("nothing to mine from: name a folder of texts with --corpus, or add --without texts")
    return read_corpus(corpus)


def _search(pages: Sequence[Page], how: str, engine: EngineFace, language: str) -> Search | None:
    if not pages:
        return None
    return WordSearch(pages) if how == "words" else MeaningSearch(pages, EngineEmbedder(engine, language))


def _label(row: Row, name: str) -> float | None:
    value = row.columns.get(name)
    if value in (None, ""):
        return None
    number = float(value) if isinstance(value, bool) else number_of(value)
    if number is None:
        shown = f'{row.place}: "{name}" is {str(value)[:40]!r}, not a number'
        raise AdjudgeError(f"{shown}: mend it{with_point(value)}, or name --label")
    return number


def _scored(row: Row, number: int, verdicts: Any) -> dict[str, Any]:
    own = {scheme: found[number] for scheme, found in verdicts.items()}
    return {
        **{name: value for name, value in row.columns.items() if name not in ITEM_COLUMNS},
        "id": next(iter(own.values())).id,
        "scores": {scheme: verdict.score for scheme, verdict in own.items()},
        "abstained": {scheme: verdict.abstained for scheme, verdict in own.items()},
        "parts": {
            scheme: {name: part.score for name, part in verdict.breakdown.items()} for scheme, verdict in own.items()
        },
    }


def _show(mined: Mined) -> None:
    for unit, counts in mined.counts.items():
        if counts:
            show_attrition(counts, unit.capitalize())
            print()


def _show_schemes(rows: Sequence[SchemeRow], title: str) -> None:
    table = plain_table(title=Text(title))
    for name in ("scheme", "Spearman", "p", "labelled", "mean", "variance", "scored by all", "abstained"):
        table.add_column(name, justify="left" if name in ("scheme", "abstained") else "right")
    for row in rows:
        why = ", ".join(f"{reason} {number}" for reason, number in row.abstained.items())
        table.add_row(
            row.scheme,
            cell(row.spearman, ".3f", "-"),
            cell(row.p, ".2g", "-"),
            str(row.labelled),
            cell(row.mean, ".3f", "-"),
            cell(row.variance, ".4f", "-"),
            f"{row.shared} of {row.rows}",
            why or "0",
        )
    open_console(120).print(table)
