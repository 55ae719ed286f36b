"""Files that appear whole or not at all: whoever reads one finds the old one or the new one, and never a part."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


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
