"""What users write as the address and the key of a server, and what their environment puts on the way to it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from urllib.request import proxy_bypass

from adjudge.engine.errors import RemoteError

ROUTE = re.compile(r"/v1(/(chat/completions|completions|models|score))?$")
HOST = re.compile(r"(\[[^]]*](:\d+)?|[^:/?#@]+(:\d+(?!.*@))?)([/?#]|$)")
"""One, with its port: but where an "@" follows the digits, they may be a password's."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
CERTIFICATES = ("ssl_cert_file", "ssl_cert_dir")


def server_of(url: str) -> str:
    """The address of a server, of that of its /v1, or of a route that other clients are given.

    Raises RemoteError for a query or fragment, which may be a key and is in no message.
    """
    if re.search("[?#]", url):
        raise RemoteError(
            'the address of a server ends before any "?" or "#", and this one goes on: leave that out, and set'
            " ADJUDGE_API_KEY where it is a key"
        )
    scheme, mark, rest = url.strip().rpartition("://")
    return ROUTE.sub("", f"{scheme.lower()}{mark}{rest}".rstrip("/"))


def without_secrets(url: str) -> str:
    """An address without the name and password in it, and without a query, which are nobody's to read in a message."""
    found = re.match(r"[a-z][a-z0-9+.-]*://", url, re.I)
    scheme = found[0] if found else ""
    rest = re.sub(r"^[^/?#]*@", "", url.removeprefix(scheme))
    if not (scheme and HOST.match(rest)):  # perhaps a password with a "/" in it
        rest = rest.rpartition("@")[2]
    return scheme + re.split("[?#]", rest)[0]


def key_of_header(given: str, name: str) -> str:
    """A key as it goes into a header; what a file of secrets has at its ends is none of it.

    Raises RemoteError, which calls it `name`, for one that no header can carry.
    """
    if not isinstance(given, str):
        raise RemoteError(f"{name} is no text: give one")
    key = given.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise RemoteError(f"{name} is empty, or has blanks or other signs that no header takes: mend it")
    return key


def variables(names: Collection[str]) -> str:
    """Those of some environment variables that are set, as they are written there; "" for none."""
    return " and ".join(name for name, value in os.environ.items() if value and name.lower() in names)


def proxies_to(scheme: str, host: str) -> str:
    """The variables that name the proxy on the way to a server; "" where there is none."""
    return "" if proxy_bypass(host) else variables((f"{scheme}_proxy", "all_proxy"))
