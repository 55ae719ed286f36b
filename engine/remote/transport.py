"""Requests to a server that may be slow, busy, broken or gone: retries, limits, and a circuit breaker."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError, RemoteError, first_of, reason
from adjudge.engine.models.fingerprints import WEIGHTS_HEADER
from adjudge.engine.remote.address import proxies_to, without_secrets
from adjudge.engine.remote.circuit import Circuit
from adjudge.engine.remote.client import MISSING, open_client, trusting, untrusted
from adjudge.engine.score import Reason

try:
    import httpx2
    from tenacity import (
        AsyncRetrying,
        RetryCallState,
        retry_if_exception_type,
        wait_random_exponential,
    )
except ImportError as error:
    raise AdjudgeError(MISSING) from error

T = TypeVar("T")

MAX_REPLY = 64 << 20
"""Bytes of a reply, unpacked, beyond which it is not read on."""
SLOW_TRIES = 8
"""Attempts of a request that may run out of time while the server answers others, before that counts as a failure."""
MAX_WAIT = 60.0
"""Seconds between two attempts at most, whatever the server asks for."""
LEAST_FAILURES = 5
"""Failures in a row before a server counts as gone, however few requests are made at once."""
LOOK_EVERY = 15.0
"""Seconds between two looks at a server that is gone."""
TOO_LONG = re.compile(r"context[ _](length|window|size)|too long|max(imum)? (allowed |input |prompt )*length", re.I)
"""How servers say that a prompt does not fit."""

MENDS = {
    "/v1/embeddings": (
        "let a server that embeds find the examples (`adjudge serve`, or vLLM or SGLang started for it), give an Index"
        " with an embedder of its own, or leave the examples out"
    ),
    "/classify": (
        "pass the address of a reward model's server: `adjudge serve`, vLLM from 0.15 on with --runner pooling, or"
        " SGLang with --is-embedding"
    ),
}
"""By the path that a server lacks."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a reply that is not what it should be may raise."""

_backoff = wait_random_exponential(multiplier=0.5, max=30)


class NoAnswer(Exception):
    """A request that stays without an answer; `reason` is why its prompts have no score."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class Trouble(NoAnswer):
    """What another attempt may mend.

    `wait` is how many seconds the server asks for, `alive` that there is one, `busy` that it only has no room yet.
    """

    def __init__(
        self, message: str, reason: Reason = "timeout", wait: float = 0.0, alive: bool = False, busy: bool = False
    ) -> None:
        super().__init__(message, reason)
        self.wait = wait
        self.alive = alive
        self.busy = busy


class Slow(Trouble):
    """An attempt that ran out of time: perhaps the server has too many at once."""


class BadReply(Exception):
    """A reply that is not what the server's interface promises."""


class Refused(Exception):
    """A request that the server understands and will not serve, with the sentence for the user."""


@dataclass
class Spent:
    """What one request has cost: attempts that were too slow while others were answered, failures, seconds under way.

    To wait for its turn costs nothing.
    """

    slow: int = 0
    failures: int = 0
    seconds: float = 0.0


