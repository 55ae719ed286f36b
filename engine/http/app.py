"""The application: routes, errors and the gate put together, and what its OpenAPI page says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import (
    Components,
    OpenAPI,
    OpenAPIMediaType,
    OpenAPIResponse,
    Reference,
    Schema,
    SecurityScheme,
)

from adjudge.engine.async_engine import AsyncFace
from adjudge.engine.http.bodies import JsonRequest
from adjudge.engine.http.chat import chat
from adjudge.engine.http.completions import completions
from adjudge.engine.http.errors import ErrorBody, respond
from adjudge.engine.http.gate import SCHEMA, Gate
from adjudge.engine.http.limits import Limits
from adjudge.engine.http.metrics import Metrics
from adjudge.engine.http.pooling import classify, embeddings
from adjudge.engine.http.scores import score
from adjudge.engine.http.service import Service
from adjudge.engine.http.status import health, metrics, model, models

ERROR = Reference("#/components/schemas/ErrorBody")
STATUSES = {
    "4XX": "The request is at fault: a field (400, 422), the key (401), a model or path (404), its size (413); or there"
    " are too many at once (429).",
    "5XX": "The server is: it is stopping or asleep (503), was too slow (504), or failed (500).",
}
"""How errors are alike for all routes."""


def create_app(
    engine: AsyncFace,
    limits: Limits | None = None,
    routes: Sequence[Any] = (),
    version: str = "0",
    name: str | None = None,
) -> Gate:
    """An ASGI application over `engine`, which it does not close; `routes` are litestar handlers beside its own.

    Handlers get the `Service` as their argument `service`. `version` is for the OpenAPI page, `name` what clients call
    the model (None: its own name).
    """
    service = Service(engine, limits or Limits(), name)
    counts = Metrics(service)
    app = Litestar(
        [chat, completions, score, embeddings, classify, models, model, health, metrics, *routes],
        dependencies={
            "service": Provide(lambda: service, sync_to_thread=False),
            "metrics": Provide(lambda: counts, sync_to_thread=False),
        },
        exception_handlers={Exception: respond},
        openapi_config=_openapi(version, keyed=service.limits.api_key is not None),
        request_class=JsonRequest,
        request_max_body_size=service.limits.max_body,
        state=State({"limits": service.limits}),
        logging_config=None,
    )
    _tell_errors(app.openapi_schema)
    return Gate(app, service, counts)


def _openapi(version: str, *, keyed: bool) -> OpenAPIConfig:
    """The page of a server; with `keyed` requests need a bearer token."""
    schemes: dict[str, SecurityScheme | Reference] = {"key": SecurityScheme(type="http", scheme="bearer")}
    return OpenAPIConfig(
        "adjudge",
        version,
        path=SCHEMA,
        components=Components(security_schemes=schemes if keyed else None),
        security=[{"key": []}] if keyed else None,
    )


def _tell_errors(schema: OpenAPI) -> None:
    """Have every operation answer with our errors, in the place of litestar's own."""
    _, bodies = msgspec.json.schema_components((ErrorBody,), ref_template="#/components/schemas/{name}")
    schema.components.schemas.update(cast(dict[str, Schema], bodies))  # written as it is
    for item in (schema.paths or {}).values():
        for operation in (item.get, item.post):
            if operation is None:
                continue
            answers = {status: one for status, one in (operation.responses or {}).items() if status.startswith("2")}
            for status, meaning in STATUSES.items():
                answers[status] = OpenAPIResponse(meaning, content={"application/json": OpenAPIMediaType(schema=ERROR)})
            operation.responses = answers
