"""The recipe of `adjudge train sft`: which responses the policy imitates, and how it is trained on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.gates import FormatReward
from adjudge.rewards.records.rows import Row, number_of, with_point
from adjudge.training.recipe import AtOnce, Data, Optimiser, Positive, RowsRecipe, Whole

NEEDED_BY = "supervised training"


class Select(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only rows whose `column` is `above` a number; of a list or an object, the mean of all numbers in it.

    A text that is a number counts as one, as the cells of a CSV file are texts.
    """

    column: str
    above: float

    def takes(self, row: Row) -> bool:
        """Whether the row is one of them; raises AdjudgeError naming one that has no numbers there."""
        value = row.columns.get(self.column)
        numbers = list(_numbers(number_of(value) if isinstance(value, str) else value))
        if not numbers:
            raise AdjudgeError(
                f'{row.place}: "{self.column}" has no numbers (needed by [select]): give some{with_point(value)}'
            )
        return math.fsum(numbers) / len(numbers) > self.above


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is imitated: the text in `column`; with `sections`, <name>…</name> of the columns of those names.

    A row that has `column` is taken as it is, and must be made of the sections where there are any.
    """

    column: str = "response"
    sections: tuple[str, ...] = ()

    def of(self, row: Row) -> str:
        """The response of a row; raises AdjudgeError naming the row and the column."""
        if not self.sections:
            if not (given := row.text(self.column, NEEDED_BY)).strip():
                raise AdjudgeError(f'{row.place}: "{self.column}" is blank: fill it in or take the row out')
            return given
        text = row.optional_text(self.column, NEEDED_BY)
        if text is None:
            text = "\n".join(f"<{name}>\n{row.text(name, NEEDED_BY).strip()}\n</{name}>" for name in self.sections)
        if not FormatReward(self.sections).value(text):
            tags = ", ".join(f"<{name}>" for name in self.sections)
            raise AdjudgeError(f"{row.place}: the response is not made of {tags}, each once and not empty: mend it")
        return text


class SftOptimiser(Optimiser, frozen=True, forbid_unknown_fields=True):
    """How the policy is trained, for `steps` steps or `epochs` times through the rows (one, if neither is named).

    A last step that the rows of all epochs do not fill takes more from the next one.
    A step takes `rows_per_step` rows, over all processes together; `micro_batch` of them (one, if that is not said) go
    through a process's policy at once, which changes memory and time alone. Rows longer than `max_tokens`, or than the
    policy's context, are left out and counted, never cut.
    """

    lr: Positive = 1e-5
    rows_per_step: AtOnce = 16
    micro_batch: Whole | None = None
    max_tokens: Whole = 2048
    usual_micro_batch: ClassVar[int] = 1
    """The most rows that go through the policy at once where `micro_batch` is not said."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.micro_batch is not None and self.rows_per_step % self.micro_batch:
            raise AdjudgeError(
                f"[optimiser] micro_batch is {self.micro_batch}, which does not divide the {self.rows_per_step} rows of"
                " a step: give one that does"
            )

    def at_once(self, processes: int) -> int:
        """How many rows go through a process's policy at once: those said, or as many as share its step evenly."""
        if self.micro_batch is not None:
            return self.micro_batch
        local = self.rows_per_step // processes
        return max(size for size in range(1, self.usual_micro_batch + 1) if local % size == 0)

    def parts(self, processes: int) -> int:
        """In how many parts each process takes its rows of a step; raises AdjudgeError where they cannot be shared."""
        micro = self.at_once(processes)
        count, left = divmod(self.rows_per_step, micro * processes)
        if left:
            raise AdjudgeError(
                f"a step has {self.rows_per_step} rows, which {processes} processes cannot share in parts of"
                f" {micro}: change [optimiser] rows_per_step or micro_batch"
            )
        return count

    def count(self, rows: int) -> int:
        """The steps of the whole run, for so many rows."""
        return self.steps or max(1, math.ceil(self.passes(rows) / self.rows_per_step))


class SftRecipe(RowsRecipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `adjudge train sft` reads."""

    data: Data
    response: Response = Response()
    select: Select | None = None
    optimiser: SftOptimiser = SftOptimiser()


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from _numbers(entry)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield float(value)
