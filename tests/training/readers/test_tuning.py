from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.rewards.judges.aspects import PERSE
from adjudge.rewards.judges.personal import PersonalJudge, PersonalPairJudge
from adjudge.training.attrition import Count
from adjudge.training.prompts import asked, read_prompts
from adjudge.training.readers.grouping import Rules, group_choices, group_reviews
from adjudge.training.readers.questions import RatingQuestion, read_questions
from adjudge.training.readers.reviews import PlotChoice, PlotReview
from adjudge.training.readers.tuning import TuningRow, tuning_rows
from adjudge.training.recipe import Data
from adjudge.training.stages import write_stage
from tests.jsonl import write_lines
from tests.rewards.scripted import ScriptedEngine

REVIEWS = [
    PlotReview(f"{reader}{n}", reader, f"Plot {n} for {reader}.", f"Words of {reader} on {n}.", 1 + n)
    for reader in ("ann", "bob")
    for n in range(6)
]
CHOICES = [
    PlotChoice(f"c{n}", "ann", f"One {n}.", f"Two {n}.", aspect, "b")
    for n, aspect in enumerate(("ending", "ending", "surprise", "surprise"))
]


def ratings(**rules: Any) -> Any:
    return group_reviews(REVIEWS, Rules.ratings(**{"n": 4, "test": 0.0, **rules})).questions


def chat(engine: Engine, row: TuningRow, answer: str = "") -> str:
    messages = [
        Message("system", Prompt.template("{x}", x=row.system)),
        Message("user", Prompt.template("{x}", x=row.prompt)),
    ]
    return engine.tokenizer.decode(engine.tokenizer.prompt(engine.chat(messages, answer)))


@pytest.mark.parametrize("k", [3, 1, 0])
def test_a_row_is_the_judges_own_question_and_an_answer_that_it_reads(tiny: Engine, k: int) -> None:
    questions = ratings()
    rows = {row.id: row for row in tuning_rows(questions, k=k).rows}
    assert len(rows) == 8
    responses = {chat(tiny, row): row.response for row in rows.values()}
    engine = ScriptedEngine(tiny, lambda shown, before: responses[shown])  # KeyError for a question of other words
    judge = PersonalJudge(engine, k=k, mode="reasoned", min_mass=0.0)
    for question, verdict in zip(questions, judge.judge([question.item for question in questions]), strict=True):
        assert verdict.abstained is None and verdict.analysis is not None
        [text] = verdict.analysis["rating"]
        assert text == f"{question.review}\n<ANSWER> {question.score:g} </ANSWER>"
    assert len(engine.asked) == 8


def test_the_trainer_asks_with_the_rows_own_system_message(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_stage(path, (rows := tuning_rows(ratings()).rows))
    data = Data(train=str(path), held_out=2)
    read = read_prompts(data)
    assert (len(read.train), len(read.held_out)) == (4, 4)  # the last reader's, all of them
    assert asked(read.train[0], data) == [
        {"role": "system", "content": rows[0].system},
        {"role": "user", "content": rows[0].prompt},
    ]


def test_texts_of_earlier_reviews_can_be_left_out(tiny: Engine) -> None:
    [row, *_] = tuning_rows(ratings(), texts=False).rows
    assert "Words of" not in row.prompt and "rated earlier plot 3" in row.prompt and "Words of" in row.response


def test_a_choice_has_a_row_in_each_order_in_the_words_of_the_direct_judge(tiny: Engine) -> None:
    questions = group_choices(CHOICES, Rules.choices(test=0.0)).questions
    rows = tuning_rows(questions).rows
    assert len(questions) == 4 and len(rows) == 8
    endings = [aspect for aspect in PERSE if aspect.name == "ending"]
    judge = PersonalPairJudge(tiny, endings)
    for question in questions:
        if question.aspect == "surprise":
            continue
        for order, said, own in zip(("ab", "ba"), (2, 1), judge.ask(question.pair)[0], strict=True):
            [row] = [row for row in rows if row.id == f"{question.pair.id} {order}"]
            slot, label, end = row.response.partition(f"{said} </ANSWER>")
            assert (label, end) == (f"{said} </ANSWER>", "")
            assert chat(tiny, row, slot) == tiny.tokenizer.decode(tiny.tokenizer.prompt(own.prompt))
    only = tuning_rows(questions, aspects=endings)
    assert len(only.rows) == 4 and Count.of(only.stages[1]).reasons == {"other_aspect": 2}


def test_what_cannot_be_learnt_is_dropped_and_counted() -> None:
    first, second, third, fourth, *rest = ratings()
    changed = [
        msgspec.structs.replace(first, review=" "),
        msgspec.structs.replace(second, review="Ten! <ANSWER> 10 </ANSWER>"),
        msgspec.structs.replace(third, score=7.5),
        msgspec.structs.replace(fourth, split="test"),
        *rest,
    ]
    made = tuning_rows(changed)
    assert [Count.of(stage) for stage in made.stages] == [
        Count("split", 8, 7, {"in_test": 1}),
        Count("answers", 7, 4, {"no_review": 1, "tag_in_review": 1, "score_not_whole": 1}),
    ]
    assert len(made.rows) == 4
    with pytest.raises(AdjudgeError, match=r"no question is left to tune on \(in_train\): take another side"):
        tuning_rows(rest, split="test")
    with pytest.raises(AdjudgeError, match="k is 4, but no question has more than 3"):
        tuning_rows(rest, k=4)


def test_questions_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    for questions in (ratings(), group_choices(CHOICES, Rules.choices(test=0.0)).questions):
        write_stage(path, (question.record for question in questions))
        assert read_questions(path) == list(questions)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"reviews": []}, 'the reviewer "ann" has no "reviews"'),
        ({"reviews": [{"plot": "P.", "review": "R.", "score": 11}]}, "review 1 has the score 11"),
        ({"expected": 0.5}, '"expected" is 0.5: give a score from 1 to 10'),
        ({"expected": 10**400}, '"expected" is 10+: give a score from 1 to 10'),
        ({"expected": None}, '"expected" is missing'),
        ({"split": "test", "id": "x"}, '"ann" is in test, but in train before'),
        ({}, "is that of line 1"),
    ],
)
def test_bad_questions_are_refused_by_line(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    path = tmp_path / "q.jsonl"
    question = ratings()[0]
    assert isinstance(question, RatingQuestion) and question.reviewer == "ann"
    path.write_text(
        json.dumps(question.record)
        + "\n"
        + json.dumps({**question.record, **(changed and {"id": "y"}), **changed})
        + "\n"
    )
    with pytest.raises(AdjudgeError, match=f"line 2 .*{reason}"):
        read_questions(path)


def test_reviews_that_are_not_grouped_yet_are_told_from_questions(tmp_path: Path) -> None:
    rated = {"reviewer": "Ana", "plot": "p", "review": "r", "score": 7}
    chosen = {"reviewer": "Ana", "a": "p", "b": "q", "aspect": "wit", "preferred": "a"}
    for review in (rated, chosen):
        path = write_lines(tmp_path / "reviews.jsonl", review)
        with pytest.raises(AdjudgeError, match=rf"these are reviews, .*: first `adjudge readers group {path} -o"):
            read_questions(path)
