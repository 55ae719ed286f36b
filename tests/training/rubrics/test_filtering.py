from __future__ import annotations

import pytest

from adjudge.rewards.judges.published_rubrics import SIX
from adjudge.training.rubrics.filtering import RubricSet, Spread

SET = RubricSet("q", 1, SIX)


def test_variance_and_deviation_are_of_the_whole_population_on_0_to_10() -> None:
    spread = Spread.of(SET, [0.2, 0.4, None, 0.9])
    assert spread.scores == (2, 4, None, 9)
    assert spread.variance == pytest.approx(26 / 3) and spread.deviation == pytest.approx((26 / 3) ** 0.5)


def test_parity_compares_the_variance_and_fixed_the_deviation_with_the_share_of_the_range() -> None:
    near = Spread.of(SET, [0.5 - 0.13, 0.5 + 0.13])  # variance 1.69, deviation 1.3, threshold 1.5
    assert near.dropped_for(0.15, "parity") is None and near.dropped_for(0.15, "fixed") == "low_variance"
    wide = Spread.of(SET, [0.35, 0.65])  # deviation 1.5: what equals the threshold stays
    assert Spread.of(SET, [0.34, 0.66]).dropped_for(0.15, "fixed") is None
    assert wide.dropped_for(0.15, "parity") is None
    tight = Spread.of(SET, [0.4, 0.6])
    assert tight.dropped_for(0.15, "parity") == "low_variance" and tight.dropped_for(0.05, "fixed") is None


@pytest.mark.parametrize("rewards", [[], [None, None], [0.1], [0.1, 0.9, None, None, None]])
def test_a_set_with_too_few_scores_is_unscored(rewards: list[float | None]) -> None:
    spread = Spread.of(SET, rewards)
    assert spread.variance is None and spread.dropped_for(0.15, "fixed") == "unscored"
    assert Spread.of(SET, [0.1, 0.9, None, None]).dropped_for(0.15, "fixed") is None
