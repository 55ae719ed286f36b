"""What one server takes on, and what becomes of the rest: clients too many, too large, too slow, gone."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import re
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import httpx2
import openai
import pytest

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.http import server as server_module
from adjudge.engine.http.app import create_app
from adjudge.engine.http.limits import SLOWEST, Limits
from tests.engine.http.serving import (
    LONG,
    MODEL,
    PATIENCE,
    Served,
    error_of,
    held,
    raw_request,
    served,
    wait_until_busy,
    wait_until_idle,
)

TEXT = "/v1/completions"
SHORT: dict[str, Any] = {"prompt": "a", "max_tokens": 1}
LARGE = json.dumps({"items": ["a"] * 200, "label_token_ids": list(range(256))}).encode()
"""To `/v1/score`: its answer, of 3 MB, is more than anybody on the way takes before the client reads."""


SPELT = {"max_tokens": 20, "allowed_token_ids": [97]}
"""A text whose every token is a whole character, so that each step has something to say."""


@contextlib.contextmanager
def long_stream(site: Served, **options: object) -> Iterator[Iterator[str]]:
    """The lines of a stream that has begun."""
    body = {**LONG, "stream": True, **options}
    with httpx2.stream("POST", site.url + TEXT, json=body, timeout=PATIENCE) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines).startswith("data: {")
        yield lines


def test_a_key_opens_everything_and_nothing_opens_without_it(engine: AsyncEngine) -> None:
    with served(engine, Limits(api_key="säsam")) as site:
        for headers in ({}, {"authorization": "Bearer x"}, {"authorization": "säsam".encode()}):
            for path in ("/v1/models", "//v1/models", "/v1/models/", "/v1/nothing"):
                response = site.get(path, headers=headers)
                assert response.status_code == 401 and error_of(response)["code"] == "invalid_api_key"
        assert [site.get(path).status_code for path in ("/health", "/metrics", "/schema/openapi.json")] == [200] * 3
        assert site.get("/v1/models", headers={"authorization": "bearer säsam".encode()}).status_code == 200
    with served(engine, Limits(api_key="sesame")) as site:
        assert openai.OpenAI(base_url=site.url + "/v1", api_key="sesame").models.list().data[0].id == MODEL
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=site.url + "/v1", api_key="nonsense").models.list()


@pytest.mark.parametrize("path", [TEXT, "/v1/chat/completions", "/v1/score"])
def test_a_body_too_large_is_not_even_parsed(site: Served, path: str) -> None:
    for content in (b"x" * 10_000_001, (b"x" * 100_000 for _ in range(101))):  # announced, and not
        response = site.post(path, content=content)
        assert response.status_code == 413 and "larger than this server takes" in error_of(response)["message"]
    assert site.post(path, content=b"x" * 10_000_000).status_code == 400


def test_a_body_that_does_not_come_is_given_up(engine: AsyncEngine) -> None:
    with served(engine, Limits(stall_timeout=0.1)) as site, raw_request(site.url, TEXT, b"{", length=9) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_comes_steadily_has_its_time_but_not_at_a_crawl(engine: AsyncEngine) -> None:
    with served(engine, Limits(stall_timeout=0.5)) as site:
        body = json.dumps({**SHORT, "user": "x" * 10_000}).encode()
        with raw_request(site.url, TEXT, b"", length=len(body)) as connection:
            for place in range(0, len(body), 100):  # which takes twice as long
                assert not select.select([connection], [], [], 0.01)[0]
                connection.sendall(body[place : place + 100])
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        with raw_request(site.url, TEXT, b"", length=1_000_000) as connection:
            while not select.select([connection], [], [], 0.01)[0]:
                connection.sendall(b" ")
            assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_patience_is_with_those_that_move_and_ends_below_the_slowest_pace() -> None:
    limits = Limits(stall_timeout=60.0)
    assert limits.patience(100.0, 100.0, 0) == 160.0
    assert limits.patience(100.0, 150.0, 50 * SLOWEST) == 210.0
    assert limits.patience(100.0, 150.0, 10 * SLOWEST) == 170.0


def test_a_request_that_does_not_come_is_given_up(engine: AsyncEngine) -> None:
    with served(engine, Limits(stall_timeout=0.2)) as site:
        address = site.url.removeprefix("http://").split(":")
        for sent in (b"", b"POST /v1/comp", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /he"):
            with socket.create_connection((address[0], int(address[1])), PATIENCE) as connection:
                connection.sendall(sent)
                answer = b""
                with contextlib.suppress(ConnectionResetError):
                    while part := connection.recv(1000):
                        answer += part
                assert answer.startswith(b"HTTP/1.1 200" if b"health" in sent else b"")
        assert site.post(TEXT, SHORT).status_code == 200


def test_a_client_that_goes_while_it_sends_is_no_error_of_the_server(
    engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with served(engine) as site:
        with raw_request(site.url, TEXT, b"{", length=9):
            pass
        found, until = "", time.monotonic() + PATIENCE
        while not (found := status_of(site, TEXT)) and time.monotonic() < until:
            time.sleep(0.01)
    assert found == "499" and "a request failed" not in caplog.text


def test_a_body_that_is_no_http_after_its_answer_is_no_error_of_the_server(
    site: Served, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}}"):
            answer += connection.recv(10_000)
        connection.sendall(b"no length\r\n")
        assert connection.recv(10_000) == b""
    assert "Traceback" not in caplog.text


def status_of(site: Served, route: str) -> str:
    """The status that the server counts for a route, if it counts any."""
    line = re.search(rf'adjudge_http_requests_total{{route="{route}",status="(\d+)"}}', site.get("/metrics").text)
    return line[1] if line else ""


def test_requests_too_many_are_told_to_come_again(engine: AsyncEngine) -> None:
    with served(engine, Limits(max_concurrency=1)) as site:
        with long_stream(site):
            response = site.post(TEXT, SHORT)
            assert response.status_code == 429 and error_of(response)["type"] == "rate_limit_error"
            assert int(response.headers["retry-after"]) >= 1
            assert [site.get(path).status_code for path in ("/health", "/v1/models", f"/v1/models/{MODEL}")] == [
                200
            ] * 3
        wait_until_idle(engine)
        with openai.OpenAI(base_url=site.url + "/v1", api_key="x", max_retries=9) as client:
            assert client.completions.create(model=MODEL, **SHORT).choices


def test_a_full_queue_is_told_and_takes_nothing() -> None:
    engine = AsyncEngine(Engine(MODEL, max_queue=2, max_batch_tokens=1))
    with served(engine) as site, ThreadPoolExecutor() as pool:
        with long_stream(site):  # which takes the one token of every step
            asked = [pool.submit(site.post, TEXT, SHORT) for _ in range(2)]
            while engine.worker.between_steps(lambda inner: len(inner.scheduler._waiting)).result(PATIENCE) < 2:
                time.sleep(0.01)
            for body in ({**SHORT, "n": 2}, {**SHORT, "n": 2, "stream": True}):
                response = site.post(TEXT, body)
                assert response.status_code == 429 and error_of(response)["code"] == "queue_full"
                assert int(response.headers["retry-after"]) >= 1
            assert site.post("/v1/score", {"items": ["a", "b"], "labels": ["1"]}).status_code == 429
        assert [one.result().status_code for one in asked] == [200, 200]
        assert site.post(TEXT, {**SHORT, "n": 2}).status_code == 200
        for path, field, body in (
            (TEXT, "n", {**SHORT, "n": 3}),
            (TEXT, "prompt", {**SHORT, "prompt": ["a", "b", "c"]}),
            ("/v1/score", "items", {"items": ["a", "b"], "labels": ["1", "10"]}),
            ("/v1/score", "labels", {"items": ["a"], "labels": ["1", "10", "100"]}),
            ("/v1/embeddings", "input", {"input": ["a", "b", "c"]}),
        ):
            response = site.post(path, body)  # which no waiting would help
            error = error_of(response)
            assert response.status_code == 400 and error["param"] == field
            assert error["message"].startswith(f"{field}: this call needs") and "a queue of 2" in error["message"]
    engine.worker.close(drain=False)


@pytest.mark.parametrize("most", [16, 1024])
def test_five_hundred_connections_at_once_are_all_answered(engine: AsyncEngine, most: int) -> None:
    async def ask(url: str) -> collections.Counter[int]:
        limits = httpx2.Limits(max_connections=500)
        async with httpx2.AsyncClient(limits=limits, timeout=PATIENCE) as client:
            body = {"items": ["a"], "labels": ["1", "2"]}
            answers = await asyncio.gather(*(client.post(url + "/v1/score", json=body) for _ in range(500)))
        return collections.Counter(answer.status_code for answer in answers)

    with served(engine, Limits(max_concurrency=most)) as site:
        statuses = asyncio.run(ask(site.url))
        assert statuses.keys() <= {200, 429} and statuses.total() == 500 and statuses[200] >= min(most, 500)
        assert site.post(TEXT, SHORT).status_code == 200


def test_a_client_that_goes_takes_its_call_with_it(site: Served, engine: AsyncEngine) -> None:
    before = engine.engine.stats.tokens_computed
    with long_stream(site):
        pass
    wait_until_idle(engine)
    with raw_request(site.url, TEXT, json.dumps(LONG).encode()):
        wait_until_busy(engine)
    wait_until_idle(engine)
    assert engine.engine.stats.tokens_computed - before < 2000  # of 4000


def test_a_stream_that_cannot_even_begin_ends_its_call(engine: AsyncEngine) -> None:
    incoming: list[Any] = [{"type": "http.request", "body": json.dumps({**LONG, "stream": True}).encode()}]

    async def receive() -> Any:
        return incoming.pop() if incoming else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        raise ConnectionResetError

    scope: Any = {"type": "http", "method": "POST", "path": TEXT, "headers": [], "query_string": b""}
    before = engine.engine.stats.tokens_computed

    async def ask() -> None:
        with pytest.raises(Exception, match="response started") as error:
            await create_app(engine)(scope, receive, send)
        await asyncio.to_thread(wait_until_idle, engine)
        assert error.tb  # which keeps everything alive that the request had begun

    asyncio.run(ask())
    assert engine.engine.stats.tokens_computed - before < 2000


def test_a_client_that_does_not_read_is_dropped(engine: AsyncEngine) -> None:
    much = {**LONG, "n": 64, "logprobs": 20, "stream": True}
    with served(engine, Limits(stall_timeout=0.2)) as site:
        before = engine.engine.stats.tokens_computed
        with raw_request(site.url, TEXT, json.dumps(much).encode()):
            wait_until_busy(engine)
            assert site.post(TEXT, SHORT).status_code == 200
            wait_until_idle(engine)
            assert engine.engine.stats.tokens_computed - before < 64 * 2000


def test_a_client_that_stops_reading_is_dropped_however_little_is_unsent(engine: AsyncEngine) -> None:
    with served(engine, Limits(stall_timeout=0.2)) as site, contextlib.ExitStack() as waiting:
        for items in range(5, 10):  # 75 to 135 KB, of which the system takes about 66
            body = json.dumps({"items": ["a"] * items, "label_token_ids": list(range(256))}).encode()
            waiting.enter_context(raw_request(site.url, "/v1/score", body)).recv(1)
        until = time.monotonic() + 4.0  # before uvicorn closes those that have all
        while (left := site.server.server_state.connections) and time.monotonic() < until:
            time.sleep(0.01)
        assert not any(connection.transport.get_write_buffer_size() for connection in left)


def test_a_client_that_reads_slowly_gets_its_answer(engine: AsyncEngine) -> None:
    with served(engine, Limits(stall_timeout=1.0)) as site, raw_request(site.url, "/v1/score", LARGE) as connection:
        answer, until = connection.recv(1), time.monotonic() + 2.5
        while time.monotonic() < until:
            answer += connection.recv(4096)
            select.select([], [], [], 0.01)
        assert is_whole(answer + rest_of(connection, answer))


def rest_of(connection: socket.socket, answer: bytes) -> bytes:
    """What is still to come of an answer that has begun, or what comes of it before the end of the connection."""
    rest = b""
    while not is_whole(answer + rest) and (part := connection.recv(1 << 20)):
        rest += part
    return rest


def is_whole(answer: bytes) -> bool:
    """Whether an answer is as long as it says."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return length is not None and len(body) == int(length[1])


