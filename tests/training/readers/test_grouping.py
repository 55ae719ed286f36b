from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import PERSE
from adjudge.training.attrition import Count
from adjudge.training.readers.grouping import Rules, group_choices, group_reviews
from adjudge.training.readers.questions import ChoiceQuestion, RatingQuestion, words_of_messages
from adjudge.training.readers.reviews import PlotChoice, PlotReview, read_reviews
from tests.jsonl import write_lines

WORDS = "The lamp went out and nobody came home to light it again before the long winter was over"


def reviews(**counts: int) -> list[PlotReview]:
    return [
        PlotReview(f"{reader}{n}", reader, f"Plot {n}.", f"Words of {reader} on {n}.", 1 + n % 10)
        for reader, count in counts.items()
        for n in range(count)
    ]


def choices(reader: str, *told: tuple[int, str, str]) -> list[PlotChoice]:
    return [
        PlotChoice(f"{reader}{n}", reader, f"One {pair}.", f"Two {pair}.", aspect, preferred)  # type: ignore[arg-type]
        for n, (pair, aspect, preferred) in enumerate(told)
    ]


def counts(grouped: Any) -> list[Count]:
    return [Count.of(stage) for stage in grouped.stages]


def test_readers_with_too_few_reviews_and_plots_reviewed_twice_are_dropped_and_counted() -> None:
    twice = PlotReview("again", "ann", "Plot 0.", "Better now.", 9)
    grouped = group_reviews([*reviews(ann=6, bob=5, eve=7), twice], Rules.ratings())
    assert counts(grouped) == [Count("repeats", 19, 18, {"same_plot": 1}), Count("readers", 18, 13, {"few_reviews": 5})]
    assert Counter(question.reviewer for question in grouped.questions) == {"ann": 10, "eve": 10}
    assert grouped.stages[0].dropped[0].record["id"] == "again"
    assert grouped.readers == {"train": 1, "test": 1}


def test_a_question_never_shows_its_own_plot_and_no_two_are_the_same() -> None:
    questions = group_reviews(reviews(ann=8), Rules.ratings(n=40)).questions
    shown = set()
    for question in questions:
        assert isinstance(question, RatingQuestion)
        plots = [old.plot for old in question.item.reviews]
        assert len(set(plots)) == 3 and question.item.response not in plots
        shown.add((question.item.response, frozenset(plots)))
    assert len(shown) == len(questions) == 40
    assert len({question.record["id"] for question in questions}) == 40


def test_there_are_no_more_questions_than_there_can_be() -> None:
    assert len(group_reviews(reviews(ann=4), Rules.ratings(least=4)).questions) == 4
    both = choices("ann", (0, "ending", "a"), (1, "ending", "b"))
    assert len(group_choices(both, Rules.choices()).questions) == 2


def test_a_choice_that_can_be_asked_about_no_more_leaves_its_turns_to_others() -> None:
    told = choices("ann", *((n, "surprise" if n < 2 else "ending", "ab"[n % 2]) for n in range(8)))
    questions = group_choices(told, Rules.choices(n=30)).questions
    assert len(questions) == 30 and Counter(question.aspect for question in questions)["surprise"] == 2


def test_the_same_reviews_and_seed_give_the_same_questions_in_whatever_company() -> None:
    alone = group_reviews(reviews(ann=6), Rules.ratings(test=0.0)).questions
    beside = group_reviews(reviews(bob=9, ann=6), Rules.ratings(test=0.0)).questions
    assert list(alone) == [question for question in beside if question.reviewer == "ann"]
    other = group_reviews(reviews(ann=6), Rules.ratings(test=0.0, seed=1)).questions
    assert list(alone) != list(other)


def test_every_reader_is_on_one_side_and_a_given_split_holds() -> None:
    names = {f"r{n}": 6 for n in range(20)}
    grouped = group_reviews(reviews(**names), Rules.ratings(n=2, test=0.2))
    sides = {(question.reviewer, question.split) for question in grouped.questions}
    assert len(sides) == 20 and grouped.readers == {"train": 16, "test": 4}
    given = [
        PlotReview(one.id, one.reviewer, one.plot, one.review, one.score, "valid" if one.reviewer == "ann" else "train")
        for one in reviews(ann=6, bob=6)
    ]
    assert group_reviews(given, Rules.ratings()).readers == {"valid": 1, "train": 1}


def test_answers_that_prefer_neither_are_dropped_and_priors_are_of_other_plots_and_the_same_aspect() -> None:
    told = [
        *choices("ann", (0, "ending", "a"), (1, "ending", "b"), (2, "ending", "both"), (0, "surprise", "b")),
        *choices("bob", (0, "ending", "a"), (1, "ending", "neither")),
        PlotChoice("swapped", "ann", "Two 0.", "One 0.", "ending", "b"),
    ]
    grouped = group_choices(told, Rules.choices())
    assert counts(grouped) == [
        Count("answers", 7, 5, {"both": 1, "neither": 1}),
        Count("repeats", 5, 4, {"same_plots": 1}),
        Count("readers", 4, 3, {"few_reviews": 1}),
        Count("aspects", 3, 2, {"few_on_aspect": 1}),
    ]
    for question in grouped.questions:
        assert isinstance(question, ChoiceQuestion)
        [old] = question.pair.reviews
        assert (old.aspect, question.aspect) == ("ending", "ending") and old.a != question.pair.a
    assert {question.record["expected"] for question in grouped.questions} == {"a", "b"}