class Transport:
    """An HTTP client of one server.

    An attempt may take `timeout` seconds; one that fails by the connection, a broken reply or a status of 408, 429 or
    5xx is made again up to `retries` times, after an exponential backoff with full jitter and never before the server's
    Retry-After (of a minute at most). A 429 with a Retry-After is no failure: what is posted is put off as often as the
    server asks for that, for `timeout` times `retries` + 1 seconds in all. At most `max_concurrency` attempts are under
    way at once, and half as many after one that the server was too busy for or that ran out of time (see `Slots`),
    which is no failure while others are answered. After twice as many failures in a row (at least 5) the server counts
    as gone: one attempt is made every 15 seconds, and all others only wait for its outcome, until there is an answer or
    they have been put off `retries` times. `sleep` and `clock` are asyncio.sleep and time.monotonic unless a test sets
    others. For one event loop.
    """

    def __init__(
        self, base_url: str, *, api_key: str | None, timeout: float, max_concurrency: int, retries: int
    ) -> None:
        self.base_url = without_secrets(base_url)
        self.timeout = timeout
        self.retries = retries
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.clock: Callable[[], float] = time.monotonic
        self.circuit = Circuit(max(LEAST_FAILURES, 2 * max_concurrency), LOOK_EVERY, lambda: self.clock())
        self._weights: str | None = None
        self._last_trouble = ""
        self._slots = Slots(max_concurrency)
        self._answered_at = -math.inf
        self._client = open_client(base_url, api_key=api_key, timeout=timeout, most=max_concurrency)
        self._proxies = proxies_to(self._client.base_url.scheme, self._client.base_url.host)

    async def get(self, path: str, decode: Callable[[bytes], T]) -> T:
        """What stands at `path`, as `post` has it, but a busy server is asked no more often than one that fails."""
        return await self._ask("GET", path, b"", decode, 0.0)

    async def post(self, path: str, body: bytes, decode: Callable[[bytes], T]) -> T:
        """The reply to a request, decoded, after as many attempts as it takes.

        Raises NoAnswer where there is none to be had, Refused for a request that the server will not serve, and
        RemoteError for what no request to this server will get past, as that its weights are others than at first.
        """
        return await self._ask("POST", path, body, decode, self.timeout * (self.retries + 1))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(
        self, method: Literal["GET", "POST"], path: str, body: bytes, decode: Callable[[bytes], T], patience: float
    ) -> T:
        """Attempts, of which `retries` + 1 may fail; those that a busy server puts off may go on for `patience`."""
        spent = Spent()

        def over(state: RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            spent.failures += not (isinstance(error, Trouble) and error.busy)
            late = spent.seconds + state.idle_for + state.upcoming_sleep >= patience
            return state.attempt_number > self.retries and (late or spent.failures > self.retries)

        retrying = AsyncRetrying(
            sleep=lambda seconds: self.sleep(seconds),
            stop=over,
            wait=_pause,
            retry=retry_if_exception_type(Trouble),
            reraise=True,
        )
        return await retrying(self._attempt, method, path, body, decode, spent)

    async def _attempt(
        self, method: Literal["GET", "POST"], path: str, body: bytes, decode: Callable[[bytes], T], spent: Spent
    ) -> T:
        """One attempt, or more where it runs out of time while others are answered."""
        while True:
            async with self._slots:
                if not self.circuit.admits():
                    message = f"{self.base_url} has stopped answering (last: {self._last_trouble})"
                    raise Trouble(message, wait=self.circuit.left)
                begun = self.clock()
                try:
                    answer = await self._exchange(method, path, body, decode)
                except (NoAnswer, Refused, RemoteError) as error:
                    spent.seconds += self.clock() - begun
                    if isinstance(error, Slow) and spent.slow < SLOW_TRIES:
                        spent.slow += 1
                        self._slots.narrow(begun, self.clock())
                        if self._answered_at > begun:
                            continue
                    if isinstance(error, Trouble) and error.reason == "timeout":  # a reply of another form is a reply
                        if not error.alive:
                            self._last_trouble = str(error).removeprefix(self.base_url).lstrip()
                            self.circuit.failed()
                            raise
                        self._slots.narrow(begun, self.clock())
                    self.circuit.succeeded()
                    raise
                self.circuit.succeeded()
                self._slots.widen()
                self._answered_at = self.clock()
                return answer

    async def _exchange(self, method: str, path: str, body: bytes, decode: Callable[[bytes], T]) -> T:
        try:
            async with asyncio.timeout(self.timeout), self._client.stream(method, path, content=body) as response:
                raw = await _read(response)
        except TimeoutError as error:
            raise Slow(f"{self.base_url} gave no answer within {self.timeout:g} seconds") from error
        except (httpx2.RequestError, httpx2.InvalidURL, ExceptionGroup) as error:  # the group: of a proxy's port
            spared = "unless no_proxy names the host"
            on_the_way = f"; on the way is the proxy of {self._proxies}, {spared}" if self._proxies else ""
            if (refused := untrusted(error)) is not None:
                why = refused.verify_message.rstrip(".")
                raise RemoteError(
                    f"the certificate of {self.base_url} is not trusted ({why}{on_the_way}): {trusting(refused)}"
                ) from error
            raise Trouble(f"{self.base_url} cannot be reached ({reason(first_of(error))}{on_the_way})") from error
        except BadReply as error:
            raise Trouble(f"{self.base_url}{path} answers what cannot be read ({error})", "unsupported") from error
        if not response.is_success:
            raise self._failure(response, path, raw)
        try:
            answer = decode(raw)
        except (BadReply, *UNREADABLE) as error:
            message = f"{self.base_url}{path} answers what cannot be read ({reason(error)})"
            whole = isinstance(error, BadReply) or (raw.strip()[:1], raw.strip()[-1:]) in ((b"{", b"}"), (b"[", b"]"))
            raise Trouble(message, "unsupported" if whole else "timeout") from error  # cut off, or a gateway's page
        weights = response.headers.get(WEIGHTS_HEADER)
        self._weights = self._weights or weights
        if weights != self._weights:
            raise RemoteError(f"{self.base_url} has other weights or another adapter than it had: open the judge again")
        return answer

    def _failure(self, response: httpx2.Response, path: str, raw: bytes) -> Exception:
        """What a status other than 200 means."""
        status, said = response.status_code, _message(raw)
        what = f"{status}: {said}" if said else str(status)
        if status in (408, 429) or (status >= 500 and status != 501):
            retry_after = response.headers.get("retry-after", "")
            alive, busy = status == 429 or bool(retry_after), status == 429 and bool(retry_after)
            return Trouble(f"{self.base_url} answers {what}", "timeout", _seconds(retry_after), alive, busy)
        if status == 413 or (status in (400, 422) and TOO_LONG.search(raw.decode(errors="replace"))):
            return NoAnswer(f"{self.base_url} finds the prompt too long ({what})", "too_long")
        if status == 422 and b'"non_finite"' in raw:
            return NoAnswer(f"{self.base_url} finds no number after the prompt ({what})", "non_finite")
        if status in (401, 403):
            return RemoteError(f"{self.base_url} wants another key ({what}): set ADJUDGE_API_KEY, or pass api_key=")
        if status in (404, 405, 501):
            return RemoteError(f"{self.base_url} has no {path} for this model ({what}): {mend(path)}")
        if response.is_redirect:
            if (where := _elsewhere(response, path)) is None:
                return RemoteError(f"{self.base_url} answers {path} with {what} and no address: correct its own")
            if response.url.join(response.headers["location"]) == response.url:
                return RemoteError(
                    f"{where}{path} redirects to itself for ever ({what}): mend that server, or correct the address"
                )
            return RemoteError(f"{self.base_url} sends its callers to {where}: pass that address")
        return Refused(f"{self.base_url} refuses {path} ({what}): {MENDS.get(path, 'change what it names')}")


class Slots:
    """How many attempts may be under way: `most`, or fewer where so many are too much for the server.

    For one event loop.
    """

    def __init__(self, most: int) -> None:
        self.limit = self._most = most
        self._free = asyncio.Semaphore(most)
        self._owed = self._answers = 0  # places to be taken away once they are free; answers since the last change
        self._narrowed = -math.inf

    async def __aenter__(self) -> None:
        await self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        if self._owed:
            self._owed -= 1
        else:
            self._free.release()

    def narrow(self, begun: float, now: float) -> None:
        """Half as many, unless that has happened since the attempt had `begun` which was too much."""
        if begun > self._narrowed:
            self._narrowed, self._answers = now, 0
            half = max(1, self.limit // 2)
            self._owed, self.limit = self._owed + self.limit - half, half

    def widen(self) -> None:
        """Note an answer: after as many as there are places there is one more."""
        self._answers += 1
        if self.limit < self._most and self._answers >= self.limit:
            self._answers, self.limit = 0, self.limit + 1
            if self._owed:
                self._owed -= 1
            else:
                self._free.release()


def mend(path: str) -> str:
    """What a user does about a server that does not answer there."""
    return MENDS.get(
        path, "pass the address and the model id of a server that completes text; chat alone is not enough"
    )


async def _read(response: httpx2.Response) -> bytes:
    raw = bytearray()
    async for chunk in response.aiter_bytes():
        raw += chunk
        if len(raw) > MAX_REPLY:
            raise BadReply(f"more than {MAX_REPLY >> 20} MiB")
    return bytes(raw)


def _elsewhere(response: httpx2.Response, path: str) -> str | None:
    """Where a redirect leads, as the address of a server if it is to the same path; None where it names nothing."""
    if not response.has_redirect_location:
        return None
    try:
        return without_secrets(str(response.url.join(response.headers["location"])).removesuffix(path))
    except httpx2.InvalidURL:
        return None


def _message(raw: bytes) -> str:
    """What the server says about an error, in whichever of the usual shapes: one line, short."""
    try:
        said: Any = msgspec.json.decode(raw)
    except UNREADABLE:
        said = raw.decode(errors="replace")
    for name in ("error", "message", "detail"):
        if isinstance(said, dict):
            said = said.get(name, said)
    said = str(said).replace("Value error, ", "")  # how pydantic begins, by which vLLM and SGLang check what they get
    printable = "".join(character if character.isprintable() else " " for character in said[:300])
    return " ".join(printable.split()).rstrip(" .:")


def _seconds(retry_after: str) -> float:
    """From now on, as a number or as a date (of UTC, where it does not say); 0 for neither."""
    if re.fullmatch(r"\d+(\.\d+)?", retry_after):
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
        return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait if isinstance(error, Trouble) else 0.0
    return min(MAX_WAIT, asked) + _backoff(state)
