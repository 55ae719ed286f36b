"""SGLang's own /generate, which reports the log-probability of any token by its id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from adjudge.engine.completion import FinishReason, TokenLogprob
from adjudge.engine.errors import RemoteError
from adjudge.engine.remote.protocols import (
    NULL,
    Ask,
    PromptRead,
    Protocol,
    Reading,
    Text,
    TextAsk,
    logprob,
    ordered,
    prompt_logprob,
    prompt_read,
    token_of,
)
from adjudge.engine.remote.transport import TOO_LONG, BadReply, NoAnswer
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Reason

Entry = tuple[float | None, int, str | None]
"""Log-probability, token id and perhaps text."""
Listed = list[Entry]


class Finish(msgspec.Struct):
    """How a text ended."""

    type: str
    message: str | None = None


class Meta(msgspec.Struct):
    """What is said about a text."""

    finish_reason: Finish | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    input_token_logprobs: msgspec.Raw = NULL
    input_top_logprobs: msgspec.Raw = NULL
    output_token_logprobs: Listed | None = None
    output_top_logprobs: list[Listed | None] | None = None
    output_token_ids_logprobs: list[Listed | None] | None = None


class Output(msgspec.Struct):
    """A reply of /generate: one text."""

    text: str
    meta_info: Meta


class SglangProtocol(Protocol):
    """SGLang.

    It divides logits by the temperature before it reports log-probabilities, and reports those after penalties and
    forms: texts have log-probabilities only where these change nothing. Seeds count only in its deterministic mode,
    which cannot be told from outside, so they are not taken.
    """

    kind: ClassVar[str] = "sglang"
    margin = 1
    fields = frozenset(Sampling.__struct_fields__) - {"seed", "allowed_token_ids"}
    score_path = "/generate"
    text_path = "/generate"

    def score_body(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """One token, of which only the labels' log-probabilities are wanted: the model's own at temperature 0."""
        [ask] = asks
        return {
            "input_ids": ask.tokens,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0, "repetition_penalty": 1.0},
            "return_logprob": True,
            "token_ids_logprob": ask.token_ids,
        }

    def readings(self, raw: bytes, asks: Sequence[Ask]) -> tuple[list[Reading | Reason], int]:
        """The labels' log-probabilities at the place of the one token."""
        meta = msgspec.json.decode(raw, type=Output).meta_info
        computed = max(0, meta.prompt_tokens - meta.cached_tokens)
        if meta.finish_reason and meta.finish_reason.type == "abort":
            if TOO_LONG.search(meta.finish_reason.message or ""):
                raise NoAnswer(f"the server finds the prompt too long ({meta.finish_reason.message})", "too_long")
            raise BadReply(f"it gave up: {meta.finish_reason.message}")
        if not meta.output_token_ids_logprobs or not meta.output_token_ids_logprobs[0]:
            return ["unsupported"], computed
        values = {token: value for value, token, *_ in meta.output_token_ids_logprobs[0]}
        if missing := [token for token in asks[0].token_ids if token not in values]:
            raise BadReply(f"no log-probability of token {missing[0]}")
        if all(values[token] is None for token in asks[0].token_ids):  # NaN has no other form in JSON
            return ["non_finite"], computed
        return [Reading.exact([logprob(values[token]) for token in asks[0].token_ids])], computed

    def text_body(self, ask: TextAsk) -> dict[str, Any]:
        """The fields of Sampling under SGLang's names; choices become a regular expression."""
        sampling = ask.sampling
        params: dict[str, Any] = {
            "max_new_tokens": ask.max_tokens,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or -1,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "presence_penalty": sampling.presence_penalty,
            "stop": sampling.stop,
            "ignore_eos": sampling.ignore_eos,
            "n": sampling.n,
            "skip_special_tokens": False,
        }
        if sampling.logit_bias:
            params["logit_bias"] = sampling.logit_bias
        regex = sampling.regex
        if sampling.choices is not None:
            regex = "|".join(f"({re.escape(choice)})" for choice in sampling.choices)
        if regex is not None:
            params["regex"] = regex
        if sampling.json_schema is not None:
            params["json_schema"] = sampling.json_schema
        body = {
            "input_ids": ask.tokens,
            "sampling_params": params,
            "return_logprob": True,
            "top_logprobs_num": max(sampling.logprobs, sampling.prompt_logprobs or 0),
        }
        return body if sampling.prompt_logprobs is None else body | {"logprob_start_len": 0}

    def texts(self, raw: bytes, ask: TextAsk) -> tuple[list[Text], int]:
        """The texts with their tokens."""
        outputs = msgspec.json.decode(raw, type=list[Output] | Output)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        if len(outputs) != ask.sampling.n:
            raise BadReply(f"{len(outputs)} texts where {ask.sampling.n} were asked for")
        prompt = outputs[0].meta_info
        written = sum(output.meta_info.completion_tokens for output in outputs)
        texts = [self._text(output, ask) for output in outputs]
        return texts, max(0, prompt.prompt_tokens - prompt.cached_tokens) + written

    def check(self, sampling: Sampling, seeded: bool) -> None:
        """Raise RemoteError also for alternatives where the reported log-probabilities are not the model's own."""
        super().check(sampling, seeded)
        asked = "logprobs" if sampling.logprobs else "prompt_logprobs" if sampling.prompt_logprobs is not None else None
        if asked is not None and not _unchanged(sampling):
            raise RemoteError(
                f"{asked}: sglang servers report the model's own only at temperature 0 or 1 and without a penalty, "
                "bias or form; leave it out, or use `adjudge serve`"
            )

    def _text(self, output: Output, ask: TextAsk) -> Text:
        meta, sampling = output.meta_info, ask.sampling
        chosen = meta.output_token_logprobs or []
        tops = meta.output_top_logprobs if sampling.logprobs and meta.output_top_logprobs else [None] * len(chosen)
        if len(tops) != len(chosen):
            raise BadReply(f"{len(tops)} lists of alternatives for {len(chosen)} tokens")
        token_ids = tuple(token_of(token) for _, token, _ in chosen)
        logprobs = tuple(
            TokenLogprob(token, logprob(value), ordered(_by_token(top or []), sampling.logprobs))
            for (value, token, _), top in zip(chosen, tops, strict=True)
        )
        end = _end(meta.finish_reason)
        text, reported = self.text_of(token_ids, end, sampling), logprobs if _unchanged(sampling) else ()
        return Text(text, token_ids, end, reported, _prompt_read(meta, end, ask))


