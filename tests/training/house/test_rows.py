from __future__ import annotations

from statistics import fmean
from typing import Any

import msgspec
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.training.house import rows as module
from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.recipe import ASPECTS, Excerpts
from adjudge.training.house.rows import BEST, NO_STORY, parted, rows_of, split
from adjudge.training.house.texts import Beside, Scored, Story
from tests.training.house.stories import own_stories

STORIES = tuple(msgspec.structs.replace(story, beside=Beside()) for story in own_stories()[::8])
NAMES = {aspect.name for aspect in ASPECTS}


def left(score: float) -> float:
    return (score - 1) / (BEST - 1)


def test_rows_are_the_same_whenever_they_are_asked_for_and_others_with_another_seed() -> None:
    rows = [rows_of(STORIES, 40, Excerpts(), ASPECTS, seed).fingerprint for seed in ("0", "0", "1")]
    assert rows[0] == rows[1] != rows[2]


def test_a_row_says_what_it_asks_and_what_the_answer_is() -> None:
    rows = rows_of(STORIES, 200, Excerpts(asked=2), ASPECTS, "0")
    assert len(rows.single) / 2 + len(rows.pairs) == 200 and 15 < len(rows.pairs) < 60
    for row in rows.single:
        scores = row.columns["scores"]
        assert set(scores) <= NAMES and len(scores) == 2
        assert all(1 <= one <= 5 for given in scores.values() for one in given)
    for row in rows.pairs:
        assert set(row.columns["scores_a"]) == set(row.columns["scores_b"])
        assert {"story_a", "story_b"} <= set(row.columns)


def test_the_versions_of_an_excerpt_are_learnt_together_and_the_second_is_the_worse() -> None:
    rows = rows_of(STORIES, 200, Excerpts(pairs=0), ASPECTS, "0").single
    lower = 0
    for better, worse in zip(rows[::2], rows[1::2], strict=True):
        assert better.columns["together"] == worse.columns["together"]
        assert set(better.columns["scores"]) == set(worse.columns["scores"])
        for name, given in worse.columns["scores"].items():
            assert given[1] <= better.columns["scores"][name][1]
            lower += given[1] < better.columns["scores"][name][1]
    assert lower > 190


def test_only_steps_of_texts_that_stand_in_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEGINNING", (0,))
    monkeypatch.setattr(module, "FURTHER", (1,))
    rows = rows_of(STORIES, 200, Excerpts(pairs=1, hostile=0), ASPECTS, "0")  # where some take the worse one of another
    assert 150 < sum(rows.done.values()) <= len(rows.pairs) == 200


def test_a_text_as_its_author_left_it_has_the_best_score_and_one_to_buy_a_score_the_lowest() -> None:
    untouched = rows_of(STORIES, 100, Excerpts(pairs=0, hostile=0), ASPECTS, "0").single[::2]
    best = [row for row in untouched if all(given[1] == BEST for given in row.columns["scores"].values())]
    assert 40 < len(best) < 80
    hostile = rows_of(STORIES, 50, Excerpts(pairs=0, hostile=1), ASPECTS, "0").single[1::2]
    assert all(given[1] == 1 for row in hostile for given in row.columns["scores"].values())


def test_what_is_no_story_stands_in_the_place_of_one_and_has_the_lowest_score() -> None:
    others = [f"Report {n}: rain, and more of it." for n in range(9)]
    rows = rows_of(STORIES, 60, Excerpts(pairs=0, no_story=0.5), ASPECTS, "0", others)
    told = [pair for pair in zip(rows.single[::2], rows.single[1::2], strict=True) if _is_report(pair[1].columns)]
    assert 20 < len(told) == rows.done[NO_STORY] < 40 and len({row.columns["response"] for _, row in told}) > 6
    for story, other in told:
        assert story.columns["prompt"] == other.columns["prompt"] and not _is_report(story.columns)
        assert all(given[1] == BEST for given in story.columns["scores"].values())
        assert all(given[1] == 1 for given in other.columns["scores"].values())
    without = [rows_of(STORIES, 60, Excerpts(pairs=0, no_story=share), ASPECTS, "0").fingerprint for share in (0, 1)]
    assert without[0] == without[1]  # a side that has none has its steps down


def _is_report(columns: dict[str, Any]) -> bool:
    return str(columns["response"]).lower().startswith("report ")


