from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import HANNA, PERSE, STORYER, Aspect, aspects_of, checked_aspects, parse_aspects


def test_sets_names_and_ones_own() -> None:
    assert parse_aspects("HANNA") == HANNA and len(HANNA) == 6
    assert parse_aspects("storyer") == STORYER and len(STORYER) == 5
    assert [aspect.name for aspect in parse_aspects("coherence, Ending ,humour=Is it funny?")] == [
        "coherence",
        "ending",
        "humour",
    ]
    assert parse_aspects("humour = Is it funny?") == (Aspect("humour", "Is it funny?"),)


def test_a_name_may_carry_its_weight() -> None:
    [coherence, wit] = parse_aspects("coherence*3, wit * 0.5 = Is 2*2 funny?")
    assert coherence == Aspect("coherence", HANNA[1].definition, 3.0)
    assert wit == Aspect("wit", "Is 2*2 funny?", 0.5)


def test_a_comma_within_ones_own_meaning_parts_nothing_and_names_after_it_stay_names() -> None:
    assert parse_aspects("wit*2=Is it funny, or at least light?, Ending") == (
        Aspect("wit", "Is it funny, or at least light?", 2.0),
        STORYER[1],
    )
    with pytest.raises(AdjudgeError, match='unknown aspect "coherense"'):
        parse_aspects("wit=Is it funny?, coherense")
    with pytest.raises(AdjudgeError, match='unknown aspect "light"'):
        parse_aspects("coherence, light")


def test_a_meaning_in_quotes_is_taken_as_it_stands() -> None:
    clear = Aspect("clear", "Is it clear in prose, style, ending*2", 2.0)
    written = 'clear * 2 = "Is it clear in prose, style, ending*2" , ending,wit="Is it 2=2, or 3?"'
    assert parse_aspects(written) == (clear, STORYER[1], Aspect("wit", "Is it 2=2, or 3?"))
    assert parse_aspects('wit=Is it "funny", or light?') == (Aspect("wit", 'Is it "funny", or light?'),)
    assert parse_aspects('wit="Funny", style') == (Aspect("wit", "Funny"), STORYER[2])
    with pytest.raises(
        AdjudgeError, match='unknown aspect "light": choose .* in quotes where commas part what it means'
    ):
        parse_aspects('wit="Is it funny?", light')


@pytest.mark.parametrize("text", ["clear=Is it clear in prose, style, ending", "clear=Is it clear, styles?"])
def test_a_name_after_a_meaning_that_has_not_come_to_an_end_is_refused(text: str) -> None:
    said = (
        '"styles?.?" is an aspect, or part of what "clear=Is it clear.*" means: put what that means in quotes, or end'
    )
    with pytest.raises(AdjudgeError, match=said):
        parse_aspects(text)


@pytest.mark.parametrize(
    "meaning", ["Is it (really?)", "Is it [so.]", "x!”", 'Is it "so?"', "«Quoi ?»", "「何？」", "a?')"]
)
def test_a_meaning_comes_to_its_end_within_brackets_and_quotes(meaning: str) -> None:
    assert parse_aspects(f"a={meaning}, style") == (Aspect("a", meaning), STORYER[2])
    with pytest.raises(AdjudgeError, match='"style" is an aspect, or part of what'):
        parse_aspects("a=Is it (really), style")


