"""What commands share whose stages ask a model: a run that may be stopped at any time, and files beside its output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from adjudge.commands.options.runs import RunOptions
from adjudge.commands.runs.output import check_lines, check_new, check_writable, file_key
from adjudge.commands.runs.resumable import (
    alone,
    check_answered,
    check_earlier,
    check_paths,
    check_shared,
    journal_beside,
    keeping,
)
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.journal import Journal
from adjudge.training.stages import Passed, write_stage


class StageRun:
    """A run that is alone with its output and with its journal `book`."""

    def __init__(self, output: Path, book: Journal, options: RunOptions, closing: ExitStack) -> None:
        self.book = book
        self._output, self._options, self._closing = output, options, closing

    def open(self) -> EngineFace:
        """The engine, until the run ends; what an overwritten run was answered is forgotten once anything is asked.

        Raises AdjudgeError where a run is to go on whose journal is not there: all would be asked again.
        """
        check_earlier(self._output, self.book, self._options.earlier)
        engine = self._closing.enter_context(self._options.source.open())
        if self._options.earlier == "overwrite":
            self.book.forget()
        return engine


@contextmanager
def stage_run(
    what: str,
    path: Path,
    output: Path,
    options: RunOptions,
    *,
    others: Sequence[str] = ("dropped",),
    table: bool = False,
    reads: Sequence[Path] = (),
    **more: Path | None,
) -> Iterator[StageRun]:
    """A run from `path` to `output` that says what is kept when it is stopped; `what` names the input.

    `others` are written beside the output (see `part_beside`), `more` where the user said, if they did; beside its
    input the run `reads` others. The output is lines of JSON unless it is a `table`. Raises AdjudgeError for files that
    stand in each other's way, for a journal that is to be forgotten and holds a judge's runs, and for an earlier
    run's unless the user has said what is to become of them.
    """
    if not table:
        check_lines(output)
    check_writable(output)
    journal = options.journal or journal_beside(output)
    check_paths(what, path, output, options.earlier, reads=reads, journal=journal, **more)
    named = [file for file in (path, journal, *reads, *more.values()) if file is not None]
    check_beside(named, output, *others)
    if options.journal is not None and options.earlier == "overwrite":
        check_shared(options.journal, None)
    with alone(journal) as book, ExitStack() as closing:
        if options.earlier == "refuse":
            check_earlier(output, book, options.earlier)
            for name in others:
                check_new(part_beside(output, name))
        with keeping(output, lambda: f"{len(book)} answers are kept in {journal}"):
            yield StageRun(output, book, options, closing)


def part_beside(output: Path, name: str) -> Path:
    """The file of that name that goes with an output, and with its ending where the name has none."""
    return output.with_name(f"{output.stem}.{name}{'' if Path(name).suffix else output.suffix}")


def check_beside(files: Sequence[Path], output: Path, *others: str) -> None:
    """Refuse an output beside which one of the `others` would overwrite one of the files that are read or written."""
    written = {file_key(part_beside(output, name)) for name in others}
    for file in files:
        if file_key(file) in written:
            raise AdjudgeError(f"{file} would be overwritten: name another output with -o")


def write_parts(output: Path, kept: Sequence[Any], stages: Sequence[Passed[Any]]) -> None:
    """The rows that were kept, and beside them those that were dropped: these first, so that both stand or neither.

    Raises AdjudgeError where none were kept because one of the stages was answered nothing.
    """
    dropped = part_beside(output, "dropped")
    write_stage(dropped, (drop for stage in stages for drop in stage.dropped))
    write_stage(output, kept)
    check_stages(stages)


def check_left(output: Path, kept: Sequence[Any], mend: str) -> None:
    """Raise AdjudgeError where no row was kept: an empty file is not what anybody wants; `mend` is what may help."""
    if not kept:
        raise AdjudgeError(f"nothing is left in {output}: {part_beside(output, 'dropped')} says why ({mend})")


def check_stages(stages: Sequence[Passed[Any]]) -> None:
    """Raise AdjudgeError where one of them was answered nothing."""
    for stage in stages:
        if not stage.kept:
            check_answered(drop.reason for drop in stage.dropped)
