"""The command line driven as a user does, by a tiny model with random weights."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.jsonl import write_lines

Run = Callable[..., subprocess.CompletedProcess[str]]

TINY = ("--model", "dummy:tiny-llama")
WRITING = ("--max-tokens", "4", "--temperature", "5", "--attempts", "80")
"""The one statement that random weights write is {}: drawn almost evenly, it comes soon."""
DEBATING = ("--model", "dummy:tiny-mistral", "--min-mass", "0", *WRITING)
SHORT = ("--aspects", "coherence", "--orders", "ab", *TINY)
PAIR = {"prompt": "Tell one.", "story_a": "A story.", "story_b": "Another."}


def loaded(command: Any) -> Any:
    """A command itself, of one that stands in a list and is imported when it is called."""
    return command.make_context(command.name, [], resilient_parsing=True).command


def write_pairs(path: Path, count: int) -> Path:
    rows = [{**PAIR, "story_a": f"Story {n}. " * 9, "id": f"p{n}", "genre": "tale"} for n in range(count)]
    write_lines(path, *rows)
    return path


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a run that was refused as the user's mistake."""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("adjudge: ")
    return lines[0]


def stored(journal: Path) -> dict[str, tuple[bytes, float]]:
    with sqlite3.connect(journal) as db:
        return {key: (verdict, written) for key, verdict, written in db.execute("SELECT * FROM verdicts")}
