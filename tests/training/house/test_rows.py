from __future__ import annotations

from statistics import fmean

import pytest

from adjudge.training.house.recipe import ASPECTS, Excerpts
from adjudge.training.house.rows import BEST, rows_of, split
from adjudge.training.house.texts import Story
from tests.training.house.stories import own_stories

STORIES = own_stories()
NAMES = {aspect.name for aspect in ASPECTS}


def left(score: float) -> float:
    return (score - 1) / (BEST - 1)


def test_rows_are_the_same_whenever_they_are_asked_for_and_others_with_another_seed() -> None:
    rows = [rows_of(STORIES, 40, Excerpts(), ASPECTS, seed).fingerprint for seed in ("0", "0", "1")]
    assert rows[0] == rows[1] != rows[2]


def test_a_row_says_what_it_asks_and_what_the_answer_is() -> None:
    rows = rows_of(STORIES, 300, Excerpts(asked=2), ASPECTS, "0")
    assert len(rows.single) + len(rows.pairs) == 300 and 20 < len(rows.pairs) < 80
    for row in rows.single:
        scores = row.columns["scores"]
        assert set(scores) <= NAMES and len(scores) == 2
        assert all(1 <= one <= 5 for given in scores.values() for one in given)
    for row in rows.pairs:
        assert set(row.columns["scores_a"]) == set(row.columns["scores_b"])
        assert {"story_a", "story_b"} <= set(row.columns)


def test_a_text_as_its_author_left_it_has_the_best_score_and_one_to_buy_a_score_the_lowest() -> None:
    untouched = rows_of(STORIES, 200, Excerpts(pairs=0, hostile=0), ASPECTS, "0")
    best = [row for row in untouched.single if all(given[1] == BEST for given in row.columns["scores"].values())]
    sentences = {sentence for story in STORIES for sentence in story.sentences}
    whole = [row for row in best if any(row.columns["response"].startswith(sentence) for sentence in sentences)]
    assert len(whole) > 20
    hostile = rows_of(STORIES, 50, Excerpts(pairs=0, hostile=1), ASPECTS, "0")
    assert all(given[1] == 1 for row in hostile.single for given in row.columns["scores"].values())


def test_steps_down_cost_what_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from adjudge.training.house import rows as module

    monkeypatch.setattr(module, "STEPS", (3,))
    monkeypatch.setattr(module, "DISTURBANCES", {"order": module.DISTURBANCES["order"]})
    found = rows_of(STORIES, 100, Excerpts(pairs=0, hostile=0, asked=11), ASPECTS, "0")
    coherence = [left(row.columns["scores"]["coherence"][1]) for row in found.single]
    known = [share * prompt for share in (0.6**3, 0.6**2, 0.6, 1) for prompt in (1, 0.88)]
    assert all(min(abs(one - share) for share in known) < 2e-3 for one in coherence)
    assert fmean(coherence) < 0.3


def test_length_by_itself_earns_nothing() -> None:
    rows = rows_of(STORIES, 1500, Excerpts(pairs=0, hostile=0), ASPECTS, "0").single
    whole = [row for row in rows if all(given[1] == BEST for given in row.columns["scores"].values())]
    lengths = sorted(len(row.columns["response"].split()) for row in whole)
    assert lengths[0] < 25 and lengths[-1] > 120


def test_an_ending_is_asked_about_where_there_is_one() -> None:
    story = Story("p", tuple(f"Number {n} came by and said so." for n in range(60)), (" ",) * 60, "s")
    other = Story("q", tuple(f"The {n} went away again." for n in range(60)), (" ",) * 60, "s")
    rows = rows_of([story, other], 300, Excerpts(pairs=0, hostile=0, asked=20), ASPECTS, "0")
    for row in rows.single:
        if "ending" in row.columns["scores"] and row.columns["scores"]["ending"][1] == BEST:
            assert "59" in row.columns["response"]


def test_no_prompt_is_on_both_sides() -> None:
    train, held_out = split(STORIES, 0.2, 0)
    assert train and held_out and not {one.prompt for one in train} & {one.prompt for one in held_out}
    assert len(train) + len(held_out) == len(STORIES)
    assert [one.prompt for one in split(STORIES, 0.2, 1)[1]] != [one.prompt for one in held_out]
