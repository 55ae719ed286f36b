"""`adjudge rank`: a file of groups in, their rankings out, resumable at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from adjudge.bench.reports.run_cost import RunCost
from adjudge.commands.options.files import Columns, Limit, Report, output_beside, run_option
from adjudge.commands.options.judges import ANALYSES, WORDING, of_judge
from adjudge.commands.options.runs import Earlier, RunToJudge
from adjudge.commands.options.source import check_fit, check_judge
from adjudge.commands.runs.contest import Contest
from adjudge.commands.runs.output import beside, check_lines, check_output, is_stream, open_output, open_output_anew
from adjudge.commands.runs.results import show_results
from adjudge.commands.runs.resumable import beside_earlier, check_answered, check_paths, journal_beside, keeping, opened
from adjudge.commands.runs.rows import columns_suggested, rows_of
from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import is_own
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.judge import check_rows
from adjudge.rewards.judges.kinds import Options, kind_name, of_pairs, prepare
from adjudge.rewards.judges.own import own_class
from adjudge.rewards.judges.pairing import Pairing
from adjudge.rewards.judges.tournament import check_reviews, members_of
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Pair, PairVerdict
from adjudge.rewards.records.wire import gathered, group_line, group_of_row, preference_line
from adjudge.rewards.run import record_run
from adjudge.training.progress import bar
from adjudge.training.terminal import say


def rank(
    groups: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of groups: the responses to one prompt.")],
    output: Annotated[Path | None, output_beside("Rankings, JSONL in input order", ".ranks.jsonl")] = None,
    pairing: Annotated[
        Literal["all", "circular", "uncertain"],
        typer.Option(help="Every pair; each with k others; or those pairs that tell most, round by round."),
    ] = "all",
    k: Annotated[
        int | None,
        typer.Option(help="How many others each text meets (circular; uncertain: on average; default: 4)."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Pairs a group (uncertain; default: what circular asks).", min=1)
    ] = None,
    ranking: Annotated[
        Literal["bradley_terry", "borda"], typer.Option(help="How preferences become strengths.")
    ] = "bradley_terry",
    judge: Annotated[
        str | None,
        typer.Option(
            help="pairwise shows both texts of a pair together, pointwise reads each alone; or package.module:name for"
            " one of your own, of pairs (default: pointwise for house, pairwise for other models and where --orders is"
            " given).",
            metavar="NAME",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides who meets whom, and which analyses are drawn.")] = 0,
    *,
    run_options: RunToJudge,
    options: Annotated[Options, of_judge("aspects", "orders", *ANALYSES, *WORDING)],
    columns: Columns = None,
    limit: Limit = None,
    report: Report = None,
    preferences: Annotated[
        Path | None,
        run_option(
            help="Also write the best and the worst response of each group here, as `prompt`, `chosen` and `rejected`:"
            " JSONL that `adjudge train reward` and TRL's DPOTrainer read. Groups without a difference are left out."
        ),
    ] = None,
) -> None:
    """Rank the responses to each prompt by comparing pairs of them.

    Each row has `prompt`, `responses` (a list of texts), optionally `reference` (a text that takes part) and `id`;
    further columns pass through. Or each has one `response`: those of a prompt are a group, which has their ids as
    `ids`, and for its `id` the one that all of them have, or else its number. Each line of the output has `strengths`,
    one for each response (log-odds; null where no answered pairs join it to the largest part of the group), their
    standard `errors`, their `ranks` (1 is best, equals share one), `preferences` (the probability of being better than
    the reference), and `outcomes`, every pair that was asked.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; no pair is lost or judged twice.
    """
    if k is not None and pairing == "all":
        raise AdjudgeError("--k is for pairings that leave pairs out: add --pairing circular, or leave it out")
    output = output or beside(groups, ".ranks.jsonl")
    contest = Contest(pairing, 4 if k is None else k, budget, ranking, seed)
    check_judge(judge, ("pairwise", "pointwise"), "pairs")
    if judge is not None and is_own(judge):
        check_reviews(kind_name(own_class(judge)))
    with columns_suggested(columns):
        rows = rows_of(groups, limit, columns, form=gathered)
    name = of_pairs(judge or run_options.source.usual_judge(options))
    open_judge, rules = prepare(name, contest.judges_options(options)), contest.rules
    check_fit(run_options.source.model, run_options.source.adapter, name, options)
    with columns_suggested(columns):
        asked = [group_of_row(row, number) for number, row in enumerate(rows, 1)]
    total = sum(_size(row, group, rules, contest.seed) for row, group in zip(rows, asked, strict=True))
    if not total:
        raise AdjudgeError(
            f"{groups.name}: no prompt that was read has two different texts to compare: give one that has"
        )
    check_rows(open_judge, (), ())
    journal = run_options.journal or journal_beside(output)
    check_lines(output)
    if preferences is not None:
        _check_preferences(preferences, run_options.earlier)
    check_paths(
        "the groups", groups, output, run_options.earlier, journal=journal, report=report, preferences=preferences
    )
    with beside_earlier(run_options, groups, output), opened(run_options, name, options, output) as (engine, book):
        watched = _Watched(open_judge(engine, book), book)
        if run_options.earlier == "overwrite":
            book.forget()
        verdicts: list[GroupVerdict] = []
        progress = bar()
        task = progress.add_task("comparing", total=total)
        with (
            keeping(output, lambda: f"{progress.tasks[0].completed:.0f} of {total} comparisons are kept"),
            progress,
        ):
            watched.answered = lambda: progress.advance(task)
            tournament = contest.open(watched)
            record_run(
                book,
                what="groups",
                judge=name,
                source=groups,
                options={**options, **msgspec.structs.asdict(contest)},
                card=Card.of(engine),
                rows=rows,
                keys=None,
            )
            started = time.perf_counter()
            with open_output(output) as write:  # an earlier output is gone; its comparisons are in the journal
                for row, verdict in zip(rows, tournament.rank_iter(asked), strict=True):
                    write(group_line(verdict, row))
                    verdicts.append(verdict)
            seconds = time.perf_counter() - started
    show_results(
        name,
        "groups",
        (),
        asked,
        verdicts,
        RunCost.of(engine, seconds, watched.remembered),
        title=f"Rankings of {groups.name}",
        report=report,
        to_stderr=is_stream(output),  # which may be where the rankings are
    )
    say(f"rankings: {output}", stderr=is_stream(output))
    check_answered(outcome.abstained for verdict in verdicts for outcome in verdict.outcomes)
    if preferences is not None:
        _write_preferences(preferences, asked, verdicts, to_stderr=is_stream(output))


def _check_preferences(path: Path, earlier: Earlier) -> None:
    """Refuse a stream, beside which the table would stand, a table's name, and what is there and of no earlier run."""
    if is_stream(path):
        raise AdjudgeError(f"{path} is no file, which the preferences want: name one")
    ours = earlier == "overwrite"
    if earlier == "resume" and path.is_file():  # a run that goes on writes its own anew
        with path.open("rb") as file:
            first = file.readline()
        ours = all(name in first for name in (b'"chosen":', b'"rejected":', b'"margin":'))
    check_output(path, overwrite=ours)


