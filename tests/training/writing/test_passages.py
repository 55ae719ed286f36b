from __future__ import annotations

import pytest

from adjudge.training.writing.passages import language_of, paragraphs, passages_of, sentences

POEM = "One line\nand its second\n\n  Another stanza\n\n\nThe end "


def test_blank_lines_divide_paragraphs_and_the_gaps_come_back_with_them() -> None:
    found = paragraphs(POEM)
    assert found.parts == ("One line\nand its second", "Another stanza", "The end")
    assert found.gaps == ("\n\n  ", "\n\n  ", "\n\n\n")
    assert found.text(range(3)) == POEM.strip()
    assert found.text([2, 0]) == "The end\n\n  One line\nand its second"


def test_without_a_blank_line_every_line_is_a_paragraph() -> None:
    assert paragraphs("a\n　　b\r\nc").parts == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('He said "Stop!" It cost 3.14. Why?! So', ['He said "Stop!"', "It cost 3.14.", "Why?!", "So"]),
        ("下雨了。他说：“走吧！”谁知道？", ["下雨了。", "他说：“走吧！”", "谁知道？"]),
        ("Mr. Ito met Mrs. Ro. Dr. No? Mr.", ["Mr. Ito met Mrs. Ro.", "Dr. No?", "Mr."]),
        ("No end\nNext line. Done", ["No end", "Next line.", "Done"]),
        ("", []),
        (" \n\n ", []),
        ("...", ["..."]),
    ],
)
def test_sentences_end_at_marks_and_with_lines(text: str, expected: list[str]) -> None:
    found = sentences(text)
    assert list(found.parts) == expected and found.text(range(len(expected))) == text.strip()


def test_few_paragraphs_are_taken_apart_by_sentences() -> None:
    assert passages_of("a\n\nb. c\n\nd").unit == "sentence"
    assert passages_of("a\n\nb. c\n\nd\n\ne").unit == "paragraph"


@pytest.mark.parametrize(
    "text", ["." * 300_000 + "x", " " * 300_000, ".”" * 150_000, "\n" * 300_000, "a\n \n" * 75_000]
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    found = passages_of(text)  # a quadratic reading would take hours
    assert found.text(range(len(found.parts))) == text.strip()


def test_the_language_is_that_of_most_words() -> None:
    assert [language_of(text) for text in ("雨 rain 雨", "rain rain rain rain 雨", "", "123")] == [
        "zh",
        "en",
        "en",
        "en",
    ]
