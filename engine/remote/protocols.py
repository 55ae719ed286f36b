"""What is asked of a server and read from its replies; each kind of server has its own shapes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from adjudge.engine.completion import FinishReason, TokenLogprob
from adjudge.engine.errors import RemoteError
from adjudge.engine.remote.transport import BadReply
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Reason
from adjudge.engine.text.growing_text import GrowingText
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens

NULL = msgspec.Raw(b"null")
"""Stands for a field that is decoded only where it was asked for: of other servers it may have any form."""
PromptRead = tuple[TokenLogprob | None, ...]
"""A prompt's tokens as `Completion.prompt_logprobs` has them."""
LEAST_LOGPROB = -9999.0
"""What vLLM writes for a log-probability of −∞, which JSON has no number for."""
ROUNDING = 1e-3
"""How far above 0 a log-probability may come by rounding; one further up is none."""
EXCESS = 0.01
"""How far above 1 a sum of probabilities may come by rounding, of logits in bfloat16 as well."""


class Ask(NamedTuple):
    """One distribution to read: the log-probabilities of `token_ids` after `tokens`."""

    tokens: Tokens
    token_ids: Tokens


class TextAsk(NamedTuple):
    """The texts to write after one prompt's tokens."""

    tokens: Tokens
    sampling: Sampling
    seed: int | None
    max_tokens: int


class Reading(NamedTuple):
    """Log-probabilities over the full vocabulary; `at_most` differs where the server did not report one (−∞ here)."""

    logprobs: tuple[float, ...]
    at_most: tuple[float, ...]

    @staticmethod
    def exact(values: Sequence[float | None]) -> Reading:
        """Every value was reported, of different tokens; raises BadReply for what are no log-probabilities."""
        checked = tuple(map(logprob, values))
        check_sum(checked)
        return Reading(checked, checked)


class Text(NamedTuple):
    """One generated text, as in `Completion`."""

    text: str
    token_ids: Tokens
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: PromptRead = ()


class Cached(msgspec.Struct):
    """How much of the prompts a server found in its cache."""

    cached_tokens: int | None = 0


