from __future__ import annotations

import pytest

from adjudge.bench.agreement.comparison import Line
from adjudge.bench.agreement.resampling import Estimate
from adjudge.bench.agreement.tables import _cell, agreement_table


@pytest.mark.parametrize(
    ("value", "interval", "cell"),
    [
        (0.5, (0.4, 0.6), "0.500 \\[0.40, 0.60]"),
        (-0.0014, (-0.0021, 0.0), "−0.001 \\[−0.002, 0.000]"),
        (0.5, None, "0.500"),
        (None, None, "–"),
    ],
)
def test_an_interval_has_the_digits_that_hold_its_value(
    value: float | None, interval: tuple[float, float] | None, cell: str
) -> None:
    assert _cell(Estimate(value, interval, 9, 9)) == cell


def test_rows_are_told_of_how_many_where_some_were_abstained_from() -> None:
    figures = {"error": Estimate(0.5, None, 9, 9)}
    lines = [Line("wit", "judge", 9, figures, asked=asked) for asked in (9, 12)] + [Line("wit", "judge", 9, figures)]
    table = agreement_table(lines)
    assert [column.header for column in table.columns] == ["of", "judge", "rows", "mean error"]
    assert list(table.columns[2].cells) == ["9", "9 of 12", "9"]
