"""What an answer tells of prompts: their own tokens' log-probabilities, and with `echo` themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.face import AnyPrompt
from adjudge.engine.http.errors import HttpError, at_most, blame, no_answer
from adjudge.engine.http.limits import MOST_PROMPT_NUMBERS
from adjudge.engine.http.service import Service
from adjudge.engine.http.text_request import TextRequest
from adjudge.engine.http.token_names import LEAST, TokenNames
from adjudge.engine.tokens import Tokens


class PromptToken(msgspec.Struct, frozen=True):
    """A token at a place of a prompt, or one that might stand there; vLLM's form, but for its rank."""

    logprob: float | None
    decoded_token: str


PromptLogprobs = list[dict[int, PromptToken] | None]
"""For each token of a prompt the likeliest in its place and itself, by their ids; None for the first."""


def tokens_of(service: Service, prompts: Sequence[AnyPrompt], field: str) -> list[Tokens]:
    """The prompts' own tokens; they came in `field`."""
    with blame(field):
        return service.engine.face.read(prompts)


def check_numbers(tokens: int, counts: Sequence[int], asked: str) -> None:
    """Raise a 400 where an answer would tell too much of so many tokens, once with each of `counts` alternatives."""
    numbers = tokens * sum(2 + max(0, count) for count in counts)
    at_most(numbers, MOST_PROMPT_NUMBERS, "numbers about prompts", asked)


def echoes_of(service: Service, prompts: Sequence[AnyPrompt], tokens: Sequence[Tokens], n: int) -> list[str]:
    """What `n` texts of each prompt begin with: itself, or what its tokens read; a 400 where that is too much."""
    decode = service.engine.face.tokenizer.decode
    echoes = [prompt if isinstance(prompt, str) else decode(ids) for prompt, ids in zip(prompts, tokens, strict=True)]
    at_most(n * sum(map(len, echoes)), service.limits.max_joined, "characters of prompts", "echo")
    return echoes


def check_whole(body: TextRequest, field: str) -> None:
    """Raise a 400 for a stream, whose pieces tell nothing of prompts."""
    if body.stream:
        raise HttpError(400, f"{field} and stream do not go together: leave one out", param=field)


def check_read(completions: Sequence[Completion], prompts: int, longest: int) -> None:
    """Raise for the first text whose prompt was not read, or after which nothing came: clients count on one token.

    The model holds `longest` tokens.
    """
    for one in completions:
        if not one.prompt_logprobs or not one.token_ids:
            name = "prompt" if prompts == 1 else f"prompt[{one.prompt}]"
            raise no_answer(name, one.finish_reason, one.prompt_tokens, longest)


def number(logprob: float) -> float | None:
    """A log-probability as JSON has it; None where the model gave none."""
    return None if math.isnan(logprob) else max(logprob, LEAST)


def worded(read: Sequence[TokenLogprob | None], count: int, token_names: TokenNames) -> PromptLogprobs | None:
    """What was read of a prompt's tokens, with `count` alternatives; None where nothing was."""
    return [None if one is None else _place(one, count, token_names) for one in read] or None


def _place(read: TokenLogprob, count: int, token_names: TokenNames) -> dict[int, PromptToken]:
    listed = dict(read.top[:count]) | {read.token_id: read.logprob}
    return {token: PromptToken(number(value), token_names.text(token)) for token, value in listed.items()}
