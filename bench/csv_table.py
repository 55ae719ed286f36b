"""Tables of measurements as CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.whole_file import write_whole


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file, which appears whole or not at all; raises AdjudgeError where it cannot be written."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.getvalue().encode())
    except OSError as error:
        raise AdjudgeError(f"{path} cannot be written ({error.strerror}): name another file with -o") from error
