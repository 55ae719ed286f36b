from __future__ import annotations

import json

import pytest

from adjudge.training.readers import names as reading
from adjudge.training.readers.names import MOST_CHARACTERS, MOST_RUNS, is_ordinary, likely_names, read_names, rename
from adjudge.training.stages import Unusable

PLOT = (
    "Glenn Holland teaches in Port Ann. Ann, his wife, loves Annabel. Rose knows that prices rose. Will they leave?"
    " Will it rain? At dusk Rose leaves O'Brien and Jean-Luc behind; Holland's house is empty."
)


def names(**found: str) -> str:
    return json.dumps([{"name": old.replace("_", " "), "new_name": new} for old, new in found.items()])


def test_names_are_replaced_as_whole_words_and_the_longest_first() -> None:
    found = {"Ann": "Eva", "Port Ann": "Old Quay", "Holland": "Berg", "Brien": "Moss", "Jean": "Kai"}
    assert rename(PLOT, found) == (
        "Glenn Berg teaches in Old Quay. Eva, his wife, loves Annabel. Rose knows that prices rose. Will they leave?"
        " Will it rain? At dusk Rose leaves O'Brien and Jean-Luc behind; Berg's house is empty."
    )


def test_new_names_are_not_replaced_again_and_a_line_break_within_a_name_does_not_hide_it() -> None:
    assert rename("Ann met\nAnn\nLee. Bo", {"Ann": "Bo", "Bo": "Cy", "Ann Lee": "Di Fox"}) == "Bo met\nDi Fox. Cy"
    assert rename("李明回家了。", {"李明": "王芳"}) == "王芳回家了。"
    assert rename("วันนี้มาลีเดิน", {"มาลี": "สมศรี"}) == "วันนี้สมศรีเดิน"
    assert rename(PLOT, {}) == PLOT


def test_a_map_is_read_and_names_that_the_plot_has_not_are_left_out() -> None:
    text = names(Glenn_Holland="Tom Berg", Holland="Berg", Rose="Iris", Zoe="Pia")
    assert read_names(text, PLOT) == {"Glenn Holland": "Tom Berg", "Holland": "Berg", "Rose": "Iris"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Ann is Eva", "unparsable"),
        ("[]", "renames_nothing"),
        ('["Ann"]', "unparsable"),
        ('{"Ann": "Eva"}', "unparsable"),
        ('[{"name": "Ann"}]', "unparsable"),
        ('[{"name": "Ann", "new_name": ["Eva"]}]', "unparsable"),
        (names(Ann=" "), "unparsable"),
        (names(Ann="x" * 61), "unparsable"),
        ("[" * 100_000, "unparsable"),
        (names(Ann="Eva")[:-1] + "," + names(Ann="Pia")[1:], "name_twice"),
        (names(Zoe="Pia"), "renames_nothing"),
        (names(Ann="ANN"), "keeps_a_name"),
        (names(Ann="Rose"), "takes_a_name"),
        (names(Ann="Eva", Glenn_Holland="Tom Holland", Holland="Berg"), "takes_a_name"),
        (names(Ann="Eva", Rose="Eva"), "merges_names"),
        (names(Ann="Eva", wife="cousin"), "ordinary_word"),
        (names(At="Sam"), "ordinary_word"),
        (names(his="Sam"), "ordinary_word"),
    ],
)
def test_a_map_that_would_spoil_the_plot_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(Unusable) as refused:
        read_names(text, PLOT)
    assert refused.value.reason == reason


def test_one_person_may_keep_one_name_under_two() -> None:
    assert (
        len(read_names(names(Glenn_Holland="Tom", Glenn="Tom", Holland="Berg"), "Glenn Holland; Glenn; Holland")) == 3
    )


@pytest.mark.parametrize(
    ("name", "plot", "ordinary"),
    [
        ("Rose", "In June Rose left; prices rose.", False),
        ("Lights", "Lights went out. She saw lights.", True),
        ("New York", "New ideas reach New York.", False),
        ("The Mother", "The Mother waits.", True),
        ("old man", "An old man waits.", True),
        ("李明", "李明回家了。", False),
        ("他", "他回家了。", True),
        ("1999", "In 1999 it rained.", True),
        ("Rose", "Rose-red is rose. Rose left.", True),
        ("O'Brien", "O'Brien left. An o'brien is a potato.", True),
        ("İz", "İz bir i\u0307z.", True),
        ("Anna明", "Anna明 and anna明.", True),
    ],
)
def test_what_is_a_name_is_told_by_its_capitals_inside_sentences(name: str, plot: str, ordinary: bool) -> None:
    assert is_ordinary(name, plot) is ordinary


def test_words_with_a_capital_that_are_no_ordinary_ones_are_likely_names() -> None:
    assert likely_names(PLOT) == ["Glenn Holland", "Port Ann", "Ann", "Annabel", "Rose", "Will", "Holland"]
    assert likely_names("nobody waits.") == [] == likely_names("李明回家了。")


def test_a_plot_of_nothing_but_names_takes_no_time() -> None:
    assert len(likely_names(" and ".join(f"Anna{number}" for number in range(5_000)))) == MOST_RUNS


def looked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From here on, every name that a text is searched for."""
    found: list[str] = []
    pattern = reading._pattern
    monkeypatch.setattr(reading, "_pattern", lambda name: found.append(name) or pattern(name))
    return found


def test_a_plot_of_ordinary_words_is_not_searched_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = looked_for(monkeypatch)
    words = [f"w{number}" for number in range(5_000)]
    assert likely_names("\n".join(map(str.capitalize, words)) + "\n" + " ".join(words)) == []
    assert len(searched) <= MOST_RUNS


def test_words_with_a_capital_in_a_row_are_no_endless_name() -> None:
    found = likely_names(" ".join(f"Anna{number}" for number in range(1_000)))
    assert len(found) > 1 and max(map(len, found)) <= MOST_CHARACTERS


def test_each_of_many_names_is_compiled_a_few_times_and_not_for_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = looked_for(monkeypatch)
    many = {f"Anna{number}": f"Eva{number}" for number in range(600)}
    assert read_names(names(**many), " and ".join(many)) == many
    assert len(searched) <= 3 * len(many)
