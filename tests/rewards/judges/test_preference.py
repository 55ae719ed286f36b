from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.rewards.judges.preference import debiased, log_odds, sigmoid

VALUES = (1.0, 2.0, 3.0, 4.0, 5.0)
distributions = st.lists(st.floats(0.01, 1), min_size=5, max_size=5).map(lambda p: [x / sum(p) for x in p])


def test_log_odds_of_a_hand_computed_pair() -> None:
    first, second = (0, 0, 0.5, 0.5, 0), (0, 0, 1, 0, 0)
    assert log_odds(first, second, VALUES) == pytest.approx(math.log(0.75 / 0.25))
    assert log_odds(second, second, VALUES) == 0


@given(distributions, distributions)
def test_log_odds_are_antisymmetric(p: list[float], q: list[float]) -> None:
    assert log_odds(p, q, VALUES) == pytest.approx(-log_odds(q, p, VALUES), abs=1e-9)


def test_certainty_gives_a_finite_number() -> None:
    assert 100 < log_odds((1, 0), (0, 1), (5, 1)) < math.inf


@given(st.floats(-20, 20), st.floats(-20, 20))
def test_an_additive_position_bias_cancels(quality: float, bias: float) -> None:
    better, found = debiased(quality + bias, -quality + bias)
    assert (better, found) == (pytest.approx(quality, abs=1e-9), pytest.approx(bias, abs=1e-9))


@given(st.floats(-1000, 1000))
def test_sigmoid_is_a_probability_and_symmetric(x: float) -> None:
    assert 0 <= sigmoid(x) <= 1
    assert sigmoid(x) + sigmoid(-x) == pytest.approx(1)
