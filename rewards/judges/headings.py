"""Headings and lists of a plain text, and whether they are in order: the rule of Tree of Writing's formatting leaf.

Source: Tree of Writing, Listing 1 (how headings nest) and Table 10 (the scores 0, 5, 10). The published parser only
builds the tree, and fails on a text whose second heading is shallower than its first; what makes a violation is ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

HeadingKind = Literal["markdown", "chinese", "chinese_second", "ordered", "unordered"]
TITLES: tuple[HeadingKind, ...] = ("markdown", "chinese", "chinese_second")
"""The kinds that are headings; the others are list items."""

BROKEN, PLAIN, ORDERLY = 0.0, 5.0, 10.0
"""The scores: a violation; no headings, or some with lesser faults; headings in order throughout."""


def _spelled(number: int) -> str:
    """A number from 1 to 99 in Chinese numerals."""
    tens, ones = divmod(number, 10)
    return ("" if not tens else "十" if tens == 1 else _DIGITS[tens] + "十") + (_DIGITS[ones] if ones else "")


_DIGITS = "零一二三四五六七八九"
_NUMERAL = "一二三四五六七八九十"
_NUMBERS = {_spelled(number): number for number in range(1, 100)}
_PATTERNS: tuple[tuple[HeadingKind, re.Pattern[str]], ...] = (
    ("markdown", re.compile(r"(#{1,6})(?!\S)\s*(.*)")),
    ("chinese", re.compile(rf"([{_NUMERAL}]{{1,3}})[、.．]\s*(.*)")),
    ("chinese_second", re.compile(rf"[(（]([{_NUMERAL}]{{1,3}})[)）][、.．]?\s*(.*)")),
    ("unordered", re.compile(r"([-*+]\s|[•●○◦▪■◆·])\s*(.*)")),
    ("ordered", re.compile(r"[(（]?(\d{1,3})(?:[、)）]|[.．](?!\d))\s*(.*)")),
)
_RULE = re.compile(r"[-*_\s]{3,}")
"""A line across the page, as in `* * *`: no list."""
_FENCE = re.compile(r"(`{3,})[^`]*")
"""What opens a block of code. Not `~~~`, with which writers part scenes."""


class Heading(msgspec.Struct, frozen=True):
    """A heading or list item: its kind, how deep it stands (1 at the top), its text, and its number where it has one.

    `skips` says that there is no heading on the level above its own; `inverted` that it stands above the text's first
    one.
    """

    kind: HeadingKind
    depth: int
    title: str
    number: int | None = None
    skips: bool = False
    inverted: bool = False


class Prose(msgspec.Struct, frozen=True):
    """A line that is neither; `continues` a list item where no blank line stands between the two."""

    text: str
    continues: bool = False


def headings_of(text: str, *, fiction: bool = False) -> Iterator[Heading | Prose]:
    """The lines of a text that are not blank, in time linear in its length; blocks of code between ``` are left out.

    Marks of markdown stand before a space, unlike in Listing 1, which takes `#tag` for a heading. A markdown
    heading stands as deep as its number of `#` beyond the first one's; 一、 at the top, （一） below it; an unordered
    item below what is open, unless that is such an item; an ordered one likewise, but an unordered list inside an
    ordered one ends where the next number comes, and one that is not is continued by numbers at its own depth.
    What is open when a line comes are its ancestors and elder siblings, the last of each depth. In `fiction` a
    line that begins with `- ` is speech, and prose.
    """
    opened: list[HeadingKind] = []
    base: int | None = None
    in_item = False
    for line in _outside_code(map(str.strip, text.splitlines())):
        if not line:
            in_item = False
            continue
        kind, mark, title = _read(line)
        if kind is None or (fiction and line.startswith("-")):
            yield Prose(line, continues=in_item)
            continue
        depth, inverted = _depth(kind, opened), False
        if kind == "markdown":
            base = base or len(mark)
            inverted = len(mark) < base
            depth = max(1, len(mark) - base + 1)
        skips = kind in TITLES and depth > 1 + sum(other in TITLES for other in opened)
        depth = min(depth, len(opened) + 1)
        opened[depth - 1 :] = [kind]
        in_item = kind not in TITLES
        yield Heading(kind, depth, title, _number(kind, mark), skips, inverted)


def formatting_score(text: str, *, fiction: bool = False) -> float:
    """0, 5 or 10 for the headings and lists of a text.

    0 (violation): a heading skips a level (`###` straight below `#`, （一） with no heading above it) or stands above
    the first one, or an unordered list stands in running text: the line before it is prose that does not lead to it
    with a colon, or there is none. 10: there are headings, none is empty, and numbers count up by one from 1 among
    siblings (an ordered list may begin anew). 5: anything else, and no headings at all.

    Dialogue may be written with dashes ("- Hello, he said."). Nothing but its meaning tells it from a list, and the
    source leaves room: Listing 1 prints no pattern of unordered items, and Table 10 forbids only improper ones. So in
    `fiction` a hyphen at a line's beginning opens speech, and is no violation; other marks (`*`, `•`) still are. In
    other texts such lines are a list, and dialogue earns 0. Lines with a dash proper (–, —) are prose everywhere.
    """
    counts: list[dict[HeadingKind, int]] = [{}]  # the last number of each kind among the open siblings, by depth
    titled, faulty = False, False
    before: Heading | Prose | None = None
    for line in headings_of(text, fiction=fiction):
        if isinstance(line, Heading):
            if line.skips or line.inverted or (line.kind == "unordered" and _in_running_text(before)):
                return BROKEN
            titled |= line.kind in TITLES
            faulty |= line.kind in TITLES and not line.title
            del counts[line.depth :]
            faulty |= not _counts_on(line, counts[line.depth - 1])
            counts.append({})
        if not isinstance(line, Prose) or not line.continues:
            before = line
    return ORDERLY if titled and not faulty else PLAIN


def _outside_code(lines: Iterable[str]) -> Iterator[str]:
    """The lines that are not in a block of code, which goes on to as many marks as opened it, or to the end."""
    opening = ""
    for line in lines:
        if not opening:
            fence = _FENCE.fullmatch(line)
            opening = fence[1] if fence else ""
            if not fence:
                yield line
        elif line.startswith(opening) and not line.strip("`"):
            opening = ""


def _read(line: str) -> tuple[HeadingKind | None, str, str]:
    """What kind of heading a line is, its mark and its text."""
    if not _RULE.fullmatch(line):
        for kind, pattern in _PATTERNS:
            if match := pattern.match(line):
                return kind, match[1], match[2]
    return None, "", line


def _depth(kind: HeadingKind, opened: list[HeadingKind]) -> int:
    """How deep a heading stands below what is open; that of a markdown heading depends on the first one."""
    top, below = (opened[-1] if opened else None), (opened[-2] if len(opened) > 1 else None)
    if kind == "chinese":
        return 1
    if kind == "chinese_second":
        return 2
    if top == kind:
        return len(opened)
    if kind == "ordered" and top == "unordered":
        return len(opened) - 1 if below == "ordered" else len(opened)
    return len(opened) + 1


def _number(kind: HeadingKind, mark: str) -> int | None:
    if kind == "ordered":
        return int(mark)
    return _NUMBERS.get(mark, 0) if kind in ("chinese", "chinese_second") else None


def _counts_on(line: Heading, siblings: dict[HeadingKind, int]) -> bool:
    """Whether a number follows that of the sibling before it; from now on it is the last."""
    if line.number is None:
        return True
    last = siblings.get(line.kind, 0)
    siblings[line.kind] = line.number
    return line.number == last + 1 or (line.kind == "ordered" and line.number == 1)


def _in_running_text(before: Heading | Prose | None) -> bool:
    return before is None or (isinstance(before, Prose) and not before.text.endswith((":", "：")))
