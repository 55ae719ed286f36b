"""`adjudge score`: free prompts and labels in, label distributions out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import Progress

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.prompt import Message, Prompt, Segment
from adjudge.engine.score import Score
from adjudge.rewards.wire import Row, json_line, labels_of, read_rows

WINDOW = 256


def score_file(
    path: Path | None,
    prompt: str | None,
    labels: str | None,
    output: Path | None,
    *,
    chat: bool,
    model: str,
    device: str,
    dtype: str,
) -> None:
    """Score every prompt of `path`, or the one prompt given."""
    if (path is None) == (prompt is None):
        raise AdjudgeError("give either a file of prompts or --prompt")
    rows = read_rows(path) if path else [Row("--prompt", {"prompt": prompt})]
    texts = [row.text("prompt", "score") for row in rows]
    sets = [labels_of(row, labels.split(",") if labels else None) for row in rows]
    with _open(output) as file:
        from adjudge.engine.engine import Engine

        engine = Engine(model, device=device, dtype=dtype)
        prompts = [engine.chat([_user(text)]) if chat else text for text in texts]
        with Progress(console=Console(stderr=True), transient=True, disable=len(rows) < 2) as progress:
            task = progress.add_task("scoring", total=len(rows))
            for start in range(0, len(rows), WINDOW):
                part = slice(start, start + WINDOW)
                for row, score in zip(rows[part], engine.score(prompts[part], sets[part]), strict=True):
                    file.write(json_line(_record(row, score)))
                    file.flush()
                    progress.advance(task)


def _user(text: str) -> Message:
    return Message("user", Prompt((Segment(text),)))


def _record(row: Row, score: Score) -> dict[str, Any]:
    further = {name: value for name, value in row.columns.items() if name not in ("prompt", "labels")}
    logprobs = None if score.logprobs is None else dict(zip(score.labels, score.logprobs, strict=True))
    return {
        **further,
        "logprobs": logprobs,
        "expected": score.expected,
        "best": score.best,
        "mass": score.mass,
        "abstained": score.reason,
    }


@contextmanager
def _open(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
        return
    try:
        file = output.open("wb")
    except OSError as error:
        raise AdjudgeError(f"cannot write {output} ({error.strerror}): name another file with -o") from error
    with file:
        try:
            yield file
        except OSError as error:
            raise AdjudgeError(f"cannot write {output} ({error.strerror}): make room and run again") from error
