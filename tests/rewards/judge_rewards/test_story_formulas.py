from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judge_rewards.story_formulas import (
    RELEASED_ASPECTS,
    STORY_ASPECTS,
    ComponentWeights,
    mended_parts,
    published_parts,
    released_relative,
    weighted_sum,
)
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.parts.gates import LengthWindow

MINE = {"creativity": 4.0, "coherence": 3.5, "relevance": 5.0, "complexity": 2.0, "surprise": 1.0, "engagement": 3.0}
REFERENCE = {name: 3.0 for name in MINE}
NAMES = [aspect.name for aspect in STORY_ASPECTS]
scores = st.fixed_dictionaries({name: st.floats(1, 5) for name in NAMES})


def test_the_weights_are_the_papers() -> None:
    assert {aspect.name: aspect.weight for aspect in STORY_ASPECTS} == {
        "creativity": 5,
        "coherence": 3,
        "relevance": 1,
        "complexity": 3,
        "surprise": 1,
        "engagement": 1,
    }
    assert ComponentWeights() == ComponentWeights(advantage=0.1, absolute=0.8, length=0.1)
    assert math.fsum(aspect.weight for aspect in RELEASED_ASPECTS) == 14


def test_the_published_formula_by_hand() -> None:
    # Σ α y = 5·4 + 3·3.5 + 5 + 3·2 + 1 + 3 = 45.5, of the reference 14 · 3 = 42
    assert weighted_sum(MINE, STORY_ASPECTS) == pytest.approx(45.5, abs=1e-9)
    parts = published_parts(MINE, REFERENCE, STORY_ASPECTS)
    assert parts == pytest.approx((3.5, 45.5), abs=1e-6)
    assert ComponentWeights().sum(*parts, 0.5) == pytest.approx(0.1 * 3.5 + 0.8 * 45.5 + 0.1 * 0.5, abs=1e-6)
    assert ComponentWeights(1.0, 0.0, 2.0).sum(*parts, 0.25) == pytest.approx(3.5 + 0.5, abs=1e-6)


def test_the_mended_formula_by_hand() -> None:
    # weighted means 3.25 and 3: advantage (0.25 / 4 + 1) / 2 = 0.53125, absolute 2.25 / 4 = 0.5625
    assert mended_parts(MINE, REFERENCE, STORY_ASPECTS) == pytest.approx((0.53125, 0.5625), abs=1e-6)
    best, worst = dict.fromkeys(NAMES, 5.0), dict.fromkeys(NAMES, 1.0)
    assert mended_parts(best, worst, STORY_ASPECTS) == pytest.approx((1.0, 1.0), abs=1e-6)
    assert mended_parts(worst, best, STORY_ASPECTS) == pytest.approx((0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize(("mine", "theirs", "told"), [(9.0, 2.0, "9"), (2.0, 0.5, "0.5"), (math.nan, 2.0, "nan")])
def test_a_score_of_another_scale_is_refused_by_the_mended_formula(mine: float, theirs: float, told: str) -> None:
    scores, reference = MINE | {"coherence": mine}, REFERENCE | {"coherence": theirs}
    with pytest.raises(AdjudgeError, match=f'scores "coherence" {told}, .* from 1 to 5: let the judge score on that'):
        mended_parts(scores, reference, STORY_ASPECTS)
    ends = dict.fromkeys(NAMES, math.nextafter(5.0, 6.0))
    assert mended_parts(ends, dict.fromkeys(NAMES, 1.0), STORY_ASPECTS) == pytest.approx((1.0, 1.0))


def test_the_released_map_by_hand() -> None:
    assert released_relative(0.0) == pytest.approx(0.2 / (1 + math.exp(-1)), abs=1e-6)
    assert released_relative(0.0) == pytest.approx(0.146, abs=5e-4)
    assert released_relative(1 / 14) == pytest.approx(0.069, abs=5e-4)
    assert released_relative(-0.5) == pytest.approx(0.2 / (1 + math.exp(4)), abs=1e-6)
    assert released_relative(2.0) == pytest.approx(1 - math.exp(-2), abs=1e-6)
    assert released_relative(-1e6) == 0.0


@given(scores, scores, st.sampled_from(NAMES), st.floats(0, 4))
def test_a_better_score_never_pays_less(
    mine: dict[str, float], reference: dict[str, float], name: str, gain: float
) -> None:
    better = {**mine, name: min(5.0, mine[name] + gain)}
    for parts in (published_parts, mended_parts):
        before, after = parts(mine, reference, STORY_ASPECTS), parts(better, reference, STORY_ASPECTS)
        assert all(new >= old - 1e-12 for new, old in zip(after, before, strict=True))
        if better[name] > mine[name] + 1e-6:
            assert all(new > old for new, old in zip(after, before, strict=True))
        advantage, absolute = parts(mine, {**reference, name: 5.0}, STORY_ASPECTS)
        assert advantage <= before[0] + 1e-12 and absolute == before[1]
    assert all(0 <= part <= 1 + 1e-12 for part in mended_parts(mine, reference, STORY_ASPECTS))


def test_length_pays_inside_its_window_and_less_and_less_outside() -> None:
    window = LengthWindow(100, 400)
    values = [window.reward(words) for words in (0, 50, 75, 100, 250, 400, 600, 800, 10_000)]
    assert values == [0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("weight", [math.nan, math.inf, "0.1", None])
def test_the_weight_of_a_part_must_be_a_finite_number(weight: Any) -> None:
    with pytest.raises(AdjudgeError, match="the weights of the parts are .*: give finite numbers"):
        ComponentWeights(advantage=weight)


@pytest.mark.parametrize("bounds", [(0, 5), (6, 5), (-1, 5), ("1", 5), (1, None), (1, math.inf)])
def test_a_window_that_holds_nothing_is_refused(bounds: Any) -> None:
    with pytest.raises(AdjudgeError, match="holds nothing: give 0 < least"):
        LengthWindow(*bounds)


def test_an_aspect_of_no_weight_does_not_count() -> None:
    aspects = [*STORY_ASPECTS, Aspect("empathy", "?", 0.0)]
    mine = {**MINE, "empathy": 1.0}
    reference = {**REFERENCE, "empathy": 5.0}
    assert mended_parts(mine, reference, aspects) == mended_parts(MINE, REFERENCE, STORY_ASPECTS)
