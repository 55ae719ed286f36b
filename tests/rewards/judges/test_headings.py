from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.rewards.judges.headings import Heading, Prose, formatting_score, headings_of

PROSE = "It rained all day, and nobody minded.\n\n"


def shape(text: str) -> list[tuple[str, int]]:
    return [(line.kind, line.depth) for line in headings_of(text) if isinstance(line, Heading)]


def test_markdown_headings_stand_as_deep_as_their_marks_beyond_the_first_ones() -> None:
    assert shape("## A\n### B\n#### C\n### D\n## E") == [("markdown", depth) for depth in (1, 2, 3, 2, 1)]
    assert shape("# 标题\n##\u3000小节") == [("markdown", 1), ("markdown", 2)]
    assert shape("####### seven") == []


def test_chinese_numerals_are_two_levels() -> None:
    assert shape("一、A\n（一）B\n(二)C\n二、D\n（一）E") == [
        ("chinese", 1),
        ("chinese_second", 2),
        ("chinese_second", 2),
        ("chinese", 1),
        ("chinese_second", 2),
    ]
    assert shape("# A\n（一）B") == [("markdown", 1), ("chinese_second", 2)]
    assert shape("## A\n### B\n一、C") == [("markdown", 1), ("markdown", 2), ("chinese", 1)]


def test_an_unordered_item_stands_below_what_is_open_and_beside_its_like() -> None:
    assert shape("# A\n- b\n- c\n# D\n* e") == [
        ("markdown", 1),
        ("unordered", 2),
        ("unordered", 2),
        ("markdown", 1),
        ("unordered", 2),
    ]


def test_an_ordered_list_goes_on_after_an_unordered_one_inside_it() -> None:
    assert shape("1. a\n- b\n- c\n2. d") == [("ordered", 1), ("unordered", 2), ("unordered", 2), ("ordered", 1)]


def test_numbers_after_an_unordered_list_that_is_not_inside_one_stand_beside_it() -> None:
    assert shape("# A\n- b\n1. c\n- d\n2. e") == [
        ("markdown", 1),
        ("unordered", 2),
        ("ordered", 2),
        ("unordered", 3),
        ("ordered", 2),
    ]


@pytest.mark.parametrize(
    ("line", "kind", "number", "title"),
    [
        ("一、总则", "chinese", 1, "总则"),
        ("十、", "chinese", 10, ""),
        ("十二．附则", "chinese", 12, "附则"),
        ("二十一、末", "chinese", 21, "末"),
        ("（十一）细则", "chinese_second", 11, "细则"),
        ("一二、乱", "chinese", 0, "乱"),
        ("3. Third", "ordered", 3, "Third"),
        ("(4) Fourth", "ordered", 4, "Fourth"),
        ("５、第五", "ordered", 5, "第五"),
        ("• bullet", "unordered", None, "bullet"),
        ("+ plus", "unordered", None, "plus"),
        ("### Title", "markdown", None, "Title"),
        ("##", "markdown", None, ""),
    ],
)
def test_marks_are_read(line: str, kind: str, number: int | None, title: str) -> None:
    [heading] = headings_of(f"  {line}  ")
    assert isinstance(heading, Heading)
    assert (heading.kind, heading.number, heading.title) == (kind, number, title)


@pytest.mark.parametrize(
    "line",
    [
        "#tag and text",
        "#标签",
        "#!/bin/sh",
        "~~~",
        "3.14 is pi",
        "1998. A year",
        "* * *",
        "---",
        "-dash",
        "*emphasis*",
        "一天，他来了",
        "一",
        "—— 他说",
        "2024年",
    ],
)
def test_prose_is_not_taken_for_headings(line: str) -> None:
    assert list(headings_of(line)) == [Prose(line)]


@pytest.mark.parametrize(
    ("fenced", "left"),
    [
        ("# A\n```sh\n# comment\n- x\n```\n## B", ["A", "B"]),
        ("# A\n````\n```\n# comment\n```\n````\n## B", ["A", "B"]),
        ("# A\n```\n# comment\n``` sh\n# comment\n`````\n## B", ["A", "B"]),  # what closes holds nothing else
        ("# A\n```\n# comment", ["A"]),
        ("# A\n```one``` line\n## B", ["A", "```one``` line", "B"]),
        ("# A\n~~~\n## B\n~~~", ["A", "~~~", "B", "~~~"]),  # a break between scenes
    ],
)
def test_code_between_fences_is_left_out(fenced: str, left: list[str]) -> None:
    assert [line.title if isinstance(line, Heading) else line.text for line in headings_of(fenced)] == left