def test_either_side_of_a_split_has_something_where_there_are_two() -> None:
    for count, share, least in ((2, 0.01, (1, 1)), (9, 0.01, (8, 1)), (9, 0.99, (1, 8)), (9, 0.0, (9, 0))):
        sides = parted(range(count), [f"p{n}" for n in range(count)], share)
        assert tuple(map(len, sides)) == least and sorted([*sides[0], *sides[1]]) == list(range(count))
    assert parted([1], ["p"], 0.0) == ([1], []) and parted([1], ["p"], 0.5) == ([], [1])


def test_the_better_of_a_pair_stands_first_half_of_the_time() -> None:
    rows = rows_of(STORIES, 200, Excerpts(pairs=1), ASPECTS, "0").pairs
    first = [
        one.columns["scores_a"][name][1] > given[1]
        for one in rows
        for name, given in one.columns["scores_b"].items()
        if one.columns["scores_a"][name][1] != given[1]
    ]
    assert 0.4 < fmean(first) < 0.6


def test_steps_down_cost_what_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEGINNING", (1,))
    monkeypatch.setattr(module, "FURTHER", (2,))
    monkeypatch.setattr(module, "OFTEN", ("order",))
    cost = DISTURBANCES["order"].cost("coherence")
    found = rows_of(STORIES, 60, Excerpts(pairs=0, hostile=0, asked=11), ASPECTS, "0").single
    for number, row in enumerate(found):
        share = left(row.columns["scores"]["coherence"][1])
        assert min(abs(share - (1 - cost) ** steps) for steps in (range(2) if number % 2 == 0 else range(4))) < 2e-3
    assert fmean(left(row.columns["scores"]["coherence"][1]) for row in found[1::2]) < 0.3


def test_a_step_is_drawn_as_often_again_as_a_recipe_names_it() -> None:
    done = [
        rows_of(STORIES, 300, Excerpts(pairs=0, hostile=0, often=("bland",) * times), ASPECTS, "0").done["bland"]
        for times in (0, 30)
    ]
    assert 0 < 5 * done[0] < done[1]
    with pytest.raises(AdjudgeError, match='a step of often goes by "sad": choose order'):
        rows_of(STORIES, 1, Excerpts(often=("sad",)), ASPECTS, "0")


def test_texts_of_every_length_have_the_best_score() -> None:
    rows = rows_of(STORIES, 400, Excerpts(pairs=0, hostile=0), ASPECTS, "0").single
    whole = [row for row in rows if all(given[1] == BEST for given in row.columns["scores"].values())]
    lengths = sorted(len(row.columns["response"].split()) for row in whole)
    assert lengths[0] < 30 and lengths[-1] > 120


def test_an_ending_is_asked_about_where_there_is_one() -> None:
    story = Story(0, "p", tuple(f"Number {n} came by and said so." for n in range(20)), (" ",) * 20)
    other = Story(1, "q", tuple(f"The {n} went away again." for n in range(20)), (" ",) * 20)
    rows = rows_of([story, other], 300, Excerpts(pairs=0, hostile=0, asked=20), ASPECTS, "0").single
    best = [row.columns["response"] for row in rows if row.columns["scores"].get("ending", (0, 0))[1] == BEST]
    assert best and all("19" in response for response in best)


def test_worse_tellings_come_beside_their_text_and_cost_what_their_kind_costs() -> None:
    told = Story(
        0, "p", ("It rained.", "She ran home.", "It was dry there."), (" ",) * 3, Beside({"drift": "It rained. A cat."})
    )
    rows = rows_of([told], 200, Excerpts(pairs=0.3), ASPECTS, "0")
    beside = [row.columns for row in rows.single if len(row.columns["response"]) < 20 and row.columns["prompt"] in "pP"]
    drifted = [one for one in beside if one["response"].lower().startswith("it rained") and one["id"].endswith("b")]
    assert len(drifted) > 40
    for columns in drifted:
        [(aspect, given)] = columns["scores"].items()
        assert left(given[1]) == pytest.approx((1 - DISTURBANCES["drift"].cost(aspect)) ** 2, abs=1e-3)
    assert rows.done["drift, told so"] > 100
    with pytest.raises(AdjudgeError, match='goes by "sad": choose order'):
        rows_of(
            [Story(0, "p", ("One.", "Two.", "Three."), (" ",) * 3, Beside({"sad": "No."}))], 1, Excerpts(), ASPECTS, "0"
        )


