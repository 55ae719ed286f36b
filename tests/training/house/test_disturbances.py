from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.general import EXPLANATIONS, SUMMARIES
from adjudge.training.house.hostile import HOSTILE, with_verdict
from adjudge.training.house.recipe import ASPECTS, Excerpts
from adjudge.training.house.texts import Corpus, Story
from adjudge.training.house.typesetting import STYLES
from tests.training.house.stories import own_stories

STORIES = own_stories()[:60]
CORPUS = Corpus(STORIES)


@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_step_changes_most_stories_and_is_the_same_whenever_it_is_asked_for(name: str) -> None:
    step, done = DISTURBANCES[name].step, 0
    for number, story in enumerate(STORIES):
        before = list(story.sentences)
        first, again = (step(list(story.sentences), Random(number), CORPUS, story) for _ in range(2))
        assert first == again and before == list(story.sentences)
        done += first is not None and first != before and all(first)
    assert done >= 0.6 * len(STORIES)


@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_step_costs_every_aspect_something_and_none_all(name: str) -> None:
    assert all(0 < DISTURBANCES[name].cost(aspect.name) < 1 for aspect in ASPECTS)
    assert DISTURBANCES[name].cost("an aspect of one's own") > 0


@pytest.mark.parametrize("name", DISTURBANCES)
def test_steps_can_be_repeated_on_what_they_left(name: str) -> None:
    for number, story in enumerate(STORIES[:20]):
        sentences = list(story.sentences)
        for round in range(12):
            sentences = DISTURBANCES[name].step(sentences, Random(f"{number} {round}"), CORPUS, story) or sentences
        assert sentences


def test_a_story_that_drifts_off_stays_as_long_as_it_was() -> None:
    short = [Story(n, f"p{n}", tuple(f"Short {m} of {n}." for m in range(4)), (" ",) * 4) for n in range(10)]
    long = [Story(n, f"q{n}", tuple(f"Long {m} of {n}." for m in range(15)), (" ",) * 15) for n in range(10, 30)]
    corpus, lasts = Corpus([*short, *long]), set()
    for seed in range(200):
        drifted = DISTURBANCES["drift"].step(list(long[0].sentences), Random(seed), corpus, long[0])
        assert drifted is not None and len(drifted) == 15
        lasts.add(drifted[-1].split()[1])
    assert "14" in lasts  # the other story may be told to its end


def test_a_step_never_takes_back_another() -> None:
    for name in ("people", "contradiction"):
        for number, story in enumerate(STORIES):
            sentences, random = list(story.sentences), Random(number)
            for _ in range(6):
                before = sentences
                sentences = DISTURBANCES[name].step(sentences, random, CORPUS, story) or sentences
                for own, old, new in zip(story.sentences, before, sentences, strict=True):
                    assert new != own or old == own


def test_a_bland_story_says_the_same_in_general_words() -> None:
    story = Story(0, "", ("An owl saw an aunt in an oak.", "She muttered, and she threw a {stone}."), ("", " "))
    bland = DISTURBANCES["bland"].step(list(story.sentences), Random(0), CORPUS, story)
    assert bland == ["An owl saw a person in a plant.", "She said, and she put a {thing}."]
    assert DISTURBANCES["bland"].step(["It was so.", "And then it was not."], Random(0), CORPUS, story) is None


def test_a_summary_takes_the_place_of_scenes_and_an_explanation_stands_beside_them() -> None:
    for number, story in enumerate(STORIES):
        before = list(story.sentences)
        told = DISTURBANCES["summary"].step(before, Random(number), CORPUS, story) or []
        assert set(told) - set(before) <= set(SUMMARIES) and set(before) - set(told)
        explained = DISTURBANCES["explained"].step(before, Random(number), CORPUS, story) or []
        assert [one for one in explained if one not in EXPLANATIONS] == before and len(explained) > len(before)


def test_a_story_is_put_into_one_other_genre_only() -> None:
    story = STORIES[0]
    put = DISTURBANCES["transfer"].step(list(story.sentences), Random(0), CORPUS, story) or []
    assert len(put) == len(story.sentences) + 2
    assert all(sentence in line for sentence, line in zip(story.sentences, put[1:-1], strict=True))
    assert DISTURBANCES["transfer"].step(put, Random(1), CORPUS, story) is None


def test_strange_sentences_are_never_the_storys_own() -> None:
    story = STORIES[0]
    excerpt = Story(story.number, story.sentences[0], story.sentences[1:4], story.gaps[1:4])
    assert {CORPUS.text(Random(number), excerpt).number for number in range(600)} == set(range(1, len(STORIES)))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_no_sentence_of_the_story_alone(name: str) -> None:
    for number, story in enumerate(STORIES[:20]):
        text = HOSTILE[name](story, Random(number), CORPUS)
        assert text != " ".join(story.sentences)
        assert text == HOSTILE[name](story, Random(number), CORPUS)


