from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.rewards.trainers.openrlhf_queries import KEPT, _overlap, response_of

MANY = 300_000
LONG = "Tell of a bus that was late and of a woman who waited for it in the rain."


@pytest.mark.parametrize(
    ("query", "prompt", "ends", "response"),
    [
        ("p story", "p", (), " story"),
        ("<s>p story</s>", "p", ("</s>",), " story"),
        ("<|begin_of_text|>text is nice", "text", (), " is nice"),
        ("<s> s or s", "s", (), " or s"),
        ("[CLS]C</s>", "C", ("</s>",), ""),
        ("<s><s>p", "<s>p", (), ""),
        ("<s>p and <s>p", "<s>p", (), " and <s>p"),
        ("<a p b> p", "p", (), " b> p"),
        ("story", "", (), "story"),
        ("p</s><|e|></s>", "p", ("</s>", "<|e|>", ""), ""),
        ("</s></s>", "</s>", ("</s>",), ""),
        (LONG[9:] + " It came.", LONG, (), " It came."),
        (LONG[-KEPT:] + "x", LONG, (), "x"),
        (LONG[-KEPT + 1 :] + "x", LONG, (), None),
        ("<s>" + LONG[9:] + " It came.</s>", LONG, ("</s>",), " It came."),
        (LONG[9:] + " Junk. " + LONG + " It came.", LONG, (), f" Junk. {LONG} It came."),
        ("<s>" + LONG[9:] + " Junk. " + LONG + " It came.", LONG, (), f" Junk. {LONG} It came."),
        (LONG + " Junk. " + LONG + " It came.", LONG, (), f" Junk. {LONG} It came."),
        ("user: " + LONG + " It came.", LONG, (), " It came."),
        ("<s>un \u00e9t\u00e9 Il pleut, e\u0301t", "un e\u0301te\u0301", (), " Il pleut, e\u0301t"),
        ("\u0915\u093c\u0932 story", "\u0958\u0932", (), " story"),
        ("un \u00e9t\u00e9 story", "un e\u0301te\u0301 d'or", (), None),
        ("\u00e9 story", "\ud800\u00e9", (), None),
        ("another", LONG, (), None),
        ("", "p", (), None),
    ],
)
def test_the_response_is_what_stands_behind_the_prompt(
    query: str, prompt: str, ends: tuple[str, ...], response: str | None
) -> None:
    assert response_of(query, prompt, ends) == response


@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_an_overlap_is_the_longest_there_is(left: str, right: str) -> None:
    longest = max(size for size in range(len(right) + 1) if size <= len(left) and left.endswith(right[:size]))
    assert _overlap(left, right) == longest


def test_texts_of_one_letter_take_no_time_to_speak_of() -> None:
    assert response_of("a" * MANY + "b", "c" + "a" * MANY, ()) == "b"
    assert response_of("a" * MANY + "b" * MANY, "a" * (MANY + 9) + "c", ()) is None
    assert response_of("p" + "</s>" * MANY, "p", ("</s>",)) == ""
    assert response_of("<" + "a" * MANY + "b", "b") == ""
    assert response_of("e", "e" + "\u0327\u0301" * MANY) is None