def test_aspects_are_given_as_objects_or_their_fields_or_names_with_meanings_or_a_list_of_these() -> None:
    wit = Aspect("wit", "Is it funny?", 2.0)
    fields = {"name": "wit", "definition": "Is it funny?", "weight": 2}
    assert aspects_of(fields) == aspects_of([fields]) == (wit,)
    plain = Aspect("wit", "Is it, *2 or so, style*2"), Aspect("grip", "Does it hold one?")
    assert aspects_of({one.name: one.definition for one in plain}) == plain
    assert aspects_of(["style", fields, {"grip": plain[1].definition}, HANNA[0]]) == (
        *(STORYER[2], wit, plain[1], HANNA[0]),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**{"name": "wit", "definition": "?"}, "wieght": 2}, "an aspect has 'wieght': give its name, definition and"),
        (
            {"name": "wit", "definition": 3},
            r"is no aspect \(Expected `str`, got `int` - at `\$.definition`\): give name",
        ),
        ({"wit": None}, "is no aspect"),
        *(
            (given, r'"wit\*2" has a \* in its name, .*: give {"name": "wit", "definition": …, "weight": 2}$')
            for given in ({"wit*2": "is"}, {"name": "wit*2", "definition": "is"}, [Aspect("wit*2", "is")])
        ),
        ({"wit * .5": "is"}, '"name": "wit", "definition": …, "weight": .5}'),
        *(
            (given, '"wit" wants a name and a meaning: say')
            for given in ({"wit": ""}, {"wit": " "}, {"name": "wit", "definition": ""}, Aspect("wit", ""))
        ),
        ({"": "is"}, '"" wants a name and a meaning'),
        ({}, "no aspects given"),
        ([3], "'3' is no aspect"),
        (3, "aspects is 3: give names, "),
        ([Aspect(3, "is")], "an aspect: name is 3, not a string"),  # type: ignore[arg-type]
        *(
            ([Aspect("wit", "is", weight)], 'the weight of the aspect "wit" is .*: give a number')  # type: ignore[arg-type]
            for weight in ("3", None, True)
        ),
    ],
)
def test_fields_that_are_no_aspect_are_named(given: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        aspects_of(given)


def test_a_set_may_stand_beside_ones_own_in_any_case() -> None:
    assert parse_aspects("HANNA, wit=Is it funny?") == (*HANNA, Aspect("wit", "Is it funny?"))
    assert parse_aspects("wit=Is it funny?, Storyer") == (Aspect("wit", "Is it funny?"), *STORYER)


def test_one_aspect_is_given_as_it_is() -> None:
    assert aspects_of(HANNA[2]) == aspects_of([HANNA[2]]) == HANNA[2:3]


def test_a_name_that_several_sets_know_means_the_preferred_ones_else_the_first() -> None:
    assert parse_aspects("perse") == PERSE and len(PERSE) == 5
    assert parse_aspects("surprise, ending") == (HANNA[3], STORYER[1])
    assert parse_aspects("surprise, relevance", PERSE) == (PERSE[2], HANNA[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coherense", 'unknown aspect "coherense": choose hanna, storyer, perse, or names from adaptability'),
        ("", "no aspects"),
        (",", "no aspects"),
        ("empathy,empathy", '"empathy" is given twice'),
        ("x=", "unknown aspect"),
        ("empathy*much", 'the weight of "empathy\\*much" is no number: write name'),
        (
            "wit=Is it funny?*2",
            r'what the aspect "wit" means ends in "\*2": write wit\*2=… for a weight, or put the mean',
        ),
        ("wit=Is it funny? * 2.5,style", r'ends in "\* 2.5"'),
        ('wit=""', "unknown aspect"),
        ("empathy*-1", "the aspects weigh empathy\\*-1: give weights from 0"),
        ("empathy*1e308", r"from 0 to 1e\+06"),
        ("empathy*0", "not all 0"),
        ("show/tell=Is it shown?", 'the aspect "show/tell" has a slash'),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        parse_aspects(text)


@pytest.mark.parametrize("weights", [(0.0, 0.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_weights_that_cannot_be_averaged_are_refused(weights: tuple[float, float]) -> None:
    with pytest.raises(AdjudgeError, match="weights"):
        checked_aspects([Aspect("a", "?", weights[0]), Aspect("b", "?", weights[1])])


def test_an_aspect_s_words_can_be_written_as_utf_8_whatever_they_were() -> None:
    [aspect] = parse_aspects("wit=is \udcff it")
    assert aspect.definition == "is \ufffd it" == checked_aspects([Aspect("wit", "is \ud800 it")])[0].definition
