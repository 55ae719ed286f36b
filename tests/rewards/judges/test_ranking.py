from __future__ import annotations

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from scipy.special import expit

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.ranking import PRIOR_SD, Preferences, borda, bradley_terry


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[int, dict[tuple[int, int], float]]:
    """Two to seven members, any graph with at least one pair, preferences with the extremes and the tie among them."""
    members = draw(st.integers(2, 7))
    pairs = draw(st.sets(st.sampled_from(list(combinations(range(members), 2))), min_size=1))
    preference = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)
    return members, {pair: draw(preference) for pair in sorted(pairs)}


def theta(members: int, preferences: Preferences) -> np.ndarray:
    return bradley_terry(members, preferences).theta_N


@pytest.mark.parametrize("p", [0.75, 0.9, 0.5, 0.001, 1.0])
def test_two_members_stand_where_the_gradient_vanishes(p: float) -> None:
    difference = brentq(lambda d: expit(d) - p + d / (2 * PRIOR_SD**2), -20, 20, xtol=1e-14)
    fit = bradley_terry(2, {(0, 1): p})
    assert fit.strengths == pytest.approx((difference / 2, -difference / 2), abs=1e-9)
    assert fit.preference(0, 1) == pytest.approx(expit(difference), abs=1e-9)


def test_the_prior_is_as_weak_as_its_text_says() -> None:
    lone = [bradley_terry(2, {(0, 1): p}).preference(0, 1) for p in (0.9, 1.0)]
    assert lone == pytest.approx([0.899, 0.997], abs=5e-4)


def test_three_in_a_cycle_are_equal_and_their_errors_are_those_of_the_hessian() -> None:
    fit = bradley_terry(3, {(0, 1): 0.8, (1, 2): 0.8, (2, 0): 0.8})
    assert fit.strengths == pytest.approx((0, 0, 0), abs=1e-12)
    # Every weight is 1/4, so the Hessian is (3/4)(I − J/3) + I/s²; off the mean, a variance is 2/3 of its inverse.
    assert fit.errors == pytest.approx([math.sqrt((2 / 3) / (3 / 4 + 1 / PRIOR_SD**2))] * 3, abs=1e-9)


def test_consistent_preferences_give_back_their_log_odds() -> None:
    truth = np.array([1.2, -0.4, 0.1, -0.9])
    fit = bradley_terry(4, {(i, j): expit(truth[i] - truth[j]) for i, j in combinations(range(4), 2)})
    assert fit.strengths == pytest.approx(tuple(truth), abs=3e-3)  # what the prior takes


def objective(theta_N: np.ndarray, preferences: Preferences) -> float:
    margins = [(theta_N[i] - theta_N[j], p) for (i, j), p in preferences.items()]
    return sum(np.logaddexp(0, x) - p * x for x, p in margins) + float(theta_N @ theta_N) / (2 * PRIOR_SD**2)


def gradient(theta_N: np.ndarray, preferences: Preferences) -> np.ndarray:
    slope_N = theta_N / PRIOR_SD**2
    for (i, j), p in preferences.items():
        slope_N[i] += expit(theta_N[i] - theta_N[j]) - p
        slope_N[j] -= expit(theta_N[i] - theta_N[j]) - p
    return slope_N


@pytest.mark.parametrize("seed", range(8))
def test_the_strengths_are_the_minimum_that_scipy_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = int(rng.integers(2, 9))
    pairs = [pair for pair in combinations(range(members), 2) if rng.random() < 0.7] or [(0, 1)]
    preferences = {pair: float(rng.choice([rng.random(), 0.0, 1.0], p=[0.8, 0.1, 0.1])) for pair in pairs}
    found = minimize(objective, np.zeros(members), (preferences,), "BFGS", gradient, options={"gtol": 1e-10})
    ours = theta(members, preferences)
    assert ours == pytest.approx(found.x, abs=1e-6)
    assert objective(ours, preferences) <= found.fun + 1e-12


@settings(max_examples=50)
@given(comparisons())
def test_the_gradient_vanishes_for_any_preferences(case: tuple[int, dict[tuple[int, int], float]]) -> None:
    members, preferences = case
    theta_N = theta(members, preferences)
    assert gradient(theta_N, preferences) == pytest.approx(np.zeros(members), abs=1e-10)
    assert theta_N.sum() == pytest.approx(0, abs=1e-9)


@settings(max_examples=50)
@given(comparisons(), st.randoms(use_true_random=False))
def test_permuted_members_have_permuted_strengths_and_covariances(case: tuple[int, dict], random) -> None:  # type: ignore[no-untyped-def, type-arg]
    members, preferences = case
    place = list(range(members))
    random.shuffle(place)
    before = bradley_terry(members, preferences)
    after = bradley_terry(members, {(place[i], place[j]): p for (i, j), p in reversed(preferences.items())})
    assert after.theta_N[place] == pytest.approx(before.theta_N, abs=1e-9)
    assert after.covariance_NN[np.ix_(place, place)] == pytest.approx(before.covariance_NN, abs=1e-6)


