"""Texts as they would be typed: how a corpus sets them does not reach the judge."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.rewards.judges.normalising import normalised
from adjudge.training.house.typesetting import spaced

EXAMPLES = Path(__file__).parents[3] / "examples"
PAIRS = [json.loads(line) for line in (EXAMPLES / "pairs-unseen.jsonl").read_text(encoding="utf-8").splitlines()]
STORIES = sorted({pair[side] for pair in PAIRS for side in ("story_a", "story_b")})
MARKED = st.lists(
    st.sampled_from([*"aIix ,.!?;:'\"’”“([)]$%\n", "n't", "'s", "``", "''", "[MALE]", "Tom", "É", "ß", "。"]),
    max_size=40,
)


def _words(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize(
    ("given_as", "typed"),
    [
        ("it was dark .\n\na lamp\u00a0 burned .", "It was dark. A lamp burned."),
        ("i did n't go , and i 'm glad ; we 're home : us !", "I didn't go, and I'm glad; we're home: us!"),
        ('" you do n\'t ? ! " he said , " it \'s ( so ) late . "', '"You don\'t?!" he said, "it\'s (so) late."'),
        ("`` go , '' he said . 5 % of $ 3 . the dogs ' tails . . .", '"Go," he said. 5% of $3. The dogs\' tails...'),
        ("“ go , ” she said . “ now . ” he left .", "“Go,” she said. “Now.” He left."),
        ("a well - known man - she said - left .", "A well-known man-she said-left."),
        ("[MALE] lost his hat . i found it .", "[MALE] lost his hat. I found it."),
        ("WE DID N'T . I SAID SO.", "We didn't. I said so."),
        ("[MALE] LEFT .", "[MALE] LEFT."),
        (
            "You 're on ! “No” , said Eric 's voice. My “hat” is on .",
            "You're on! “No”, said Eric's voice. My “hat” is on.",
        ),
    ],
)
def test_a_text_is_shown_as_it_would_be_typed(given_as: str, typed: str) -> None:
    assert normalised(given_as) == typed


@pytest.mark.parametrize(
    "typed",
    [
        'He said ... "no", then left - at 10:30, with 5 % of it.',
        "The 's' on the end, i.e. the last: 'twas lost (as was 1,000 € - or $ 3).",
        "He wrote (in the Times)\tthat iPhones etc. are dear.",
        "Café. Über. 3.5 or .5, e.g. so; u/name wrote it.",
        "",
    ],
)
def test_what_a_person_typed_stays_as_it_is(typed: str) -> None:
    assert normalised(typed) == " ".join(typed.split())


def test_stories_are_read_alike_however_they_are_set() -> None:
    for story in STORIES:
        assert normalised(story) == " ".join(story.split())
        assert normalised(story.upper()) == normalised(story.lower())
        assert normalised(story.lower()).lower() == normalised(story).lower()
        assert normalised(spaced(story)) == normalised(story)


@given(MARKED)
def test_nothing_but_blanks_quotes_and_case_changes_and_that_only_once(parts: list[str]) -> None:
    text = "".join(parts)
    shown = str(normalised(text))
    quotes = str.maketrans({"`": '"', "'": '"'})
    same = re.sub('"+', '"', _words(shown).translate(quotes)).casefold()
    assert same == re.sub('"+', '"', _words(text).translate(quotes)).casefold()
    assert normalised([text, [text]]) == [shown, [shown]]
    assert str(normalised(shown)) == shown


def test_a_text_that_is_made_to_be_slow_is_not() -> None:
    for hard in (" .", " 's", '" ', "[A", ". '", "''' ", "i. "):
        assert normalised(hard * 100_000)
