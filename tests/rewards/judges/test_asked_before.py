from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge, PointwisePairJudge
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.records.verdict import Item, Pair
from tests.rewards.scripted import ScriptedEngine

STYLE, WIT, PACE = Aspect("style", "How is it written?"), Aspect("wit", "Is it witty?"), Aspect("pace", "Is it slow?")
PAIRS = [Pair(a=f"A story {n}.", b=f"Another {n}, \ud800longer.", prompt="Tell one.", id=str(n)) for n in range(3)]
ITEMS = [Item("Tell one.", pair.a, pair.id) for pair in PAIRS]
LONG = Item("Tell one.", "word " * 5000, "long")


def thought(prompt: str, times: int) -> str:
    return f"Thought {times}. <ANSWER> {len(prompt) % 5 + 1} </ANSWER>"


@pytest.fixture
def scripted(tiny: Engine) -> ScriptedEngine:
    return ScriptedEngine(tiny, thought)


def test_an_aspect_more_asks_about_it_alone_and_all_is_as_if_asked_at_once(
    scripted: ScriptedEngine, tiny: Engine, tmp_path: Path
) -> None:
    items = [*ITEMS, LONG]
    with Journal(tmp_path / "j") as journal:
        PointwiseJudge(scripted, [STYLE, WIT], journal=journal, min_mass=0.0).judge(items)
        assert len(scripted.scored) == 8
        verdicts = PointwiseJudge(scripted, [PACE, WIT, STYLE], journal=journal, min_mass=0.0).judge(items)
    assert len(scripted.scored) == 12 and all("Is it slow?" in prompt for prompt in scripted.scored[8:])
    fresh = PointwiseJudge(ScriptedEngine(tiny, thought), [PACE, WIT, STYLE], min_mass=0.0).judge(items)
    assert verdicts == fresh and [verdict.truncated for verdict in verdicts] == [False] * 3 + [True]


