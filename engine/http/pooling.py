"""`/v1/embeddings` and `/classify`: the hidden state after each input, and the reward that a reward model gives to it.

The former is in OpenAI's form, the latter in that of vLLM's servers: the fields `input`, `model`, `priority` and
`use_activation` and the answer's fields but `reason` are vLLM's (its classification API), which has one number among
`probs` for a model with one label. It is the reward itself, a logit: vLLM's own is one where `use_activation` is false.
"""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from adjudge.engine.async_engine import Answers, in_order
from adjudge.engine.embedding import Embedding
from adjudge.engine.http.errors import at_most, blame, no_answer
from adjudge.engine.http.limits import MOST_EMBEDDINGS
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import UNREAD, Given, Only, Unread, Usage, prompts_of, refuse_others
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.score import Reason
from adjudge.engine.tokens import Tokens

LABEL = "LABEL_0"
"""What transformers calls the only label of a reward model."""


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


class EmbeddingRequest(InputRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`encoding_format` "base64" gives an embedding's numbers as little-endian float32; either form is exact."""

    encoding_format: Literal["float", "base64"] | None = None
    dimensions: None = None


class EmbeddingData(msgspec.Struct, frozen=True):
    """The hidden state after the last token of one input, after the model's final norm and not scaled to length 1."""

    index: int
    embedding: list[float] | str | None
    reason: Reason | None = None
    object: str = "embedding"


class EmbeddingResponse(msgspec.Struct, frozen=True):
    """An embedding for each input, in order."""

    model: str
    data: list[EmbeddingData]
    usage: Usage
    object: str = "list"


class ClassifyRequest(InputRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whole conversations in the model's chat template: as token ids, since special tokens in texts are plain text."""

    use_activation: Annotated[bool | None, Only(False)] = None


class Classified(msgspec.Struct, frozen=True):
    """The reward of one input, alone in `probs`; none there where it abstained."""

    index: int
    label: str
    probs: list[float]
    num_classes: int = 1
    reason: Reason | None = None


class ClassifyResponse(msgspec.Struct, frozen=True):
    """A reward for each input, in order."""

    id: str
    created: int
    model: str
    data: list[Classified]
    usage: Usage
    object: str = "list"


@post("/v1/embeddings", status_code=200, tags=["hidden states"])
async def embeddings(
    data: JSONBody[EmbeddingRequest], request: AnyRequest, service: NamedDependency[Service]
) -> EmbeddingResponse:
    """Read the hidden state after every input."""
    service.check_model(data.model)
    at_most(len(prompts_of(data.input, "input")), MOST_EMBEDDINGS, "embeddings", "input")
    found, computed = await _read(service, request, data, lambda tokens: tokens, lambda embedding: embedding)
    usage = _usage(service, data, found, computed)
    return EmbeddingResponse(service.model, await asyncio.to_thread(_worded, found, data.encoding_format), usage)


@post("/classify", status_code=200, tags=["rewards"])
async def classify(
    data: JSONBody[ClassifyRequest], request: AnyRequest, service: NamedDependency[Service]
) -> ClassifyResponse:
    """Read the reward of every input."""
    service.check_model(data.model)
    refuse_others(data)
    face = service.engine.face
    face.require_rewards()
    rewards, computed = await _read(service, request, data, face.read_for_rewards, ModelReward.of)
    usage = _usage(service, data, rewards, computed)
    classified = [
        Classified(place, LABEL, [] if reward.value is None else [reward.value], reason=reward.reason)
        for place, reward in enumerate(rewards)
    ]
    return ClassifyResponse(f"classify-{uuid.uuid4().hex}", int(time.time()), service.model, classified, usage)


async def _read(
    service: Service,
    request: AnyRequest,
    body: InputRequest,
    part: Callable[[list[Tokens]], list[Tokens]],
    keep: Callable[[Embedding], Any],
) -> tuple[list[Any], int]:
    """What is to `keep` of the hidden state after a `part` of each input, and how many tokens were computed."""
    prompts = prompts_of(body.input, "input")
    service.check_count(len(prompts), "input")
    timeout = service.timeout(request, body.timeout)

    async def opened() -> Answers:
        tokens = await asyncio.to_thread(lambda: part(service.engine.face.read(prompts, ended=True)))
        return await service.engine.open_embed(tokens, priority=body.priority or 0, timeout=timeout)

    with blame("input"):
        answers = await service.begun(request, opened, timeout)
        found = await service.unless_gone(request, in_order(answers, keep))
    return found, answers.prompt_tokens - answers.cached_tokens


def _usage(service: Service, body: InputRequest, answers: Sequence[Embedding | ModelReward], computed: int) -> Usage:
    """What the answers have taken; raises for the first input without one, unless it may abstain."""
    for place, answer in enumerate(answers):
        if answer.reason is not None and not body.abstain:
            alone = isinstance(body.input, str) or isinstance(body.input[0], int)
            name = "input" if alone else f"input[{place}]"
            raise no_answer(name, answer.reason, answer.prompt_tokens, service.engine.face.max_prompt_tokens)
    return Usage.of([(answer.prompt_tokens, answer.reason) for answer in answers], computed)


def _worded(found: Sequence[Embedding], form: Literal["float", "base64"] | None) -> list[EmbeddingData]:
    return [EmbeddingData(place, _written(one, form), one.reason) for place, one in enumerate(found)]


def _written(embedding: Embedding, form: Literal["float", "base64"] | None) -> list[float] | str | None:
    if embedding.values is None:
        return None
    if form == "base64":
        return base64.b64encode(embedding.values.astype("<f4").tobytes()).decode()
    values: list[float] = embedding.values.tolist()
    return values
