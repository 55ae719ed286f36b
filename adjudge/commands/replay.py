"""`adjudge replay`: an earlier run's verdicts again, from its journal alone, or new ones from its old answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.text import Text

from adjudge.bench.reports.run_cost import RunCost
from adjudge.commands.options.files import OverwriteFile, Report
from adjudge.commands.options.judges import RunAspects, RunForm, RunMinMass, RunOrders, RunWeights, of_judge
from adjudge.commands.options.runs import Earlier
from adjudge.commands.runs.contest import CONTEST, contest_of, without_contest
from adjudge.commands.runs.output import DASH, check_output, is_stream, open_output_anew
from adjudge.commands.runs.results import show_results
from adjudge.commands.runs.resumable import check_paths
from adjudge.commands.runs.rows import holds_run
from adjudge.engine.absent import AbsentEngine, ModelNeeded
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import is_own
from adjudge.rewards.journal import ANOTHER_FILE, Journal, is_journal
from adjudge.rewards.judges.aspects import aspects_of
from adjudge.rewards.judges.judge import AskingJudge, clean
from adjudge.rewards.judges.kinds import Kind, Options, files_of, kind_of, prepare
from adjudge.rewards.judges.rescoring import Rescoring
from adjudge.rewards.records.group import GroupVerdict
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import PairVerdict, Verdict
from adjudge.rewards.records.wire import group_line, group_of_row, verdict_line
from adjudge.rewards.run import Run, run_of, runs_of
from adjudge.training.terminal import open_console, ruled_table

STOPPED = "that run was stopped, --resume of its command goes on"
UNASKED = "it holds none on pairs that these groups and this pairing ask, adjudge rank with --resume asks them"
"""Why a row has no verdict."""


def replay(
    source: Annotated[
        Path, typer.Argument(help="The journal of a run, the output beside it, or the folder of a training run.")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSONL (default: standard output).")] = None,
    run: Annotated[int | None, typer.Option(help="Which run of the journal (default: the latest).", min=1)] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the runs of the journal instead.")] = False,
    *,
    changes: Annotated[
        Options,
        of_judge(
            *("aspects", "orders", "rubric", "scheme", "without", "weights", "form", "min_mass"),
            aspects=RunAspects,
            orders=RunOrders,
            weights=RunWeights,
            form=RunForm,
            min_mass=RunMinMass,
        ),
    ],
    ranking: Annotated[
        Literal["bradley_terry", "borda"] | None, typer.Option(help="How preferences become strengths (rank).")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Reward as this recipe does, from the same verdicts (a training run).")
    ] = None,
    step: Annotated[int | None, typer.Option(help="The rewards of this step alone (a training run).", min=0)] = None,
    report: Report = None,
    overwrite: OverwriteFile = False,
) -> None:
    """Give the verdicts of an earlier run again, from its journal alone: the same lines, byte for byte, and no model.

    With options of the judge the old answers are scored anew, as if it had been run with them: other weights
    (`--aspects "coherence*3,surprise"`), fewer aspects, one order, a rubric with other weights, another `--min-mass`.
    What was never asked cannot be scored: for another wording or new criteria judge the texts again, which the journal
    holds (`adjudge judge JOURNAL`). Rankings (`adjudge rank`) are replayed alike.

    Of a training run whose recipe has `journal = true` in [reward], every reward, or of one `--step`, is computed again
    and compared with what the trainer was given; with `--recipe` it is what another [reward] of the same judges would
    have paid.
    """
    if ranking is not None:
        changes = {**changes, "ranking": ranking}
    if source.is_dir():
        from adjudge.commands.replay_training import list_steps, replay_training

        if list_:
            list_steps(source)
            return
        if any(given is not None for given in (run, report)) or changes:
            raise AdjudgeError(
                "the rewards of a training run are replayed as they were: leave out all options but --output,"
                " --recipe, --step and --list"
            )
        replay_training(source, output, recipe, step, overwrite)
        return
    if list_:
        _list_runs(source)
        return
    for name, value in (("recipe", recipe), ("step", step)):
        if value is not None:
            raise AdjudgeError(f"--{name} is for the folder of a training run: name one, or leave it out")
    journal = _journal_of(source)
    reads = [journal, *files_of(changes).values()]
    earlier: Earlier = "overwrite" if overwrite else "refuse"
    check_paths("the run", source, output or DASH, earlier, reads=reads, report=report)
    if output is not None:
        check_output(output, overwrite)
    with Journal(journal, mend=ANOTHER_FILE) as book, TemporaryDirectory() as folder:
        _replay_run(book, run_of(book, run), Path(folder), changes, output, report)


def _list_runs(source: Path) -> None:
    """Print the runs a journal has a record of."""
    from adjudge.rewards.visible import visible

    table = ruled_table("run", "begun", "judge", "model", "rows", "of", "options")
    with Journal(_journal_of(source), mend=ANOTHER_FILE) as book:
        for number, (begun, run) in enumerate(runs_of(book), 1):
            options = {**run.options, **{name: file.name for name, file in run.files.items()}}
            told = ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)
            model = run.card.name if run.card.adapter is None else f"{run.card.name} with an adapter"
            cells = (run.judge if run.what != "groups" else "rank", model, len(run.row_names(book)))
            table.add_row(
                str(number),
                f"{begun:%Y-%m-%d %H:%M}",
                *(Text(visible(str(cell))) for cell in (*cells, run.source, told)),
            )
    open_console(160).print(table)


def _replay_run(
    book: Journal, run: Run, folder: Path, changes: Options, output: Path | None, report: Path | None
) -> None:
    """The verdicts of a run; its files stand in `folder`."""
    kind = _kind(run, changes)
    _check_changes(run, kind, changes)
    options = run.read_options(book, folder)
    read = run.read_rows(book)
    title = f"Replay of {run.source}"
    if run.what == "groups":
        results = Results(output, report, title, RunCost(run.card.name))
        missing = len(read) - _replay_groups(book, run, options, changes, read, results)
        _end(missing, len(read), UNASKED if changes else STOPPED)
        return
    subjects, keys = kind.subjects(read, options), run.read_keys(book)
    held = [place for place, key in enumerate(keys) if key in book]
    results = Results(output, report, title, RunCost(run.card.name, remembered=len(held)))
    rows_held, subjects_held = [read[place] for place in held], [subjects[place] for place in held]
    if changes:
        verdicts = _rescoring(book, run, options, changes).judge_iter(subjects_held)
    else:
        verdict_type = _verdict_type(book, run, options)
        verdicts = _remembered(book, verdict_type, [keys[place] for place in held], subjects_held)
    shown = results.write(zip(rows_held, verdicts, strict=True), verdict_line)
    if results.are_told:
        show_results(run.judge, run.what, rows_held, subjects_held, shown, results.cost, **results.how)
    _end(len(read) - len(held), len(read))


def _kind(run: Run, changes: Options) -> Kind:
    """What the run's judge is. One of the user's own is not imported: a journal may be a stranger's, and name anything.

    Raises AdjudgeError for changes to such a one, which it would have to conclude.
    """
    if not is_own(run.judge):
        return kind_of(run.judge)
    if run.what == "groups" or changes:
        raise AdjudgeError(f"{run.judge[:80]} is a judge of one's own, which a replay does not import: judge again")
    return Kind(run.what, "", ())


def _end(missing: int, rows: int, why: str = STOPPED) -> None:
    """Say how many rows have no verdict, if any have none, and `why`."""
    if missing:
        print(f"adjudge: {missing} of {rows} rows have no verdict in the journal: {why}", file=sys.stderr)
        raise SystemExit(1)


class Results(msgspec.Struct, frozen=True):
    """Where the results of a replay go, and what is said of them."""

    output: Path | None
    report: Path | None
    title: str
    cost: RunCost

    def write(self, verdicts: Iterable[tuple[Row, Any]], line_of: Callable[[Any, Row], bytes]) -> list[Any]:
        """Write each as a line, and return them all."""
        written = []
        with open_output_anew(self.output) as write:
            for row, verdict in verdicts:
                write(line_of(verdict, row))
                written.append(verdict)
        return written

    @property
    def are_told(self) -> bool:
        """Whether there is more to show than lines on the standard output."""
        return self.output is not None or self.report is not None

    @property
    def how(self) -> dict[str, Any]:
        """How they are shown; lines on the standard output are left to themselves."""
        return {
            "title": self.title,
            "report": self.report,
            "to_stderr": self.output is None or is_stream(self.output),
        }


def _replay_groups(
    book: Journal, run: Run, options: Options, changes: Options, rows: Sequence[Row], results: Results
) -> int:
    """The rankings, of so many groups, whose pairs the journal holds."""
    asked = contest_of(options).judges_options(without_contest(options))
    changed = without_contest(changes)
    judge: Any = (
        _rescoring(book, run, asked, changed) if changed else prepare(run.judge, asked)(AbsentEngine(run.card), book)
    )
    tournament, groups = contest_of({**options, **changes}).open(judge), []

    def ranked() -> Iterator[tuple[Row, GroupVerdict]]:
        for number, row in enumerate(rows, 1):
            group = group_of_row(row, number)
            with suppress(ModelNeeded):
                [verdict] = tournament.rank([group])
                groups.append(group)
                yield row, verdict

    verdicts = results.write(ranked(), group_line)
    if results.are_told:
        cost = msgspec.structs.replace(results.cost, remembered=sum(len(verdict.outcomes) for verdict in verdicts))
        show_results(run.judge, "groups", (), groups, verdicts, cost, **results.how)
    return len(groups)


def _rescoring(book: Journal, run: Run, options: Options, changes: Options) -> Rescoring[Any, Any]:
    """The run's judge as it was, and as it is to be; the changes may name the run's own aspects."""
    earlier = prepare(run.judge, options)(AbsentEngine(run.card), book)
    if "aspects" in changes:
        own = [msgspec.structs.replace(one, weight=1.0) for one in getattr(earlier, "aspects", ())]
        changes = {**changes, "aspects": aspects_of(changes["aspects"], own)}
    judge = prepare(run.judge, {**options, **changes})(AbsentEngine(run.card), book)
    if not isinstance(earlier, AskingJudge) or not isinstance(judge, AskingJudge):
        raise AdjudgeError(f"the answers that {run.judge} rests on cannot be scored anew: judge again")
    return Rescoring(earlier, judge, book)


def _verdict_type(book: Journal, run: Run, options: Options) -> Any:
    """What the run's judge concludes; one that cannot be opened without its model concludes no more than the usual."""
    usual = PairVerdict if run.what == "pairs" else Verdict
    try:
        return usual if is_own(run.judge) else prepare(run.judge, options)(AbsentEngine(run.card), book).verdict_type
    except AdjudgeError:
        return usual


