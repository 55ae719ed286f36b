"""A run that can be stopped at any time: its files, its journal, and what it says when it is stopped."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from adjudge.commands.options.runs import Earlier, RunOptions
from adjudge.commands.options.source import check_fit
from adjudge.commands.runs.collector import freeze
from adjudge.commands.runs.output import (
    DASH,
    check_apart,
    check_new,
    check_writable,
    file_key,
    is_stream,
)
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import PASSING, UNKEPT
from adjudge.engine.whole_file import FULL
from adjudge.rewards.journal import ANOTHER, Journal, is_journal
from adjudge.rewards.run import run_of, runs_of, told
from adjudge.training.terminal import say

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.judges.kinds import Options

ANOTHER_FOLDER = "name another folder with -o"
"""What mends a journal that stands in a run's own folder, where no option names it."""
PUT_BACK = "put its journal back there"
"""What to do where such a one is gone."""


def check_paths(
    what: str,
    path: Path,
    output: Path,
    earlier: Earlier = "resume",
    *,
    reads: Iterable[Path] = (),
    **others: Path | None,
) -> None:
    """Make the folders, and refuse files that cannot be written or that are named twice.

    `what` names the input, beside which the run `reads` others; `others` are written too, by their names, where they
    are not None. They are refused where they exist, the output and its journal do not, and the user has not said what
    is to become of an `earlier` run; a report also where a run goes on, unless a page of ours stands there.
    """
    more = {f"the {name}": file for name, file in others.items() if file is not None}
    names = {what: path, "the output": output, **more}
    places: dict[object, str] = {}
    for name, file in names.items():
        if other := places.get(file_key(file)):
            raise AdjudgeError(f"{file} is both {other} and {name}: name another file")
        places[file_key(file)] = name
    for file in list(names.values())[1:]:
        check_apart(file, *reads)
    kept = [file for file in (output, others.get("journal")) if file is not None]
    is_new = not any(file.exists() for file in kept)  # otherwise there is an earlier run to go on with
    for name, written in names.items():
        if name in (what, "the journal") or written == DASH == output:  # a database says so itself
            continue
        check_writable(written)
        if earlier == "refuse" and is_new:
            check_new(written)
        if earlier == "resume" and name == "the report" and not _is_page(written):
            check_new(written)


def _is_page(path: Path) -> bool:
    """Whether a report stands there, which a run that goes on may write anew."""
    from adjudge.bench.reports.page import HEAD

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD


def check_answered(reasons: Iterable[str | None], again: str = "run this again with --resume") -> None:
    """Raise AdjudgeError where all `reasons` (why an answer is missing, or None), if any, are ones to ask again for.

    `again` is how that is done.
    """
    found = set(reasons)
    if not found or not found <= {*UNKEPT}:
        return
    if found.isdisjoint(PASSING):
        raise AdjudgeError(
            "nothing was answered: there was nothing to ask, or the server cannot answer it: change the options or the"
            f" server, then {again}"
        )
    raise AdjudgeError(f"nothing was answered: once the server answers, {again}")


