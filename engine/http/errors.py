"""Errors as OpenAI's clients expect them: a status, and a body that names the field."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from adjudge.engine.errors import (
    AdjudgeError,
    CallTooLarge,
    EngineFailed,
    LabelError,
    ModelUnsupported,
    NotServing,
    PromptError,
    QueueFull,
)
from adjudge.engine.sampling import Sampling

RETRY_AFTER = 1
"""Seconds after which a client that was turned away may come again."""

MEANINGS = {
    404: "nothing is served here: /schema lists the paths",
    405: "this path is not for that method: /schema lists both",
    413: "the body is larger than this server takes (adjudge serve --max-body-mb): send less at once",
}
"""What litestar's own refusals mean."""

TYPES = {401: "authentication_error", 429: "rate_limit_error"}

ASIDE = (*Sampling.__struct_fields__, "priority")
"""The fields beside the prompt whose names a PromptError may begin with."""

log = logging.getLogger("adjudge")


class HttpError(AdjudgeError):
    """An answer other than 200: `param` is the field at fault, `code` one of OpenAI's words for the mistake."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] = {},
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, headers


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, in OpenAI's fields."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: ErrorDetail


def http_error(error: Exception) -> HttpError:
    """Any exception as an answer; one that is no mistake of the client's is logged, and the answer says no more."""
    match error:
        case HttpError():
            return error
        case QueueFull():
            return HttpError(429, str(error), code="queue_full")
        case NotServing():
            return HttpError(503, str(error), code="not_serving")
        case EngineFailed():
            log.error("the engine failed", exc_info=error)
            return HttpError(503, str(error), code="engine_failed")
        case ModelUnsupported():
            return HttpError(400, f"model: {error}", param="model")
        case AdjudgeError():
            return HttpError(400, str(error))
        case ValidationException(extra=[{"key": key, "message": message}, *_]):
            return HttpError(400, f"{key}: {message[:1].lower()}{message[1:]}", param=key)
        case HTTPException(status_code=status) if status < 500:
            return HttpError(status, MEANINGS.get(status, error.detail), headers=error.headers or {})
    log.error("a request failed", exc_info=error)
    return HttpError(500, "the server failed at this request; its log says how")


def at_most(count: int, most: int, what: str, field: str, *, status: int = 400) -> None:
    """Raise an error of that status where a field asks for more of something than one request may."""
    if count > most:
        raise HttpError(status, f"{field} asks for {count} {what}: at most {most} in a request", param=field)


def overflow(field: str) -> HttpError:
    """For a prompt after which the model has no finite number."""
    said = f"{field} makes the model overflow, so that it has no number: leave it out"
    return HttpError(422, said, param=field, code="non_finite")


def too_long(field: str, what: str, longest: int) -> HttpError:
    """For a prompt, `what` it has, that a model of `longest` tokens does not hold: clients look for OpenAI's words."""
    said = f"This model's maximum context length is {longest} tokens; {what}"
    return HttpError(400, said, param=field, code="context_length_exceeded")


def no_answer(name: str, reason: str, tokens: int, longest: int) -> HttpError:
    """For a prompt of so many tokens that has none, and why; the model holds `longest`."""
    match reason:
        case "too_long":
            return too_long(name, f"{name} has at least {tokens}", longest)
        case "non_finite":
            return overflow(name)
        case "timeout":
            said = f"{name} was not read in time: ask for less at once, or for a longer timeout"
            return HttpError(504, said, param=name, code="timeout")
    return HttpError(503, f"{name} has no answer ({reason}): ask again", param=name, code=reason)


def error_body(error: HttpError) -> bytes:
    """The answer's body, in JSON."""
    kind = TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return msgspec.json.encode(ErrorBody(ErrorDetail(str(error), kind, error.param, error.code)))


def error_headers(error: HttpError) -> dict[str, str]:
    """The answer's headers: when to come again, how to log in."""
    headers = {**error.headers, "content-type": "application/json"}
    if error.status in (429, 503):
        headers["retry-after"] = str(RETRY_AFTER)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def respond(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    """Litestar's handler of exceptions."""
    error = http_error(exception)
    return Response(error_body(error), status_code=error.status, headers=error_headers(error))


@contextmanager
def blame(
    field: str, *, labels: str | None = None, count: str | None = None, renamed: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Turn a LabelError into a 400 that names `labels`, a CallTooLarge into one that names `count`, or `field`, and a
    PromptError into one that names the field at fault.

    That is the one of `ASIDE` it begins with, which the client may know under another name (`renamed`), or `field`.
    """
    try:
        yield
    except LabelError as error:
        raise HttpError(400, f"{labels}: {error}", param=labels) from error
    except CallTooLarge as error:
        raise HttpError(400, f"{count or field}: {error}", param=count or field) from error
    except PromptError as error:
        first, _, rest = str(error).partition(" ")
        if first not in ASIDE:
            name = field if error.place is None else f"{field}[{error.place}]"
            raise HttpError(400, f"{name}: {error}", param=name) from error
        name = (renamed or {}).get(first, first)
        raise HttpError(400, f"{name} {rest}", param=name) from error
