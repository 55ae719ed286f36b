"""Requests' bodies: JSON into a Struct, strictly, with mistakes named by their field."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException

from adjudge.engine.field_mistakes import choices_of, field_meant
from adjudge.engine.http.errors import HttpError
from adjudge.engine.http.limits import SLOWEST, Limits
from adjudge.engine.text.tokenizer import well_formed

_PLACE = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<where>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?P<problem>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)


class JsonRequest(Request[Any, Any, Any]):
    """A request whose `data` is decoded straight into what its handler declares."""

    __slots__ = ()

    async def body(self) -> bytes:
        """The whole body; raises a 400 for none, a 408 for one that does not come, a 413 for too much, a 415 for one
        that is compressed.
        """
        if (encoding := self.headers.get("content-encoding", "identity")).lower() != "identity":
            raise HttpError(415, f"the body is {encoding}: send it as it is, without content-encoding")
        limits: Limits = self.app.state.limits
        body, clock = bytearray(), asyncio.get_running_loop().time
        since = clock()
        try:
            async with asyncio.timeout(limits.stall_timeout) as waiting:
                async for part in self.stream():
                    body += part
                    waiting.reschedule(limits.patience(since, clock(), len(body)))
        except TimeoutError as error:
            said = f"nothing of the body came for {limits.stall_timeout:g} s, or less than {SLOWEST} bytes a second"
            raise HttpError(408, said) from error
        except InternalServerException as error:  # litestar's word for it
            raise HttpError(499, "the client has gone") from error
        if not body:
            raise HttpError(400, "the body is empty: send a JSON object")
        self._body = bytes(body)  # which is what `stream` has from now on
        return self._body

    async def json(self) -> Any:
        """The body as the type of the handler's `data`; raises a 400."""
        declared = self.route_handler.parsed_data_field
        assert declared is not None
        return decode(await self.body(), declared.annotation)


def decode(body: bytes, kind: type[Any]) -> Any:
    """A body as `kind`; raises a 400 that names the field. Lone surrogates, which policies write, become U+FFFD.

    The mark that Windows puts before UTF-8 is none of it.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if b"\\ud" not in body.lower():
                raise
            text = json.dumps(json.loads(body), ensure_ascii=False)
            return msgspec.json.decode(well_formed(text), type=kind)
    except msgspec.ValidationError as error:
        raise _named(error, kind) from error
    except UnicodeDecodeError as error:
        raise HttpError(400, "the body is not UTF-8") from error
    except RecursionError as error:
        raise HttpError(400, "the body is nested too deeply") from error
    except ValueError as error:  # msgspec.DecodeError and json.JSONDecodeError
        raise HttpError(400, f"the body is not JSON ({error})") from error


def _named(error: msgspec.ValidationError, kind: type[Any]) -> HttpError:
    """msgspec's sentence with the field in front: "Expected `int`, got `str` - at `$.n`"; and what may be written."""
    parts = _PLACE.fullmatch(str(error))
    assert parts is not None
    where, what = parts["where"] or "", parts["what"]
    if field := _FIELD.fullmatch(what):
        where = f"{where}.{field['name']}".lstrip(".")
        if field["problem"] == "missing required":
            return HttpError(400, f"{where} is missing", param=where)
        near = field_meant(error, kind)
        mend = "remove it" if near is None else f'if "{near}" is meant, rename it, or remove it'
        return HttpError(400, f"{where} is no field of this request: {mend}", param=where)
    if where and what.startswith("Expected `null`"):
        return HttpError(400, f"{where} is not supported: leave it out", param=where)
    return HttpError(
        400, f"{where or 'the body'}: {what[:1].lower()}{what[1:]}{choices_of(error, kind)}", param=where or None
    )