class UsageReply(msgspec.Struct):
    """What a request cost, as OpenAI's interface counts it."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: Cached | None = None

    @property
    def computed(self) -> int:
        """Tokens of the prompts that were not in the cache."""
        cached = self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else 0
        return max(0, self.prompt_tokens - (cached or 0))


class Protocol(ABC):
    """How to talk to one kind of server, which serves `model`.

    `reads_at_once` distributions go into one request. A read makes the server write `written_per_read` tokens, and
    `margin` tokens of its context can be neither read nor written. `fields` are those of Sampling that it honours,
    besides `max_tokens`. One that schedules by priority `hurries`.
    """

    kind: ClassVar[str]
    hurries: ClassVar[bool] = False
    reads_at_once: ClassVar[int] = 1
    written_per_read: ClassVar[int] = 1
    margin: ClassVar[int] = 0
    fields: ClassVar[frozenset[str]] = frozenset(Sampling.__struct_fields__)
    score_path: ClassVar[str]
    text_path: ClassVar[str]

    def __init__(self, model: str, tokenizer: Tokenizer, top_logprobs: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.top_logprobs = top_logprobs

    def make_ready(self) -> None:
        """Do in a caller's thread what it takes to read the first reply; replies are read in that of the event loop."""
        return None

    @abstractmethod
    def score_body(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """The request for some readings."""

    @abstractmethod
    def readings(self, raw: bytes, asks: Sequence[Ask]) -> tuple[list[Reading | Reason], int]:
        """The readings in a reply, or why there is none, and how many tokens were computed; raises BadReply."""

    @abstractmethod
    def text_body(self, ask: TextAsk) -> dict[str, Any]:
        """The request for the texts after one prompt."""

    @abstractmethod
    def texts(self, raw: bytes, ask: TextAsk) -> tuple[list[Text], int]:
        """The texts that were asked for, in order, and how many tokens were computed; raises BadReply."""

    def text_of(self, token_ids: Tokens, end: FinishReason, sampling: Sampling) -> str:
        """The text of generated tokens as an engine here would give it: without its end token or stop string.

        A server's own text is not asked where it tells the tokens: vLLM 0.32 puts the prompt's last characters before
        what is written, if the prompt ends in U+FFFD or inside a character, and anyone can end a text so.
        """
        known = [token for token in token_ids if token < self.tokenizer.vocab_size]
        if ended := known[-1:] == [self.tokenizer.inner.eos_token_id] and not sampling.ignore_eos:
            known.pop()  # what it is called holds no stop string
        text, stopped = self._written(known).ended(sampling.stop)
        if end == "stop" and not ended and not stopped and known and self.tokenizer.is_special(known[-1]):
            return self._written(known[:-1]).whole()
        return text

    def _written(self, token_ids: Sequence[int]) -> GrowingText:
        text = GrowingText(self.tokenizer.decode_on, self.tokenizer.bytewise)
        for token in token_ids:
            text.add(token)
        return text

    def check(self, sampling: Sampling, seeded: bool) -> None:
        """Raise RemoteError for what this kind of server would ignore."""
        usual = Sampling()
        given = {name for name in sampling.__struct_fields__ if getattr(sampling, name) != getattr(usual, name)}
        if seeded:
            given.add("seed")
        if sampling.temperature == 0:
            given.discard("seed")  # nothing is drawn
        for name in sorted(given - {"max_tokens"}):
            if name not in self.fields:
                other = "give temperature 0" if name == "seed" else "leave it out"
                raise RemoteError(f"{name}: {self.kind} servers do not honour it; {other}, or use `adjudge serve`")


def token_of(token_id: int | None) -> int:
    """A token id from a reply; raises BadReply for none. A model may have more of them than its tokenizer."""
    if token_id is None or token_id < 0:
        raise BadReply("a token without its id")
    return token_id


def logprob(value: float | None) -> float:
    """A log-probability from a reply; null, and vLLM's −9999, stand for −∞. Raises BadReply for what is none."""
    if value is None or value <= LEAST_LOGPROB:
        return -math.inf
    if not value <= ROUNDING:
        raise BadReply(f"{value} is no log-probability")
    return value


def check_sum(values: Iterable[float]) -> None:
    """Raise BadReply for log-probabilities of different tokens whose probabilities sum to more than 1."""
    if (total := math.fsum(map(math.exp, values))) > 1 + EXCESS:
        raise BadReply(f"probabilities that sum to {total:.3g}")


def bounded(listed: Mapping[int | None, float], wanted: Tokens, chosen: int | None) -> Reading:
    """A reading from the most probable tokens of a place, as a server lists them (None: a token it does not name).

    A token that is not on the list is at most as probable as the last on it, or the unnamed one itself; how little that
    is decides whether the score can stand. `chosen`, the token that was drawn, is on the list however improbable.
    """
    check_sum(value for token, value in listed.items() if token is not None)
    others = [value for token, value in listed.items() if token != chosen]
    most = 0.0 if None in listed or not others else min(others)
    logprobs = tuple(listed.get(token, -math.inf) for token in wanted)
    return Reading(logprobs, tuple(listed.get(token, most) for token in wanted))


def prompt_logprob(value: float | None) -> float:
    """That of a prompt's token, from a reply; null stands for NaN here, where the model had no number."""
    return math.nan if value is None else logprob(value)


def prompt_read(listed: Sequence[Mapping[int, float] | None], ask: TextAsk, end: FinishReason) -> PromptRead:
    """A prompt's own tokens from what a server lists at their places, with as many of the most probable as asked for.

    Nothing is known of the first. Of a text that broke off the prompt may not have been read: that is (). Raises
    BadReply where else a place is missing, or its own token there, or alternatives to it.
    """
    tokens, count = ask.tokens, ask.sampling.prompt_logprobs or 0
    whole = len(listed) == len(tokens) and all(
        place is not None and token in place and len(place) >= count
        for token, place in zip(tokens[1:], listed[1:], strict=True)
    )
    if not whole and end not in ("stop", "length"):
        return ()
    if not whole:
        raise BadReply(f"no log-probabilities of the {len(tokens)} tokens of a prompt, with {count} others each")
    pairs = zip(tokens[1:], listed[1:], strict=True)
    return (None, *(TokenLogprob(token, place[token], ordered(place, count)) for token, place in pairs if place))


def ordered(top: Mapping[int, float], count: int) -> tuple[tuple[int, float], ...]:
    """The `count` most probable tokens of a list, most probable first."""
    return tuple(sorted(top.items(), key=lambda item: -item[1])[:count])
