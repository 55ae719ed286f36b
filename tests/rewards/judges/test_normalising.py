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
PARTS = [*"aIix ,.!?;:'\"’‘”“([{)]}$#%…-\n\u00ad", "n't", "'s", "``", "''", "[MALE]", "Tom", "NO", "É", "ß", "ŉ", "。"]


@pytest.mark.parametrize(
    ("given_as", "typed"),
    [
        ("it was dark .\n\na lamp\u00a0 burned .", "It was dark. A lamp burned."),
        ("i did n't go , and i 'm glad ; we 're home : us !", "I didn't go, and I'm glad; we're home: us!"),
        ("i do n’t , he ’s in . [FEMALE] 's", "I don’t, he’s in. [FEMALE]'s"),
        ("did n ' t start . [FEMALE] ' s face . i ’ m", "Didn't start. [FEMALE]'s face. I’m"),
        ("DO N'T GO , he said .", "DON'T GO, he said."),
        ('" you do n\'t ? ! " he said , " it \'s ( so ) late . "', '"You don\'t?!" he said, "it\'s (so) late."'),
        ("`` go , '' he said . 5 % of $ 3 . the dogs ' tails . . .", '"Go," he said. 5% of $3. The dogs\' tails...'),
        ("“ go , ” she said . “ now . ” ‘ so ’ [ a ] { b } # 1 … c", "“Go,” she said. “Now.” ‘So’ [a] {b} #1… c"),
        ("[MALE] lost his hat ! i found it ? ( we did . )", "[MALE] lost his hat! I found it? (We did.)"),
        (
            'the " queen " , here " . she said , " no ! " , " . . . go . "',
            'The "queen", here". She said, "no!", "... Go."',
        ),
        ("‘Go .’ He left, the dogs , the dogs '", "‘Go.’ He left, the dogs, the dogs '"),
        ("été , the dogs '", "Été, the dogs'"),
        ('Well , yes , " he said "', 'Well, yes, "he said"'),
        ('A "go" by , a " b " .', 'A "go" by, a "b".'),
        ("WE DID N'T . I SAID SO.", "We didn't. I said so."),
        ("[MALE] LEFT .", "[MALE] LEFT."),
        ("I LEFT AT NOON. BEHIND ME IT SLAMMED me", "I left at noon. Behind me it slammed me"),
        ("i went to see Anna. she was out. “she is,” i said.", "I went to see Anna. She was out. “She is,” I said."),
        ("the so\u00adft\u200b man\u2060 sat.\ufeff", "The soft man sat."),
        (
            "my brother and i. we ran, i.e. fast, with h.i. and pi",
            "My brother and I. We ran, i.e. fast, with h.i. and pi",
        ),
        (
            "You 're on again !” I heard. “No” , said Eric 's voice .",
            "You're on again!” I heard. “No”, said Eric's voice.",
        ),
        ("I sat . . . and . . . left - at 10 - with 5 % of it.", "I sat... and... left - at 10 - with 5 % of it."),
        ('One , two. three, " he said " at ( 5 % ) .', 'One, two. three, " he said " at ( 5 % ).'),
        ('One , two . three, " he said " at ( 5 % ) .', 'One, two. three, "he said" at (5%).'),
    ],
)
def test_a_text_is_shown_as_it_would_be_typed(given_as: str, typed: str) -> None:
    assert normalised(given_as) == typed


@pytest.mark.parametrize(
    "typed",
    [
        'He said ... "no", then left - at 10:30, with 5 % of it.',
        "The 's' on the end, i.e. the last: 'twas lost (as was 1,000 € - or $ 3).",
        "He wrote (in the Times)\tthat iPhones etc. are dear :)",
        '```json {"a": [1, 2]}``` and `b`, as `` c `` or "d".',
        "Café. Über. 3.5 or .5, e.g. so; u/name wrote it. He whispered, 's all right.",
        "THE BBC, it said.",
        "[MALE] LEFT, it",
        "iPhones sell, says i",
        "he left. She stayed. it rained, i think.",
        "NASA",
        "love",
        "日本語 AI です。",
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
        assert normalised(spaced(story)).replace(" - ", "-") == normalised(story)  # a hyphen alone may be a dash


@given(st.lists(st.sampled_from(PARTS), max_size=40))
def test_nothing_but_blanks_quotes_and_case_changes_and_that_only_once(parts: list[str]) -> None:
    def words(text: str) -> str:
        return re.sub(r"[\s\u00ad]+", "", text).replace("``", "''").replace('"', "''").casefold()

    text = "".join(parts)
    shown = str(normalised(text))
    assert words(shown) == words(text)
    assert normalised([text, [text]]) == [shown, [shown]]
    assert normalised(shown) == shown


def test_a_text_that_is_made_to_be_slow_is_not() -> None:
    for hard in (" .", " 's", '" ', "[A", ". '", "''' ", "i. ", " ' s", " . ."):
        assert normalised(hard * 100_000)  # of quadratic time this would be hours
