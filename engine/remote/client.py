"""The HTTP client of one server: its address, its key, and what the environment says of proxies and certificates."""

from __future__ import annotations

import ssl

from adjudge.engine.errors import AdjudgeError, RemoteError, reason
from adjudge.engine.remote.address import CERTIFICATES, PROXIES, key_of_header, variables, without_secrets

MISSING = "a RemoteEngine needs httpx2 and tenacity: pip install 'adjudge[remote]'"

try:
    import httpx2
except ImportError as error:
    raise AdjudgeError(MISSING) from error

CONNECT_SECONDS = 10.0
"""For a connection: whoever is there takes it at once, however long the answer takes."""
MOST_PORT = (1 << 16) - 1

UNKNOWN_ISSUER = (18, 19, 20, 21)
"""What OpenSSL says of a certificate that nobody known has signed, or only itself (X509_V_ERR_*)."""


def open_client(base_url: str, *, api_key: str | None, timeout: float, most: int) -> httpx2.AsyncClient:
    """A client with `most` connections; `timeout` bounds the making of one, no attempt byte by byte.

    Raises RemoteError for an address or a key that is none, and for what the environment puts on the way.
    """
    url = _url_of(base_url, api_key)
    headers = {"content-type": "application/json"}
    if api_key is not None:
        headers["authorization"] = f"Bearer {key_of_header(api_key, 'the key of the server')}"
    # By themselves they are not in the lines that the client logs, unlike in the address.
    auth = (url.username, url.password) if url.userinfo else None
    limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
    waits = httpx2.Timeout(None, connect=min(CONNECT_SECONDS, timeout))
    url = url.copy_with(userinfo=b"")
    # Those whom the system trusts take 40 ms to read: on the way without https nobody is trusted, as nobody is asked.
    plain = url.scheme == "http" and not variables(PROXIES)
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True
    try:
        return httpx2.AsyncClient(
            base_url=url, auth=auth, headers=headers, timeout=waits, limits=limits, verify=trusted
        )
    except ImportError as error:
        raise RemoteError(f"{variables(PROXIES)}: a SOCKS proxy needs socksio: pip install socksio") from error
    except OSError as error:
        where = variables(CERTIFICATES) or "this system"
        raise RemoteError(f"{where}: no certificates can be read there ({reason(error)}): mend that") from error
    except (httpx2.InvalidURL, ValueError) as error:
        what = f"{variables(PROXIES)}: that is no proxy ({_wrong(error)})"
        raise RemoteError(f"{what}: write http://HOST:PORT, or unset it") from error


def _url_of(base_url: str, api_key: str | None) -> httpx2.URL:
    told = without_secrets(base_url)
    if not base_url.startswith(("http://", "https://")):
        raise RemoteError(f"{told!r} is no address: write http://HOST:PORT")
    try:
        url = httpx2.URL(base_url)
        if (url.port or 0) > MOST_PORT:
            raise ValueError(f"there is no port {url.port}")
    except (httpx2.InvalidURL, ValueError) as error:
        raise RemoteError(f"{told!r} is no address ({_wrong(error)}): write http://HOST:PORT") from error
    if url.userinfo and api_key is not None:
        raise RemoteError(
            f"{told} is given with a name or password beside a key (api_key=, ADJUDGE_API_KEY), and a"
            " request carries one of them: leave the other out"
        )
    return url


def untrusted(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """What was found wrong with a certificate, where an error comes of that."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def trusting(refused: ssl.SSLCertVerificationError) -> str:
    """What a user does about a certificate."""
    if refused.verify_code in UNKNOWN_ISSUER:
        return "if it is the server's own, set SSL_CERT_FILE to a file that holds it, or that of who signed it"
    return "pass the address that it is for, or give the server one that is valid"


def _wrong(error: Exception) -> str:
    """What a URL has wrong, without the piece of it that an error quotes: it may be one of a password."""
    return reason(error).partition(": ")[0] if isinstance(error, httpx2.InvalidURL) else reason(error)
