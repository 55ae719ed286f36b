"""Open questions as they come: with answers or pages of their own, where there are any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row, id_of
from adjudge.training.rubrics.corpus import Page
from adjudge.training.stages import read_stage

READ = ("id", "prompt", "answers", "pages", "rubric")
"""Columns that a mined row does not carry on as they are."""


class Question(msgspec.Struct, frozen=True):
    """An open question; `answers` and `pages` are the user's own, `columns` what else its row had."""

    id: str
    prompt: str
    answers: tuple[str, ...] = ()
    pages: tuple[Page, ...] = ()
    columns: dict[str, Any] = {}

    @property
    def record(self) -> dict[str, Any]:
        """The question as it came, without its answers and pages."""
        return {**self.columns, "id": self.id, "prompt": self.prompt}


def read_questions(path: Path) -> list[Question]:
    """The questions of a file of rows with `prompt`, and optionally `id`, `answers` (texts) and `pages`.

    Pages are texts, or objects with `text` and `source`. Raises AdjudgeError naming the line.
    """
    return [_question(row, number) for number, row in enumerate(read_stage(path, needs=["prompt"]), 1)]


def _question(row: Row, number: int) -> Question:
    prompt = row.text("prompt", "rubrics")
    if not prompt.strip():
        raise AdjudgeError(f'{row.place}: "prompt" is blank: write the question there')
    answers = _listed(row, "answers", str, "a list of at least two texts")
    pages = tuple(
        Page(page) if isinstance(page, str) else page
        for page in _listed(row, "pages", Page | str, 'a list of texts, or of {"text", "source"}')
    )
    if len(answers) == 1:
        raise AdjudgeError(
            f'{row.place}: "answers" has one text, which cannot vary: give at least two, or none, and the model writes'
            " them"
        )
    columns = {name: value for name, value in row.columns.items() if name not in READ}
    return Question(id_of(row, number), prompt, answers, pages, columns)


def _listed(row: Row, name: str, kind: Any, form: str) -> tuple[Any, ...]:
    value = row.columns.get(name)
    if value in (None, ""):
        return ()
    try:
        if isinstance(value, str):  # a cell of a table
            value = msgspec.json.decode(value)
        return msgspec.convert(value, tuple[kind, ...])
    except (msgspec.DecodeError, RecursionError) as error:
        raise AdjudgeError(f'{row.place}: "{name}" cannot be read ({error}): give {form}') from error
