"""Files that appear whole or not at all: whoever reads one finds the old one or the new one, and never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

FULL = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "delete files of yours there, or have the quota raised",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write to another file system",
}
"""By the number of an error which says that there is no room for a file, what is to be done."""


def no_room(said: object) -> OSError | None:
    """The system's error that there is no room for a file, by its number in what libraries say; None for another."""
    for number in map(int, re.findall(r"(?:os error |Errno )(\d+)", str(said))):
        if number in FULL:
            return OSError(number, os.strerror(number))
    return None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name `path` when the block ends, and once it is on the disk.

    After an error what was there stays, and nothing else is left. Raises OSError where it cannot be written.
    """
    making = path.with_name(f".{path.name[:48]}.{secrets.token_hex(4)}")
    try:
        with making.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(making, path)
    except BaseException:
        with contextlib.suppress(OSError):
            making.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of which all is at hand; raises OSError where it cannot be written."""
    with whole_file(path) as file:
        file.write(content)
