"""The key that a server asks for, as clients send it."""

from __future__ import annotations

import re

from adjudge.engine.errors import RemoteError


def key_of_header(given: str, name: str) -> str:
    """A key as it goes into a header; what a file of secrets has at its ends is none of it.

    Raises RemoteError, which calls it `name`, for one that no header can carry.
    """
    key = given.strip()
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise RemoteError(f"{name} is empty, or has blanks or other signs that no header takes: mend it")
    return key
