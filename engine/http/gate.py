"""What every request passes first: the key, the limits, the count."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from contextlib import ExitStack

from litestar import Litestar
from litestar.enums import HttpMethod, ScopeType
from litestar.types import Message, Receive, Scope, Send

from adjudge.engine.http.errors import HttpError, error_body, error_headers
from adjudge.engine.http.metrics import Metrics
from adjudge.engine.http.service import Service
from adjudge.engine.models.fingerprints import WEIGHTS_HEADER, digest
from adjudge.engine.waiting import wanted

OPEN = ("/health", "/metrics")
"""Routes that need no key and are answered while the server is full or drains."""

MODELS = "/v1/models"
"""Where a client learns what is served, which it may while the server is full."""

SCHEMA = "/schema"
"""Where the OpenAPI page lies, which needs no key either."""


class Gate:
    """An ASGI application in front of `app`: turns away who may not pass, and ends what a request has begun with it.

    HEAD is answered as GET, whose body the server leaves out.
    """

    def __init__(
        self, app: Litestar, service: Service, metrics: Metrics, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.app, self.service = app, service
        self._metrics, self._clock = metrics, clock
        self._routes = {route.path for route in app.routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand on what is none."""
        if scope["type"] != ScopeType.HTTP:
            return await self.app(scope, receive, send)
        if scope["method"] == HttpMethod.HEAD:
            scope = scope.copy()
            scope["method"] = HttpMethod.GET
        status, started = 499, self._clock()  # a client that goes before it is answered
        first: float | None = None

        async def watched(message: Message) -> None:
            nonlocal status, first
            if message["type"] == "http.response.start":
                status, first = message["status"], self._clock() - started
                message["headers"] = [*message.get("headers", ()), (WEIGHTS_HEADER.encode(), self._weights())]
            await send(message)

        try:
            if error := self._refusal(scope):
                await _refuse(error, watched)
            else:
                with ExitStack() as ending:
                    given_up = ending.enter_context(wanted())
                    self.service.under_way.add(given_up)
                    ending.callback(self.service.under_way.remove, given_up)
                    scope.setdefault("state", {})["ending"] = ending
                    await self.app(scope, receive, watched)
        finally:
            route = scope["path"] if scope["path"] in self._routes else scope.get("path_template", "other")
            self._metrics.observe(route, status, first, self._clock() - started)

    def _weights(self) -> bytes:
        """What tells these weights, with this adapter, from others: a client may keep the answers apart by it."""
        face = self.service.engine.face
        return digest(face.fingerprint, face.adapter or "")[:16].encode()

    def _refusal(self, scope: Scope) -> HttpError | None:
        path, limits = scope["path"], self.service.limits
        if path in OPEN:
            return None
        if limits.api_key is not None and not path.startswith(SCHEMA) and not _has_key(scope, limits.api_key):
            return HttpError(401, "the API key is missing or wrong: send it as a bearer token", code="invalid_api_key")
        if self.service.draining:
            return HttpError(503, "the server is being stopped: ask another", code="draining")
        if self.service.active >= limits.max_concurrency and not path.startswith(MODELS):
            return HttpError(
                429, f"{limits.max_concurrency} requests are under way: try again later", code="too_many_requests"
            )
        return None


def _has_key(scope: Scope, key: str) -> bool:
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, token = given.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), key.encode())


async def _refuse(error: HttpError, send: Send) -> None:
    body = error_body(error)
    headers = {**error_headers(error), "content-length": str(len(body))}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})
