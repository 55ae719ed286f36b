from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.dummy import tiny_tokenizer
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of
from adjudge.training.evaluator.questions import WordingEngine, rated_rows, slots_of
from adjudge.training.evaluator.split import read_split
from tests.training.evaluator.rated import direct_recipe

PAIR = {"prompt": "p", "story_a": "One.", "story_b": "Two.", "wit_a": 1, "wit_b": [4, 5]}


def wording() -> WordingEngine:
    return WordingEngine("tiny", tiny_tokenizer(), 2000)


def test_prompts_and_label_tokens_are_those_that_the_engine_asks(tmp_path: Path) -> None:
    recipe = direct_recipe(tmp_path, data={"held_out": 0.0})
    rows = read_split(recipe.data, 0).train[:3]
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.05)
    judge = PointwiseJudge(engine, parse_aspects("wit=Is it funny?"))
    for row, (slots, shortened) in zip(
        rows, slots_of(rated_rows(rows, recipe.judge, recipe.scores), recipe.judge, wording()), strict=True
    ):
        [question] = judge.ask(item_of(row, 1))[0]
        assert [slot.tokens for slot in slots] == [engine.tokenizer.prompt(question.prompt)] and not shortened
        assert [ids for [ids] in slots[0].labels] == engine.label_ids(question.prompt, question.labels)


def test_places_that_are_none_are_refused_by_row(tmp_path: Path) -> None:
    recipe = direct_recipe(tmp_path)
    row = Row("line 3", {"prompt": "p", "response": "r", "ratings": {"wit": 2}, "places": [[1, "yes"]]})
    with pytest.raises(AdjudgeError, match=r'line 3: "places": .* write them as \[\[42, true\], \[97, false\]\]'):
        rated_rows([row], recipe.judge, recipe.scores)


def test_each_slot_of_a_pair_has_the_score_of_the_story_that_it_asks_about(tmp_path: Path) -> None:
    recipe = direct_recipe(tmp_path, [PAIR] * 3, judge={"name": "pairwise"}, scores={"columns": {"wit": "wit"}})
    rated = rated_rows(
        read_split(direct_recipe(tmp_path, [PAIR], data={"held_out": 0}).data, 0).train, recipe.judge, recipe.scores
    )
    [(slots, _)] = slots_of(rated, recipe.judge, wording())
    assert len(slots) == 4
    for slot in slots:
        text = wording().tokenizer.decode(slot.tokens)
        asked = text.split("Wit of Story ")[-1][0]
        shown = text.split(f"[Story {asked} begins]\n")[1].split("\n")[0]
        assert slot.score == pytest.approx(1 if shown == "One." else 4.5)


def test_an_aspect_without_a_score_is_not_asked(tmp_path: Path) -> None:
    row = {"prompt": "p", "response": "r", "ratings": {"WIT": 2, "grip": None}}
    recipe = direct_recipe(
        tmp_path, [row], judge={"options": {"aspects": "wit=Is it funny?,grip=Does it hold one?"}}, data={"held_out": 0}
    )
    [(slots, _)] = slots_of(
        rated_rows(read_split(recipe.data, 0).train, recipe.judge, recipe.scores), recipe.judge, wording()
    )
    assert [slot.aspect for slot in slots] == ["wit"]
