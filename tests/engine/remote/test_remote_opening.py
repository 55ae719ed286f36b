"""How a server is reached: its address, the key, the first look at it, and in which process."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from adjudge import RemoteEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, NoServer, RemoteError
from adjudge.engine.remote import address, transport
from tests.engine.remote.conftest import PROMPTS, Open
from tests.engine.remote.peer import Peer, breaks_off, says
from tests.engine.tiny import DIGITS


def test_the_key_is_sent_and_never_told(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", key="sesame", api_key="sesame")
    assert remote.score(["a"], DIGITS)[0].reason is None
    with pytest.raises(RemoteError, match=r"the key is wrong\): set ADJUDGE_API_KEY, or pass api_key=") as caught:
        open_remote("vllm", key="sesame", api_key="simsim")
    assert "simsim" not in str(caught.value)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two attempts, were it only to open an engine."""
    monkeypatch.setattr(transport, "_pause", lambda state: 0.0)


def test_opening_outlasts_a_server_that_is_busy_or_starts(engine: Engine, at_once: None) -> None:
    server = Peer("vllm", engine)
    server.opening.extend([says(429), says(503), breaks_off])
    with RemoteEngine(server.url, retries=3) as remote:
        assert remote.score(["a"], DIGITS)[0].reason is None
    server.close()


def test_a_server_too_busy_to_open_is_said_to_be_busy(engine: Engine, at_once: None) -> None:
    server = Peer("vllm", engine)
    server.opening.extend([says(429, retry_after="0")] * 2)
    with pytest.raises(RemoteError, match="answers 429: trouble: it is busy; open the engine later, or with more ret"):
        RemoteEngine(server.url, retries=1)
    assert not server.opening
    server.close()


