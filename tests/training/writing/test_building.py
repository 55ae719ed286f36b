from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.rows import Row
from adjudge.training.attrition import Count
from adjudge.training.kept_engine import KeptEngine
from adjudge.training.stages import Texts
from adjudge.training.writing.building import SCHEMA, Building, Candidate, candidates_of
from adjudge.training.writing.genres import GENRES, genre_of
from tests.rewards.scripted import ScriptedEngine
from tests.training.writing.grading import by_chances, construction

SAMPLING = Sampling(max_tokens=768, temperature=0.7)
GOOD = "The rain fell on the roof.\n\nNobody came.\n\nThe lamp went out."
BAD = "buy now buy now"
CHINESE = "雨下了一整天。\n\n没有人来。\n\n灯灭了。"


def grade(shown: str, labels: tuple[str, ...]) -> Mapping[str, float]:
    if labels[0] in ("fiction", "小说"):
        return {labels[0]: 0.5, labels[1]: 0.25}
    return {"1": 0.5} if BAD in shown else {"4": 0.25, "5": 0.25}


def candidates(*texts: str, **more: Any) -> list[Candidate]:
    return candidates_of([Row(f"line {n}", {"id": f"t{n}", "text": text, **more}) for n, text in enumerate(texts, 1)])


def building(engine: ScriptedEngine, book: Journal | None = None, **how: Any) -> Building:
    return Building(KeptEngine(engine, book), Texts(engine, SAMPLING, book, schema=SCHEMA), **how)


def test_genres_stand_in_the_same_order_in_both_languages() -> None:
    english, chinese = (list(genres) for genres in GENRES.values())
    assert len(english) == len(chinese) == 14
    for names in (english, chinese):
        assert not any(one != other and other.startswith(one) for one in names for other in names)
    found = genre_of("诗歌", "en")
    assert found is not None and found.name == "poetry"
    assert genre_of("limerick", "en") is None


def test_every_text_gets_its_likeliest_genre_in_its_language_and_own_ones_are_kept(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "", by_chances(grade))
    passed = building(engine).classify([*candidates(GOOD, CHINESE, " \n"), *candidates(GOOD, genre="fable")])
    assert [one.genre for one in passed.kept] == ["fiction", "小说", "fable"]
    assert [one.genre_probability for one in passed.kept] == [pytest.approx(2 / 3), pytest.approx(2 / 3), None]
    assert Count.of(passed).reasons == {"empty": 1}
    assert len(engine.scored) == 2 and engine.asked == [] and "属于下列哪种体裁" in engine.scored[1]


def test_only_texts_of_an_expected_quality_of_four_stay(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "", by_chances(grade))
    passed = building(engine).filter(candidates(GOOD, BAD, CHINESE, genre="poetry"))
    assert [(one.source.id, one.quality) for one in passed.kept] == [("t1", 4.5), ("t3", 4.5)]
    assert Count.of(passed).reasons == {"low_quality": 1}
    assert "as poetry, in imagery" in engine.scored[0] and "作为诗歌，在意象" in engine.scored[2]
    assert not building(engine, least=4.6).filter(candidates(GOOD)).kept
    low = building(engine, min_mass=0.6).filter(candidates(GOOD))
    assert [drop.reason for drop in low.dropped] == ["low_mass"]


def test_constructions_that_say_too_much_or_nothing_are_written_again_and_then_dropped(tiny: Engine) -> None:
    quoting = construction(summary="It says: The rain fell on the roof. Nobody came. The lamp went out. So it was.")
    texts = {
        GOOD: [construction(theme="a theme of far too many words"), construction()],
        CHINESE: [construction(theme=" ")] * 3,
        BAD: ["{}"] * 3,
        "The rain fell on the roof.  Nobody came. The lamp went out. So it was.": [quoting],
        "Short.": [construction(requirements=["one"]), construction(summary="word " * 101), construction("x")],
    }

    def script(shown: str, before: int) -> str:
        [text] = [text for text in texts if text in shown]
        return texts[text][before]

    engine = ScriptedEngine(tiny, script, by_chances(grade))
    passed = building(engine).construct(candidates(*texts))
    assert [one.source.id for one in passed.kept] == ["t1", "t5"]
    assert [(drop.row.source.id, drop.reason) for drop in passed.dropped] == [
        ("t2", "empty"),
        ("t3", "unparsable"),
        ("t4", "quotes_the_text"),
    ]
    assert len(engine.asked) == 2 + 3 + 3 + 1 + 3
    record = passed.dropped[0].record
    assert record["text"] == CHINESE and record["dropped"] == {"stage": "construct", "reason": "empty"}


def test_a_run_that_was_killed_scores_and_writes_nothing_twice(tiny: Engine, book: Journal) -> None:
    def run(engine: ScriptedEngine, stages: int) -> list[Candidate]:
        made, kept = building(engine, book), candidates(GOOD, BAD, CHINESE)
        for stage in (made.classify, made.filter, made.construct)[:stages]:
            kept = stage(kept).kept
        return kept

    class Killed(Exception):
        pass

    def dying(shown: str, labels: tuple[str, ...]) -> Mapping[str, float]:
        if "1" in labels and CHINESE in shown:
            raise Killed
        return grade(shown, labels)

    first = ScriptedEngine(tiny, lambda shown, before: construction(), by_chances(dying))
    with pytest.raises(Killed):
        run(first, 3)
    second, third = (ScriptedEngine(tiny, lambda shown, before: construction(), by_chances(grade)) for _ in range(2))
    whole = run(second, 3)
    assert (len(first.scored), len(second.scored), len(second.asked)) == (5, 1, 2)
    assert run(third, 3) == whole and (third.scored, third.asked) == ([], [])
    assert [one.source.id for one in whole] == ["t1", "t3"]


def test_a_text_too_long_for_the_model_is_shortened_and_said_to_be(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: construction(), by_chances(grade))
    [one] = building(engine).filter(candidates("word " * 5000)).kept
    assert one.truncated and one.findings["truncated"] is True


def test_a_row_without_a_text_is_named() -> None:
    with pytest.raises(AdjudgeError, match='line 1: "response" is missing'):
        candidates_of([Row("line 1", {"prompt": "x"})])
    with pytest.raises(AdjudgeError, match='line 1: "genre" is 7'):
        candidates(GOOD, genre=7)
