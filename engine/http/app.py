"""The application: routes, errors and the gate put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from adjudge.engine.async_engine import AsyncFace
from adjudge.engine.http import openapi
from adjudge.engine.http.bodies import JsonRequest
from adjudge.engine.http.chat import chat
from adjudge.engine.http.completions import completions
from adjudge.engine.http.errors import respond
from adjudge.engine.http.gate import SCHEMA, Gate
from adjudge.engine.http.limits import Limits
from adjudge.engine.http.metrics import Metrics
from adjudge.engine.http.pooling import classify, embeddings
from adjudge.engine.http.scores import score
from adjudge.engine.http.service import Service
from adjudge.engine.http.status import health, metrics, model, models


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
        openapi_config=openapi.config(version, SCHEMA, keyed=service.limits.api_key is not None),
        request_class=JsonRequest,
        request_max_body_size=service.limits.max_body,
        state=State({"limits": service.limits}),
        logging_config=None,
    )
    openapi.tell_errors(app.openapi_schema)
    return Gate(app, service, counts)
