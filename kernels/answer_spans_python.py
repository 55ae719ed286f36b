"""`answer_spans` without numba: bytes.find leads from opening to opening, plain Python reads what follows each."""

from bisect import bisect_right
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adjudge.kernels.answer_form import COLUMNS, ENDS, POINTS, AnswerForm, SpanReason
from adjudge.kernels.byte_table import ByteTable

Found = tuple[int, int, int, int, int, int, int]


def python_spans(
    ids: NDArray[np.int64], offsets: NDArray[np.int64], table: ByteTable, form: AnswerForm
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns [M, 7] of all matches (as in `AnswerSpans`) and the offsets [N + 1] of the rows' matches."""
    found: list[Found] = []
    counts = [0]
    for first, last in pairwise(offsets.tolist()):
        text, token_ends = _text(ids[first:last], table)
        found += _row(text, token_ends, form)
        counts.append(len(found))
    return np.array(found, dtype=np.int64).reshape(-1, COLUMNS), np.array(counts)


def _text(ids: NDArray[np.int64], table: ByteTable) -> tuple[bytes, list[int]]:
    """The bytes of a row, and where in them each of its tokens ends."""
    starts = table.starts.numpy()
    lengths = starts[ids + 1] - starts[ids]
    ends = lengths.cumsum()
    shift = starts[ids] - (ends - lengths)  # from a token's place in the row to its place in the table
    places = np.arange(lengths.sum()) + shift.repeat(lengths)
    return table.data.numpy()[places].tobytes(), ends.tolist()


def _row(text: bytes, token_ends: list[int], form: AnswerForm) -> list[Found]:
    found = []
    opening_ends = _ends_of(form.openings, text)
    for opening_end, next_opening_end in pairwise([*opening_ends, len(text) + 1]):
        start = _after_filler(text, opening_end, min(next_opening_end, len(text)), form)
        if start != next_opening_end:  # else that opening is nearer to the same score
            found.append(_match(text, token_ends, opening_end, start, form))
    return found


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
        return -1, 0, 0, start, start, label, reason
    first = bisect_right(token_ends, start)
    last = bisect_right(token_ends, end - 1)
    first_begins = token_ends[first - 1] if first else 0
    if reason == SpanReason.OK and first_begins < opening_end:
        reason = SpanReason.OFF_BOUNDARY
    return first, last - first + 1, start - first_begins, start, end, label, reason


def _read(text: bytes, start: int, form: AnswerForm) -> tuple[int, int, SpanReason]:
    """The longest label that stands at `start` as a word of its own, or -1; where it ends; what is wrong with it."""
    if start == len(text):
        return -1, start, SpanReason.ENDED
    standing = [place for place, label in enumerate(form.labels) if text.startswith(label, start)]
    if not standing:
        return -1, start, SpanReason.NO_LABEL
    label = max(standing, key=lambda place: len(form.labels[place]))
    end = start + len(form.labels[label])
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
