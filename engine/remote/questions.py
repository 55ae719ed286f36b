"""What one request to a server asks for a call, and what becomes of its reply."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from adjudge.engine.call import Call
from adjudge.engine.completion import Completion, FinishReason
from adjudge.engine.reading import ScoreJob
from adjudge.engine.remote.pooling import Pooling
from adjudge.engine.remote.protocols import Ask, Protocol, Reading, Text
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Reason, Score
from adjudge.engine.text.tokenizer import Tokens

Key = TypeVar("Key")
Value = TypeVar("Value")

_encode = msgspec.json.Encoder(enc_hook=lambda number: number.item()).encode  # numpy's numbers are numbers

NEGLIGIBLE = 1e-3
"""By how much a label's log-probability may be unknown."""


@dataclass(eq=False)
class ReadJob(ScoreJob):
    """One prompt under way, whose readings come from a server: it may not report all tokens, or none at all."""

    def read(self, place: int, reading: Reading | Reason) -> None:
        """Note a reading; without one there is no score."""
        if isinstance(reading, str):
            self.answer(Score.abstained(self.labels.labels, reading, self.prompt_tokens))
        else:
            super().read(place, reading)

    def score(self, readings: Sequence[Reading]) -> Score:
        """The score with unreported tokens at 0, if it could not be another were they all as probable as they may be.

        So a variant of a label may go unreported where it hardly counts; a label that is not reported at all may not.
        """
        score = self.labels.score([reading.logprobs for reading in readings], self.prompt_tokens)
        if all(reading.logprobs == reading.at_most for reading in readings):
            return score
        other = self.labels.score([reading.at_most for reading in readings], self.prompt_tokens)
        if score.full_logprobs is None or other.full_logprobs is None:
            return Score.abstained(self.labels.labels, "unsupported", self.prompt_tokens)
        pairs = zip(score.full_logprobs, other.full_logprobs, strict=True)
        if all(math.isclose(least, most, rel_tol=0, abs_tol=NEGLIGIBLE) for least, most in pairs):
            return score
        return Score.abstained(self.labels.labels, "unsupported", self.prompt_tokens)


@dataclass(eq=False)
class Question(ABC):
    """One request."""

    priority: int

    @property
    @abstractmethod
    def path(self) -> str:
        """Where it goes."""

    @abstractmethod
    def body(self) -> bytes:
        """What it says."""

    @abstractmethod
    def decode(self, raw: bytes) -> tuple[Any, int]:
        """The reply, checked, and how many tokens it cost; raises BadReply."""

    @abstractmethod
    def take(self, reply: Any) -> None:
        """Answer with a reply."""

    @abstractmethod
    def give_up(self, reason: Reason) -> None:
        """Answer that there is none."""

    def halves(self) -> tuple[Question, ...]:
        """Two requests for the same, each for half of it; () where it cannot be halved."""
        return ()


@dataclass(eq=False)
class ReadQuestion(Question):
    """Asks for label distributions; each goes to all (job, place in its label set) that wait for it."""

    protocol: Protocol
    asks: dict[Ask, list[tuple[ReadJob, int]]]

    @property
    def path(self) -> str:
        """Where readings are asked for."""
        return self.protocol.score_path

    def body(self) -> bytes:
        """The request as JSON."""
        return _encode(self.protocol.score_body(list(self.asks), self.priority))

    def decode(self, raw: bytes) -> tuple[list[Reading | Reason], int]:
        """A reading for each ask."""
        return self.protocol.readings(raw, list(self.asks))

    def take(self, reply: Sequence[Reading | Reason]) -> None:
        """Hand each reading to those that wait for it."""
        for waiting, reading in zip(self.asks.values(), reply, strict=True):
            for job, number in waiting:
                job.read(number, reading)

    def give_up(self, reason: Reason) -> None:
        """All that wait abstain."""
        self.take([reason] * len(self.asks))

    def halves(self) -> tuple[Question, ...]:
        """Half of the readings each."""
        return tuple(replace(self, asks=part) for part in _halves(self.asks))


@dataclass(eq=False)
class TextQuestion(Question):
    """Asks for the texts after prompt number `prompt`."""

    protocol: Protocol
    call: Call
    prompt: int
    tokens: Tokens
    sampling: Sampling
    seed: int | None
    max_tokens: int

    @property
    def path(self) -> str:
        """Where texts are asked for."""
        return self.protocol.text_path

    def body(self) -> bytes:
        """The request as JSON."""
        request = self.protocol.text_body(self.tokens, self.sampling, self.seed, self.max_tokens, self.priority)
        return _encode(request)

    def decode(self, raw: bytes) -> tuple[list[Text], int]:
        """The prompt's texts."""
        return self.protocol.texts(raw, self.tokens, self.sampling)

    def take(self, reply: Sequence[Text]) -> None:
        """A completion for each text."""
        for sample, text in enumerate(reply):
            completion = Completion(self.prompt, sample, **text._asdict(), prompt_tokens=len(self.tokens))
            self.call.answer(self.prompt * self.sampling.n + sample, completion)

    def give_up(self, reason: Reason) -> None:
        """Empty texts; one that the server refuses counts as cancelled."""
        ends: dict[Reason, FinishReason] = {"timeout": "timeout", "too_long": "too_long", "non_finite": "non_finite"}
        self.take([Text("", (), ends.get(reason, "cancelled"))] * self.sampling.n)


@dataclass(eq=False)
class PoolQuestion(Question):
    """Asks for the hidden state or the reward of prompts; each goes to all places in the call that wait for it."""

    pooling: Pooling
    call: Call
    prompts: dict[Tokens, list[int]]

    @property
    def path(self) -> str:
        """Where they are asked for."""
        return self.pooling.path

    def body(self) -> bytes:
        """The request as JSON."""
        return _encode(self.pooling.body(list(self.prompts), self.priority))

    def decode(self, raw: bytes) -> tuple[Any, int]:
        """An answer for each prompt."""
        return self.pooling.answers(raw, list(self.prompts))

    def take(self, reply: Sequence[Any]) -> None:
        """Hand each answer to the places that wait for it."""
        for places, answer in zip(self.prompts.values(), reply, strict=True):
            for place in places:
                self.call.answer(place, answer)

    def give_up(self, reason: Reason) -> None:
        """All that wait abstain."""
        self.take([self.pooling.abstained(reason, tokens) for tokens in self.prompts])

    def halves(self) -> tuple[Question, ...]:
        """Half of the prompts each."""
        return tuple(replace(self, prompts=part) for part in _halves(self.prompts))


def _halves(together: dict[Key, Value]) -> tuple[dict[Key, Value], ...]:
    entries, middle = list(together.items()), len(together) // 2
    return (dict(entries[:middle]), dict(entries[middle:])) if middle else ()