def test_other_weights_and_fewer_aspects_ask_nothing(scripted: ScriptedEngine, tiny: Engine, tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        PairwiseJudge(scripted, [STYLE, WIT, PACE], journal=journal, min_mass=0.0).compare(PAIRS)
        asked = len(scripted.scored)
        weighted = [Aspect("pace", PACE.definition, 3.0), Aspect("style", STYLE.definition, 0.5)]
        for orders in ("both", "ab"):
            how: Any = {"orders": orders, "min_mass": 0.0}
            verdicts = PairwiseJudge(scripted, weighted, journal=journal, **how).compare(PAIRS)
            assert verdicts == PairwiseJudge(ScriptedEngine(tiny, thought), weighted, **how).compare(PAIRS)
    assert len(scripted.scored) == asked == 36


def test_a_story_that_was_scored_is_not_asked_about_again_in_a_pair(scripted: ScriptedEngine, tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        scores = PointwiseJudge(scripted, [STYLE], journal=journal, min_mass=0.0).judge(ITEMS)
        judge = PointwisePairJudge(scripted, [STYLE], journal=journal, min_mass=0.0)
        pairs = judge.compare([Pair(ITEMS[0].response, ITEMS[1].response, "Tell one.")])
        assert len(scripted.scored) == 3
        judge.compare(PAIRS)
    assert len(scripted.scored) == 6
    assert [pairs[0].aspects["style"].score_a, pairs[0].aspects["style"].score_b] == [scores[0].score, scores[1].score]


def test_analyses_are_not_written_again(scripted: ScriptedEngine, tiny: Engine, tmp_path: Path) -> None:
    how: Any = {"mode": "reasoned", "sampling": Sampling(max_tokens=9, temperature=0.7), "n": 2, "min_mass": 0.0}
    with Journal(tmp_path / "j") as journal:
        PointwiseJudge(scripted, [STYLE], journal=journal, **how).judge(ITEMS)
        verdicts = PointwiseJudge(scripted, [STYLE, WIT], journal=journal, **how).judge(ITEMS)
        assert len(scripted.asked) == 12
        assert verdicts == PointwiseJudge(ScriptedEngine(tiny, thought), [STYLE, WIT], **how).judge(ITEMS)
        assert [list(verdict.analysis or ()) for verdict in verdicts] == [["style", "wit"]] * 3  # as asked
        for other in ({"n": 3}, {"seed": 1}, {"sampling": Sampling(max_tokens=8, temperature=0.7)}, {"min_mass": 0.5}):
            asked = len(scripted.asked)
            PointwiseJudge(scripted, [STYLE], journal=journal, **{**how, **other}).judge(ITEMS)
            assert len(scripted.asked) >= asked + 6


def test_the_leaves_of_a_tree_are_not_asked_again_for_other_weights(
    scripted: ScriptedEngine, tiny: Engine, tmp_path: Path
) -> None:
    with Journal(tmp_path / "j") as journal:
        TreeJudge(scripted, journal=journal, min_mass=0.0).judge(ITEMS)
        asked = len(scripted.scored)
        fewer = TreeJudge(scripted, without=["impression"], journal=journal, min_mass=0.0).judge(ITEMS)
    assert len(scripted.scored) == asked > 0
    assert fewer == TreeJudge(ScriptedEngine(tiny, thought), without=["impression"], min_mass=0.0).judge(ITEMS)


def test_another_least_mass_asks_nothing_where_one_answer_is_read(
    scripted: ScriptedEngine, tiny: Engine, tmp_path: Path
) -> None:
    how: Any = {"mode": "reasoned", "sampling": Sampling(max_tokens=9, temperature=0.7)}
    with Journal(tmp_path / "j") as journal:
        for asking in ({}, how):
            PointwiseJudge(scripted, [STYLE], journal=journal, min_mass=0.0, **asking).judge(ITEMS)
            asked = len(scripted.scored), len(scripted.asked)
            verdicts = PointwiseJudge(scripted, [STYLE], journal=journal, min_mass=1.0, **asking).judge(ITEMS)
            assert (len(scripted.scored), len(scripted.asked)) == asked
            assert [verdict.abstained for verdict in verdicts] == ["low_mass"] * 3


def test_what_decides_an_answer_is_asked_anew(scripted: ScriptedEngine, tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        PointwiseJudge(scripted, [STYLE], journal=journal, min_mass=0.0).judge(ITEMS)
        for others in (
            {"fingerprint": "other weights"},
            {"adapter": "another"},
            {"dtype": "bfloat16"},
        ):
            kept = {name: getattr(scripted, name) for name in others}
            for name, value in others.items():
                setattr(scripted, name, value)
            asked = len(scripted.scored)
            PointwiseJudge(scripted, [STYLE, WIT], journal=journal, min_mass=0.0).judge(ITEMS)
            assert len(scripted.scored) == asked + 6, others
            for name, value in kept.items():
                setattr(scripted, name, value)
        asked = len(scripted.scored)
        PointwiseJudge(scripted, [Aspect("style", "How is it told?")], journal=journal, min_mass=0.0).judge(ITEMS)
        assert len(scripted.scored) == asked + 3


def test_an_answer_that_does_not_last_is_asked_for_again(tiny: Engine, tmp_path: Path) -> None:
    late = {"Is it witty?"}

    def grade(prompt: str, labels: Any) -> Score:
        if any(words in prompt for words in late):
            return Score.abstained(labels.labels, "timeout", 9)
        return Score.of(labels.labels, [-1.0, -2.0, -3.0, -4.0, -5.0], labels.numbers, 9)

    engine = ScriptedEngine(tiny, thought, grade)
    with Journal(tmp_path / "j") as journal:
        judge = PointwiseJudge(engine, [STYLE, WIT], journal=journal, min_mass=0.0)
        assert [verdict.abstained for verdict in judge.judge(ITEMS)] == ["timeout"] * 3
        late.clear()
        assert [verdict.abstained for verdict in judge.judge(ITEMS)] == [None] * 3


def test_what_had_no_answer_for_want_of_context_is_asked_again_where_there_is_more(
    scripted: ScriptedEngine, tiny: Engine, tmp_path: Path
) -> None:
    how: Any = {"min_mass": 0.0, "cut": "never"}
    small = Engine("dummy:tiny-llama", kv_cache_gb=0.0005)
    assert small.fingerprint == tiny.fingerprint
    item = Item("Tell one.", "word ")
    while True:  # just too long
        [question], _ = PointwiseJudge(tiny, [STYLE], **how).ask(item)
        if len(tiny.tokenizer.prompt(question.prompt)) > small.max_prompt_tokens:
            break
        item = Item("Tell one.", item.response + "word word word ")
    with Journal(tmp_path / "j") as journal:
        [first] = PointwiseJudge(small, [STYLE], journal=journal, **how).judge([item])
        assert first.abstained == "too_long"
        [again] = PointwiseJudge(scripted, [STYLE], journal=journal, **how).judge([item])
    assert again.abstained is None and len(scripted.scored) == 1


def test_answers_that_are_damaged_are_told_and_not_taken(scripted: ScriptedEngine, tmp_path: Path) -> None:
    for damage in (
        "UPDATE answers SET answers = x'00'",
        "UPDATE questions SET name = 'of something else'",
    ):
        path = tmp_path / str(len(damage))
        with Journal(path) as journal:
            PointwiseJudge(scripted, [STYLE], journal=journal).judge(ITEMS)
            journal._db.execute(damage)
            with pytest.raises(AdjudgeError, match="is damaged .*: name another file"):
                PointwiseJudge(scripted, [STYLE, WIT], journal=journal).judge(ITEMS)