def _remembered(book: Journal, verdict_type: Any, keys: Sequence[str], subjects: Sequence[Any]) -> Iterator[Any]:
    """The verdicts under these keys, which are all there; raises AdjudgeError for what the type has no place for."""
    for key, subject in zip(keys, subjects, strict=True):
        stored = book.get([key])[key]
        if unknown := book.decoded(stored, dict[str, Any]).keys() - set(verdict_type.__struct_fields__):
            raise AdjudgeError(
                f"{book.path} has verdicts with {', '.join(sorted(unknown))}, which only the judge itself can read:"
                " run its command again, with --resume"
            )
        yield msgspec.structs.replace(book.decoded(stored, verdict_type), id=clean(subject).id)


def _check_changes(run: Run, kind: Kind, changes: Options) -> None:
    takes = (*kind.options, *(CONTEST if run.what == "groups" else ()))
    for name in changes:
        if name not in takes:
            raise AdjudgeError(
                f"--{name.replace('_', '-')} does not go with this run, of {run.judge}, over {run.what}: leave it out"
            )


def _journal_of(source: Path) -> Path:
    """The journal at that place, or beside that output."""
    if (source.parent / "rewards.jsonl").is_file() and source.stem == "rewards":
        raise AdjudgeError(f"{source} is of a training run: name the folder, adjudge replay {source.parent}")
    for place in (source, source.with_name(source.name + ".journal")):
        if is_journal(place):
            if not holds_run(place):
                raise AdjudgeError(
                    f"{place} has no record of a run (it is a stage's journal, was written from Python, or is empty):"
                    " name that of a judge's run, or give the command that wrote it --resume"
                )
            return place
    raise AdjudgeError(f"{source} is no journal, and there is none beside it: name the file that --journal named")
