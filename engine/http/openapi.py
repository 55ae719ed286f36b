"""What the OpenAPI page says of errors and keys, which are alike for all routes."""

from __future__ import annotations

from typing import cast

import msgspec
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

from adjudge.engine.http.errors import ErrorBody

ERROR = Reference("#/components/schemas/ErrorBody")
STATUSES = {
    "4XX": "The request is at fault: a field (400, 422), the key (401), a model or path (404), its size (413); or there"
    " are too many at once (429).",
    "5XX": "The server is: it is stopping or asleep (503), was too slow (504), or failed (500).",
}


def config(version: str, path: str, *, keyed: bool) -> OpenAPIConfig:
    """The page's configuration; with `keyed` requests need a bearer token."""
    schemes: dict[str, SecurityScheme | Reference] = {"key": SecurityScheme(type="http", scheme="bearer")}
    return OpenAPIConfig(
        "adjudge",
        version,
        path=path,
        components=Components(security_schemes=schemes if keyed else None),
        security=[{"key": []}] if keyed else None,
    )


def tell_errors(schema: OpenAPI) -> None:
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