def test_texts_that_a_teacher_scored_are_learnt_together_with_its_scores() -> None:
    scored = (Scored("A cat came.", 4.8), Scored("A dog went.", 2.0), Scored("It was it.", 1.2))
    story = Story(0, "p", ("One came by.", "Two went away.", "Three sat down."), (" ",) * 3, Beside(scored=scored))
    rows = rows_of([story, *STORIES[:5]], 200, Excerpts(pairs=0, scored=0.5), ASPECTS, "0")
    together: dict[str, list[dict[str, Any]]] = {}
    for row in rows.single:
        together.setdefault(row.columns["together"], []).append(row.columns)
    taught = [group for group in together.values() if len(group) == 3]
    assert len(together) == 200 and 70 < len(taught) < 130 and rows.done["scored by a teacher"] == 3 * len(taught)
    for group in taught:
        [asked] = {tuple(one["scores"]) for one in group}
        assert [one["scores"][asked[0]] for one in group] == [[4.4, 4.8, 5.0], [1.6, 2.0, 2.4], [1.0, 1.2, 1.6]]
        assert "cat" in group[0]["response"] and "dog" in group[1]["response"]
    assert len({name for group in taught for name in group[0]["scores"]}) == len(ASPECTS)
    assert "scored by a teacher" not in rows_of([story], 40, Excerpts(pairs=0), ASPECTS, "0").done
    some = rows_of([story, *STORIES[:5]], 200, Excerpts(pairs=0, scored=0.5, anchored=0.5), ASPECTS, "0")
    anchored = [row for row in some.single if row.columns.get("anchored")]
    assert some.done["judged as before"] == len(anchored) > 60 and some.done["scored by a teacher"] > 60
    assert {row.columns["together"] for row in anchored}.isdisjoint(
        row.columns["together"] for row in some.single if not row.columns.get("anchored")
    )


def test_a_text_is_not_called_worse_than_itself() -> None:
    story = Story(0, "p", ("One came by.", "Two went away.", "Three sat down."), (" ",) * 3)
    other = Story(1, "q", tuple(f"The {n} went away again." for n in range(9)), (" ",) * 9)
    rows = rows_of([story, other], 1500, Excerpts(pairs=0, hostile=0), ASPECTS, "0").single
    for better, worse in zip(rows[::2], rows[1::2], strict=True):
        if better.columns["response"] == worse.columns["response"]:
            assert better.columns["scores"] == worse.columns["scores"]


def test_no_text_is_shown_under_its_own_prompt_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An excerpt from the middle has its first sentence for a prompt, and its text's own would be the right one."""
    monkeypatch.setattr(module, "BEGINNING", (0,))  # no sentence of another text in the better version
    texts = [tuple(f"The {n} of {m} went away again." for n in range(9)) for m in range(6)]
    stories = [Story(m, "One prompt." if m else "Another.", text, (" ",) * 9) for m, text in enumerate(texts)]
    rows = rows_of(stories, 600, Excerpts(pairs=0, hostile=0.4), ASPECTS, "0").single
    others = [
        (better.columns["response"], worse.columns["prompt"].lower())
        for better, worse in zip(rows[::2], rows[1::2], strict=True)
        if better.columns["prompt"] != worse.columns["prompt"]
    ]
    assert len(others) > 60 and any(prompt.startswith("another") for _, prompt in others)
    for text, prompt in others:
        assert not prompt.startswith("another" if " of 0 " in text else "one prompt")


def test_what_takes_away_only_what_was_broken_is_no_step_down() -> None:
    story = Story(0, "p", ("One came by.", "Two went away.", "Three sat down.", "All slept."), (" ",) * 4)
    one, two, three, four = story.sentences
    assert module._mends([one, "Two not away.", three, four], [one, three, four], story)
    assert module._mends([one, two, two, four], [one, two, four], story)
    assert not module._mends([one, two, three, four], [one, two, four], story)
    assert not module._mends([one, two, three, four], [two, one, three, four], story)
    assert not module._mends([one, "Two not away.", three], [one, "Two not not away.", three], story)
    assert not module._mends([one, "Two not away.", three, four], [one, four], story)


def test_no_prompt_is_on_both_sides() -> None:
    train, held_out = split(STORIES, 0.2)
    assert train and held_out and not {one.prompt for one in train} & {one.prompt for one in held_out}
    assert len(train) + len(held_out) == len(STORIES)
    assert {one.prompt for one in split(STORIES, 0.1)[1]} <= {one.prompt for one in held_out}
    spaced = [msgspec.structs.replace(one, prompt=f" {one.prompt}  ") for one in STORIES]
    assert [one.prompt.strip() for one in split(spaced, 0.2)[1]] == [one.prompt for one in held_out]


