"""Answer spans against regular expressions over the joined bytes of a row."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adjudge.kernels import AnswerSpans, ByteTable, LabelSetError, RaggedError, SpanReason, answer_spans
from adjudge.kernels.answer_spans import FILLER

FIELDS = ("offsets", "token", "start", "end", "label", "reason")
NUMBERS = "47 4.5 4,5 4:30 4/5 4-5 4% 4th 11 0 04 -4 +4"  # none of them 1 to 10
TEN = tuple(str(number).encode() for number in range(1, 11))
OK, ENDED, NO_LABEL, UNCLOSED, OFF_BOUNDARY = SpanReason


def spans(rows: Sequence[Sequence[bytes]], **form: Any) -> AnswerSpans:
    """The spans of rows of tokens, which are given as what they stand for."""
    vocabulary = sorted({token for row in rows for token in row})
    ids = torch.tensor([vocabulary.index(token) for row in rows for token in row], dtype=torch.int64)
    offsets = torch.tensor([0, *accumulate(map(len, rows))])
    return answer_spans(ids, offsets, ByteTable.of(vocabulary), **({"openings": [b"[["], "labels": TEN} | form))


def matches(result: AnswerSpans) -> list[tuple[int, ...]]:
    """One tuple a match: its row, then its fields."""
    rows = torch.arange(len(result.offsets) - 1).repeat_interleave(result.offsets.diff())
    return list(zip(rows.tolist(), *(getattr(result, name).tolist() for name in FIELDS[1:]), strict=True))


def oracle(
    rows: Sequence[Sequence[bytes]],
    openings: Sequence[bytes],
    labels: Sequence[bytes],
    closings: Sequence[bytes] = (),
    filler: bytes = FILLER,
    max_filler: int = 16,
) -> list[tuple[int, ...]]:
    """The definition, a regular expression at a time and quadratic where that is clearer."""
    one_of = b"[" + b"".join(b"\\x%02x" % byte for byte in filler) + b"]" if filler else b"(?!)"
    skipped = b"(?:%s){0,%d}" % (one_of, max_filler)
    longest_first = sorted(labels, key=len, reverse=True)
    label_pattern = re.compile(b"|".join(map(re.escape, longest_first)))
    closed_pattern = re.compile(b"%s?(?:%s)" % (skipped, b"|".join(map(re.escape, closings)) or b"(?!)"))
    word_end = re.compile(rb"[.,:]?(?:\Z|[ \t\r\n\v\f\"'`*)\]}><|;!?$])")
    found = []
    for number, row in enumerate(rows):
        text = b"".join(row)
        owner = [place for place, token in enumerate(row) for _ in token]
        ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(openings))]
        for opening_end in ends:
            gap = re.compile(skipped).match(text, opening_end)
            assert gap is not None
            start = gap.end()
            if any(opening_end < other <= start for other in ends):
                continue
            nothing = (number, -1, start, start, -1)
            if start == len(text):
                found.append((*nothing, ENDED))
                continue
            label = label_pattern.match(text, start)
            if not label:
                found.append((*nothing, NO_LABEL))
                continue
            end = label.end()
            reason = OK if not closings or closed_pattern.match(text, end) else UNCLOSED
            if (reason == UNCLOSED or not closings) and not word_end.match(text, end):
                found.append((*nothing, NO_LABEL))
                continue
            first = owner[start]
            if reason == OK and owner[opening_end - 1] == first:
                reason = OFF_BOUNDARY
            found.append((number, first, start, end, labels.index(label[0]), reason))
    return found


# Fragments that meet: tags whole and torn, merged with scores and filler, digits that run on, and nothing at all.
FRAGMENTS = [
    *(b"", b"[", b"[[", b"]", b"]]", b"[[[", b"[4", b"[[7", b"7]]", b" 4", b"\n**4", b"1", b"10", b"0", b"0]", b".5"),
    *(
        b"<",
        b"<A",
        b"<A>",
        b"A>",
        b">",
        b">4",
        b"> ",
        b"</A>",
        b"</",
        b"*",
        b"**",
        b" ",
        b":",
        b": ",
        b".",
        b"/5",
        b"e",
    ),
    *(b"\xc3", b"\xa9", b"Yes", b"Y", b"es", b", but", b"a", b"\x00", b"-", b"4", b"4:", b"**4**"),
]
tokens = st.one_of(st.sampled_from(FRAGMENTS), st.lists(st.sampled_from(FRAGMENTS), max_size=3).map(b"".join))
rows_of_tokens = st.lists(st.lists(tokens, max_size=30), max_size=5)
forms = st.fixed_dictionaries(
    {
        "openings": st.lists(
            st.sampled_from([b"[[", b"[", b"<A>", b"**", b": ", b"A", b"]"]), min_size=1, max_size=3, unique=True
        ),
        "labels": st.lists(
            st.sampled_from([b"1", b"10", b"4", b"7", b"Yes", b"Yes, but", b"A", b"e", b"4:", b".5", b"-"]),
            min_size=1,
            max_size=6,
            unique=True,
        ),
        "closings": st.lists(st.sampled_from([b"]]", b"]", b"</A>", b"**", b" "]), max_size=2, unique=True),
        "filler": st.sampled_from([FILLER, b" ", b""]),
        "max_filler": st.sampled_from([0, 1, 2, 16]),
    }
)


@settings(max_examples=300)
@given(rows_of_tokens, forms)
def test_they_are_what_the_regular_expressions_say(rows: list[list[bytes]], form: dict[str, Any]) -> None:
    expected, result = oracle(rows, **form), spans(rows, **form)
    assert matches(result) == expected
    assert result.offsets.tolist() == [sum(match[0] < row for match in expected) for row in range(len(rows) + 1)]
    assert all(getattr(result, field).dtype == torch.int64 for field in FIELDS)


@pytest.mark.parametrize(
    ("row", "token", "label"),
    [
        ([b"[[", b"7", b"]]"], 1, b"7"),
        ([b"so ", b"[", b"[", b" 7", b"]]"], 3, b"7"),  # filler belongs to the score's token
        ([b"[[", b" ", b"7", b"]]"], 2, b"7"),
        ([b"[[", b"1", b"0", b"]]"], 1, b"10"),  # the longest label wins, over several tokens
        ([b"[[", b"1", b"", b"0", b"]]"], 1, b"10"),
        ([b"", b"[[", b"", b"1", b"]]"], 3, b"1"),
        ([b"[[", b"10]]"], 1, b"10"),  # what follows within the token does not matter
        ([b"[[", b" **", b"7", b"**", b" ", b"]]"], 2, b"7"),
        ([b"x[[", b"7", b"]"], 1, b"7"),
        ([b"x[[", b"7."], 1, b"7"),
        ([b"x[[", b"7", b"."], 1, b"7"),
        ([b"x[[", b"7", b", "], 1, b"7"),
        ([b"x[[", b"7"], 1, b"7"),
    ],
)
def test_a_usable_score_is_found_at_its_first_token(row: list[bytes], token: int, label: bytes) -> None:
    result = spans([row])
    assert result.usable.tolist() == [True]
    assert result.token.item() == token and TEN[int(result.label)] == label
    assert b"".join(row)[int(result.start) : int(result.end)] == label


@pytest.mark.parametrize(
    ("row", "closings", "reason"),
    [
        ([b"[", b"[7", b"]]"], [], OFF_BOUNDARY),
        ([b"[", b"[ 7", b"]]"], [], OFF_BOUNDARY),
        ([b"[[7]]"], [b"]]"], OFF_BOUNDARY),
        ([b"[["], [], ENDED),
        ([b"[[", b" ", b"\n", b""], [], ENDED),
        ([b"[[", b"7", b" because"], [b"]]"], UNCLOSED),
        ([b"[[", b"7"], [b"]]"], UNCLOSED),
        ([b"[[", b"7", b"]"], [b"]]"], UNCLOSED),
        ([b"[[7"], [b"]]"], UNCLOSED),
        *(([b"[[", text.encode(), b"]]"], [], NO_LABEL) for text in NUMBERS.split()),
        *(
            ([b"[[", b"4", more], [b"]]"], NO_LABEL)
            for more in (b"7]]", b".5]]", b"\xe2\x80\x935", b"a", b"/5]]", b"...")
        ),
        ([b"[[", b"seven", b"]]"], [b"]]"], NO_LABEL),
        ([b"[[", b" " * 17, b"7", b"]]"], [b"]]"], NO_LABEL),
        ([b"[[", b"\x00", b"7", b"]]"], [b"]]"], NO_LABEL),
    ],
)
def test_anything_else_is_a_reason_and_never_a_guess(
    row: list[bytes], closings: list[bytes], reason: SpanReason
) -> None:
    result = spans([row], closings=closings)
    assert result.reason.tolist() == [reason]
    assert result.usable.tolist() == [False]
    if reason in (ENDED, NO_LABEL):
        assert (result.label.item(), result.token.item()) == (-1, -1)


@pytest.mark.parametrize("text", [b"A+", b"Apple", b"A-", b"A\xc3\xa9", b"A_", b"A.M."])
def test_a_letter_is_a_label_only_as_a_word(text: bytes) -> None:
    assert spans([[b"[[", text]], labels=[b"A", b"B"]).reason.tolist() == [NO_LABEL]


def test_rows_keep_their_matches_in_order_and_empty_rows_have_none() -> None:
    rows = [[], [b"[[", b"3", b"]] [[", b"x", b" [[", b"9", b"]]"], [], [b"none"], [b"[[", b"2", b"]]"], []]
    result = spans(rows, closings=[b"]]"])
    assert result.offsets.tolist() == [0, 0, 3, 3, 3, 4, 4]
    assert result.token.tolist() == [1, -1, 5, 1]
    assert result.label.tolist() == [2, -1, 8, 1]
    assert result.reason.tolist() == [OK, NO_LABEL, OK, OK]
    assert spans([]).offsets.tolist() == [0]
    assert len(spans([[]]).token) == 0


def test_a_row_has_the_same_spans_alone_and_anywhere_among_4096() -> None:
    generator = random.Random(0)
    rows = [[generator.choice(FRAGMENTS) for _ in range(generator.randrange(12))] for _ in range(4096)]
    order = generator.sample(range(4096), 4096)
    closings = (b"]]", b"</A>")
    together, shuffled = (
        spans([*some, FRAGMENTS], openings=[b"[[", b"<A>"], closings=closings)
        for some in (rows, [rows[i] for i in order])
    )

    def of_row(result: AnswerSpans, row: int) -> list[tuple[int, ...]]:
        mine = slice(int(result.offsets[row]), int(result.offsets[row + 1]))
        return list(zip(*(getattr(result, name)[mine].tolist() for name in FIELDS[1:]), strict=True))

    found = [of_row(together, row) for row in range(4096)]
    assert len(set(map(str, found))) > 100
    assert [of_row(shuffled, place) for place in range(4096)] == [found[row] for row in order]
    for row in (0, 1, 2049, 4095):
        assert of_row(spans([rows[row], FRAGMENTS], openings=[b"[[", b"<A>"], closings=closings), 0) == found[row]


def test_tags_that_touch_or_overlap_are_matches_of_their_own_unless_they_lead_to_one_score() -> None:
    assert spans([[b"[[[", b"7"]]).reason.tolist() == [NO_LABEL, OK]
    assert spans([[b"[[", b"[[", b"7"]]).reason.tolist() == [NO_LABEL, NO_LABEL, OK]
    assert spans([[b"Score", b":", b" 7"]], openings=[b"Score", b"Score:"]).reason.tolist() == [OK]
    assert spans([[b"**", b"**", b"7"]], openings=[b"**"]).token.tolist() == [2]
    nested = spans([[b"<A", b"> <", b"A>", b" 5", b"</A>", b" </A>"]], openings=[b"<A>"], closings=[b"</A>"])
    assert nested.reason.tolist() == [NO_LABEL, OK]
    assert nested.token.tolist() == [-1, 3]


@pytest.mark.parametrize("labels", [[b"1", b"10", b"Yes", b"Yes, but"], [b"Yes, but", b"10", b"Yes", b"1"]])
def test_the_longest_label_wins_in_whatever_order_they_are(labels: list[bytes]) -> None:
    rows = [[b"[[", text, b"]]"] for text in (b"10", b"1", b"Yes, but", b"Yes", b"Yes, bu")]
    result = spans(rows, labels=labels)
    assert [labels[label] for label in result.label.tolist()] == [b"10", b"1", b"Yes, but", b"Yes", b"Yes"]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_filler_up_to_the_limit_is_skipped_on_both_sides(limit: int) -> None:
    sides = [(limit, limit), (limit + 1, limit), (limit, limit + 1)]
    rows = [[b"[[", b" " * before, b"7", b" " * after, b"]]", b"."] for before, after in sides]
    result = spans(rows, closings=[b"]]"], max_filler=limit)
    assert result.reason.tolist() == [OK, NO_LABEL, UNCLOSED]


def test_rows_hold_any_number_of_matches() -> None:
    rows = [[b"[[", b"7" if place % 3 else b"10", b"]]"] * (place % 7) for place in range(300)]
    assert matches(spans(rows)) == oracle(rows, [b"[["], TEN)


def test_a_tag_split_over_many_tokens_is_found() -> None:
    tag = [bytes([byte]) for byte in b"<ANSWER>"]
    end = [bytes([byte]) for byte in b"</ANSWER>"]
    result = spans([[*tag, b" ", b"4", b" ", *end]], openings=[b"<ANSWER>"], closings=[b"</ANSWER>"])
    assert matches(result) == [(0, 9, 9, 10, 3, OK)]


@pytest.mark.parametrize(
    ("unit", "openings", "closings", "found"),
    [
        (b"[", [b"[["], [b"]]"], -1),
        (b"<ANSWER", [b"<ANSWER>"], [b"</ANSWER>"], 0),
        (b"<ANSWER> ", [b"<ANSWER>"], [b"</ANSWER>"], 1),
        (b"*", [b"**"], [b"**"], -2),
        (b"[[7 * * * ", [b"[["], [b"]]"], 1),
        (b"[[1111111", [b"[["], [b"]]"], 1),
    ],
)
def test_a_megabyte_of_hostile_tags_is_read_once(
    unit: bytes, openings: list[bytes], closings: list[bytes], found: int
) -> None:
    """Anything quadratic would take hours; `found` is how many matches each unit has, negative for all bytes."""
    repeats = (1 << 20) // len(unit) // 1000
    result = spans([[unit * repeats] * 1000], openings=openings, closings=closings, max_filler=1 << 20)
    total = repeats * 1000
    assert len(result.token) == {-1: total - 1, -2: 1, 0: 0, 1: total}[found]
    assert not result.usable.any()


def test_streams_may_be_strided_and_of_32_bits() -> None:
    table = ByteTable.of([b"[[", b"7", b"]]"])
    ids, offsets = torch.arange(6, dtype=torch.int32)[::2] // 2, torch.tensor([0, 9, 3], dtype=torch.int32)[::2]
    result = answer_spans(ids, offsets, table, openings=[b"[["], labels=[b"7"])
    assert result.token.tolist() == [1]


GOOD = {
    "token_ids": torch.tensor([0, 1, 2, 1]),
    "offsets": torch.tensor([0, 1, 4]),
    "table": ByteTable.of([b"[[", b"7", b"]]"]),
    "openings": [b"[["],
    "labels": [b"7"],
}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"token_ids": torch.tensor([0, 1, 3, 1])}, RaggedError, "token 1 of row 1 has id 3: the table knows 0 … 2"),
        ({"token_ids": torch.tensor([-1, 1, 0, 1])}, RaggedError, "token 0 of row 0 has id -1"),
        ({"token_ids": torch.ones(4)}, TypeError, "token_ids has dtype torch.float32"),
        ({"offsets": torch.tensor([0, 3])}, RaggedError, "from 0 to 3: it must start at 0 and end at 4"),
        ({"offsets": torch.tensor([0, 3, 2, 4])}, RaggedError, r"offsets\[2\] is 2 after 3: offsets may not fall"),
        ({"offsets": torch.tensor([], dtype=torch.int64)}, RaggedError, "offsets is empty"),
        ({"openings": []}, ValueError, "openings is empty"),
        ({"openings": b"[["}, TypeError, r"openings\[0\] is a int: pass a sequence of bytes objects"),
        ({"openings": [b"[[", b""]}, ValueError, r"openings\[1\] is empty"),
        ({"closings": ["]]"]}, TypeError, r"closings\[0\] is a str"),
        ({"labels": []}, LabelSetError, "labels is empty"),
        ({"labels": [b"7", b"8", b"7"]}, LabelSetError, r"labels\[2\] is b'7' a second time"),
        ({"labels": [b" 7"]}, LabelSetError, r"labels\[0\] is b' 7', which begins with filler"),
        ({"labels": [b""]}, LabelSetError, r"labels\[0\] is empty"),
        ({"filler": " "}, TypeError, "filler is a str: pass bytes"),
        ({"max_filler": -1}, ValueError, "max_filler is -1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        answer_spans(**(GOOD | arguments))


def test_a_byte_table_holds_its_strings() -> None:
    table = ByteTable.of([b"ab", b"", b"\xff"])
    assert len(table) == 3
    assert table.data.tolist() == [97, 98, 255]
    assert table.starts.tolist() == [0, 2, 2, 3]
    assert len(ByteTable.of([])) == 0
    with pytest.raises(TypeError, match=r"pieces\[1\] is a str: pass bytes"):
        ByteTable.of([b"", "a"])  # type: ignore[list-item]