def test_a_drain_waits_for_an_answer_that_is_still_being_sent(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(engine) as site, raw_request(site.url, "/v1/score", LARGE) as connection:
        answer = connection.recv(1)
        tick, ends = site.server.on_tick, SimpleQueue[bool]()

        async def noted(counter: int) -> bool:
            ends.put(end := await tick(counter))
            return end

        monkeypatch.setattr(site.server, "on_tick", noted)
        while not (status := status_of(site, "/v1/score")):  # until the application is done with it
            time.sleep(0.01)
        assert status == "200"
        site.server.drain()
        assert not any(ends.get(timeout=PATIENCE) for _ in range(ends.qsize() + 3))
        assert is_whole(answer + rest_of(connection, answer))
        while not ends.get(timeout=PATIENCE):
            pass


def test_a_drain_does_not_wait_for_ever_for_who_does_not_read(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "GRACE", 0.0)
    other = AsyncEngine(Engine(MODEL))
    with served(other, Limits(drain_timeout=0.0)) as site:
        connection = raw_request(site.url, "/v1/score", LARGE)
        answer = connection.recv(1)
    with connection:
        assert not is_whole(answer + rest_of(connection, answer))
    assert not caplog.records


def test_a_drain_lets_what_is_under_way_end_and_takes_no_more(engine: AsyncEngine) -> None:
    with served(engine) as site, held(engine) as let_go, long_stream(site, **SPELT) as lines:
        site.server.drain()
        response = site.post(TEXT, SHORT)
        assert response.status_code == 503 and error_of(response)["code"] == "draining"
        assert int(response.headers["retry-after"]) >= 1
        assert site.get("/health").status_code == 503 and site.get("/health").json() == {"status": "draining"}
        let_go()
        rest = [line for line in lines if line]
        assert '"finish_reason":"length"' in rest[-2] and rest[-1] == "data: [DONE]"


def test_a_drain_comes_to_an_end() -> None:
    engine = AsyncEngine(Engine(MODEL))
    with served(engine, Limits(drain_timeout=0.0)) as site, long_stream(site) as lines:
        site.server.drain()
        rest = [line for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "not_serving"


def test_requests_of_one_connection_follow_each_other_whatever_became_of_the_first(site: Served) -> None:
    with httpx2.Client(base_url=site.url, timeout=PATIENCE) as client:
        statuses = [client.post(TEXT, content=body).status_code for body in (b"x" * 10_000_001, b"{", b"", b'{"a":1}')]
        assert statuses == [413, 400, 400, 400]
        assert client.post(TEXT, json=SHORT).status_code == 200
