"""Servers with OpenAI's /v1/completions: vLLM, our own (which also has /v1/score), and any other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from adjudge.engine.completion import FinishReason, TokenLogprob
from adjudge.engine.remote.protocols import (
    EXCESS,
    NULL,
    Ask,
    PromptRead,
    Protocol,
    Reading,
    Text,
    TextAsk,
    UsageReply,
    bounded,
    logprob,
    ordered,
    prompt_logprob,
    prompt_read,
    token_of,
)
from adjudge.engine.remote.transport import BadReply
from adjudge.engine.sampling import PENALTIES, Sampling
from adjudge.engine.score import Reason

ENDS: dict[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "timeout": "timeout",
    "too_long": "too_long",
    "non_finite": "non_finite",
    "cancelled": "cancelled",
    "abort": "cancelled",
    "content_filter": "cancelled",
}
TOKEN_ID = "token_id:"
"""How a server writes a token by its number, where asked to."""
MOST_DIGITS = 10
"""Of a token's number; what is longer is none."""
SEEDS = 1 << 31
"""As many as every server takes; a larger seed stands for its remainder. vLLM refuses those of more than 63 bits."""


class Logprobs(msgspec.Struct):
    """Log-probabilities in a completion: of each token, and of the alternatives at its place."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float | None] | None] | None = None


class PromptTokenReply(msgspec.Struct):
    """A token at a place of a prompt."""

    logprob: float | None


class Choice(msgspec.Struct):
    """One text of a completion."""

    text: str
    index: int = 0
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: msgspec.Raw = NULL


class Completions(msgspec.Struct):
    """A reply of /v1/completions."""

    choices: list[Choice]
    usage: UsageReply | None = None


class ScoreResult(msgspec.Struct):
    """The part of a Score that counts here."""

    full_logprobs: list[float | None] | None = None
    reason: Reason | None = None


class Scores(msgspec.Struct):
    """A reply of our own /v1/score."""

    results: list[ScoreResult]
    usage: UsageReply | None = None


class OpenAIProtocol(Protocol):
    """Any server with /v1/completions that takes token ids; it reports the most probable tokens, by their text.

    Such a text counts only where it is that of one token alone. Token ids of generated texts are not reported: they
    are those that the text has here, which may be others than the model wrote.
    """

    kind: ClassVar[str] = "openai"
    fields = frozenset({"temperature", "top_p", "stop", "seed", "n", *PENALTIES, "logit_bias"})
    score_path = "/v1/completions"
    text_path = "/v1/completions"

    def make_ready(self) -> None:
        """Have the texts of all tokens."""
        _ = self._by_text

    def score_body(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """One token, of which only the alternatives are wanted, under the model's own distribution."""
        [ask] = asks
        return {
            "model": self.model,
            "prompt": ask.tokens,
            "max_tokens": 1,
            "temperature": 1.0,
            "top_p": 1.0,
            "logprobs": self.top_logprobs,
        }

    def readings(self, raw: bytes, asks: Sequence[Ask]) -> tuple[list[Reading | Reason], int]:
        """The alternatives at the place of the one token; "unsupported" where the server reports none."""
        reply = msgspec.json.decode(raw, type=Completions)
        [choice] = _choices(reply, 1)
        listed = choice.logprobs
        computed = reply.usage.computed if reply.usage else 0
        if listed is None or not listed.top_logprobs or not listed.top_logprobs[0]:
            return ["unsupported"], computed
        chosen = self.named(listed.tokens[0]) if listed.tokens else None
        return [bounded(self.alternatives(listed.top_logprobs[0]), asks[0].token_ids, chosen)], computed

    def text_body(self, ask: TextAsk) -> dict[str, Any]:
        """What every such server takes."""
        sampling = ask.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": ask.tokens,
            "max_tokens": ask.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "n": sampling.n,
        }
        body |= {name: penalty for name in PENALTIES if (penalty := getattr(sampling, name))}
        if sampling.logit_bias:
            body["logit_bias"] = sampling.logit_bias
        if sampling.stop:
            body["stop"] = sampling.stop
        if ask.seed is not None:
            body["seed"] = ask.seed % SEEDS
        return body

    def texts(self, raw: bytes, ask: TextAsk) -> tuple[list[Text], int]:
        """The texts, with the tokens that the server names or, failing that, those they have here."""
        reply = msgspec.json.decode(raw, type=Completions)
        usage = reply.usage or UsageReply()
        texts = [self.written(choice, ask) for choice in _choices(reply, ask.sampling.n)]
        return texts, usage.computed + (usage.completion_tokens or 0)

    def written(self, choice: Choice, ask: TextAsk) -> Text:
        """One text."""
        return Text(choice.text, self.tokenizer.encode(choice.text, False, after=ask.tokens), _end(choice))

    def alternatives(self, top: dict[str, float | None]) -> dict[int | None, float]:
        """Log-probabilities by token id; None for those of which only a text is known that several tokens share."""
        return {self.named(name): logprob(value) for name, value in top.items()}

    def named(self, name: str) -> int | None:
        """The token of that text, if it is one alone."""
        return self._by_text.get(name)

    @cached_property
    def _by_text(self) -> dict[str, int]:
        texts = [self.tokenizer.decode([token]) for token in range(self.tokenizer.vocab_size)]
        counts = Counter(texts)
        return {text: token for token, text in enumerate(texts) if counts[text] == 1}


