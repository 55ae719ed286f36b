"""`adjudge rubrics`: questions in, their rubrics out; and rows scored by each scheme of rubrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from adjudge.commands.output import check_lines, make_folder_of
from adjudge.commands.resumable import check_answered
from adjudge.commands.run_options import RunOptions
from adjudge.commands.stage_run import part_beside, stage_run
from adjudge.commands.writing_options import tell_texts
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.rewards.judges.kinds import files_of
from adjudge.rewards.judges.published_rubrics import open_rubric
from adjudge.rewards.judges.retrieval import EngineEmbedder
from adjudge.rewards.judges.rubric_scoring import Form
from adjudge.rewards.records.rows import Row, number_of
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


def mine_file(
    path: Path,
    output: Path,
    *,
    mining: Mining,
    sampling: Sampling,
    corpus: Path | None,
    search: str,
    items: Path | None,
    writers: Sequence[str],
    run_options: RunOptions,
) -> None:
    """Mine a rubric for every question of `path`; mistakes in the files are found before the model is loaded."""
    check_sampling(sampling)
    questions = read_questions(path)
    pages = _pages(questions, mining, corpus)
    if items is not None and mining.without & {"rubrics", "filter"} and not given_answers(questions):
        raise AdjudgeError("no answers are written without the filter: give the questions some, or leave --items out")
    if items is not None:
        check_lines(items)
    stages, dropped = output.with_name(f"{output.stem}.stages"), part_beside(output, "dropped")
    with stage_run("the questions", path, output, run_options, items=items) as run:
        if "rubrics" in mining.without:
            rows = fixed_rows(questions)
            write_stage(output, rows)
            if items is not None:
                write_stage(items, item_rows(rows, given_answers(questions)))
            say(f"rubrics: {output} (the six fixed dimensions for each of {len(rows)} questions)")
            return
        engine = run.open()
        miner = Miner(
            engine,
            mining,
            search=_search(pages, search, KeptEngine(engine, run.book), mining.language),
            sampling=sampling,
            journal=run.book,
            writers=[msgspec.structs.replace(run_options.source, model=name, adapter=None).open for name in writers],
        )
        make_folder_of(stages / "any")
        mined = miner.mine(questions, lambda stage, rows: write_stage(stages / f"{stage}.jsonl", rows))
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
    say(f"rubrics: {output} ({len(mined.rows)} of {len(questions)} questions)", f"dropped: {dropped}")


def compare_file(
    path: Path,
    output: Path,
    *,
    rubric: Path | None,
    schemes: Sequence[str],
    label: str,
    form: Form,
    min_mass: float,
    run_options: RunOptions,
) -> None:
    """Score every row of `path` by each scheme; mistakes in the file are found before the model is loaded."""
    rows = read_stage(path)
    general = None if rubric is None else open_rubric(rubric)
    items = {row.place: item_of(row, number, ("rubric",)) for number, row in enumerate(rows, 1)}
    labels = [_label(row, label) for row in rows]
    check_schemes(schemes, items, general, form)
    reads = files_of({} if rubric is None else {"rubric": rubric}).values()
    with stage_run("the items", path, output, run_options, others=(), reads=[*reads]) as run:
        verdicts = judge_schemes(
            run.open(),
            list(items.values()),
            schemes,  # type: ignore[arg-type]
            rubric=general,
            form=form,
            min_mass=min_mass,
            journal=run.book,
        )
        check_answered(verdict.abstained for found in verdicts.values() for verdict in found)
        write_stage(output, (_scored(row, number, verdicts) for number, row in enumerate(rows)))
    _show_schemes(compare_schemes(verdicts, labels), f"Schemes of {path.name}")
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
        raise AdjudgeError(f'{row.place}: "{name}" is {str(value)[:40]!r}, not a number: mend it, or name --label')
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
