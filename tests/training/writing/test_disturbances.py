from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of
from adjudge.training.stages import Texts
from adjudge.training.writing.disturbances import KINDS, disturb, disturbed, parse_kinds
from tests.rewards.scripted import ScriptedEngine

SAMPLING = Sampling(max_tokens=768, temperature=0.7)
LINES = [f"Paragraph {number}, of a kind." for number in range(6)]
TEXT = "\n\n".join(LINES)
CHINESE = "下雨了。他走了。天晴了。"


def rows(*texts: Any, **more: Any) -> list[Row]:
    return [Row(f"line {n} of t.jsonl", {"id": str(n), "response": text, **more}) for n, text in enumerate(texts, 1)]


def genre_of(shown: str, before: int) -> str:
    return "Dear reader, " + ("书" if "书信" in shown else "yours.") if "letter" in shown or "书信" in shown else TEXT


@pytest.mark.parametrize("seed", range(20))
def test_as_many_paragraphs_are_gone_as_it_says_and_the_others_stay_in_order(seed: int) -> None:
    made = disturbed("drop", TEXT, seed=seed)
    assert made is not None and made.unit == "paragraph" and 1 <= made.amount <= 3
    left = made.text.split("\n\n")
    assert len(left) == 6 - made.amount and left == sorted(left) and set(left) < set(LINES)


@pytest.mark.parametrize("seed", range(20))
def test_as_many_paragraphs_come_twice_as_it_says_and_never_beside_themselves(seed: int) -> None:
    made = disturbed("repeat", TEXT, seed=seed)
    assert made is not None and 1 <= made.amount <= 3
    shown = made.text.split("\n\n")
    assert sorted(Counter(shown).values()) == [1] * (6 - made.amount) + [2] * made.amount
    assert all(one != other for one, other in itertools.pairwise(shown))


def test_all_amounts_come_and_a_seed_always_gives_the_same() -> None:
    amounts = {made.amount for seed in range(40) if (made := disturbed("drop", TEXT, seed=seed))}
    assert amounts == {1, 2, 3}
    assert {disturbed("drop", TEXT, most=1, seed=seed).amount for seed in range(9)} == {1}  # type: ignore[union-attr]
    assert disturbed("repeat", TEXT, seed=4) == disturbed("repeat", TEXT, seed=4)


def test_short_texts_lose_sentences_but_never_all() -> None:
    for seed in range(20):
        made = disturbed("drop", "One. Two.", seed=seed)
        assert made is not None and (made.text, made.amount, made.unit) in {
            ("One.", 1, "sentence"),
            ("Two.", 1, "sentence"),
        }
    made = disturbed("repeat", CHINESE)
    assert made is not None and made.unit == "sentence" and len(made.text) > len(CHINESE)


@pytest.mark.parametrize("text", ["", " \n ", "One.", "\ud800", "." * 99])
def test_what_has_one_passage_cannot_be_disturbed(text: str) -> None:
    assert disturbed("drop", text) is None and disturbed("repeat", text) is None


def test_mistakes_are_named() -> None:
    with pytest.raises(AdjudgeError, match='called "shuffle": choose drop, repeat'):
        disturbed("shuffle", TEXT)
    with pytest.raises(AdjudgeError, match="most is 0"):
        disturbed("drop", TEXT, most=0)
    with pytest.raises(AdjudgeError, match='called "to_novel"'):
        parse_kinds("drop,to_novel")
    with pytest.raises(AdjudgeError, match="no disturbance is named"):
        parse_kinds(" , ")
    with pytest.raises(AdjudgeError, match="to_poem need a model"):
        disturb(rows(TEXT), ["drop", "to_poem"])
    with pytest.raises(AdjudgeError, match='line 2 of t.jsonl: "response" is missing'):
        disturb(rows(TEXT, None), ["drop"])


def test_every_row_comes_as_it_is_and_then_in_every_kind(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, genre_of)
    made = disturb(rows(TEXT, CHINESE, "", prompt="Write.", system="gpt"), texts=Texts(engine, SAMPLING))
    ids = [row["id"] for row in made.kept]
    assert ids == [
        "1/none", "1/drop", "1/repeat", "1/to_letter",
        "2/none", "2/drop", "2/repeat", "2/to_comment", "2/to_letter", "2/to_official", "2/to_poem",
        "3/none",
    ]  # fmt: skip
    assert {(drop.record["id"], drop.reason) for drop in made.dropped} == {
        *((f"1/{kind}", "unchanged") for kind in KINDS if kind in ("to_comment", "to_official", "to_poem")),
        *((f"3/{kind}", "too_short") for kind in KINDS),
    }
    assert len(engine.asked) == 8 and "诗歌" in engine.asked[7] and "as a letter" in engine.asked[1]
    letter = made.kept[8]
    assert letter["response"] == "Dear reader, 书" and (letter["prompt"], letter["system"]) == ("Write.", "gpt")
    assert letter["disturbance"] == {"of": "2", "kind": "to_letter", "amount": 1, "unit": "text"}
    assert made.kept[0]["response"] == TEXT and made.kept[0]["disturbance"]["amount"] == 0


@pytest.mark.parametrize("name", ["text", "story"])
def test_a_text_of_another_column_is_a_response_from_then_on_which_judges_take(name: str) -> None:
    made = disturb([Row("line 1 of t.jsonl", {"id": "a", "prompt": "p", name: TEXT})], ["drop"])
    assert [set(row) for row in made.kept] == [{"id", "prompt", "response", "disturbance"}] * 2
    assert [item_of(Row("", row), 1).id for row in made.kept] == ["a/none", "a/drop"]


def test_a_run_that_was_killed_asks_for_nothing_twice(tiny: Engine, book: Journal) -> None:
    class Killed(Exception):
        pass

    def dying(shown: str, before: int) -> str:
        if "poem" in shown:
            raise Killed
        return "Anew."

    kinds = ["to_letter", "to_poem"]
    first, second = ScriptedEngine(tiny, dying), ScriptedEngine(tiny, lambda shown, before: "Anew.")
    disturb(rows(TEXT), kinds[:1], Texts(first, SAMPLING, book))
    with pytest.raises(Killed):
        disturb(rows(TEXT), kinds, Texts(first, SAMPLING, book))
    made = disturb(rows(TEXT), kinds, Texts(second, SAMPLING, book))
    assert [row["id"] for row in made.kept] == ["1/none", "1/to_letter", "1/to_poem"]
    assert len(second.asked) == 1 and "as a poem" in second.asked[0]


def test_texts_that_hold_what_no_file_can_are_mended(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "Anew.")
    made = disturb(rows("One.\ud800 Two\x00. Three."), ["drop", "to_poem"], Texts(engine, SAMPLING))
    assert len(made.kept) == 3 and "\ud800" not in made.kept[0]["response"]
