from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.training.rubrics.corpus import Page, cut, read_corpus
from adjudge.training.rubrics.search import MeaningSearch, WordSearch

PAGES = [
    Page("The cat sat. The cat slept on the mat.", "cat"),
    Page("The dog barked at the door, and the neighbour, and the post.", "dog"),
    Page("蜜蜂用舞蹈告诉同伴花在哪里。", "bees"),
    Page("The cat.", "short"),
]


def found(pages: Sequence[Page]) -> list[str]:
    return [page.source for page in pages]


def test_pages_with_the_rarest_common_words_come_first() -> None:
    cats, dogs, bees, none = WordSearch(PAGES)(["Where is the CAT?", "dog's door", "蜜蜂怎样跳舞", "Zymurgy"], 5)
    assert found(cats) == ["short", "cat", "dog"]
    assert found(dogs) == ["dog"] and found(bees) == ["bees"] and none == []
    assert found(WordSearch(PAGES)(["the"], 2)[0]) == found(WordSearch(PAGES)(["the"], 3)[0])[:2]


def test_equal_pages_come_in_their_own_order() -> None:
    twins = [Page("one two", "a"), Page("one two", "b")]
    assert found(WordSearch(twins)(["two"], 2)[0]) == ["a", "b"]


def test_the_nearest_pages_by_meaning() -> None:
    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[float("cat" in text), float("dog" in text), 0.1] for text in texts]

    [cats, dogs] = MeaningSearch(PAGES, embed)(["a cat", "a dog"], 1)
    assert found(cats) == ["cat"] and found(dogs) == ["dog"]


def test_long_texts_are_cut_between_paragraphs_and_nothing_is_lost() -> None:
    text = "\n\n".join(f"Paragraph {n} " + "word " * n for n in range(40)) + "\n\n" + "x" * 500 + "。" + "y " * 300
    pieces = cut(Page(text, "long"), 200)
    assert max(len(piece.text) for piece in pieces) <= 200 and min(len(piece.text) for piece in pieces) > 0
    assert "".join("".join(piece.text.split()) for piece in pieces) == "".join(text.split())
    assert [piece.source for piece in pieces[:2]] == ["long#1", "long#2"]
    assert cut(Page("one", "short"), 200) == [Page("one", "short")] and cut(Page(" \n\n ", "blank")) == []


def test_text_markdown_and_json_lines_are_read_and_the_rest_is_not(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text("# B")
    (tmp_path / "a.txt").write_bytes(b"A \xff")
    (tmp_path / "c.jsonl").write_text('{"text": "C", "title": "Third"}\n{"text": "D"}\n')
    (tmp_path / "skipped.pdf").write_bytes(b"%PDF")
    for empty in ("e.jsonl", "e.txt"):
        (tmp_path / empty).write_text("\n")
    assert [(page.source, page.text) for page in read_corpus(tmp_path)] == [
        ("a.txt", "A \ufffd"),
        ("Third", "C"),
        ("c.jsonl:2", "D"),
        ("deep/b.md", "# B"),
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no .txt, .md, .jsonl files"),
        ({"a.pdf": "x"}, "has no .txt, .md, .jsonl files"),
        ({"a.txt": " \n"}, "the 1 files of .* are empty"),
        ({"a.jsonl": '{"title": "x"}'}, 'line 1 of a.jsonl: "text" is missing'),
    ],
)
def test_a_corpus_without_texts_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(AdjudgeError, match=message):
        read_corpus(tmp_path)
