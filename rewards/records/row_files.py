"""Files of rows: JSON, CSV and Parquet, as the programs of others write them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.records.rows import READ, Row, encodable, given
from adjudge.rewards.visible import in_a_line

PACKED = ".gz"
MARKS = {"\t": "tabs", ",": "commas", ";": "semicolons"}
"""What parts a table's columns; a column's name may hold those after the one that does."""
SAID = re.compile(r"sep=([,;\t])\r?\n")
HEADER = re.compile(r'(?:"[^"]*"|[^"\r\n])*')
QUOTED = re.compile(r'"[^"]*"')

_log = logging.getLogger("adjudge")


def read_rows(path: Path, texts: Collection[str] = READ) -> list[Row]:
    """All rows of a `.csv` or `.tsv`, of a `.parquet`, or of JSON: objects, one a line, or an array of them.

    A table's columns may be parted by commas, tabs or semicolons, which its header tells. Bytes that are not UTF-8, and
    lone surrogates, become U+FFFD in JSON, which programs write; in Parquet such bytes become base64, but in the
    columns called `texts`. Text may be packed (`.jsonl.gz`). Raises AdjudgeError naming the line: not JSON, not an
    object, no rows, a CSV row with too many columns, a CSV row or a text of Parquet that is not in UTF-8; and for a
    file or a column that cannot be read.
    """
    path = Path("/dev/stdin") if str(path) == "-" else path
    kind = Path(path.stem if path.suffix.lower() == PACKED else path.name).suffix.lower()
    try:
        if kind == ".parquet":
            rows = list(_parquet(path, texts))
        else:
            with _opened(path) as file:
                if kind in (".csv", ".tsv"):
                    rows = list(_csv(path, _decoded(path, file.read())))
                else:
                    coding = coding_of(file.peek(len(BOM_UTF16_LE)))  # a pipe is read once
                    errors = "replace" if coding == "utf-16" else "surrogateescape"
                    rows = list(_json(path, io.TextIOWrapper(file, coding, errors=errors, newline="")))
    except (OSError, EOFError, zlib.error) as error:  # the others of packed files that are damaged
        detail = getattr(error, "strerror", None) or error
        raise AdjudgeError(f"cannot read {path} ({detail}): name a file that can be read") from error
    if not rows:
        raise AdjudgeError(f"{path} is empty: give at least one row")
    return rows


def _opened(path: Path) -> io.BufferedReader:
    """The bytes of a file, unpacked where its name says that they are packed."""
    if path.suffix.lower() == PACKED:
        return io.BufferedReader(gzip.open(path))
    return path.open("rb")


def _noticed(lines: Iterator[str], wrong: list[int]) -> Iterator[str]:
    """The lines, without the marks that files have within that were joined; `wrong` gets those that are not UTF-8."""
    for number, line in enumerate(lines, 1):
        if line != well_formed(line):
            wrong.append(number)
        yield line.lstrip("\ufeff")


def _json(path: Path, lines: Iterator[str]) -> Iterator[Row]:
    wrong: list[int] = []
    lines, begun = _noticed(lines, wrong), False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if not begun and line.lstrip().startswith("["):
            entries = _parsed(path, number, line + "".join(lines))
            yield from (_row(f"row {place} of {path.name}", entry) for place, entry in enumerate(entries, 1))
            break
        begun = True
        yield _row(f"line {number} of {path.name}", _parsed(path, number, line))
    if wrong:
        _log.warning(
            "line %d of %s%s: bytes that are not UTF-8 are read as U+FFFD: save it as UTF-8",
            wrong[0],
            in_a_line(path.name),
            f", and {len(wrong) - 1} more" if wrong[1:] else "",
        )


def _parsed(path: Path, line: int, text: str) -> Any:
    """What a text says that begins in that line; without lone surrogates, and no deeper than can be written."""
    try:
        return encodable(json.loads(text.rstrip()))  # a mistake at the end is in the last line, not after it
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        if isinstance(error, json.JSONDecodeError):
            detail, line = error.msg, line + error.lineno - 1
        mend = "save it as UTF-8" if "\0" in text else "write one object a line, or an array of them"  # as UTF-16 has
        raise AdjudgeError(f"line {line} of {path.name} is not JSON ({detail}): {mend}") from error


def _row(place: str, value: Any) -> Row:
    if not isinstance(value, dict):
        raise AdjudgeError(
            f"{place} is {type(value).__name__}, not a JSON object: write one object a line, or an array of them"
        )
    return Row(place, value)


def _parquet(path: Path, texts: Collection[str]) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]
    except ImportError:
        raise AdjudgeError(f"{path.name} is Parquet: pip install pyarrow, or convert it to JSONL") from None
    try:
        _check_names(path, parquet.read_schema(path).names)
        table = parquet.read_table(path)
    except (OSError, ArrowException, ValueError) as error:
        raise AdjudgeError(f"cannot read {path} ({error}): name a Parquet file that can be read") from error
    columns: dict[str, list[Any]] = {}
    for name in table.column_names:
        try:
            columns[name] = [_text(value) for value in table[name].to_pylist()]
        except (ArrowException, OverflowError, ValueError, KeyError) as error:  # times that Python has no word for
            raise AdjudgeError(
                f'column "{name[:60]}" of {path.name} cannot be read ({error}): leave it out, or write it as text'
            ) from error
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        row = dict(zip(columns, values, strict=True))
        for name in texts:
            if _holds_bytes(row.get(name)):
                raise AdjudgeError(f'row {number} of {path.name}: "{name}" is not UTF-8: save it as UTF-8')
        plain = {name: given(value) for name, value in row.items()}
        yield Row(f"row {number} of {path.name}", encodable(msgspec.to_builtins(plain, enc_hook=str)))


def _text(value: Any) -> Any:
    """A value whose bytes are text, as some programs write it; other bytes stay what they are."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
    if isinstance(value, dict):
        return {name: _text(item) for name, item in value.items()}
    return [_text(item) for item in value] if isinstance(value, list) else value


