from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

from adjudge.bench.reports.length import (
    LengthEffect,
    length_effect,
    length_line,
    length_of_groups,
    length_of_items,
    length_of_pairs,
)
from adjudge.rewards.guards.length_trend import length_trend
from adjudge.rewards.judges.preference import sigmoid
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.verdict import Item, Verdict


def noisy(slope: float, count: int = 40) -> list[tuple[float, float]]:
    random = np.random.default_rng(3)
    lengths = random.uniform(100, 4000, count)
    return [(float(x), float(3 + slope * x / 1000 + random.normal(0, 0.5))) for x in lengths]


def test_slope_and_intervals_are_scipys() -> None:
    points = noisy(0.4)
    effect = length_effect("score", [points])
    expected = stats.linregress(*zip(*points, strict=True))
    half = stats.t.ppf(0.975, len(points) - 2) * expected.stderr
    assert effect.slope == pytest.approx(1000 * expected.slope)
    assert effect.interval == pytest.approx((1000 * (expected.slope - half), 1000 * (expected.slope + half)))
    correlation = stats.pearsonr(*zip(*points, strict=True))
    assert effect.correlation == pytest.approx(correlation.statistic)
    assert length_trend([points]).correlation_interval == pytest.approx(tuple(correlation.confidence_interval(0.95)))


@pytest.mark.parametrize(
    ("slope", "said"),
    [
        (0.5, "longer texts are judged better"),
        (-0.5, "shorter texts are judged better"),
        (0.0, "no effect of length can be told"),
    ],
)
def test_the_line_says_what_follows(slope: float, said: str) -> None:
    line = length_line(length_effect("score", [noisy(slope)]))
    assert line.endswith(said) and "points per 1,000 characters (95 % interval" in line


def test_a_small_slope_is_not_written_as_nothing() -> None:
    small = [(x, y / 1000) for x, y in noisy(0.5)]
    assert "+0.0005" in length_line(length_effect("score", [small]))


def test_a_bound_beside_nothing_keeps_its_sign() -> None:
    effect = LengthEffect("score", (), -0.011, (-0.022, -0.000219), -0.6)
    assert "−0.011 points per 1,000 characters (95 % interval −0.022 to −0.0002; r" in length_line(effect)
    assert length_line(effect).endswith("shorter texts are judged better")


def test_one_text_of_another_length_than_all_others_is_said_to_decide() -> None:
    points = [*noisy(5), (180_000.0, 1.0)]
    effect = length_effect("score", [points])
    assert effect.slope is not None and effect.slope < 0 and effect.direction is None
    assert re.search(
        r": one text, 17\d,\d{3} characters longer than the mean, decides this: leave", length_line(effect)
    )
    assert length_effect("score", [points[:-1]]).direction == "longer"


def test_in_groups_of_two_one_text_of_another_length_decides_as_well() -> None:
    pairs = [[(x, y), (x + 100, y + 0.1)] for x, y in noisy(0.5)]
    assert length_effect("strength", pairs).outlier is None
    assert length_effect("strength", [*pairs, [(400.0, 1.0), (90_000.0, 4.0)]]).outlier is not None


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1.0, 2.0)],
        [(1.0, 2.0), (2.0, 3.0), (3.0, 5.0)],
        [(5.0, y) for y in range(9)],
        [(x, 2.0) for x in range(9)],
    ],
)
def test_what_cannot_be_told_is_not_told(points: list[tuple[float, float]]) -> None:
    effect = length_effect("score", [points])
    assert effect.slope is effect.interval is effect.correlation is effect.direction is None
    assert len(effect.points) == len(points)
    assert "cannot be told" in length_line(effect)


def test_a_perfect_line_has_a_finite_interval() -> None:
    points = [(float(x), 2.0 * x) for x in range(9)]
    effect, trend = length_effect("score", [points]), length_trend([points])
    assert effect.slope == pytest.approx(2000) and effect.correlation == pytest.approx(1)
    assert effect.interval is not None and trend.correlation_interval is not None
    assert all(map(math.isfinite, effect.interval + trend.correlation_interval))


def test_levels_of_groups_do_not_count_as_length() -> None:
    """Two groups, the longer texts in the better one; within each longer is worse."""
    groups = [[(float(100 * level + x), 5.0 * level - 0.1 * x) for x in range(6)] for level in (1, 9)]
    effect = length_effect("strength", groups)
    assert effect.slope == pytest.approx(-100) and effect.direction == "shorter"
    assert sum(x for x, _ in effect.points) == pytest.approx(0)


def test_items_pairs_and_groups_give_their_lengths_and_skip_abstentions() -> None:
    def item(length: int, score: float | None) -> tuple[Item, Verdict]:
        reason = "low_mass" if score is None else None
        return Item("p", "x" * length), Verdict("", score, {}, reason, False, "m", "k")  # type: ignore[arg-type]

    assert length_of_items([item(3, 1.5), item(9, None), item(4, 2.0)]).points == ((3.0, 1.5), (4.0, 2.0))

    pairs = [("x" * 9, "yy", sigmoid(0.7)), ("x", "y", None), ("xx", "yyyy", 1.0)]
    (longer, odds), (shorter, sure) = length_of_pairs(pairs).points
    assert (longer, shorter) == (7.0, -2.0) and odds == pytest.approx(0.7) and math.isfinite(sure)

    verdict = GroupVerdict("", (1.0, -1.0, 1.0, None), (None,) * 4, None, None, (), None, False, "m", "k")
    group = Group("p", ["xxxx", "yy", "xxxx", "z"])
    assert length_of_groups([(group, verdict)]).points == ((4.0, 1.0), (2.0, -1.0))  # equal texts count once


@pytest.mark.parametrize(("prompts", "told"), [(4, False), (5, True), (None, True)])
def test_of_too_few_prompts_there_is_a_slope_and_no_conclusion(prompts: int | None, told: bool) -> None:
    effect = length_effect("strength", [noisy(0.5)], prompts)
    assert effect.slope is not None and (effect.interval is not None) is told
    line = length_line(effect)
    assert line.endswith(": longer texts are judged better" if told else ": too few to tell")
    assert ("(no interval: 4 of at least 5 prompts; r +0" in line) is not told


def test_groups_of_one_prompt_are_one_prompt() -> None:
    verdict = GroupVerdict("", (1.0, 0.9, -1.0, 0.0), (None,) * 4, None, None, (), None, False, "m", "k")
    texts = ["xxxxxxxx", "xxxxxxx", "x", "xxx"]
    same = [(Group("p", texts), verdict)] * 6
    assert length_of_groups(same).prompts == 1 and length_of_groups(same).interval is None
    others = [(Group(f"p{number}", texts), verdict) for number in range(6)]
    assert length_of_groups(others).direction == "longer"


def test_two_lengths_say_nothing() -> None:
    effect = length_effect("score", [[(100.0, 3.0), (100.0, 3.0), (20.0, 2.0), (20.0, 2.0), (20.0, 2.0)]])
    assert effect.slope is None
