from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import Aspect
from adjudge.training.evolve.rationale import Rationale
from adjudge.training.evolve.seeds import Rated, read_stories, sample_questions
from tests.jsonl import write_lines

WIT = Aspect("wit", "Is it funny?")


def stories(*scores: int | tuple[int, ...]) -> list[Rated]:
    return [
        Rated(f"s{number}", "A prompt.", f"Story {number}.", {"wit": score if isinstance(score, tuple) else (score,)})
        for number, score in enumerate(scores)
    ]


def scores(questions: list[Rationale]) -> Counter[tuple[int, ...]]:
    return Counter(tuple(story.score for story in one.stories) for one in questions)


def test_every_combination_of_scores_is_drawn_equally_often_and_in_both_orders() -> None:
    questions, [strata] = sample_questions(stories(*[1] * 20, 3, 3, 3, *[5] * 4), [WIT], each=3)
    counts = scores(questions)
    assert counts == {(1, 1): 6, (1, 3): 3, (3, 1): 3, (1, 5): 3, (5, 1): 3, (3, 3): 6, (3, 5): 3, (5, 3): 3, (5, 5): 6}
    assert strata.taken == dict.fromkeys([(1, 1), (1, 3), (1, 5), (3, 3), (3, 5), (5, 5)], 3)
    assert strata.available[1, 1] == 190 and strata.available[3, 5] == 12 and strata.available[3, 3] == 3
    shown = {tuple(story.id for story in one.stories) for one in questions}
    assert len(shown) == len(questions) == len({one.id for one in questions})
    assert all((b, a) in shown and a != b for a, b in shown)


def test_a_combination_with_fewer_pairs_gives_all_it_has() -> None:
    questions, [strata] = sample_questions(stories(2, 2, 4), [WIT], each=10)
    assert scores(questions) == {(2, 2): 2, (2, 4): 2, (4, 2): 2}
    assert strata.taken == {(2, 2): 1, (2, 4): 2, (4, 4): 0} == strata.available


def test_single_stories_are_drawn_equally_from_each_score() -> None:
    questions, _ = sample_questions(stories(*[1] * 9, 4, 4, 5), [WIT], each=2, pointwise=True)
    assert scores(questions) == {(1,): 2, (4,): 2, (5,): 1}


def test_the_same_seed_draws_the_same_and_another_seed_others() -> None:
    many = stories(*[1, 2, 3, 4, 5] * 8)
    first, again, other = (sample_questions(many, [WIT], each=2, seed=seed)[0] for seed in (0, 0, 1))
    assert first == again != other


def test_an_aspect_draws_the_same_whatever_else_is_drawn() -> None:
    many = [
        Rated(one.id, one.prompt, one.story, {**one.scores, "plot": (3 if one.scores["wit"] == (1,) else 2,)})
        for one in stories(*[1, 2] * 8)
    ]
    alone, _ = sample_questions(many, [WIT], each=2)
    both, _ = sample_questions(many, [Aspect("plot", "?"), WIT], each=2)
    assert [one for one in both if one.aspect == WIT] == alone


def test_with_several_raters_a_story_is_never_paired_with_itself() -> None:
    questions, [strata] = sample_questions(stories((1, 2), (1, 2)), [WIT], each=9)
    assert all(a.id != b.id for a, b in (one.stories for one in questions))
    assert scores(questions) == {(1, 1): 2, (1, 2): 2, (2, 1): 2, (2, 2): 2}
    assert strata.available == {(1, 1): 1, (1, 2): 2, (2, 2): 1}


def test_one_class_only_and_no_class_at_all_are_refused() -> None:
    with pytest.raises(AdjudgeError, match='every story has the score 3 on "wit"'):
        sample_questions(stories(3, 3, 3), [WIT], each=1)
    with pytest.raises(AdjudgeError, match=r'no story has a score on "plot": choose --aspects .*\(wit\)'):
        sample_questions(stories(3, 4), [Aspect("plot", "?")], each=1)


def test_hannas_ratings_and_plain_scores_are_read(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "stories.jsonl",
        {"story_id": 7, "prompt": "p", "story": "s", "ratings": {"Wit": [5, 4, 4], "Plot": [1, 2]}},
        {"id": "x", "prompt": "p", "story": "s", "scores": {"wit": 2, "plot": 2.5, "style": None}},
        {"prompt": "p", "story": "s", "scores": {"wit": 3.0}},
    )
    assert [(one.id, one.scores) for one in read_stories(path)] == [
        ("7", {"wit": (4,), "plot": (1,)}),  # of two labels equally near the lower
        ("x", {"wit": (2,), "plot": (2,)}),
        ("3", {"wit": (3,)}),
    ]
    for scores in ([5, 4, 4], ["5", 4.0, " 4"]):
        path = write_lines(path, {"id": 1, "prompt": "p", "story": "s", "ratings": {"Wit": scores}})
        assert read_stories(path, "each")[0].scores == {"wit": (5, 4, 4)}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"scores": {"wit": 6}}, 'line 1 .*"scores wit" is 6, not a number from 1 to 5'),
        ({"scores": {"wit": [3, 0]}}, "is 0, not a number"),
        ({"scores": {"wit": "three"}}, 'is "three", not a number'),
        ({"scores": {"wit": "6"}}, 'is "6", not a number'),
        ({"scores": {"wit": True}}, "is true, not a number"),
        ({"scores": {"wit": float("nan")}}, "is NaN, not a number"),
        ({"scores": {}}, "no object from aspects"),
        ({"scores": [1]}, "no object from aspects"),
        ({}, "no object from aspects"),
        ({"story": None, "scores": {"wit": 3}}, '"story" is missing'),
    ],
)
def test_stories_that_cannot_be_used_are_refused_by_line(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    path = write_lines(tmp_path / "stories.jsonl", {"id": 1, "prompt": "p", "story": "s", **row})
    with pytest.raises(AdjudgeError, match=problem):
        read_stories(path)


@pytest.mark.parametrize("name", ["id", "story_id"])
def test_an_id_that_comes_twice_is_refused(tmp_path: Path, name: str) -> None:
    path = write_lines(tmp_path / "stories.jsonl", *[{name: 4, "prompt": "p", "story": "s", "scores": {"wit": 3}}] * 2)
    with pytest.raises(AdjudgeError, match='"4"'):
        read_stories(path)
