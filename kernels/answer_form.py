"""How an answer is written down: what opens it, what may stand before the score, the labels, what closes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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


@dataclass(frozen=True, slots=True)
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
