"""What requests share: the fields of `/v1/completions` and `/v1/chat/completions`, prompts, what has no answer here."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from adjudge.engine.completion import Completion
from adjudge.engine.face import AnyPrompt
from adjudge.engine.http.errors import HttpError

Unread = msgspec.Raw
UNREAD: Any = msgspec.field(default_factory=Unread)
"""What is taken and does nothing is not even made an object of: millions of them keep the collector of garbage busy."""

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "stop", "seed", "n", "ignore_eos", "logit_bias")
PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")
FORMS = ("allowed_token_ids", "json_schema", "choices", "regex")


Given = str | list[str | int | list[int]]
"""A text, token ids, or a list of one of the two."""


class Only:
    """Marks a field of OpenAI's, vLLM's or SGLang's: beside null it may have these values here, and no others."""

    def __init__(self, *values: Any) -> None:
        self.values = values


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`include_usage` sends the usage in a last chunk; `include_obfuscation` is taken and does nothing.

    There is no usage before that: vLLM's `continuous_usage_stats` must be false.
    """

    include_usage: bool | None = None
    continuous_usage_stats: Annotated[bool | None, Only(False)] = None
    include_obfuscation: bool | None = None


class TextRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """OpenAI's fields with OpenAI's meaning, where null is the same as left out; then `Sampling`'s own.

    `timeout` is in seconds; a text that is not done by then ends with finish_reason "timeout". Lower `priority` comes
    first. With `return_token_ids` a choice has `token_ids`. The last fields are what clients send that needs no answer;
    they are taken and do nothing.
    """

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    allowed_token_ids: list[int] | None = None
    json_schema: str | dict[str, Any] | None = None
    choices: list[str] | None = None
    regex: str | None = None
    timeout: float | None = None
    priority: int | None = None
    return_token_ids: bool | None = None

    detokenize: Annotated[bool | None, Only(True)] = None
    include_stop_str_in_output: Annotated[bool | None, Only(False)] = None
    length_penalty: Annotated[float | None, Only(1)] = None
    min_tokens: Annotated[int | None, Only(0)] = None
    no_stop_trim: Annotated[bool | None, Only(False)] = None
    skip_special_tokens: Annotated[bool | None, Only(False)] = None
    spaces_between_special_tokens: Annotated[bool | None, Only(True)] = None
    stop_token_ids: Annotated[list[int] | None, Only([])] = None
    use_beam_search: Annotated[bool | None, Only(False)] = None
    cache_salt: None = None
    guided_json: None = None
    lora_path: None = None
    moderation: None = None
    structured_outputs: None = None
    truncate_prompt_tokens: None = None

    metadata: Unread = UNREAD
    prompt_cache_key: Unread = UNREAD
    prompt_cache_options: Unread = UNREAD
    prompt_cache_retention: Unread = UNREAD
    request_id: Unread = UNREAD
    safety_identifier: Unread = UNREAD
    service_tier: Unread = UNREAD
    store: Unread = UNREAD
    user: Unread = UNREAD

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def options(self) -> dict[str, Any]:
        """Those that were given, for `Sampling`."""
        given = {name: value for name in (*SAMPLING, *PENALTIES, *FORMS) if (value := getattr(self, name)) is not None}
        return given | {"top_k": 0} if self.top_k == -1 else given  # vLLM's and SGLang's way to say all


def refuse_others(request: msgspec.Struct, where: str = "") -> None:
    """Raise a 400 for a field, `where` before its name, that is neither null nor one of the values it may have."""
    if isinstance(request, TextRequest) and request.stream_options is not None:
        refuse_others(request.stream_options, "stream_options.")
    for name, good in _only(type(request)).items():
        value = getattr(request, name)
        if value is not None and value not in good:
            choices = " or ".join(msgspec.json.encode(choice).decode() for choice in good)
            mend = f"leave it out, or give {choices}" if good else "leave it out"
            raise HttpError(400, f"{where}{name} is not supported: {mend}", param=where + name)


def prompts_of(given: Given, field: str) -> list[AnyPrompt]:
    """The prompts in a field; raises a 400 for none, and for texts among token ids."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise HttpError(400, f"{field} is empty: give a text, token ids, or a list of one of the two", param=field)
    kinds = {type(part) for part in given}
    if len(kinds) > 1:
        raise HttpError(400, f"{field} mixes texts and token ids: give one or the other", param=field)
    return [given] if kinds == {int} else list(given)  # type: ignore[list-item, arg-type]


@cache
def _only(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, ...]]:
    """Of the fields that are marked `Only`, which values they may have."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: mark.values for name, hint in hints.items() for mark in get_args(hint) if isinstance(mark, Only)}


class CachedTokens(msgspec.Struct, frozen=True):
    """How many of the prompts' tokens stood in the cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens read and written; a prompt with several texts counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens

    @staticmethod
    def of(prompts: Iterable[tuple[int, str | None]], computed: int, completion_tokens: int = 0) -> Usage:
        """Of each prompt its tokens, and why there is no answer; `computed` are those that were not in the cache.

        A prompt that is "too_long" is not read at all: none of it was computed, and none was cached.
        """
        known = list(prompts)
        prompt_tokens = sum(tokens for tokens, _ in known)
        read = sum(tokens for tokens, reason in known if reason != "too_long")
        cached = CachedTokens(max(0, read - computed))
        return Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, cached)

    @staticmethod
    def of_texts(completions: list[Completion], computed: int) -> Usage:
        """That of a request's completions."""
        prompts = {one.prompt: (one.prompt_tokens, one.finish_reason) for one in completions}
        return Usage.of(prompts.values(), computed, sum(len(one.token_ids) for one in completions))
