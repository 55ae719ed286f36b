from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from adjudge.engine.field_mistakes import choices_of, field_meant


class Oven(msgspec.Struct, forbid_unknown_fields=True, tag="oven", rename={"heat": "heat-at"}):
    heat: Annotated[Literal["low", "high"] | None, msgspec.Meta(title="heat")] = None
    fan: bool | Literal["auto"] = "auto"


class Pan(msgspec.Struct, forbid_unknown_fields=True, tag="pan"):
    lid: Literal["on"] = "on"


class Kitchen(msgspec.Struct, forbid_unknown_fields=True):
    used: list[Oven | Pan] = []
    named: dict[str, Oven] = {}
    floors: tuple[Literal[1, 2], ...] = ()
    first: Oven | None = None
    cellars: None = None


@pytest.mark.parametrize(
    ("given", "choices"),
    [
        ({"used": [{"type": "pan"}, {"type": "oven", "heat-at": "hot"}]}, ": choose low, high"),
        ({"used": [{"type": "pan", "lid": "off"}]}, ": choose on"),
        ({"named": {"a.b[0]": {"type": "oven", "heat-at": "hot"}}}, ": choose low, high"),
        ({"floors": [1, 3]}, ": choose 1, 2"),
        ({"first": {"type": "oven", "fan": "on"}}, ": choose true, false, auto"),
        ({"used": 3}, ""),
        ({"used": [{"type": "pot"}]}, ": choose oven, pan"),
    ],
)
def test_a_word_that_is_not_taken_is_answered_with_those_that_are(given: Any, choices: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Kitchen)
    assert choices_of(caught.value, Kitchen) == choices


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"frist": None}, "first"),
        ({"first": {"type": "oven", "heat_at": "low"}}, "heat-at"),
        ({"used": [{"type": "pan"}, {"type": "pan", "lids": "on"}]}, "lid"),
        ({"cellar": None}, None),
        ({"used": 3}, None),
    ],
)
def test_a_field_that_is_not_there_is_answered_with_the_one_of_nearly_its_name(given: Any, meant: str | None) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Kitchen)
    assert field_meant(caught.value, Kitchen) == meant


def test_a_type_by_itself_is_its_own_place() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert("c", Literal["a", "b"])
    assert choices_of(caught.value, Literal["a", "b"]) == ": choose a, b"
