"""`adjudge score`: free prompts and labels in, label distributions out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from adjudge.commands.output import open_output
from adjudge.engine.errors import AdjudgeError, LabelError
from adjudge.engine.labels import Labels, check_labels
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
    adapter: Path | None,
    device: str,
    dtype: str,
) -> None:
    """Score every prompt of `path`, or the one prompt given."""
    if (path is None) == (prompt is None):
        raise AdjudgeError("give either a file of prompts or --prompt")
    rows = read_rows(path) if path else [Row("--prompt", {"prompt": prompt})]
    texts = [_prompt(row) for row in rows]
    sets = [_labels(row, labels.split(",") if labels else None) for row in rows]
    if path is not None and output is not None and output.exists() and output.samefile(path):
        raise AdjudgeError(f"{output} is the input: name another file with -o")
    from adjudge.engine.engine import Engine

    engine = Engine(model, adapter=adapter, device=device, dtype=dtype)
    with open_output(output) as write:
        prompts = [engine.chat([_user(text)]) if chat else text for text in texts]
        with Progress(console=Console(stderr=True), transient=True, disable=len(rows) < 2) as progress:
            task = progress.add_task("scoring", total=len(rows))
            for start in range(0, len(rows), WINDOW):
                part = slice(start, start + WINDOW)
                for row, score in zip(rows[part], engine.score(prompts[part], sets[part]), strict=True):
                    try:
                        write(json_line(_record(row, score)))
                    except BrokenPipeError:
                        raise
                    except OSError as error:
                        raise AdjudgeError(f"cannot write {output} ({error.strerror}): make room, run again") from error
                    progress.advance(task)


def _prompt(row: Row) -> str:
    text = row.text("prompt", "score")
    if not text:
        raise AdjudgeError(f'{row.place}: "prompt" is empty')
    return text


def _labels(row: Row, shared: list[str] | None) -> Labels:
    labels = Labels(labels_of(row, shared))
    try:
        check_labels(labels)
    except LabelError as error:
        raise AdjudgeError(f"{row.place}: {error}") from error
    return labels


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
