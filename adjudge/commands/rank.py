"""`adjudge rank`: a file of groups in, their rankings out, resumable at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, TypedDict

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adjudge.commands.output import open_output
from adjudge.commands.results import Work, show_rankings
from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.commands.rows import rows_of
from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.aspects import parse_aspects
from adjudge.rewards.group import Group, GroupVerdict
from adjudge.rewards.journal import Journal
from adjudge.rewards.pairing import Kind, Pairing
from adjudge.rewards.run import record_run
from adjudge.rewards.tournament import PairJudge, Ranking, Tournament, members_of
from adjudge.rewards.verdict import Pair, PairVerdict
from adjudge.rewards.wire import Row, group_line, group_of


class Contest(TypedDict):
    """How a tournament goes: its options by name."""

    pairing: Kind
    k: int
    budget: int | None
    ranking: Ranking
    seed: int


def rank_file(
    path: Path,
    output: Path,
    *,
    pairing: Kind,
    k: int,
    budget: int | None,
    ranking: Ranking,
    seed: int,
    model: str,
    adapter: Path | None,
    aspects: str,
    orders: Literal["both", "ab"],
    cut: Literal["middle", "head", "tail", "never"],
    earlier: Earlier,
    report: Path | None,
    journal: Path | None,
    device: str,
    dtype: str,
) -> None:
    """Rank every group of `path`; mistakes in the file or the options are found before the model is loaded."""
    chosen = parse_aspects(aspects)
    rules = Pairing(pairing, k, budget)
    contest: Contest = {"pairing": pairing, "k": k, "budget": budget, "ranking": ranking, "seed": seed}
    rows = rows_of(path)
    groups = [group_of(row, number) for number, row in enumerate(rows, 1)]
    total = sum(_size(row, group, rules, seed) for row, group in zip(rows, groups, strict=True))
    journal = journal or output.with_name(output.name + ".journal")
    check_paths("the groups", path, output, journal, report)
    with alone(journal), Journal(journal) as book:
        check_earlier(output, book, earlier)
        from adjudge.engine.engine import Engine
        from adjudge.rewards.pairwise import PairwiseJudge

        engine = Engine(model, adapter=adapter, device=device, dtype=dtype)
        judge = PairwiseJudge(engine, chosen, orders=orders, cut=cut, journal=book)
        if earlier == "overwrite":
            book.clear()
        verdicts: list[GroupVerdict] = []
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        task = progress.add_task("comparing", total=total)
        with (
            open_output(output) as write,  # from here on an earlier output is gone; its comparisons are in the journal
            keeping(output, lambda: f"{progress.tasks[0].completed:.0f} of {total} comparisons are kept"),
            progress,
        ):
            tournament = Tournament(_Watched(judge, lambda: progress.advance(task)), **contest)
            record_run(
                book,
                what="groups",
                judge="pairwise",
                source=path,
                options={**contest, "aspects": aspects, "orders": orders, "cut": cut},
                card=Card.of(engine),
                rows=rows,
                keys=None,
            )
            started = time.perf_counter()
            for row, verdict in zip(rows, tournament.rank_iter(groups), strict=True):
                write(group_line(verdict, row))
                verdicts.append(verdict)
            seconds = time.perf_counter() - started
    show_rankings(groups, verdicts, Work.of(engine, seconds), title=f"Rankings of {path.name}", report=report)
    print(f"rankings: {output}")


class _Watched:
    """A judge that says so each time it has answered."""

    def __init__(self, judge: PairJudge, answered: Callable[[], None]) -> None:
        self.judge = judge
        self.answered = answered

    def compare_iter(self, pairs: Iterable[Pair], /) -> Iterator[PairVerdict]:
        for verdict in self.judge.compare_iter(pairs):
            self.answered()
            yield verdict


def _size(row: Row, group: Group, rules: Pairing, seed: int) -> int:
    """How many pairs the group asks."""
    try:
        return rules.size(len(members_of(group, seed)))
    except AdjudgeError as error:
        raise AdjudgeError(f"{row.place}: {error}") from None
