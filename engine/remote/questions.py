"""What one request to a server asks for a call, which prompts go into it, and what becomes of its reply."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from adjudge.engine import trie
from adjudge.engine.batching.call import Call
from adjudge.engine.batching.reading import ScoreJob
from adjudge.engine.completion import Completion, FinishReason
from adjudge.engine.remote.pooling import Pooling
from adjudge.engine.remote.protocols import Ask, Protocol, Reading, Text, TextAsk
from adjudge.engine.score import Reason, Score
from adjudge.engine.tokens import Tokens

_encode = msgspec.json.Encoder(enc_hook=lambda number: number.item()).encode  # numpy's numbers are numbers

NEGLIGIBLE = 1e-3
"""By how much a label's log-probability may be unknown."""
TOKENS_AT_ONCE = 1 << 16
"""Token ids in one request, unless a prompt alone has more: half a megabyte of JSON, where proxies take one."""

T = TypeVar("T")


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
class Question:
    """One request: its fields go to a path, and `decode` has the reply, checked, with how many tokens it cost.

    That raises BadReply. `take` answers with a reply, and `nothing` is the reply that stands for none. Servers that do
    not schedule by priority (`hurries`) refuse any.
    """

    path: str
    fields: dict[str, Any]
    hurries: bool
    decode: Callable[[bytes], tuple[Any, int]]
    take: Callable[[Any], None]
    nothing: Callable[[Reason], Any]

    def body(self, priority: int) -> bytes:
        """What is sent."""
        return _encode(self.fields | ({"priority": priority} if self.hurries and priority else {}))

    def give_up(self, reason: Reason) -> None:
        """Answer that there is none."""
        self.take(self.nothing(reason))


def read_question(protocol: Protocol, asks: Mapping[Ask, Sequence[tuple[ReadJob, int]]]) -> Question:
    """For label distributions; each goes to all (job, place in its label set) that wait for it."""
    wanted = list(asks)

    def take(readings: Sequence[Reading | Reason]) -> None:
        for waiting, reading in zip(asks.values(), readings, strict=True):
            for job, number in waiting:
                job.read(number, reading)

    return Question(
        protocol.score_path,
        protocol.score_body(wanted),
        protocol.hurries,
        lambda raw: protocol.readings(raw, wanted),
        take,
        lambda reason: [reason] * len(wanted),
    )


def text_question(protocol: Protocol, call: Call, prompt: int, ask: TextAsk) -> Question:
    """For the texts after prompt number `prompt`; one that the server refuses counts as cancelled."""
    n = ask.sampling.n
    ends: dict[Reason, FinishReason] = {"timeout": "timeout", "too_long": "too_long", "non_finite": "non_finite"}

    def take(texts: Sequence[Text]) -> None:
        for sample, text in enumerate(texts):
            completion = Completion(prompt, sample, **text._asdict(), prompt_tokens=len(ask.tokens))
            call.answer(prompt * n + sample, completion)

    return Question(
        protocol.text_path,
        protocol.text_body(ask),
        protocol.hurries,
        lambda raw: protocol.texts(raw, ask),
        take,
        lambda reason: [Text("", (), ends.get(reason, "cancelled"))] * n,
    )


def pool_question(pooling: Pooling, call: Call, prompts: Mapping[Tokens, Sequence[int]]) -> Question:
    """For the hidden state or the reward of prompts; each goes to all places in the call that wait for it."""
    wanted = list(prompts)

    def take(answers: Sequence[Any]) -> None:
        for places, answer in zip(prompts.values(), answers, strict=True):
            for place in places:
                call.answer(place, answer)

    return Question(
        pooling.path,
        pooling.body(wanted),
        pooling.hurries,
        lambda raw: pooling.answers(raw, wanted),
        take,
        lambda reason: [pooling.abstained(reason, tokens) for tokens in wanted],
    )


def batches(
    by_tokens: Mapping[Tokens, Sequence[T]], at_once: int, more: Callable[[T], int] = lambda one: 0
) -> Iterator[list[T]]:
    """What is to be asked after each prompt, `at_once` together at most; each brings `more` ids than the prompt's.

    Neighbours in the prefix tree go into one request, or one after the other.
    """
    together: list[T] = []
    size = 0
    prompts = list(by_tokens)
    for place in trie.order(prompts):
        tokens = prompts[place.item]
        for one in by_tokens[tokens]:
            ids = len(tokens) + more(one)
            if together and (len(together) >= at_once or size + ids > TOKENS_AT_ONCE):
                yield together
                together, size = [], 0
            together.append(one)
            size += ids
    if together:
        yield together
