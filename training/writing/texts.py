"""The texts that pipelines of writing start from: rows of a file, each with a text and an id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from adjudge.rewards.records.rows import Row, encodable, id_of

COLUMNS = ("response", "text", "story")
"""Where a row's text may stand; the first that is there counts."""


class Source(msgspec.Struct, frozen=True):
    """A row by its columns, the name of the one that holds its text, and its id: the row's number if it has none."""

    columns: Mapping[str, Any]
    name: str
    id: str

    @staticmethod
    def of(row: Row, number: int, needed_by: str) -> Source:
        """The text of a row; raises AdjudgeError where there is none."""
        name = next((name for name in COLUMNS if name in row.columns), COLUMNS[0])
        row.text(name, needed_by)
        columns = encodable(row.columns)
        return Source(columns, name, id_of(Row(row.place, columns), number))

    @property
    def text(self) -> str:
        """The text itself."""
        return str(self.columns[self.name])

    @property
    def others(self) -> dict[str, Any]:
        """The columns besides the text."""
        return {name: value for name, value in self.columns.items() if name != self.name}
