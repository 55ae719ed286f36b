from __future__ import annotations

import pytest
from scipy.stats import ttest_1samp

from adjudge.training.changes import Change, changes, last_steps


def lines(*ends: tuple[int, float, float | None]) -> list[dict[str, object]]:
    """The held-out lines of a run: step, reward, and one of its parts."""
    return [
        {"step": step, "split": "held_out", "reward": reward, "sum/mean/sea": sea, "sum/mean/words": 9.0}
        for step, reward, sea in ends
    ]


def test_the_interval_over_runs_is_student_s() -> None:
    rises = [0.3, 0.1, 0.45]
    [reward, sea] = changes([lines((0, 0.0, 0.5), (4, 9.0, 0.1), (8, rise, 0.5 + rise)) for rise in rises])
    assert reward.mean == pytest.approx(sum(rises) / 3, abs=1e-12)
    interval = ttest_1samp(rises, 0).confidence_interval(0.95)
    assert reward.margin == pytest.approx((interval.high - interval.low) / 2, rel=1e-9)
    assert (sea.name, sea.before) == ("sum/mean/sea", (0.5, 0.5, 0.5))
    assert sea.mean == pytest.approx(reward.mean)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ((1.0, 1.1, 0.9), "rose"),
        ((-1.0, -1.1, -0.9), "fell"),
        ((1.0, -1.1, 0.9), "unclear"),
        ((1.0,), ""),
    ],
)
def test_a_rise_is_one_when_its_interval_leaves_zero_out(after: tuple[float, ...], verdict: str) -> None:
    assert Change("reward", (0.0,) * len(after), after).verdict == verdict


def test_runs_that_were_not_answered_twice_and_parts_that_were_not_measured_are_left_out() -> None:
    assert changes([[], lines((0, 0.5, 0.5))]) == []
    [reward] = changes([lines((0, 0.5, None), (8, 0.75, 0.5)), lines((0, 0.5, 0.5))])
    assert (reward.name, reward.before, reward.after) == ("reward", (0.5,), (0.75,))


def test_a_run_that_is_still_under_way_is_not_held_beside_those_that_are_done() -> None:
    runs = [lines((0, 0.1, 0.5), (9, 0.9, 0.5)), lines((0, 0.1, 0.5), (5, 0.3, 0.5)), []]
    [reward, _] = changes(runs)
    assert last_steps(runs) == [9, 5, None]
    assert reward.after == (0.9,)