def test_a_verdict_stands_before_or_after_the_whole_text() -> None:
    texts = [with_verdict("A story.", Random(number)) for number in range(40)]
    assert all("A story." in text and text != "A story." for text in texts)
    assert any(text.startswith("A story.") for text in texts) and any(text.endswith("A story.") for text in texts)


def test_styles_change_the_setting_and_no_word() -> None:
    text = 'Ana said, "I don\'t know Tomas." Then Ana left.'
    for name, (_, style) in STYLES.items():
        letters = "".join(filter(str.isalpha, style([text], Random(0))[0])).lower()
        if "without names" not in name:
            assert letters == "".join(filter(str.isalpha, text)).lower()
    spaced = STYLES["spaced in small letters"][1]([text], Random(0))
    assert spaced == ['ana said , " i do n\'t know tomas . " then ana left .']
    for seed in range(20):
        texts = ["We saw Ana, Bo and Cy. Ana left.", "We saw Ana. Ana left.", "So Ana left."]
        first, second, third = STYLES["the same without names"][1](texts, Random(seed))
        markers = re.findall(r"\[[A-Z]+\]", first)
        assert len(markers) == 4 and markers[0] == markers[3]
        assert second == f"we saw {markers[0]} . {markers[0]} left ." and third == f"so {markers[0]} left ."


def test_words_change_and_the_lines_of_a_sentence_stay() -> None:
    sentence = 'She said —\n\n"Never mind the little garden behind them."\nAnd they waited there quietly.'
    story = Story(0, "p", (sentence,), ("",))
    for name in ("misplaced", "shuffled words", "people"):
        told = {(DISTURBANCES[name].step([sentence], Random(seed), CORPUS, story) or [""])[0] for seed in range(20)}
        assert {re.sub(r"\S+", "", one) for one in told} == {re.sub(r"\S+", "", sentence)}
    shorter = []
    for seed in range(20):
        [misplaced] = DISTURBANCES["misplaced"].step([sentence], Random(seed), CORPUS, story) or []
        assert re.sub(r"\w+", "", misplaced) == re.sub(r"\w+", "", sentence)
        [again] = DISTURBANCES["repeated words"].step([sentence], Random(seed), CORPUS, story) or []
        assert again.count("\n") >= sentence.count("\n") and len(again.split()) > len(sentence.split())
        [fewer] = DISTURBANCES["dropped words"].step([sentence], Random(seed), CORPUS, story) or []
        shorter.append(fewer)
        assert len(fewer.split()) == len(sentence.split()) - len(sentence.split()) // 3
    assert any("\n" in fewer for fewer in shorter)


@pytest.mark.parametrize(
    ("sentence", "denied"),
    [
        ("I can't say it was so.", "I can't say it was not so."),
        ("I cannot say it is so.", "I cannot say it is not so."),
        ("We can’t go.", None),
        ("It was\nnot so.", "It was so."),
        ("It wasn't so.", None),
        ("It was so.", "It was not so."),
    ],
)
def test_what_is_denied_in_short_is_not_denied_again(sentence: str, denied: str | None) -> None:
    story = Story(0, "p", (sentence,), ("",))
    assert DISTURBANCES["contradiction"].step([sentence], Random(0), CORPUS, story) == (denied and [denied])


@pytest.mark.parametrize(
    ("said", "turned"),
    [
        ("Once an old man came by.", {"Once a young man came by."}),
        ("A new hat, an easy day.", {"An ancient hat, a hard night."}),
        ("His right hand was on the light.", {"His right hand was not on the light."}),
        ("They had left before noon.", {"They had left after noon."}),
        ("She had walked home alone.", {"She had not walked home alone."}),
        ("How did the talk go?", set()),
        ("Was she at home?", set()),
        ("He had two broken legs.", set()),
        ("It was not so.", {"It was so."}),
    ],
)
def test_a_contradiction_keeps_the_grammar(said: str, turned: set[str]) -> None:
    story = Story(0, "", (said,), ("",))
    tries = (DISTURBANCES["contradiction"].step([said], Random(n), Corpus([story]), story) for n in range(9))
    assert {one[0] for one in tries if one is not None} == turned


@pytest.mark.parametrize(
    ("said", "turned"),
    [
        ("She gave him her hand.", "He gave her his hand."),
        ("Her brother saw her and called her that day.", "His sister saw him and called him that day."),
        ("I told them that her mother was hers.", "I told them that his father was his."),
        ("He hurt himself, so they held her.", "She hurt herself, so they held him."),
        ("I was tired and they were late.", None),
    ],
)
def test_people_change_places_and_the_grammar_stays(said: str, turned: str | None) -> None:
    story = Story(0, "", (said,), ("",))
    found = DISTURBANCES["people"].step([said], Random(0), Corpus([story]), story)
    assert found == (None if turned is None else [turned])


def test_the_documents_name_every_step() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    for text in (page, Excerpts.__doc__ or ""):
        assert f"Steps down: {', '.join(DISTURBANCES)}." in " ".join(text.split())
