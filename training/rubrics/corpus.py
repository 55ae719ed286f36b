"""A corpus: local files cut into pages that a prompt can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.records.row_files import read_rows

SUFFIXES = (".txt", ".md", ".jsonl")

PAGE = 4000
"""Characters of a page at most: some 700 words of English."""

_PARAGRAPHS = re.compile(r"\n\s*\n")


class Page(msgspec.Struct, frozen=True):
    """A text that people wrote, or a piece of one, and where it comes from."""

    text: str
    source: str = ""


def read_corpus(folder: Path) -> list[Page]:
    """The pages of all .txt, .md and .jsonl files below a folder (or of one such file), in the order of their names.

    A line of a .jsonl has `text`, and its `title` or `url` names the source. Bytes that are not UTF-8 become U+FFFD.
    Raises AdjudgeError for a folder without such files or without words in them, and as `read_rows` does.
    """
    files = [folder] if folder.is_file() else sorted(file for file in folder.rglob("*") if file.is_file())
    files = [file for file in files if file.suffix.lower() in SUFFIXES]
    if not files:
        raise AdjudgeError(f"{folder} has no {', '.join(SUFFIXES)} files: name a folder of texts")
    pages = [piece for file in files for page in _pages(file, folder) for piece in cut(page)]
    if not pages:
        raise AdjudgeError(f"the {len(files)} files of {folder} are empty: give them texts")
    return pages


def cut(page: Page, limit: int = PAGE) -> list[Page]:
    """Pages of at most `limit` characters each, cut between paragraphs where they are short enough; no blank ones."""
    pieces: list[str] = []
    for paragraph in _PARAGRAPHS.split(well_formed(page.text)):
        for part in _parts(paragraph.strip(), limit):
            if pieces and len(pieces[-1]) + 2 + len(part) <= limit:
                pieces[-1] += "\n\n" + part
            else:
                pieces.append(part)
    if len(pieces) == 1:
        return [Page(pieces[0], page.source)]
    return [Page(piece, f"{page.source}#{number}") for number, piece in enumerate(pieces, 1)]


def _parts(paragraph: str, limit: int) -> Iterator[str]:
    """A paragraph whole, or, where it is too long, cut at its last blank or sentence end before the limit."""
    while len(paragraph) > limit:
        end = max(paragraph.rfind(mark, limit // 2, limit) for mark in (" ", "\n", "。", "！", "？")) + 1 or limit
        yield paragraph[:end].strip()
        paragraph = paragraph[end:].strip()
    if paragraph:
        yield paragraph


def _pages(file: Path, folder: Path) -> Iterator[Page]:
    name = file.name if file == folder else str(file.relative_to(folder))
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise AdjudgeError(f"cannot read {file}: {error.strerror}") from error
    if file.suffix.lower() != ".jsonl":
        yield Page(text, name)
    elif text.strip():
        for number, row in enumerate(read_rows(file), 1):
            title = row.optional_text("title", "a corpus") or row.optional_text("url", "a corpus") or f"{name}:{number}"
            yield Page(row.text("text", "a corpus"), title)
