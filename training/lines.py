"""Files of a run that grow by lines of JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import MsgspecError

from adjudge.engine.errors import AdjudgeError, reason

T = TypeVar("T")


def read_lines(path: Path, decode: Callable[[bytes], T], *, fault: str, mend: str) -> list[tuple[T, bytes]]:
    """What stands in the lines, each with its line and that one's end; a last line that a crash has cut is left out.

    Raises AdjudgeError for a file that cannot be read, with the `mend`, and for a line that has the `fault`.
    """
    try:
        lines = path.read_bytes().split(b"\n")  # and at no other break: texts hold U+2028 and the like as they are
    except OSError as error:
        raise AdjudgeError(f"cannot read {path} ({error.strerror}): {mend}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append((decode(line), line + b"\n"))
        except (ValueError, MsgspecError) as error:
            if number < len(lines):
                raise AdjudgeError(f"line {number} of {path} {fault} ({reason(error)}): remove it") from error
    return found