SPEECH = PROSE + "- Hello, he said.\n- Hi.\n\n" + PROSE + "- Eggs\n"


def test_dialogue_with_dashes_is_no_list_in_fiction_and_cannot_be_told_from_one_elsewhere() -> None:
    for text in (SPEECH, "- Hello.\n- Hi."):
        assert formatting_score(text, fiction=True) == 5.0 and formatting_score(text) == 0.0
    assert formatting_score("# One\n- Hello.\n\n# Two\n" + SPEECH, fiction=True) == 10.0
    assert [type(line) for line in headings_of("- Hello.\n- Hi.", fiction=True)] == [Prose, Prose]
    for proper in ("– Hello.\n– Hi.", "— Hello.\n— Hi."):
        assert formatting_score(proper) == formatting_score(proper, fiction=True) == 5.0


@pytest.mark.parametrize("text", [PROSE + "* a\n* b", "• a\n• b", "# A\n### C", "- Hi.\n+ eggs"])
def test_other_violations_are_violations_in_fiction_too(text: str) -> None:
    assert formatting_score(text, fiction=True) == 0.0


def test_code_and_tags_neither_break_nor_earn_anything() -> None:
    assert formatting_score("# A\n```sh\n### comment\n- x\n```\n## B") == 10.0
    assert formatting_score("```sh\n# comment\n```") == 5.0
    assert formatting_score("#tag and text") == 5.0


def test_a_line_right_below_an_item_continues_it() -> None:
    assert [line.continues for line in headings_of("- a\n  more\nand more\n\nprose") if isinstance(line, Prose)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n" + PROSE,
        "# Title\n\n## One\n" + PROSE + "## Two\n" + PROSE + "# Other\n",
        "一、甲\n正文。\n（一）子\n正文。\n（二）丑\n二、乙\n正文。",
        "# T\n\n1. a\n2. b\n- c\n3. d\n\n" + PROSE + "1. anew\n2. again",
        "# T\n\nWhat is needed:\n\n- a\n- b\n\nand so on",
        "# 计划\n所需如下：\n- 甲\n  再说\n- 乙",
        "一、甲\n（一）子\n二、乙\n（一）丑",
        "### Deep from the start\n#### Deeper\n",
    ],
)
def test_headings_in_order_earn_ten(text: str) -> None:
    assert formatting_score(text) == 10.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        PROSE * 3,
        "1. a\n2. b",  # a list alone is no titling
        "A list:\n- a\n- b",
        "一、甲\n三、丙",
        "二、乙\n三、丙",
        "一、甲\n（二）子",
        "# T\n1. a\n3. c",
        "# \n" + PROSE,
        "一、\n" + PROSE,
        "一、甲\n一、甲",
    ],
)
def test_no_headings_or_lesser_faults_earn_five(text: str) -> None:
    assert formatting_score(text) == 5.0


@pytest.mark.parametrize(
    "text",
    [
        "# A\n### C",
        "# A\n- item\n### C",  # an item is no heading
        "## A\n# B",
        "（一）子\n" + PROSE,
        "1. a\n（一）子",
        PROSE + "- a\n- b\n\n" + PROSE,
        "- a\n- b",
        "# T\n" + PROSE + "* a\n",
        "# T\n\nA list:\n- a\n\n" + PROSE + "- b",
    ],
)
def test_violations_earn_nothing(text: str) -> None:
    assert formatting_score(text) == 0.0


@given(st.text(alphabet="#-*+`•一二十、（）()1234567890.． \n\t\x00\u2028a：:", max_size=60))
def test_any_text_has_one_of_the_three_scores_and_depths_never_jump(text: str) -> None:
    assert formatting_score(text) in (0.0, 5.0, 10.0)
    depth = 0
    for kind, next_depth in shape(text):
        assert 1 <= next_depth <= depth + 1, kind
        depth = next_depth


PIECES = [
    "#",
    "# ",
    "- ",
    "-\n",
    "# a\n- b\n1. c\n",
    "一",
    "一、\n",
    "（",
    "(1",
    "1.\n- a\n",
    "*" * 7 + "\n",
    " ",
    "\u2028",
    "_ ",
    "`",
    "```a`",
    "```\n",
    "```a\n````\n",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_hostile_megabyte_is_read_to_its_end(piece: str) -> None:
    """What looks back over lines, or over the characters of one, would take hours."""
    text = "# T\n" + (piece * 1_000_000)[:1_000_000]  # a heading first: no violation may end the work early
    assert formatting_score(text) in (0.0, 5.0, 10.0)
    assert sum(1 for _ in headings_of(text)) >= 1
