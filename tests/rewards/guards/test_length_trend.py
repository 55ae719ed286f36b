from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.rewards.guards.length_trend import LengthTrend, centred, length_trend

TWO_GROUPS = [[(1.0, 1.0), (2.0, 2.0), (3.0, 4.0)], [(2.0, 0.0), (4.0, 1.0)]]
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def test_the_numbers_are_those_worked_out_by_hand() -> None:
    """Counted from the means: xx = 2 + 2, xy = 3 + 1, yy = 14/3 + 1/2; squared residuals 2/3 + 1/2; 2 degrees."""
    trend = length_trend(TWO_GROUPS)
    half, z = 4.302652729911 * math.sqrt(7 / 48), math.atanh(4 / math.sqrt(4 * 31 / 6))
    assert trend.slope == pytest.approx(1.0, abs=1e-6)
    assert trend.interval == pytest.approx((1 - half, 1 + half), abs=1e-6)
    assert trend.correlation == pytest.approx(4 / math.sqrt(4 * 31 / 6), abs=1e-6)
    assert trend.correlation_interval == pytest.approx(
        (math.tanh(z - 1.959963984540), math.tanh(z + 1.959963984540)), abs=1e-6
    )


def test_a_group_of_one_and_an_empty_group_say_nothing() -> None:
    assert length_trend([*TWO_GROUPS, [], [(900.0, 900.0)]]) == length_trend(TWO_GROUPS)


def test_what_is_beyond_the_numbers_is_not_told() -> None:
    assert length_trend([[(1.0, 1e200), (2.0, 1e-3), (3.0, -1e200), (4.0, 5.0)]]) == LengthTrend()


@given(st.lists(st.lists(st.tuples(st.integers(0, 10**6).map(float), NUMBERS), max_size=5), max_size=5))
def test_any_points_give_finite_numbers_or_none(groups: list[list[tuple[float, float]]]) -> None:
    trend = length_trend(groups)
    if trend.slope is not None:
        assert trend.interval is not None and trend.correlation is not None and trend.correlation_interval is not None
        assert trend.interval[0] <= trend.slope <= trend.interval[1]
        assert -1 <= trend.correlation_interval[0] <= trend.correlation_interval[1] <= 1
        assert math.isfinite(trend.slope) and abs(trend.correlation) <= 1
    assert len(centred(groups)) == sum(map(len, groups))
