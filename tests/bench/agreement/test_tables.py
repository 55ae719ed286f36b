from __future__ import annotations

import pytest

from adjudge.bench.agreement.resampling import Estimate
from adjudge.bench.agreement.tables import _cell


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
