"""`echo` of `/v1/completions`: texts that begin with their prompt, and what was read of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adjudge.engine.completion import Completion
from adjudge.engine.face import AnyPrompt
from adjudge.engine.http.errors import HttpError, blame, no_answer
from adjudge.engine.http.service import Service
from adjudge.engine.tokenizer import Tokens

MOST_READ = 1 << 20
"""Numbers about prompts' tokens in one answer, some 50 bytes each: two for a token, and one for each alternative."""


class Echo(msgspec.Struct, frozen=True):
    """A prompt as it was given, or as its tokens read, and its tokens."""

    text: str
    tokens: Tokens


def echoes_of(service: Service, prompts: Sequence[AnyPrompt], n: int, logprobs: int | None) -> list[Echo]:
    """What `n` texts of each prompt begin with; raises a 400 where that is more than one answer may hold."""
    tokenizer, echoes = service.engine.face.tokenizer, []
    with blame("prompt"):
        for prompt in prompts:
            tokens = tokenizer.prompt(prompt)
            echoes.append(Echo(prompt if isinstance(prompt, str) else tokenizer.decode(tokens), tokens))
    characters, longest = n * sum(len(echo.text) for echo in echoes), service.limits.max_joined
    numbers = 0 if logprobs is None else n * sum(len(echo.tokens) for echo in echoes) * (2 + max(0, logprobs))
    for count, most, what in ((characters, longest, "characters"), (numbers, MOST_READ, "numbers")):
        if count > most:
            raise HttpError(
                400, f"echo would put {count} {what} of prompts into the answer: at most {most} at once", param="echo"
            )
    return echoes


def check_read(completions: Sequence[Completion], prompts: int, longest: int) -> None:
    """Raise for the first text whose prompt was not read, or after which nothing came: clients count on one token.

    The model holds `longest` tokens.
    """
    for one in completions:
        if not one.prompt_logprobs or not one.token_ids:
            name = "prompt" if prompts == 1 else f"prompt[{one.prompt}]"
            raise no_answer(name, one.finish_reason, one.prompt_tokens, longest)
