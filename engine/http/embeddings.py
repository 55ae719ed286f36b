"""`/v1/embeddings`: the hidden state after each input, in OpenAI's form."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Literal

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from adjudge.engine.embedding import Embedding
from adjudge.engine.http.errors import at_most
from adjudge.engine.http.inputs import InputRequest, embedded, prompts_of
from adjudge.engine.http.limits import MOST_EMBEDDINGS
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import Usage
from adjudge.engine.score import Reason


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


@post("/v1/embeddings", status_code=200, tags=["hidden states"])
async def embeddings(
    data: JSONBody[EmbeddingRequest], request: AnyRequest, service: NamedDependency[Service]
) -> EmbeddingResponse:
    """Read the hidden state after every input."""
    service.check_model(data.model)
    at_most(len(prompts_of(data.input, "input")), MOST_EMBEDDINGS, "embeddings", "input")
    found: list[Embedding]
    found, computed = await embedded(service, request, data, lambda tokens: tokens, lambda embedding: embedding)
    usage = Usage.of([(embedding.prompt_tokens, embedding.reason) for embedding in found], computed)
    return EmbeddingResponse(service.model, await asyncio.to_thread(_worded, found, data.encoding_format), usage)


def _worded(found: Sequence[Embedding], form: Literal["float", "base64"] | None) -> list[EmbeddingData]:
    return [EmbeddingData(place, _written(one, form), one.reason) for place, one in enumerate(found)]


def _written(embedding: Embedding, form: Literal["float", "base64"] | None) -> list[float] | str | None:
    if embedding.values is None:
        return None
    if form == "base64":
        return base64.b64encode(embedding.values.astype("<f4").tobytes()).decode()
    values: list[float] = embedding.values.tolist()
    return values