def _write_preferences(
    path: Path, groups: Sequence[Group], verdicts: Sequence[GroupVerdict], *, to_stderr: bool
) -> None:
    """Write the preferences of the groups that have one, and say of how many."""
    lines = [preference_line(group, verdict) for group, verdict in zip(groups, verdicts, strict=True)]
    kept = [line for line in lines if line is not None]
    with open_output_anew(path) as write:
        for line in kept:
            write(line)
    alike = f"; {len(lines) - len(kept)} left out, of no two strengths" if len(kept) < len(lines) else ""
    say(f"preferences: {path}, of {len(kept)} of {len(lines)} groups{alike}", stderr=to_stderr)


class _Watched:
    """A judge that says so each time it has answered, and counts the answers that were in the journal."""

    def __init__(self, judge: Any, book: Journal) -> None:
        self.judge, self.book = judge, book
        self.answered: Callable[[], None] = lambda: None
        self.remembered = 0

    def compare_iter(self, pairs: Iterable[Pair], /) -> Iterator[PairVerdict]:
        for verdict in self.judge.judge_iter(self._counted(pairs)):
            self.answered()
            yield verdict

    def _counted(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            self.remembered += self.judge.key(pair) in self.book
            yield pair


def _size(row: Row, group: Group, rules: Pairing, seed: int) -> int:
    """How many pairs the group asks."""
    try:
        return rules.size(len(members_of(group, seed)))
    except AdjudgeError as error:
        raise AdjudgeError(f"{row.place}: {error}") from None