def test_nobody_there_is_one_sentence(at_once: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NoServer, match=f"{url} cannot be reached.*start the server"):
            RemoteEngine(url)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "", "http://[", "ftp://localhost", "http://", "http://127.0.0.1:99999"]
)
def test_what_is_no_address_is_one_sentence(at_once: None, url: str) -> None:
    with pytest.raises(RemoteError, match="address|cannot be reached"):
        RemoteEngine(url)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", "^ALL_PROXY: a SOCKS proxy needs socksio: pip install socksio$"),
        ("http_proxy", "foo://me:pw@h", r"^http_proxy: that is no proxy \(Unknown scheme .*\): write http://HOST"),
        ("HTTP_PROXY", "http://h:port", r"^HTTP_PROXY: that is no proxy \(Invalid port"),
        (
            "http_proxy",
            "http://127.0.0.1:9",
            r"cannot be reached \(.*; on the way is the proxy of http_proxy, unless no_proxy",
        ),
        (
            "http_proxy",
            "http://127.0.0.1:99999",
            r"cannot be reached \(.*; on the way is the proxy of http_proxy, unless",
        ),
        ("https_proxy", "http://127.0.0.1:9", r"^http://127.0.0.1:9 cannot be reached \([^;]*\)"),
        ("SSL_CERT_FILE", "/nonexistent", r"^SSL_CERT_FILE: no certificates can be read there \(.*No such file"),
        ("SSL_CERT_FILE", "/nonexistent", r"^http://127.0.0.1:9 cannot be reached"),
    ],
)
def test_what_the_environment_has_wrong_is_said_to_be_its_own(
    name: str, value: str, message: str, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in list(os.environ):
        if variable.lower() in (*address.PROXIES, *address.CERTIFICATES, "no_proxy"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv(name, value)
    if name == "ALL_PROXY":
        monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(RemoteError, match=message) as refused:
        RemoteEngine(f"{'https' if 'certificates' in message else 'http'}://127.0.0.1:9", retries=0)
    assert "pw" not in str(refused.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_of_the_servers_own_is_named_as_the_trouble_and_trusted_as_the_error_says(
    engine: Engine, at_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, own = tmp_path / "key.pem", tmp_path / "own.pem"
    making = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    named = ["-subj", "/CN=ours", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(own)]
    subprocess.run([*making, *named, "-days", "9"], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own, key)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    server = Peer("adjudge", engine, tls=tls)
    try:
        with pytest.raises(RemoteError, match=r"not trusted \(self-signed certificate\): .*set SSL_CERT_FILE to"):
            RemoteEngine(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        with RemoteEngine(server.url) as remote:
            assert remote.score(["a"], DIGITS)[0].reason is None
        with pytest.raises(RemoteError, match=r"not valid for 'localhost'\): pass the address that it is for"):
            RemoteEngine(server.url.replace("127.0.0.1", "localhost"))
    finally:
        server.close()


def test_a_server_that_the_proxy_is_not_for_is_not_said_to_be_behind_it(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(RemoteError, match=r"http://127\.0\.0\.1:9 cannot be reached \([^;]*\)"):
        RemoteEngine("http://127.0.0.1:9", retries=0)


def test_something_else_at_the_address_is_one_sentence(engine: Engine, at_once: None) -> None:
    server = Peer("vllm", engine)
    server.models = lambda: {"status": "ok"}  # type: ignore[method-assign]
    with pytest.raises(RemoteError, match="answers what cannot be read.*correct the address") as refused:
        RemoteEngine(server.url)
    assert not isinstance(refused.value, NoServer)  # nothing that may be mended by itself
    server.close()


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret\r\n"])
def test_a_key_from_a_file_is_what_it_says(open_remote: Open, key: str) -> None:
    remote, _ = open_remote("vllm", key="sk-secret", api_key=key)
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None


@pytest.mark.parametrize("key", ["", "  ", "sk secret", "sk-sécret", "sk-\nsecret"])
def test_a_key_that_no_header_takes_is_refused_and_not_told(key: str) -> None:
    with pytest.raises(RemoteError, match="the key of the server is empty, or has blanks") as refused:
        RemoteEngine("http://127.0.0.1:9", api_key=key)
    assert "cret" not in str(refused.value)


def test_a_password_in_an_address_is_in_no_message() -> None:
    with pytest.raises(RemoteError, match=r"http://127\.0\.0\.1:9 cannot be reached") as refused:
        RemoteEngine("http://me:pass@127.0.0.1:9", retries=0)
    assert "pass" not in str(refused.value).partition("correct")[0]


def test_a_password_in_an_address_beside_a_key_is_refused_and_none_is_told() -> None:
    with pytest.raises(RemoteError, match=r"^http://127\.0\.0\.1:9 is given with a name or password") as refused:
        RemoteEngine("http://me:pass1@127.0.0.1:9", api_key="sesame")
    assert "pass1" not in str(refused.value) and "sesame" not in str(refused.value)


@pytest.mark.parametrize("end", ["?key=sesame", "/v1?key=sesame", "/v1#sesame"])
def test_an_address_that_goes_on_after_its_path_is_refused_and_not_told(end: str) -> None:
    with pytest.raises(RemoteError, match=r'ends before any "\?" or "#", and this one goes on') as refused:
        RemoteEngine(f"http://127.0.0.1:9{end}")
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("url", ["HTTP://h:1/V/v1", " http://h:1/V\n", "Http://h:1/V//"])
def test_an_address_is_the_same_with_blanks_around_and_its_scheme_in_capitals(url: str) -> None:
    assert address.server_of(url) == "http://h:1/V"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_an_engine_says_that_it_is_anothers(open_remote: Open) -> None:
    remote, _ = open_remote("vllm")
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            remote.score(PROMPTS[:1], DIGITS)
        except AdjudgeError as error:
            os.write(write, str(error).encode())
        finally:
            remote.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert b"this process was forked" in os.read(read, 200)
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None  # here all is as it was


def test_an_adapters_context_is_that_of_the_model_it_lies_over(open_remote: Open) -> None:
    base = {"id": "base", "max_model_len": 77}
    card = {"id": "lora", "owned_by": "vllm", "parent": "base", "max_model_len": None}
    listed = says(200, {"data": [base, card]})
    remote, _ = open_remote("vllm", peer={"opening": deque([listed])}, model="lora", tokenizer="dummy:tiny-llama")
    assert remote.max_prompt_tokens == 76


@pytest.mark.parametrize("path", ["/", "/v1/", "/v1/completions", "/v1/chat/completions/", "/v1/models", "/v1/score"])
def test_the_address_of_a_route_is_that_of_its_server(engine: Engine, path: str) -> None:
    server = Peer("adjudge", engine)
    with RemoteEngine(server.url + path) as remote:
        assert remote.transport.base_url == server.url
        assert remote.score(["a"], DIGITS)[0].reason is None
    server.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:pw@h:8000/v1", "http://h:8000/v1"),
        ("me:pw@h:8000", "h:8000"),
        ("http://u:p@h?x=a@b", "http://h"),
        ("http://h:1?key=p#p", "http://h:1"),
        ("http://u:p/p@h:1/v1", "http://h:1/v1"),
        ("http://u:p?p@p@[::1]:1", "http://[::1]:1"),
        ("http://[::1]:1/a@b", "http://[::1]:1/a@b"),
        ("http:/u:p@h", "h"),
        ("http://h/a@b", "http://h/a@b"),
        ("http//me:secret@h", "h"),
        ("//me:secret@h", "h"),
        ("http:///me:secret@h", "http://h"),
        ("http://me:12/x@h", "http://h"),
        ("http://h:12/x", "http://h:12/x"),
        ("", ""),
    ],
)
def test_of_an_address_no_password_is_shown(url: str, shown: str) -> None:
    assert address.without_secrets(url) == shown


def test_an_address_is_text() -> None:
    with pytest.raises(RemoteError, match="the address of the server is 8000: give it as text"):
        RemoteEngine(8000)  # type: ignore[arg-type]


def test_a_password_is_sent_and_never_told(
    engine: Engine, at_once: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    def note(handler: Any, peer: Peer) -> bool:
        sent.append(handler.headers["authorization"])
        return False

    server = Peer("adjudge", engine)
    server.opening.append(note)
    with caplog.at_level("DEBUG"), RemoteEngine(server.url.replace("//", "//me:pass%40@")):
        server.close()
    assert sent == ["Basic " + base64.b64encode(b"me:pass@").decode()]
    assert "HTTP Request" in caplog.text and "pass" not in caplog.text
    monkeypatch.setenv("http_proxy", "http://me:sec/ret@h")
    for url in ("http://me:sec/ret@h", "http:/me:secret@h", "http://h"):
        with pytest.raises(RemoteError, match="is no address|that is no proxy") as refused:
            RemoteEngine(url)
        assert "sec" not in str(refused.value)
