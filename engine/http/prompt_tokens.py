"""What an answer tells of prompts: their own tokens' log-probabilities, and with `echo` themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.face import AnyPrompt
from adjudge.engine.http.errors import HttpError, blame, no_answer
from adjudge.engine.http.service import Service
from adjudge.engine.http.spelling import LEAST, Spelling
from adjudge.engine.http.text_request import TextRequest
from adjudge.engine.tokenizer import Tokens

MOST_READ = 1 << 20
"""Numbers about prompts' tokens in one answer, some 50 bytes each: two for a token, and one for each alternative."""


class PromptToken(msgspec.Struct, frozen=True):
    """A token at a place of a prompt, or one that might stand there; vLLM's form, but for its rank."""

    logprob: float | None
    decoded_token: str


PromptLogprobs = list[dict[int, PromptToken] | None]
"""For each token of a prompt it and the likeliest in its place, by their ids; None for the first."""


class Echo(msgspec.Struct, frozen=True):
    """A prompt as it was given, or as its tokens read, and its tokens."""

    text: str
    tokens: Tokens


def echoes_of(
    service: Service, prompts: Sequence[AnyPrompt], texts: int, count: int | None, *, field: str, asked: str
) -> list[Echo]:
    """What is told of prompts with so many `texts` each, and with `count` alternatives for each token if not None.

    Raises a 400 where that is more than one answer may hold: `asked` is the field that asks for it, the prompts came in
    `field`.
    """
    tokenizer, echoes = service.engine.face.tokenizer, []
    with blame(field):
        for prompt in prompts:
            tokens = tokenizer.prompt(prompt)
            echoes.append(Echo(prompt if isinstance(prompt, str) else tokenizer.decode(tokens), tokens))
    characters, longest = texts * sum(len(echo.text) for echo in echoes), service.limits.max_joined
    numbers = 0 if count is None else texts * sum(len(echo.tokens) for echo in echoes) * (2 + max(0, count))
    for amount, most, what in ((characters, longest, "characters"), (numbers, MOST_READ, "numbers")):
        if amount > most:
            said = f"{asked} would put {amount} {what} of prompts into the answer: at most {most} at once"
            raise HttpError(400, said, param=asked)
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


def worded(read: Sequence[TokenLogprob | None], spelling: Spelling) -> PromptLogprobs | None:
    """What was read of a prompt's tokens; None where nothing was."""
    return [None if one is None else _place(one, spelling) for one in read] or None


def _place(read: TokenLogprob, spelling: Spelling) -> dict[int, PromptToken]:
    listed = {read.token_id: read.logprob, **dict(read.top)}
    return {token: PromptToken(number(value), spelling.text(token)) for token, value in listed.items()}