def _holds_bytes(value: Any) -> bool:
    """Whether there are bytes in it that are no text."""
    return isinstance(value, bytes) or (isinstance(value, list) and any(map(_holds_bytes, value)))


def _check_names(path: Path, names: Sequence[str]) -> None:
    if (double := next((name for name, count in Counter(names).items() if count > 1), None)) is not None:
        raise AdjudgeError(f'{path.name} has the column "{double[:60]}" twice: rename one')


def _decoded(path: Path, content: bytes) -> str:
    """The text of a table, which people save from programs that choose another encoding."""
    try:
        return content.decode(coding_of(content))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise AdjudgeError(f"line {line} of {path.name} is not UTF-8: save it as UTF-8") from error


def coding_of(content: bytes) -> str:
    """How a file that begins so is encoded."""
    return "utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"


def _csv(path: Path, text: str) -> Iterator[Row]:
    said = SAID.match(text)  # as Excel writes it before the header
    text = text[said.end() :] if said else text
    header = QUOTED.sub("", HEADER.match(text)[0])  # type: ignore[index]
    mark = said[1] if said else next((mark for mark in MARKS if mark in header), ",")
    csv.field_size_limit(1 << 30)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    begun = before = 2 if said else 1
    try:
        names = [name.strip() for name in next(reader, None) or [""]]
        width = len(names)
        if names.count("") > 1:  # of nothing, at a table's right; one may be an index
            names = names[: max((place for place, name in enumerate(names, 1) if name), default=1)]
        _check_names(path, names)
        begun = reader.line_num + before
        for values in reader:
            place, begun = f"line {begun} of {path.name}", reader.line_num + before
            if len(values) > width:
                raise AdjudgeError(f"{place} has more columns than the header: quote texts that hold {MARKS[mark]}")
            if any(values[len(names) :]):
                raise AdjudgeError(f"{place} has a value in a column without a name: name it in the header")
            if any(values):  # tables have empty rows at their end
                yield Row(place, dict(zip_longest(names, values[: len(names)])))
    except csv.Error as error:
        mend = "close each quote, and double those inside a text"
        raise AdjudgeError(f"line {begun} of {path.name} is not CSV ({error}): {mend}") from error
