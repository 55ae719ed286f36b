"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ~ as a home folder; it stays as it is, and names nothing, where none is known.

    There `Path.expanduser` raises RuntimeError.
    """
    return Path(os.path.expanduser(path))
