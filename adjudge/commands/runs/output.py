"""Files that commands write line by line, each line out of our hands before the next is made."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adjudge.engine.errors import AdjudgeError

Write = Callable[[bytes], None]
DASH = Path("-")
"""Standard input of what is read, standard output of what is written."""
UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""The numbers of errors which lie in the path that was named."""
TABLES = (".csv", ".tsv", ".xlsx", ".parquet")


def is_stream(path: Path) -> bool:
    """Whether it is a pipe or a device, or a standard stream by its path, and so no place for files beside it."""
    folder = path.parent.resolve()
    device = folder == Path("/dev") or folder.is_relative_to("/proc")  # they may be redirected to files
    return path == DASH or device or (path.exists() and not path.is_file() and not path.is_dir())


def beside(path: Path, ending: str) -> Path:
    """The usual output for a file, of its name with another ending; raises AdjudgeError for what is no file's name."""
    if not path.name:
        raise AdjudgeError(f'"{path}" names no file: give one, or name the output with -o')
    if is_stream(path):
        raise AdjudgeError(f"an output cannot stand beside {path}, which is no file: name it with -o")
    return (path.with_suffix("") if path.suffix == ".gz" else path).with_suffix(ending)


def check_writable(path: Path) -> None:
    """Make the folder of a file, and raise AdjudgeError where it cannot be written; what it holds stays."""
    if path == DASH:
        raise AdjudgeError("- is no file, which is wanted here: name one")
    make_folder_of(path)
    try:
        if path.exists():
            path.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise AdjudgeError(f"cannot write {path} ({error.strerror}): name another file") from error


def check_new(path: Path) -> None:
    """Refuse to write over what is there already, of which nothing could be had again; raises AdjudgeError."""
    if path.is_file() and path.stat().st_size > 0 and not is_stream(path):
        raise AdjudgeError(f"{path} exists: --overwrite it, or name another file")


def check_apart(written: Path, *read: Path) -> None:
    """Refuse to write over one of the files that are read; raises AdjudgeError."""
    if file_key(written) in map(file_key, read):
        raise AdjudgeError(f"{written} is what is read: name another file")


def check_table(output: Path | None, *read: Path) -> None:
    """Find before hours of work that a table could not be written, or is one of what is `read`; raises AdjudgeError."""
    if output is not None:
        check_apart(output, *read)
        check_writable(output)


def file_key(path: Path) -> object:
    """What is equal of two paths of one file, by whatever names and links; the standard streams are not one."""
    if path == DASH:
        return object()
    path = path.resolve()
    try:
        return path.stat().st_dev, path.stat().st_ino
    except OSError:
        return path


def check_lines(path: Path) -> None:
    """Refuse a file for lines of JSON whose name says that it holds a table, or is packed."""
    if path.suffix.lower() in TABLES:
        raise AdjudgeError(f"{path} would hold JSON, one object a line: call it {path.with_suffix('.jsonl')}")
    if path.suffix.lower() == ".gz":
        raise AdjudgeError(f"{path} would not be packed: call it {path.with_suffix('')}")


def check_output(path: Path, overwrite: bool) -> None:
    """Find before any work that lines cannot be written there, or would be written over; the standard output can be."""
    check_lines(path)
    if path != DASH:
        check_writable(path)
    if not overwrite:
        check_new(path)


@contextmanager
def open_output(path: Path | None) -> Iterator[Write]:
    """A function that writes a line to a new file, or to standard output, and raises OSError when it cannot.

    Raises AdjudgeError when the file cannot be opened.
    """
    if path is None or path == DASH:
        yield _to_standard_output
        return
    try:
        file = path.open("wb", buffering=0)  # nothing is left to flush when a full disk ends the run
    except OSError as error:
        raise AdjudgeError(f"cannot write {path} ({error.strerror}): name another file with -o") from error

    def write(line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[file.write(rest) :]

    with file:
        yield write


@contextmanager
def open_output_anew(path: Path | None) -> Iterator[Write]:
    """The same for a run that keeps nothing: a line that cannot be written raises AdjudgeError."""
    with open_output(path) as write_line:

        def write(line: bytes) -> None:
            try:
                write_line(line)
            except BrokenPipeError:
                raise
            except OSError as error:
                if path is not None and not is_stream(path):
                    path.unlink(missing_ok=True)  # a part of the lines, which would stand in the next run's way
                where = path or "standard output"
                raise AdjudgeError(f"cannot write {where} ({error.strerror}): make room, run again") from error

        yield write


def _to_standard_output(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.flush()


def make_folder_of(path: Path) -> None:
    """Make the folder a file will be written to; raises AdjudgeError when that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AdjudgeError(f"cannot make the folder {path.parent} ({error.strerror}): name another file") from error
