"""Requests that read how likely a prompt's own tokens are, each given those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import torch

from adjudge.engine.batching.step import Request
from adjudge.engine.choosing import likeliest, log_sums
from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.tokens import Tokens

SPAN, MOST_SPANS = 256, 64
"""Tokens that are read at once; more where a prompt had more such spans, each of which is a request of its own."""


@dataclass(eq=False)
class PromptReading:
    """What has been read of a prompt's tokens, each with its `count` likeliest, and the texts that wait for the rest.

    The first token has none before it and is not read.
    """

    tokens: Tokens
    count: int
    given_up: bool = False
    _found: list[TokenLogprob | None] = field(init=False)
    _left: int = field(init=False)
    _waiting: list[tuple[Completion, Callable[[Completion], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._found = [None] * len(self.tokens)
        self._left = len(self.tokens) - 1

    def spans(self, room: int) -> Iterator[SpanReader]:
        """The requests that read it, for steps of `room` tokens."""
        last = len(self.tokens) - 1
        size = max(1, min(room // 4, max(SPAN, last // MOST_SPANS)))  # a whole step is not free while others write
        for start in range(0, last, size):
            end = min(start + size, last)
            yield SpanReader(self.tokens[:end], keep=end, wanted=end - start, reading=self)

    def put(self, place: int, read: TokenLogprob) -> None:
        """Note what the token at a place is like, and answer once all are there."""
        self._found[place] = read
        self._left -= 1
        self._answer()

    def give_up(self) -> None:
        """Have the texts that wait end with "timeout"."""
        self.given_up = True
        self._answer()

    def complete(self, completion: Completion, answer: Callable[[Completion], None]) -> None:
        """Answer with a text and its prompt's reading, once that is there."""
        self._waiting.append((completion, answer))
        self._answer()

    def _answer(self) -> None:
        if self._left and not self.given_up:
            return
        read = () if self._left else tuple(self._found)
        reason = {"finish_reason": "timeout"} if self._left else {}
        for completion, answer in self._waiting:
            answer(msgspec.structs.replace(completion, prompt_logprobs=read, **reason))
        self._waiting.clear()


@dataclass(eq=False, kw_only=True)
class SpanReader(Request):
    """The first tokens of a prompt; after each of the last `wanted` of them the next one is read, in order."""

    reading: PromptReading
    read: int = 0

    @property
    def stem(self) -> int:
        """What the spans before it read."""
        return len(self.tokens) - self.wanted

    def next_place(self) -> int:
        """Where the next token that is read stands in the prompt."""
        self.read += 1
        return len(self.tokens) - self.wanted + self.read

    def give_up(self) -> None:
        """Answer that the deadline has passed."""
        self.reading.give_up()


def read_tokens(some: Sequence[SpanReader], logits_RV: torch.Tensor) -> None:
    """Note what the next token of each one's prompt is like, from its row of the model's logits (float32)."""
    sums_R = log_sums(logits_RV)
    places = [span.next_place() for span in some]
    tokens = [span.reading.tokens[place] for span, place in zip(some, places, strict=True)]
    chosen_R = logits_RV[range(len(some)), tokens] - sums_R
    tops = likeliest(logits_RV, sums_R, [span.reading.count for span in some])
    for span, place, token, logprob, top in zip(some, places, tokens, chosen_R.tolist(), tops, strict=True):
        span.reading.put(place, TokenLogprob(token, logprob, top))
