"""Where the score tokens stand in token streams, after <ANSWER>, [[ and the like.

Tags are matched in the bytes of the stream and mapped back to tokens, since a tokenizer merges tags with neighbours.

Ladder, naive to fast. Milliseconds of processor time for 1,000 rows of 500 tokens, one score in each, on an AMD EPYC:
1. decode, search by regular expression: the score, but not its token            90
2. the same, then decode prefixes until its token is found                      800
3. join the tokens' bytes, search by regular expression, bisect for the token    28
4. bytes.find from opening to opening, plain Python for the rest                 25
5. one pass over the bytes, compiled by numba                                     7   after 2,600 of compiling
The fifth is gone: each process compiled it, from 262,144 tokens on, which take 15 without it and took 5 with it.
A megabyte in which an opening ends at every byte takes 1,000, whether there are ten labels or a hundred; it took 3,000
and 8,000 before labels were sought by their first byte and matches kept in one flat list, 200 once compiled. The most
that any text was found to take is 1,900, where an opening is itself a label.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adjudge.kernels.byte_table import ByteTable
from adjudge.kernels.ragged import RaggedError, check_offsets, whole_numbers
from adjudge.kernels.restricted_head_arguments import LabelSetError

FILLER = b" \t\r\n*:"
"""Bytes that may stand between an opening and the score, and between the score and a closing."""

ENDS = b" \t\r\n\v\f\"'`*)]}><|;!?$"
"""Bytes after which what stood before them is a word of its own."""
POINTS = b".,:"
"""Bytes that end a word only before one of ENDS or the end of the stream: "4." is a 4, "4.5" and "4:30" are not."""


class SpanReason(IntEnum):
    """Why a score cannot be used; OK if it can."""

    OK = 0
    ENDED = 1  # the stream ended before the score
    NO_LABEL = 2  # what stands there is none of the labels
    UNCLOSED = 3  # the label is not followed by a closing
    OFF_BOUNDARY = 4  # the score's first token begins inside the opening


@dataclass(frozen=True)
class AnswerForm:
    """What `answer_spans` looks for; checked when built.

    Raises LabelSetError about labels, TypeError about things that are not bytes, ValueError about the rest.
    """

    openings: tuple[bytes, ...]
    labels: tuple[bytes, ...]
    closings: tuple[bytes, ...]
    filler: bytes
    max_filler: int

    def __post_init__(self) -> None:
        for name, strings in (("openings", self.openings), ("labels", self.labels), ("closings", self.closings)):
            for place, string in enumerate(strings):
                if not isinstance(string, bytes):
                    raise TypeError(f"{name}[{place}] is a {type(string).__name__}: pass a sequence of bytes objects")
                if not string:
                    raise (LabelSetError if name == "labels" else ValueError)(f"{name}[{place}] is empty")
        if not self.openings:
            raise ValueError('openings is empty: pass at least one, such as b"[["')
        if not self.labels:
            raise LabelSetError("labels is empty: pass at least one")
        if not isinstance(self.filler, bytes):
            raise TypeError(f"filler is a {type(self.filler).__name__}: pass bytes")
        if self.max_filler < 0:
            raise ValueError(f"max_filler is {self.max_filler}: pass a number of bytes of at least 0")
        for place, label in enumerate(self.labels):
            if label in self.labels[:place]:
                raise LabelSetError(f"labels[{place}] is {label!r} a second time: pass each label once")
            if label[0] in self.filler:
                raise LabelSetError(
                    f"labels[{place}] is {label!r}, which begins with filler: take that byte from filler"
                )

    @cached_property
    def by_first_byte(self) -> dict[int, list[tuple[int, bytes]]]:
        """The labels that begin with a byte, the longest first, each with its index."""
        found: dict[int, list[tuple[int, bytes]]] = {}
        for place, label in sorted(enumerate(self.labels), key=lambda one: len(one[1]), reverse=True):
            found.setdefault(label[0], []).append((place, label))
        return found


COLUMNS = 5
Found = tuple[int, int, int, int, int]
"""A match: token, start, end, label, reason, as in `AnswerSpans`."""


@dataclass(frozen=True, slots=True)
class AnswerSpans:
    """The matches of N rows in the order they stand in; row r's are offsets[r] : offsets[r + 1]. All int64, on CPU.

    A match is an opening, the filler after it and what stands there. Where that is no label, `label` and `token` are
    -1, and `start` = `end` is where it was sought.
    """

    offsets: Tensor  # [N + 1]
    token: Tensor  # [M]: place in the row of the token that holds the score's first byte
    start: Tensor  # [M]: first byte of the score in the row's bytes
    end: Tensor  # [M]: the byte after its last
    label: Tensor  # [M]: index into `labels`
    reason: Tensor  # [M]: a SpanReason

    @property
    def usable(self) -> Tensor:
        """[M] bool: the distribution at `token` is that of a score."""
        return self.reason == SpanReason.OK


def answer_spans(
    token_ids: Tensor,
    offsets: Tensor,
    table: ByteTable,
    *,
    openings: Sequence[bytes],
    labels: Sequence[bytes],
    closings: Sequence[bytes] = (),
    filler: bytes = FILLER,
    max_filler: int = 16,
) -> AnswerSpans:
    """Find every score that follows one of `openings` in rows of token ids.

    Shapes: `token_ids` [total] and `offsets` [N + 1], rows packed one after the other; a row may be empty.
    - Every occurrence of an opening is a match, overlapping ones too, except that of openings which lead to the same
      score only the last is.
    - Up to `max_filler` bytes of `filler` are skipped; there the longest label that fits is read, and it must end as a
      word does: "47", "4.5", "4/5", "4th" and "A+" are not the labels "4" and "A".
    - With `closings`, one of them must follow, again after filler. Without, the end of the stream closes too, so give
      closings where streams may be cut short.
    - The score must start on a token boundary: its first token may hold filler before it (" 4": that token decides the
      score) but no byte of the opening (">4", "[4"). What the last token of the score holds after it ("4]") does not
      matter: the distribution is read before that token.
    - A token without bytes is as if it were not there. Bytes from 0x80 on count as letters.
    The time grows with bytes times the strings sought, whatever the stream.
    Raises RaggedError about ids and offsets, LabelSetError about labels, ValueError about other strings, TypeError.
    """
    form = AnswerForm(tuple(openings), tuple(labels), tuple(closings), filler, max_filler)
    ids = whole_numbers("token_ids", token_ids).cpu()
    offsets = whole_numbers("offsets", offsets).cpu()
    check_offsets(offsets, len(ids), "row", empty=True)
    _check_ids(ids, offsets, table)
    found: list[int] = []  # flat: a million tuples would keep the garbage collector busy
    counts = [0]
    for first, last in pairwise(offsets.tolist()):
        text, token_ends = _text(ids[first:last].numpy(), table)
        for match in _row(text, token_ends, form):
            found += match
        counts.append(len(found) // COLUMNS)
    columns = np.array(found, dtype=np.int64).reshape(-1, COLUMNS).T
    return AnswerSpans(*map(torch.from_numpy, (np.array(counts), *np.ascontiguousarray(columns))))


def _check_ids(ids: Tensor, offsets: Tensor, table: ByteTable) -> None:
    bad = (ids < 0) | (ids >= len(table))
    if bad.any():
        place = int(bad.nonzero()[0])
        row = int(torch.searchsorted(offsets, place, right=True)) - 1
        where = f"token {place - int(offsets[row])} of row {row} has id {int(ids[place])}"
        raise RaggedError(f"{where}: the table knows 0 … {len(table) - 1}")


def _text(ids: NDArray[np.int64], table: ByteTable) -> tuple[bytes, list[int]]:
    """The bytes of a row, and where in them each of its tokens ends."""
    starts = table.starts.numpy()
    lengths = starts[ids + 1] - starts[ids]
    ends = lengths.cumsum()
    shift = starts[ids] - (ends - lengths)  # from a token's place in the row to its place in the table
    places = np.arange(lengths.sum()) + shift.repeat(lengths)
    return table.data.numpy()[places].tobytes(), ends.tolist()


def _row(text: bytes, token_ends: list[int], form: AnswerForm) -> Iterator[Found]:
    opening_ends = _ends_of(form.openings, text)
    for opening_end, next_opening_end in pairwise([*opening_ends, len(text) + 1]):
        start = _after_filler(text, opening_end, min(next_opening_end, len(text)), form)
        if start != next_opening_end:  # else that opening is nearer to the same score
            yield _match(text, token_ends, opening_end, start, form)


def _ends_of(strings: tuple[bytes, ...], text: bytes) -> list[int]:
    """Where the occurrences of any of the strings end, overlapping ones too."""
    ends = set()
    for string in strings:
        place = text.find(string)
        while place >= 0:
            ends.add(place + len(string))
            place = text.find(string, place + 1)
    return sorted(ends)


def _after_filler(text: bytes, start: int, stop: int, form: AnswerForm) -> int:
    stop = min(stop, start + form.max_filler)
    while start < stop and text[start] in form.filler:
        start += 1
    return start


def _match(text: bytes, token_ends: list[int], opening_end: int, start: int, form: AnswerForm) -> Found:
    label, end, reason = _read(text, start, form)
    if label < 0:
        return -1, start, start, label, reason
    first = bisect_right(token_ends, start)
    if reason == SpanReason.OK and (token_ends[first - 1] if first else 0) < opening_end:
        reason = SpanReason.OFF_BOUNDARY
    return first, start, end, label, reason


def _read(text: bytes, start: int, form: AnswerForm) -> tuple[int, int, SpanReason]:
    """The longest label that stands at `start` as a word of its own, or -1; where it ends; what is wrong with it."""
    if start == len(text):
        return -1, start, SpanReason.ENDED
    label, end = -1, start
    for place, written in form.by_first_byte.get(text[start], ()):
        if text.startswith(written, start):
            label, end = place, start + len(written)
            break
    if label < 0:
        return -1, start, SpanReason.NO_LABEL
    after = _after_filler(text, end, len(text), form)
    if any(text.find(closing, end, after + len(closing)) >= 0 for closing in form.closings):
        return label, end, SpanReason.OK
    if not _is_word_end(text, end):
        return -1, start, SpanReason.NO_LABEL
    return label, end, SpanReason.UNCLOSED if form.closings else SpanReason.OK


def _is_word_end(text: bytes, end: int) -> bool:
    if end < len(text) and text[end] in POINTS:
        end += 1
    return end == len(text) or text[end] in ENDS
