"""`adjudge judge`: a file of pairs or items in, a file of verdicts out, resumable at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from adjudge.bench.reports.run_cost import RunCost
from adjudge.commands.options.files import Columns, JudgeLimit, Report, output_beside
from adjudge.commands.options.judges import ANALYSES, WORDING, of_judge
from adjudge.commands.options.runs import RunOptions, RunToJudge
from adjudge.commands.options.source import check_fit, check_judge
from adjudge.commands.runs.output import beside, check_lines, is_stream, open_output
from adjudge.commands.runs.results import intentions, show_results
from adjudge.commands.runs.resumable import (
    beside_earlier,
    check_answered,
    check_paths,
    journal_beside,
    keeping,
    opened,
)
from adjudge.commands.runs.rows import columns_suggested, rows_of
from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import importable, is_own
from adjudge.rewards.judges.judge import check_rows
from adjudge.rewards.judges.kinds import KINDS, OF_PAIRS, Options, files_of, kind_of, named, prepare
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import label_of, verdict_line
from adjudge.rewards.run import record_run
from adjudge.training.progress import watched
from adjudge.training.terminal import say

JUDGES = (*(name for name in KINDS if not name.endswith(OF_PAIRS)), "tournament")
"""The judges of a file, besides those of one's own."""


def judge(
    texts: Annotated[
        Path,
        typer.Argument(help="JSONL, JSON, CSV or Parquet of pairs or single texts; or a journal, to judge it again."),
    ],
    output: Annotated[Path | None, output_beside("Verdicts, JSONL in input order", ".verdicts.jsonl")] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="pairwise, pointwise, ensemble, rubric, tree, principle, debate, personal, scalar or tournament, as"
            " above, or package.module:name for a judge of your own (default: pointwise for house, pairwise for other"
            " models and where --orders is given).",
            metavar="NAME",
        ),
    ] = None,
    *,
    run_options: RunToJudge,
    options: Annotated[
        Options,
        of_judge(
            *("aspects", "orders", "rubric", "scheme", "principles", "examples", "without", "weights", "k"),
            *("override", "partners", "form", *ANALYSES, "seed", *WORDING),
        ),
    ],
    columns: Columns = None,
    limit: JudgeLimit = None,
    report: Report = None,
) -> None:
    """Judge a file of texts; each judge's columns are listed below.

    **pairwise** compares two stories aspect by aspect, shown together. A row has `story_a`, `story_b` and `prompt` (or
    `prompt_a` and `prompt_b`), optionally `id`; further columns pass through, and `expected` (a, b or tie) is compared
    with the verdicts. Each line of the output has `preference`, the probability that story_a is better (null when the
    judge abstains, with the reason in `abstained`), and per-aspect scores. **pointwise** scores one text by aspects: a
    row has `prompt` and `response`, a line `score` and `breakdown`; rows of pairs, whose stories it reads one at a
    time, and their lines are as for pairwise. **ensemble** reads and writes what pointwise does of single texts, but
    compares each with --partners others of the file in both orders, as pairwise does, and takes the mean of its scores.

    **rubric** grades one text by criteria. A row has `prompt` and `response`, optionally its own `rubric` (an object;
    in CSV its JSON text) or `checklist` (WritingBench's five levels); other rows take --rubric. A line has `score` in
    [0, 1], `breakdown` (each criterion in its own points), `mean` on the criteria's scale, `acceptable` where the
    rubric has a threshold, and `vetoed`.

    **tree** judges a writing leaf by leaf, beside a reference that stands at 6 if there is one: a row has `prompt` (the
    instruction) and `response`, optionally `reference`, `task` (completion, guide or open; a completion has no format)
    and `genre`. Each line has `score` and `breakdown`, every node and leaf with its weight. --form parity is the
    paper's arithmetic, --without leaves out nodes or leaves.

    **principle** judges whether a text is good by a list of principles: `prompt` and `response` in, `score`, the
    probability of good, out. **debate** has agents argue for and against it, one rule, and one review the ruling: the
    same columns; `breakdown` has the rulings, of which the one of weight 1 decided, `analysis` what each agent said;
    the options of writing are its agents' in either mode. A column `label` (1 good, 0 not) is compared with the
    verdicts of both.

    **personal** foresees what one reader would say, by `reviews` of that reader. A row with `prompt` (may be empty),
    `response` and `reviews` ([{plot, review, score 1..10}]) gets a `score` from 1 to 10; a row with `story_a`,
    `story_b`, `prompt` and `reviews` ([{a, b, preferred, aspect}], preferred a or b) is compared on PerSE's five
    aspects, `score_a` and `score_b` being the chance that each is chosen. The first row's columns decide;
    `--without texts` shows plots and scores only.

    **scalar** gives the reward of a model with a Bradley-Terry head: `prompt` and `response` in, `score` (a logit) out.
    **tournament** is `adjudge rank` with all pairs, and takes the options of pairwise. **package.module:name** is a
    judge of your own, whose module is also found in the folder where you are.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is lost or judged twice. Its
    journal holds the texts too: `adjudge judge v.jsonl.journal --judge rubric --rubric new.toml` judges them anew, of
    pairs with `--columns response=story_a` the first ones, with story_b the others.
    """
    check_judge(judge, JUDGES)
    if judge == "tournament":
        from adjudge.commands.rank import rank  # which loads scipy

        own = {name: value for name, value in options.items() if name != "seed"}
        rank(
            texts,
            output,
            seed=options.get("seed", 0),
            run_options=run_options,
            options=own,
            columns=columns,
            limit=limit,
            report=report,
        )
        return
    output = output or beside(texts, ".verdicts.jsonl")
    with beside_earlier(run_options, texts, output):
        judged = judge_rows(texts, output, judge, options, run_options, columns=columns, limit=limit, report=report)
    show_results(
        judged.judge,
        judged.what,
        judged.rows,
        judged.subjects,
        judged.verdicts,
        judged.cost,
        title=f"Verdicts on {texts.name}",
        report=report,
        labels=judged.labels,
        to_stderr=is_stream(output),  # which may be where the verdicts are
    )
    say(f"verdicts: {output}", stderr=is_stream(output))
    check_answered(verdict.abstained for verdict in judged.verdicts)