@contextmanager
def alone(journal: Path, *, mend: str = ANOTHER) -> Iterator[Journal]:
    """The open journal, whose lock is held: two runs that write one output would tear its lines.

    A run that is refused before it has kept anything leaves no new journal behind. Where the journal cannot be used,
    the error says to do what `mend` says.
    """
    if not journal.name or journal.is_dir():
        raise AdjudgeError(f"{journal} is a folder, and no journal: {mend}")
    new = not journal.exists()
    lock = FileLock(journal.with_name(journal.name + ".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise AdjudgeError(f"another run is writing with {journal}: wait for it, or name another output") from error
    except OSError as error:
        raise AdjudgeError(f"cannot use {journal} as a journal ({error.strerror}): {mend}") from error
    try:
        with Journal(journal, mend=mend) as book:
            yield book
    except AdjudgeError:
        with suppress(OSError, AdjudgeError):  # why it was refused is what counts
            if new and _is_empty(journal):
                journal.unlink(missing_ok=True)
                Path(lock.lock_file).unlink()
        raise
    finally:
        lock.release()


def _is_empty(journal: Path) -> bool:
    """Whether nothing was ever kept there."""
    if not journal.exists():
        return True
    if not is_journal(journal):
        return False
    with Journal(journal, mend=ANOTHER) as book:
        return not len(book) and not book.runs()


def journal_beside(output: Path) -> Path:
    """Where the journal of an output is, unless somebody names another; raises AdjudgeError beside what is no file."""
    if is_stream(output):
        raise AdjudgeError(f"a journal cannot stand beside {output}, which is no file: name it with --journal")
    return output.parent / f"{output.name}.journal"


def check_shared(journal: Path, path: Path | None) -> None:
    """Refuse to forget a journal that somebody named where it holds runs on other rows than those of `path`.

    None is a run of stages, of which a journal has no record: every run in it is of something else, and answers
    without a run are theirs alone.
    """
    if not is_journal(journal):
        return
    with Journal(journal, mend=ANOTHER) as book:
        others = {run.source for _, run in runs_of(book)} if book.runs() else set()
        of_stages = path is not None and not others and len(book)
    if path is not None:
        others.discard(told(path.name))
    if others or of_stages:
        what = f"runs on {', '.join(sorted(others))}" if others else "answers that no judge's run asked for"
        raise AdjudgeError(
            f"{journal} holds {what} too, which --overwrite would forget: --resume adds to it, --journal names another"
        )


def check_earlier(
    output: Path, book: Journal, earlier: Earlier, *, lost: str = "name its journal with --journal"
) -> None:
    """Refuse to touch an earlier run's files unless the user has said what is to become of them.

    `lost` is what to do where the journal of the one to go on with is not there.
    """
    written = output.is_file() and output.stat().st_size > 0
    if earlier == "refuse" and written and not len(book) and not book.runs():
        raise AdjudgeError(f"{output} exists, and no run's journal beside it: name another with -o, or --overwrite it")
    if earlier == "refuse" and (written or len(book)):
        found, other = (output, "-o names another") if written else (book.path, "or name another")
        raise AdjudgeError(f"{found} exists: --resume continues that run, --overwrite starts again, {other}")
    if earlier == "resume" and written and not len(book) and not book.runs():
        raise AdjudgeError(f"{output} was written but {book.path} is empty: {lost}, or start again with --overwrite")


@contextmanager
def opened(run_options: RunOptions, judge: str, options: Options, output: Path) -> Iterator[tuple[EngineFace, Journal]]:
    """The engine of a judge's run and its journal, which is the run's alone until the block ends.

    Raises AdjudgeError for files of an earlier run, before anything is loaded, and for a model that cannot be that
    judge. What an earlier run was answered still stands in the journal: whether it goes is said once the judge is open.
    """
    source, journal = run_options.source, run_options.journal or journal_beside(output)
    with alone(journal) as book:
        check_earlier(output, book, run_options.earlier)
        with source.open() as engine:
            if source.model is None:  # the server's only one, whose name is known by now
                check_fit(engine.name, engine.adapter, judge, options)
            yield engine, book


@contextmanager
def beside_earlier(run_options: RunOptions, path: Path, output: Path) -> Iterator[None]:
    """Run beside the earlier runs of a journal: forget none on other rows, and say how the one gone on from differs."""
    if run_options.journal is not None and run_options.earlier == "overwrite":
        check_shared(run_options.journal, path)
    journal = run_options.journal or journal_beside(output)
    before = _latest(journal) if run_options.earlier == "resume" else {}
    try:
        yield
    except SystemExit:  # one that was stopped has taken the earlier one's place all the same
        _tell_others(journal, before)
        raise
    _tell_others(journal, before)


def _tell_others(journal: Path, before: dict[str, Any]) -> None:
    """Say how the latest run differs from the one `before` it."""
    after = _latest(journal)
    if before:  # as many of the rows as both have: with a --limit a run has the first ones
        both = min(len(before["rows"]), len(after["rows"]))
        before["rows"], after["rows"] = before["rows"][:both], after["rows"][:both]
    if other := [name for name, value in before.items() if value != after[name]]:
        said = f"the run that this one goes on from had other {', '.join(other)}"
        say(f"adjudge: {said}; adjudge replay {journal} --list has both", stderr=True)


def _latest(journal: Path) -> dict[str, Any]:
    """What the latest run that a journal has a record of was about, if there is one."""
    if not is_journal(journal):
        return {}
    with Journal(journal, mend=ANOTHER) as book:
        if not book.runs():
            return {}
        run = run_of(book)
        rows = run.row_names(book)
    model = {"model": run.card.fingerprint, "adapter": run.card.adapter}
    return {"judge": run.judge, **model, "options": run.options, "rows": rows}


@contextmanager
def keeping(output: Path, kept: Callable[[], str], again: str = "run again with --resume to go on") -> Iterator[None]:
    """End the run in one sentence, with what is kept, when Ctrl-C, a full disk or a full journal stops it.

    `again` is how it goes on.
    """
    mend = "make room"
    if not gc.get_freeze_count():  # once in a process
        # Imports leave much that has finalizers behind, and Python drops a Ctrl-C that falls into one of them.
        gc.collect()
        freeze()
    try:
        yield
    except KeyboardInterrupt:
        say(f"adjudge: stopped; {kept()}; {again}", stderr=True)
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = f"cannot write {output} ({error.strerror})"
        mend = FULL.get(error.errno or 0, mend)
    except sqlite3.Error as error:
        problem = f"cannot write the journal of {output} ({error})"
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_BUSY:
            mend = "another program holds it, wait for that"
        if code == sqlite3.SQLITE_IOERR_WRITE:  # as which SQLite tells of every limit but a full disk
            mend = "have the quota or the limit on the size of files (ulimit -f) raised"
    else:
        return
    say(f"adjudge: {problem}: {mend}; {kept()}; {again}", stderr=True)
    raise SystemExit(1)