def test_the_share_of_long_excerpts_is_of_texts_that_are_long_enough() -> None:
    short = [Story(n, f"p{n}", tuple(f"Number {m} of {n} sat down." for m in range(5)), (" ",) * 5) for n in range(30)]
    long = [Story(n, f"q{n}", tuple(f"Number {m} of {n} stood up." for m in range(30)), (" ",) * 30) for n in (30, 31)]
    how = Excerpts(pairs=0, hostile=0, shortest=3, longest=4, long=0.5, long_to=12)
    rows = rows_of([*short, *long], 400, how, ASPECTS, "0").single
    better = [row.columns["response"].lower() for row in rows[::2]]
    assert 150 < sum("stood up" in text and text.count("number") > 4 for text in better) < 250


def test_an_excerpt_may_be_made_worse_by_one_kind_of_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAME_SOURCE", 1)
    stories = [
        Story(n, f"p{n}", tuple(f"Number {m} of {n} sat down." for m in range(20)), (" ",) * 20, source=n % 2)
        for n in range(12)
    ]
    how = Excerpts(pairs=0, hostile=1, alone=1, often=("drift", "dropped"), shortest=5, longest=6, long_to=9)
    rows = rows_of(stories, 200, how, ASPECTS, "0")
    assert set(rows.done) == {"drift", "dropped"} and min(rows.done.values()) > 100
    sizes = [row.columns["response"].count(".") for row in rows.single[::2]]
    assert 0.5 < fmean(size > 6 for size in sizes) < 0.95
    for row in rows.single:
        told = {int(text.split(" of ")[1].split()[0]) % 2 for text in row.columns["response"].split(".")[:-1]}
        assert len(told) == 1
    with pytest.raises(AdjudgeError, match="name those"):
        Excerpts(alone=0.5)
    short = [msgspec.structs.replace(story, sentences=story.sentences[:5]) for story in stories]
    assert len(rows_of(short, 20, how, ASPECTS, "0").single) == 40


def test_an_excerpt_may_stand_under_another_prompt_and_be_otherwise_whole() -> None:
    how = Excerpts(pairs=0, alone=1, often=("other prompt",), shortest=5, longest=9, from_start=1, prompted=1)
    rows = rows_of(STORIES, 50, how, ASPECTS, "0")
    assert set(rows.done) == {"other prompt"}
    for better, worse in zip(rows.single[::2], rows.single[1::2], strict=True):
        assert better.columns["response"] == worse.columns["response"]
        assert better.columns["prompt"] != worse.columns["prompt"]
        ((_, was),), ((_, now),) = better.columns["scores"].items(), worse.columns["scores"].items()
        assert fmean(now) < fmean(was)
    with pytest.raises(AdjudgeError, match='a worse telling goes by "other prompt"'):
        beside = msgspec.structs.replace(STORIES[0], beside=Beside(worse={"other prompt": "Elsewhere."}))
        rows_of([beside, *STORIES[1:]], 1, how, ASPECTS, "0")


def test_a_row_says_of_each_sentence_where_it_ends_and_whether_that_is_its_place() -> None:
    author = tuple(f"Number {n} sat down." for n in range(12))
    stories = [
        Story(0, "p", author, ("\n",) * 12),
        Story(1, "q", tuple(f"The {n} left." for n in range(9)), (" ",) * 9),
    ]
    known = 0
    for row in rows_of(stories, 300, Excerpts(pairs=0, hostile=0.2), ASPECTS, "0").single:
        text, before = row.columns["response"], 0
        for end, _ in row.columns.get("places", ()):
            assert text[before:end].strip() and (end == len(text) or text[end].isspace())
            before = end
        assert before in (0, len(text))
        known += before > 0
    assert 400 < known < 600

    one, two, three, four = author[:4]
    for told, kept in (
        ((one, two, three, four), (True, True, True, True)),
        ((one, three, four), (True, False, True)),
        ((two, one, three, four), (False, False, False, True)),
        ((one, "Other.", three, four), (True, False, False, True)),
        ((one, two, two, three), (True, True, False, True)),
    ):
        assert module._in_place(told, author[:4]) == kept
