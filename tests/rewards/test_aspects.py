from __future__ import annotations

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.aspects import HANNA, STORYER, Aspect, checked, parse_aspects


def test_sets_names_and_ones_own() -> None:
    assert parse_aspects("HANNA") == HANNA and len(HANNA) == 6
    assert parse_aspects("storyer") == STORYER and len(STORYER) == 5
    assert [aspect.name for aspect in parse_aspects("coherence, Ending ,humour=Is it funny?")] == [
        "coherence",
        "ending",
        "humour",
    ]
    assert parse_aspects("humour = Is it funny?") == (Aspect("humour", "Is it funny?"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coherense", 'unknown aspect "coherense": choose hanna, storyer, or names from character development'),
        ("", "no aspects"),
        (",", "no aspects"),
        ("empathy,empathy", '"empathy" is given twice'),
        ("x=", "unknown aspect"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        parse_aspects(text)


@pytest.mark.parametrize("weights", [(0.0, 0.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_weights_that_cannot_be_averaged_are_refused(weights: tuple[float, float]) -> None:
    with pytest.raises(AdjudgeError, match="weights"):
        checked([Aspect("a", "?", weights[0]), Aspect("b", "?", weights[1])])
