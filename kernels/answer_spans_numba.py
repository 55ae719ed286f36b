"""`answer_spans` compiled: one pass over the bytes of each row, no text larger than a row."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adjudge.kernels.answer_form import COLUMNS, ENDS, POINTS, AnswerForm, SpanReason
from adjudge.kernels.byte_table import ByteTable

OK, ENDED, NO_LABEL, UNCLOSED, OFF_BOUNDARY = (int(reason) for reason in SpanReason)


def numba_spans(
    ids: NDArray[np.int64], offsets: NDArray[np.int64], table: ByteTable, form: AnswerForm
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns [M, 7] of all matches (as in `AnswerSpans`) and the offsets [N + 1] of the rows' matches."""
    found, counts = _scan(
        ids,
        offsets,
        _arrays(table),
        _arrays(ByteTable.of(form.openings)),
        _arrays(ByteTable.of(form.labels)),
        _arrays(ByteTable.of(form.closings)),
        _byte_set(form.filler),
        _byte_set(ENDS),
        _byte_set(POINTS),
        form.max_filler,
    )
    return found, counts


def _arrays(table: ByteTable) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return table.data.numpy(), table.starts.numpy()


def _byte_set(members: bytes) -> NDArray[np.bool_]:
    return np.isin(np.arange(256), list(members))


@njit(nogil=True)
def _scan(ids, offsets, table, openings, labels, closings, filler, ends, points, max_filler):  # type: ignore[no-untyped-def]
    data, starts = table
    found = np.empty((64, COLUMNS), np.int64)
    counts = np.zeros(len(offsets), np.int64)
    closes_opening = _last_bytes(openings)
    count = 0
    for row in range(len(offsets) - 1):
        text, token_ends = _text(ids[offsets[row] : offsets[row + 1]], data, starts)
        opening_end = -1  # of the nearest opening whose score has not been reached
        for place in range(1, len(text) + 1):
            if closes_opening[text[place - 1]] and _one_ends_at(openings, text, place):
                opening_end = place
            if opening_end < 0:
                continue
            if place < len(text) and place - opening_end < max_filler and filler[text[place]]:
                continue
            if count == len(found):
                found = np.concatenate((found, np.empty_like(found)))
            label, end, reason = _read(text, place, labels, closings, filler, ends, points, max_filler)
            _write(found[count], token_ends, opening_end, place, end, label, reason)
            count += 1
            opening_end = -1
        counts[row + 1] = count
    return found[:count], counts


@njit(nogil=True)
def _last_bytes(strings):  # type: ignore[no-untyped-def]
    data, starts = strings
    last = np.zeros(256, np.bool_)
    for end in starts[1:]:
        last[data[end - 1]] = True
    return last


@njit(nogil=True)
def _text(ids, data, starts):  # type: ignore[no-untyped-def]
    """The bytes of a row, and where in them each of its tokens ends."""
    token_ends = np.empty(len(ids), np.int64)
    size = 0
    for token in range(len(ids)):
        size += starts[ids[token] + 1] - starts[ids[token]]
        token_ends[token] = size
    text = np.empty(size, np.uint8)
    place = 0
    for token in ids:
        for source in range(starts[token], starts[token + 1]):
            text[place] = data[source]
            place += 1
    return text, token_ends


@njit(nogil=True)
def _stands_at(strings, which, text, start):  # type: ignore[no-untyped-def]
    data, starts = strings
    first, last = starts[which], starts[which + 1]
    if start < 0 or start + last - first > len(text):
        return False
    place = 0
    while place < last - first and text[start + place] == data[first + place]:
        place += 1
    return place == last - first


@njit(nogil=True)
def _one_ends_at(strings, text, end):  # type: ignore[no-untyped-def]
    starts = strings[1]
    for which in range(len(starts) - 1):
        if _stands_at(strings, which, text, end - (starts[which + 1] - starts[which])):
            return True
    return False


@njit(nogil=True)
def _read(text, start, labels, closings, filler, ends, points, max_filler):  # type: ignore[no-untyped-def]
    """The longest label that stands at `start` as a word of its own, or -1; where it ends; what is wrong with it."""
    if start == len(text):
        return -1, start, ENDED
    label, end = -1, start
    label_starts = labels[1]
    for which in range(len(label_starts) - 1):
        size = label_starts[which + 1] - label_starts[which]
        if size > end - start and _stands_at(labels, which, text, start):
            label, end = which, start + size
    if label < 0:
        return -1, start, NO_LABEL
    if _is_closed(text, end, closings, filler, max_filler):
        return label, end, OK
    after = end + 1 if end < len(text) and points[text[end]] else end
    if after < len(text) and not ends[text[after]]:
        return -1, start, NO_LABEL
    return label, end, UNCLOSED if len(closings[1]) > 1 else OK


@njit(nogil=True)
def _is_closed(text, end, closings, filler, max_filler):  # type: ignore[no-untyped-def]
    for place in range(end, min(end + max_filler, len(text)) + 1):
        for which in range(len(closings[1]) - 1):
            if _stands_at(closings, which, text, place):
                return True
        if place == len(text) or not filler[text[place]]:
            return False
    return False


@njit(nogil=True)
def _write(match, token_ends, opening_end, start, end, label, reason):  # type: ignore[no-untyped-def]
    first, tokens, lead = -1, 0, 0
    if label >= 0:
        first = np.searchsorted(token_ends, start, side="right")
        tokens = np.searchsorted(token_ends, end - 1, side="right") - first + 1
        first_begins = token_ends[first - 1] if first else 0
        lead = start - first_begins
        if reason == OK and first_begins < opening_end:
            reason = OFF_BOUNDARY
    match[0], match[1], match[2], match[3], match[4], match[5], match[6] = (
        first,
        tokens,
        lead,
        start,
        end,
        label,
        reason,
    )
