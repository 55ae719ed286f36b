"""Where the score tokens stand in token streams, after <ANSWER>, [[ and the like.

Tags are matched in the bytes of the stream and mapped back to tokens, since a tokenizer merges tags with neighbours.

Ladder, naive to fast. Milliseconds for 1,000 rows of 500 tokens, one score in each; one thread, 2 busy AVX-512 cores:
1. decode, search by regular expression: the score, but not its token           100
2. the same, then decode prefixes until its token is found                      800
3. join the tokens' bytes, search by regular expression, bisect for the token    33
4. bytes.find from opening to opening, plain Python for the rest                 29   without numba
5. one compiled pass over the bytes                                               9   after 2.4 s of compiling
A megabyte in which an opening ends at every byte takes 3,960 in Python and 233 compiled.
Where it loses: compiling pays only for streams of millions of tokens or hostile ones, so small calls never start it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adjudge.kernels.answer_form import FILLER, AnswerForm, SpanReason
from adjudge.kernels.answer_spans_python import python_spans
from adjudge.kernels.byte_table import ByteTable
from adjudge.kernels.ragged import RaggedError, check_offsets, whole_numbers

Spans = Callable[
    [NDArray[np.int64], NDArray[np.int64], ByteTable, AnswerForm], tuple[NDArray[np.int64], NDArray[np.int64]]
]

COMPILED_FROM = 1 << 18
"""Fewer tokens are read in plain Python, which takes milliseconds where compiling takes seconds; the bits agree."""


@dataclass(frozen=True, slots=True)
class AnswerSpans:
    """The matches of N rows in the order they stand in; row r's are offsets[r] : offsets[r + 1]. All int64, on CPU.

    A match is an opening, the filler after it and what stands there. Where that is no label, `label` and `token` are
    -1, `tokens` and `lead` 0, and `start` = `end` is where it was sought.
    """

    offsets: Tensor  # [N + 1]
    token: Tensor  # [M]: place in the row of the token that holds the score's first byte
    tokens: Tensor  # [M]: how many tokens the score reaches over, empty ones between them included
    lead: Tensor  # [M]: how many bytes that first token has before the score: 1 for " 4"
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
      score, `lead` says how far in it stands) but no byte of the opening (">4", "[4"). What the last token of the
      score holds after it ("4]") does not matter: the distribution is read before that token.
    - A token without bytes is as if it were not there. Bytes from 0x80 on count as letters.
    The time grows with bytes times the strings sought, whatever the stream.
    Raises RaggedError about ids and offsets, LabelSetError about labels, ValueError about other strings, TypeError.
    """
    form = AnswerForm(tuple(openings), tuple(labels), tuple(closings), filler, max_filler)
    ids = whole_numbers("token_ids", token_ids).cpu()
    offsets = whole_numbers("offsets", offsets).cpu()
    check_offsets(offsets, len(ids), "row", empty=True)
    _check_ids(ids, offsets, table)
    found, counts = _implementation(len(ids))(ids.numpy(), offsets.numpy(), table, form)
    return AnswerSpans(torch.from_numpy(counts), *torch.from_numpy(found).T.contiguous())


def _check_ids(ids: Tensor, offsets: Tensor, table: ByteTable) -> None:
    bad = (ids < 0) | (ids >= len(table))
    if bad.any():
        place = int(bad.nonzero()[0])
        row = int(torch.searchsorted(offsets, place, right=True)) - 1
        where = f"token {place - int(offsets[row])} of row {row} has id {int(ids[place])}"
        raise RaggedError(f"{where}: the table knows 0 … {len(table) - 1}")


def _implementation(tokens: int) -> Spans:
    return (_compiled() or python_spans) if tokens >= COMPILED_FROM else python_spans


@cache
def _compiled() -> Spans | None:
    try:
        from adjudge.kernels.answer_spans_numba import numba_spans
    except Exception:  # numba refuses releases of numpy that it does not know
        return None
    return numba_spans