def test_a_prompt_over_the_budget_has_its_longest_texts_shortened_to_one_length() -> None:
    long = [
        PlotReview(f"{n}", "ann", f"Plot {n} begins. " + WORDS * (n + 1) + f" Plot {n} ends.", "Short.", 5)
        for n in range(6)
    ]
    free = group_reviews(long, Rules.ratings(n=4)).questions
    [*_, question] = group_reviews(long, Rules.ratings(n=4, budget=300)).questions
    assert isinstance(question, RatingQuestion) and question.shortened
    words = words_of_messages(question.messages(3))
    assert (
        290 <= words <= 300 < max(words_of_messages(one.messages(3)) for one in free if isinstance(one, RatingQuestion))
    )
    cut = [text for text in question.texts() if "…" in text]
    assert len(cut) == question.shortened and all(text.startswith("Plot") and text.endswith("ends.") for text in cut)
    assert all(old.review == "Short." for old in question.item.reviews)
    with pytest.raises(AdjudgeError, match="no room for 7 texts"):
        group_reviews(long, Rules.ratings(budget=200))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"k": 6}, "k is 6"), ({"k": 3, "least": 3}, "least is 3"), ({"n": 0}, "n is 0"), ({"test": 1.0}, "share")],
)
def test_rules_that_make_no_sense_are_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        Rules.ratings(**changed)


REVIEW = {"reviewer": "ann", "plot": "P.", "review": "R.", "score": 7}
CHOICE = {"reviewer": "ann", "a": "P.", "b": "Q.", "aspect": "Ending", "preferred": "A"}


def read(path: Path, *rows: dict[str, Any]) -> Any:
    write_lines(path, *rows)
    return read_reviews(path, PERSE)


def test_reviews_and_choices_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    assert read(path, {**REVIEW, "id": "x", "reviewer": 7, "review": None, "score": "8.5"}) == [
        PlotReview("x", "7", "P.", "", 8.5)
    ]
    assert read(path, CHOICE) == [PlotChoice("1", "ann", "P.", "Q.", "ending", "a")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**REVIEW, "score": 11}, 'line 2 .*"score" is 11: give a score from 1 to 10'),
        ({**REVIEW, "score": 0}, '"score" is 0'),
        ({**REVIEW, "score": True}, '"score" is True'),
        ({**REVIEW, "score": float("nan")}, '"score" is'),
        ({**REVIEW, "score": "good"}, '"score" is good'),
        ({**REVIEW, "score": "7,5"}, '"score" is 7,5: give a score from 1 to 10, with a point for the comma'),
        ({**REVIEW, "score": 10**400}, 'line 2 .*"score" is 10+: give a score from 1 to 10'),
        ({**REVIEW, "reviewer": " "}, '"reviewer" is empty'),
        ({**REVIEW, "reviewer": None}, '"reviewer" is missing'),
        ({**REVIEW, "plot": ""}, '"plot" is empty'),
        ({**REVIEW, "id": "first"}, 'its id "first" is that of line 1'),
        ({**REVIEW, "id": "2", "split": "dev"}, '"split" is "dev"'),
        ({**REVIEW, "split": "test"}, 'line 1 .*"split" is missing'),
        (CHOICE, '"plot" is missing'),
    ],
)
def test_bad_reviews_are_refused_by_line(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        read(tmp_path / "r.jsonl", {**REVIEW, "id": "first"}, row)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**CHOICE, "aspect": "pace"}, '"pace" is none of adaptability'),
        ({**CHOICE, "preferred": "c"}, '"preferred" is "c"'),
        ({**CHOICE, "b": "P."}, "the same plot"),
    ],
)
def test_bad_choices_are_refused_by_line(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=f"line 2 .*{reason}"):
        read(tmp_path / "r.jsonl", CHOICE, row)


def test_a_reviewer_on_both_sides_of_a_split_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match='line 2 .*"ann" is in test, but in train at line 1'):
        read(tmp_path / "r.jsonl", {**REVIEW, "split": "train"}, {**REVIEW, "split": "test"})


def test_however_many_readers_are_unseen_one_is_learnt_from() -> None:
    reviews = [
        PlotReview(f"{n}", reader, f"Plot {n}.", "Good.", 5) for reader in ("ann", "bob", "cy") for n in range(6)
    ]
    assert group_reviews(reviews, Rules.ratings(test=0.9)).readers == {"train": 1, "test": 2}
    assert group_reviews(reviews[:6], Rules.ratings(test=0.9)).readers == {"train": 1}
