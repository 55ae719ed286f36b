from __future__ import annotations

import pytest

from adjudge.rewards.words import count_words, shortened


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two three", 3, "one two three"),
        ("one two\nthree  four five six", 4, "one two … six"),
        ("one  two three\nfour five six", 5, "one  two … five six"),
        ("我们今天去看电影吧", 5, "我们 … 影吧"),
        ("", 3, ""),
    ],
)
def test_a_text_too_long_keeps_its_first_and_last_words_as_they_stand(text: str, limit: int, expected: str) -> None:
    assert shortened(text, limit) == expected
    assert count_words(expected) <= limit


def test_a_limit_without_room_for_both_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        shortened("one two three", 2)
