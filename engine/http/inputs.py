"""What `/v1/embeddings` and `/classify` share: `input`, prompts that are read to their end, and an answer for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from adjudge.engine.async_engine import Answers
from adjudge.engine.embedding import Embedding
from adjudge.engine.face import AnyPrompt, EngineFace
from adjudge.engine.http.errors import HttpError, blame, no_answer
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import UNREAD, Unread
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.threads.worker import Piece
from adjudge.engine.tokens import Tokens

Given = str | list[str | int | list[int]]
"""A text, token ids, or a list of one of the two."""


class InputRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to read; special-token strings in a text are plain characters, and nothing is ever shortened.

    An input without an answer makes the request an error that names it; with `abstain` its answer is null instead, with
    the `reason`, and the others have theirs. `timeout` is in seconds, lower `priority` comes first.
    """

    input: Given
    model: str | None = None
    abstain: bool = False
    timeout: float | None = None
    priority: int | None = None
    user: Unread = UNREAD

    def name(self, place: int) -> str:
        """What an input is called."""
        alone = isinstance(self.input, str) or isinstance(self.input[0], int)
        return "input" if alone else f"input[{place}]"

    def tokens(self, face: EngineFace) -> list[Tokens]:
        """Every input as token ids; raises a 400 that names the one at fault."""
        with blame("input"):
            return face.read(prompts_of(self.input, "input"), ended=True)

    def check_answered(self, answers: Sequence[Embedding | ModelReward], longest: int) -> None:
        """Raise for the first input without an answer, unless it may abstain; the model holds `longest` tokens."""
        for place, answer in enumerate(answers):
            if answer.reason is not None and not self.abstain:
                raise no_answer(self.name(place), answer.reason, answer.prompt_tokens, longest)


async def embedded(
    service: Service,
    request: AnyRequest,
    body: InputRequest,
    read: Callable[[list[Tokens]], Sequence[AnyPrompt]],
    answer: Callable[[Embedding], Any],
) -> tuple[list[Any], int]:
    """What `answer` makes of the hidden state after what is `read` of each input, and how many tokens were computed."""
    service.check_count(len(prompts_of(body.input, "input")), "input")
    timeout = service.timeout(request, body.timeout)
    face = service.engine.face

    async def opened() -> Answers:
        prompts = await asyncio.to_thread(lambda: read(body.tokens(face)))
        under_way = await service.engine.open_embed(prompts, priority=body.priority or 0, timeout=timeout)
        service.ends_with(request, under_way.close)
        return under_way

    async def answered(under_way: Answers) -> dict[int, Any]:
        return {event[0]: answer(event[1]) async for event in under_way if not isinstance(event, Piece)}

    with blame("input"):
        under_way = await service.unless_gone(request, opened(), timeout)
        found = await service.unless_gone(request, answered(under_way))
    made = [found[place] for place in sorted(found)]
    body.check_answered(made, face.max_prompt_tokens)
    return made, under_way.prompt_tokens - under_way.cached_tokens


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