@settings(max_examples=50)
@given(comparisons())
def test_turned_pairs_change_nothing_and_turned_preferences_change_the_sign(case: tuple[int, dict]) -> None:  # type: ignore[type-arg]
    members, preferences = case
    expected = theta(members, preferences)
    assert theta(members, {(j, i): 1 - p for (i, j), p in preferences.items()}) == pytest.approx(expected, abs=1e-9)
    assert theta(members, {pair: 1 - p for pair, p in preferences.items()}) == pytest.approx(-expected, abs=1e-9)


@settings(max_examples=50)
@given(comparisons(), st.data())
def test_a_better_preference_never_lowers_a_strength(case: tuple[int, dict], data: st.DataObject) -> None:  # type: ignore[type-arg]
    members, preferences = case
    pair = data.draw(st.sampled_from(list(preferences)))
    better = {**preferences, pair: data.draw(st.floats(preferences[pair], 1.0))}
    i, j = pair
    change = theta(members, better) - theta(members, preferences)
    assert change[i] >= -1e-9 and change[j] <= 1e-9
    assert change[i] >= change.max() - 1e-9 and change[j] <= change.min() + 1e-9  # i gains on everybody
    before, after = borda(members, preferences), borda(members, better)
    ranked = before[i] is not None  # the pair may be of another part
    assert not ranked or (after[i] >= before[i] and after[j] <= before[j])  # type: ignore[operator]


def test_unanimity_is_finite_and_in_order() -> None:
    fit = bradley_terry(30, {(i, j): 1.0 for i, j in combinations(range(30), 2)})
    assert np.isfinite(fit.theta_N).all() and np.isfinite(fit.covariance_NN).all()
    assert (np.diff(fit.theta_N) < 0).all()


def test_of_parts_that_nothing_joins_the_largest_is_ranked_and_of_equal_ones_the_first() -> None:
    apart = {(4, 2): 0.7, (1, 3): 0.9, (3, 5): 0.6}
    alone = bradley_terry(3, {(0, 1): 0.9, (1, 2): 0.6})
    for rank in (lambda n, p: bradley_terry(n, p).strengths, lambda n, p: bradley_terry(n, p).errors, borda):
        assert [value is None for value in rank(6, apart)] == [True, False, True, False, True, False]
        assert [value is None for value in rank(6, {**apart, (0, 2): 0.5})] == [False, True, False, True, False, True]
    fit = bradley_terry(6, apart)
    assert [fit.strengths[n] for n in (1, 3, 5)] == pytest.approx(alone.strengths, abs=1e-9)
    assert [fit.errors[n] for n in (1, 3, 5)] == pytest.approx(alone.errors, abs=1e-6)  # not the prior's 30


def test_parts_that_nothing_joins_have_preferences_of_their_own() -> None:
    fit = bradley_terry(5, {(0, 1): 0.7, (3, 2): 0.9})
    assert fit.theta_N[[0, 1]].sum() == pytest.approx(0, abs=1e-9) and fit.theta_N[3] > fit.theta_N[0]
    assert fit.preference(0, 1) == pytest.approx(0.7, abs=1e-3)
    assert fit.preference(0, 3) is None and fit.preference(4, 0) is None and fit.preference(4, 4) is None
    joined = bradley_terry(5, {(0, 1): 0.7, (3, 2): 0.9, (1, 2): 0.5})
    assert max(error for error in joined.errors if error is not None) < 4
    assert joined.preference(0, 3) is not None


def test_nobody_compared_is_nobody_ranked() -> None:
    for members in (1, 3):
        fit = bradley_terry(members, {})
        assert fit.strengths == fit.errors == borda(members, {}) == (None,) * members


def test_ties_leave_all_equal() -> None:
    ties = dict.fromkeys(combinations(range(4), 2), 0.5)
    assert bradley_terry(4, ties).strengths == pytest.approx((0,) * 4, abs=1e-12)
    assert borda(4, ties) == (0.5,) * 4


def test_borda_is_the_mean_over_opponents_each_counted_once() -> None:
    preferences = {(0, 1): 0.9, (1, 0): 0.3, (0, 2): 0.4, (3, 2): 1.0}
    # 0 met 1 twice (0.9 and 0.7, on the mean 0.8) and 2 once; 1 only 0; 2 met 0 and 3.
    assert borda(5, preferences) == pytest.approx(((0.8 + 0.4) / 2, 0.2, (0.6 + 0.0) / 2, 1.0, None))


@pytest.mark.parametrize(
    ("preferences", "message"),
    [
        ({(0, 2): 0.5}, r"pair \(0, 2\) is not of two of the 2 members"),
        ({(1, 1): 0.5}, r"pair \(1, 1\)"),
        ({(-1, 0): 0.5}, r"pair \(-1, 0\)"),
        ({(0, 1): 1.1}, r"preference of pair \(0, 1\) is 1.1"),
        ({(0, 1): math.nan}, "is nan: give a probability"),
    ],
)
def test_pairs_and_preferences_that_are_none_are_refused(preferences: Preferences, message: str) -> None:
    for rank in (bradley_terry, borda):
        with pytest.raises(AdjudgeError, match=message):
            rank(2, preferences)


def test_no_matrix_of_comparisons_by_members_is_made() -> None:
    members = 200
    preferences = {pair: 0.5 + 0.4 * math.sin(sum(pair)) for pair in combinations(range(members), 2)}
    bradley_terry(members, preferences)  # what is loaded at the first call is not counted
    tracemalloc.start()
    bradley_terry(members, preferences)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(preferences) * members / 4