class Judged(msgspec.Struct, frozen=True):
    """A file that has been judged: its rows, what was made of each, and what it cost; `judge` is as in `kind_of`."""

    judge: str
    what: Literal["pairs", "items"]
    rows: list[Row]
    subjects: list[Any]
    verdicts: list[Any]
    labels: list[bool | None] | None
    cost: RunCost


def judge_rows(
    path: Path,
    output: Path,
    judge: str | None,
    options: Options,
    run_options: RunOptions,
    *,
    columns: str | None = None,
    limit: int | None = None,
    report: Path | None = None,
    form: Callable[[Sequence[Row]], Sequence[Row]] = list,
) -> Judged:
    """Judge every row of `path`, or only the first ones, without a word about it; `form` as in `rows_of`.

    Mistakes are found before the model is loaded; `report` is only kept apart from the other files.
    """
    rows = rows_of(path, limit, columns, form=form)
    name = named(judge or run_options.source.usual_judge(options), rows)
    if is_own(name):
        importable(Path())
    kind, open_judge = kind_of(name), prepare(name, options)
    if limit is not None and kind.gather is not None and len(rows) >= limit:
        raise AdjudgeError(f"each verdict of {name} rests on other rows too: leave out --limit, or take rows out")
    check_fit(run_options.source.model, run_options.source.adapter, name, options)
    with columns_suggested(columns):
        subjects = kind.subjects(rows, options)
    check_rows(open_judge, rows, subjects)
    if kind.what == "pairs":
        intentions(rows)
    labels = [label_of(row) for row in rows] if kind.labels else None
    journal = run_options.journal or journal_beside(output)
    check_lines(output)
    reads = files_of(options).values()
    check_paths(f"the {kind.what}", path, output, run_options.earlier, reads=reads, journal=journal, report=report)
    with opened(run_options, name, options, output) as (engine, book):
        asked = open_judge(engine, book)
        keys = [asked.key(subject) for subject in subjects]
        if run_options.earlier == "overwrite":
            book.forget()
        remembered = sum(key in book for key in keys)
        verdicts: list[Any] = []
        with keeping(output, lambda: f"{sum(key in book for key in keys)} of {len(subjects)} verdicts are kept"):
            record_run(
                book,
                what=kind.what,
                judge=name,
                source=path,
                options=options,
                card=Card.of(engine),
                rows=rows,
                keys=keys,
            )
            started = time.perf_counter()
            coming = watched("judging", asked.judge_iter(subjects), len(subjects))
            with open_output(output) as write:  # an earlier output is gone; its verdicts are in the journal
                for row, verdict in zip(rows, coming, strict=True):
                    verdicts.append(verdict)
                    write(verdict_line(verdict, row))
            seconds = time.perf_counter() - started
    return Judged(name, kind.what, rows, subjects, verdicts, labels, RunCost.of(engine, seconds, remembered))
