"""A run as the journal records it: who judged which rows, how, and under which keys the verdicts stand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal, content_hash
from adjudge.rewards.judges.kinds import FILES, files_of
from adjudge.rewards.records.rows import Row


class KeptFile(msgspec.Struct, frozen=True):
    """A file that an option named: how it was called, and the hash of what it said."""

    name: str
    content: str


class Run(msgspec.Struct, frozen=True):
    """One run of a judge over a file. `rows` and `keys` are hashes of lists: of the rows' hashes, of their verdicts'.

    A tournament has no keys: its journal holds pairs.
    """

    what: Literal["pairs", "items", "groups"]
    judge: str
    source: str
    options: dict[str, Any]
    files: dict[str, KeptFile]
    card: Card
    rows: str
    keys: str | None = None

    def read_rows(self, journal: Journal) -> list[Row]:
        """The rows, with all their columns, in order."""
        with journal.naming_damage():
            return [
                Row(f"row {number} of {journal.path.name}", json.loads(journal.content(name)))
                for number, name in enumerate(self.row_names(journal), 1)
            ]

    def row_names(self, journal: Journal) -> list[str]:
        """The hash of each row, in order."""
        with journal.naming_damage():
            return msgspec.json.decode(journal.content(self.rows), type=list[str])

    def read_keys(self, journal: Journal) -> list[str]:
        """The key of each row's verdict."""
        with journal.naming_damage():
            return [] if self.keys is None else msgspec.json.decode(journal.content(self.keys), type=list[str])

    def read_options(self, journal: Journal, folder: Path) -> dict[str, Any]:
        """The options the judge was opened with; files among them are written into `folder`, and nowhere else.

        Raises AdjudgeError where they name a file that the journal does not hold: a stranger's opens none here.
        """
        options = dict(self.options)
        texts = {name: value for name, value in options.items() if isinstance(value, str)}
        for option, path in files_of(texts).items():
            raise AdjudgeError(
                f'{journal.path} does not hold the file that its run has for {option}, "{str(path)[:60]}", and no other'
                " is opened for it: judge again"
            )
        for option in FILES:
            if (file := self.files.get(option)) is not None:
                options[option] = folder / (option + Path(file.name).suffix)  # a journal may be a stranger's
                with journal.naming_damage():
                    content = journal.content(file.content)
                options[option].write_bytes(content)
        return options


def told(text: object) -> str:
    """A path or a text as a journal can hold it: bytes of a command line that are no UTF-8 are question marks."""
    return str(text).encode(errors="replace").decode()


def record_run(
    journal: Journal,
    *,
    what: Literal["pairs", "items", "groups"],
    judge: str,
    source: Path,
    options: Mapping[str, Any],
    card: Card,
    rows: Sequence[Row],
    keys: Sequence[str] | None,
) -> None:
    """Write a run into the journal: its rows as they are, the files its options name, and the rest."""
    contents: dict[str, bytes] = {}

    def keep(content: bytes) -> str:
        name = content_hash(content)
        contents[name] = content
        return name

    files = {option: KeptFile(told(path.name), keep(path.read_bytes())) for option, path in files_of(options).items()}
    run = Run(
        what=what,
        judge=judge,
        source=told(source.name),
        options={
            option: told(value) if isinstance(value, Path | str) else value
            for option, value in options.items()
            if option not in files
        },
        files=files,
        card=card,
        rows=keep(msgspec.json.encode([keep(json.dumps(row.columns).encode()) for row in rows])),
        keys=None if keys is None else keep(msgspec.json.encode(keys)),
    )
    journal.record(msgspec.json.encode(run, order="deterministic"), contents)


def runs_of(journal: Journal) -> list[tuple[datetime, Run]]:
    """The journal's runs and when each was last begun, the latest last; raises AdjudgeError where there is none."""
    with journal.naming_damage():
        runs = [
            (datetime.fromtimestamp(written).astimezone(), msgspec.json.decode(run, type=Run))
            for written, run in journal.runs()
        ]
    if not runs:
        raise AdjudgeError(
            f"{journal.path} has no record of a run (it was written from Python, or is empty):"
            " run the command that wrote it again, with --resume; in Python Journal(…).items() has its verdicts"
        )
    return runs


def run_of(journal: Journal, number: int | None = None) -> Run:
    """The run of that number (from 1), or the latest; raises AdjudgeError where there is none."""
    runs = runs_of(journal)
    if number is not None and not 1 <= number <= len(runs):
        raise AdjudgeError(f"{journal.path} has no run {number}, of {len(runs)}: adjudge replay --list shows them")
    return runs[-1 if number is None else number - 1][1]