class VllmProtocol(OpenAIProtocol):
    """vLLM, which names tokens by their ids.

    Servers that know `logprob_token_ids` report every label's token; older ones leave it out and report the most
    probable tokens.
    """

    kind = "vllm"
    hurries = True
    fields = frozenset(Sampling.__struct_fields__)

    def make_ready(self) -> None:
        """Texts name tokens only where a server does not write numbers."""

    def score_body(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """The chosen tokens' log-probabilities where the server can, else the most probable ones."""
        [ask] = asks
        neutral = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        wanted = {"logprob_token_ids": ask.token_ids, "return_tokens_as_token_ids": True}
        return super().score_body(asks) | neutral | wanted

    def text_body(self, ask: TextAsk) -> dict[str, Any]:
        """Every field of Sampling; what the server's own defaults might change is always said."""
        sampling = ask.sampling
        forms = {"json": sampling.json_schema, "regex": sampling.regex, "choice": sampling.choices}
        body = super().text_body(ask) | {
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "ignore_eos": sampling.ignore_eos,
            "logprobs": sampling.logprobs,
            "skip_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if sampling.allowed_token_ids is not None:
            body["allowed_token_ids"] = sampling.allowed_token_ids
        if sampling.prompt_logprobs is not None:
            body["prompt_logprobs"] = sampling.prompt_logprobs
        if form := {name: value for name, value in forms.items() if value is not None}:
            body["structured_outputs"] = form
        return body

    def written(self, choice: Choice, ask: TextAsk) -> Text:
        """One text with its own tokens and their log-probabilities, and those of its prompt."""
        if choice.token_ids is None and choice.logprobs is None:
            raise BadReply("a text without its tokens")
        listed = choice.logprobs or Logprobs()
        ids = choice.token_ids if choice.token_ids is not None else [self.named(name) for name in listed.tokens]
        token_ids, end = tuple(map(token_of, ids)), _end(choice)
        sampling = ask.sampling
        text, read = self.text_of(token_ids, end, sampling), _prompt_read(choice, ask)
        if choice.logprobs is None and not sampling.logprobs:
            return Text(text, token_ids, end, prompt_logprobs=read)
        tops = listed.top_logprobs if sampling.logprobs else [None] * len(token_ids)
        if not len(listed.token_logprobs) == len(tops or []) == len(token_ids):
            raise BadReply(f"{len(listed.token_logprobs)} log-probabilities for {len(token_ids)} tokens")
        logprobs = tuple(
            TokenLogprob(token, logprob(value), self._top(top or {}, sampling.logprobs))
            for token, value, top in zip(token_ids, listed.token_logprobs, tops or [], strict=True)
        )
        return Text(text, token_ids, end, logprobs, read)

    def _top(self, top: dict[str, float | None], count: int) -> tuple[tuple[int, float], ...]:
        """The `count` most probable tokens of a place; raises BadReply where others than the listed must be among them.

        vLLM 0.32's first model runner, which a CPU has, lists the drawn token and token 0 at −∞ instead wherever it
        computes a place beside a request with `logprob_token_ids`, as `score_body` makes.
        """
        listed = {token_of(token): value for token, value in self.alternatives(top).items()}
        possible = [value for value in listed.values() if value > -math.inf]
        if len(possible) < max(count, len(listed)) and math.fsum(map(math.exp, possible)) < 1 - EXCESS:
            raise BadReply(f"not the {count} most probable tokens at a place of a text, but {sorted(listed)}")
        return ordered(listed, count)

    def named(self, name: str) -> int | None:
        """The token of that number, or of that text where the server does not write numbers."""
        number = name.removeprefix(TOKEN_ID)
        if number != name and number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS:
            return int(number)
        return super().named(name)


class AdjudgeProtocol(VllmProtocol):
    """Our own server: exact readings, many in a request."""

    kind = "adjudge"
    reads_at_once = 64
    written_per_read = 0
    score_path = "/v1/score"

    def score_body(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """Each item is a whole prompt with its own label tokens."""
        return {
            "model": self.model,
            "query": [],
            "items": [ask.tokens for ask in asks],
            "label_token_ids": [ask.token_ids for ask in asks],
            "apply_softmax": False,
            "item_first": False,
        }

    def readings(self, raw: bytes, asks: Sequence[Ask]) -> tuple[list[Reading | Reason], int]:
        """The readings that come with each item's score."""
        reply = msgspec.json.decode(raw, type=Scores)
        if len(reply.results) != len(asks):
            raise BadReply(f"{len(reply.results)} results for {len(asks)} items")
        pairs = zip(reply.results, asks, strict=True)
        return [_reading(result, ask) for result, ask in pairs], reply.usage.computed if reply.usage else 0

    def text_body(self, ask: TextAsk) -> dict[str, Any]:
        """The fields of Sampling under their own names."""
        fields = ask.sampling.__struct_fields__
        chosen = {name: value for name in fields if (value := getattr(ask.sampling, name)) is not None}
        asked = {"model": self.model, "prompt": ask.tokens, "max_tokens": ask.max_tokens, "return_token_ids": True}
        named = {"return_tokens_as_token_ids": True} if ask.sampling.logprobs else {}
        return chosen | asked | named | ({} if ask.seed is None else {"seed": ask.seed})


def _reading(result: ScoreResult, ask: Ask) -> Reading | Reason:
    if result.reason == "low_mass" and result.full_logprobs is None:  # every label has probability 0
        return Reading.exact([float("-inf")] * len(ask.token_ids))
    if result.reason is not None:
        return result.reason
    values = result.full_logprobs or []
    if len(values) != len(ask.token_ids):
        raise BadReply(f"{len(values)} log-probabilities for {len(ask.token_ids)} label tokens")
    return Reading.exact(values)


def _choices(reply: Completions, count: int) -> list[Choice]:
    """The reply's texts in order; raises BadReply unless there are `count`."""
    choices = sorted(reply.choices, key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(count)):
        raise BadReply(f"choices {[choice.index for choice in choices]} where {count} were asked for")
    return choices


def _prompt_read(choice: Choice, ask: TextAsk) -> PromptRead:
    """What was read of the prompt; () where it was not asked for."""
    if ask.sampling.prompt_logprobs is None:
        return ()
    listed = msgspec.json.decode(choice.prompt_logprobs, type=list[dict[int, PromptTokenReply] | None] | None)
    places = [
        None if place is None else {token_of(token): prompt_logprob(one.logprob) for token, one in place.items()}
        for place in listed or ()
    ]
    return prompt_read(places, ask, _end(choice))


def _end(choice: Choice) -> FinishReason:
    if choice.finish_reason not in ENDS:
        raise BadReply(f"a text that ended by {choice.finish_reason!r}")
    return ENDS[choice.finish_reason]