def _prompt_read(meta: Meta, end: FinishReason, ask: TextAsk) -> PromptRead:
    """What was read of the prompt; () where it was not asked for."""
    if (count := ask.sampling.prompt_logprobs) is None:
        return ()
    own = msgspec.json.decode(meta.input_token_logprobs, type=Listed | None) or []
    tops = msgspec.json.decode(meta.input_top_logprobs, type=list[Listed | None] | None) or [] if count else None
    places: list[dict[int, float] | None] = []
    if len(own) == len(ask.tokens) == len(own if tops is None else tops):
        places = [_place(*one) for one in zip(own, tops or [None] * len(own), ask.tokens, strict=True)]
    return prompt_read(places, ask, end)


def _place(own: Entry, top: Listed | None, token: int) -> dict[int, float] | None:
    """What stands at a token's place. SGLang writes 0 for the last token of its vocabulary."""
    value, said, *_ = own
    if said not in (token, 0):
        return None
    return {token: prompt_logprob(value)} | {token_of(other): prompt_logprob(least) for least, other, *_ in top or ()}


def _by_token(listed: Listed) -> dict[int, float]:
    return {token_of(token): logprob(value) for value, token, *_ in listed}


def _unchanged(sampling: Sampling) -> bool:
    """Whether what is sampled from is the model's own distribution, but for tokens left out."""
    form = sampling.json_schema is not None or sampling.regex is not None or sampling.choices is not None
    return sampling.temperature in (0, 1) and not (sampling.heeds_before or sampling.logit_bias or form)


def _end(finish: Finish | None) -> FinishReason:
    ends: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "cancelled"}
    if finish is None or finish.type not in ends:
        raise BadReply(f"a text that ended by {finish and finish.type!r}")
    if finish.type == "abort" and TOO_LONG.search(finish.message or ""):
        raise NoAnswer(f"the server finds the prompt too long ({finish.message})", "too_long")
    return ends[finish.type]
