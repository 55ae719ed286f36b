"""`adjudge rank`: a file of groups in, their rankings out, resumable at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from adjudge.bench.reports.run_cost import RunCost
from adjudge.commands.contest import Contest
from adjudge.commands.output import check_lines, check_output, is_stream, open_output, open_output_anew
from adjudge.commands.results import show_rankings
from adjudge.commands.resumable import beside_earlier, check_answered, check_paths, journal_beside, keeping, opened
from adjudge.commands.rows import columns_suggested, rows_of
from adjudge.commands.run_options import Earlier, RunOptions
from adjudge.commands.source import check_fit, check_judge
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


def rank_file(
    path: Path,
    output: Path,
    *,
    judge: str | None,
    contest: Contest,
    options: Options,
    run_options: RunOptions,
    report: Path | None,
    preferences: Path | None = None,
    limit: int | None = None,
    columns: str | None = None,
) -> None:
    """Rank every group of `path`, or only the first ones; its best and worst response go into `preferences`.

    Mistakes in the file or the options are found before the model is loaded.
    """
    check_judge(judge, ("pairwise", "pointwise"), "pairs")
    if judge is not None and is_own(judge):
        check_reviews(kind_name(own_class(judge)))
    with columns_suggested(columns):
        rows = rows_of(path, limit, columns, form=gathered)
    name = of_pairs(judge or run_options.source.usual_judge(options))
    open_judge, rules = prepare(name, contest.judges_options(options)), contest.rules
    check_fit(run_options.source.model, run_options.source.adapter, name, options)
    with columns_suggested(columns):
        groups = [group_of_row(row, number) for number, row in enumerate(rows, 1)]
    total = sum(_size(row, group, rules, contest.seed) for row, group in zip(rows, groups, strict=True))
    check_rows(open_judge, (), ())
    journal = run_options.journal or journal_beside(output)
    check_lines(output)
    if preferences is not None:
        _check_preferences(preferences, run_options.earlier)
    check_paths(
        "the groups", path, output, run_options.earlier, journal=journal, report=report, preferences=preferences
    )
    with beside_earlier(run_options, path, output), opened(run_options, name, options, output) as (engine, book):
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
                source=path,
                options={**options, **msgspec.structs.asdict(contest)},
                card=Card.of(engine),
                rows=rows,
                keys=None,
            )
            started = time.perf_counter()
            with open_output(output) as write:  # an earlier output is gone; its comparisons are in the journal
                for row, verdict in zip(rows, tournament.rank_iter(groups), strict=True):
                    write(group_line(verdict, row))
                    verdicts.append(verdict)
            seconds = time.perf_counter() - started
    show_rankings(
        name,
        groups,
        verdicts,
        RunCost.of(engine, seconds, watched.remembered),
        title=f"Rankings of {path.name}",
        report=report,
        to_stderr=is_stream(output),  # which may be where the rankings are
    )
    say(f"rankings: {output}", stderr=is_stream(output))
    check_answered(outcome.abstained for verdict in verdicts for outcome in verdict.outcomes)
    if preferences is not None:
        _write_preferences(preferences, groups, verdicts, to_stderr=is_stream(output))


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
