"""Files of JSON lines, as tests write and read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_lines(path: Path | str, *rows: Any) -> Path:
    """The file of these rows, in a folder that is made for it if need be."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_lines(path: Path | str) -> list[Any]:
    """What stands on each line."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
