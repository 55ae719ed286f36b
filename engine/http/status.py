"""What a server says of itself: its model, its health, its counters."""

from __future__ import annotations

from typing import Literal

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from adjudge.engine.http.metrics import Metrics
from adjudge.engine.http.service import Service


class ServedModel(msgspec.Struct, frozen=True):
    """A model in OpenAI's fields, which weights, adapter and dtype it has, and what a request may be: so many tokens
    (`max_model_len`), so many answers.
    """

    id: str
    created: int
    fingerprint: str
    adapter: str | None
    dtype: str
    max_model_len: int
    max_answers: int
    object: str = "model"
    owned_by: str = "adjudge"


class ModelList(msgspec.Struct, frozen=True):
    """The models there are: one."""

    data: list[ServedModel]
    object: str = "list"


class Health(msgspec.Struct, frozen=True):
    """Whether new requests are taken."""

    status: Literal["ok", "draining", "not_serving"]


@get("/v1/models", tags=["server"])
async def models(service: NamedDependency[Service]) -> ModelList:
    """The model that is served."""
    return ModelList([_served(service)])


@get("/v1/models/{name:path}", tags=["server"])
async def model(name: FromPath[str], service: NamedDependency[Service]) -> ServedModel:
    """The model that is served, asked for by its name."""
    service.check_model(service.model if service.model in (name, name.removeprefix("/")) else name.removeprefix("/"))
    return _served(service)


@get("/health", tags=["server"])
async def health(service: NamedDependency[Service]) -> Response[Health]:
    """200 while requests are taken, 503 while the server drains, or its engine sleeps or is gone."""
    if service.draining:
        return Response(Health("draining"), status_code=503)
    if not service.engine.serving:
        return Response(Health("not_serving"), status_code=503)
    return Response(Health("ok"))


@get("/metrics", tags=["server"], media_type="text/plain; version=1.0.0")  # and a charset
async def metrics(metrics: NamedDependency[Metrics]) -> bytes:
    """Counters for Prometheus."""
    return metrics.text()


def _served(service: Service) -> ServedModel:
    face = service.engine.face
    return ServedModel(service.model, service.created, *face.identity, service.limits.max_answers)
