"""The metrics of a run: a line of JSON for each step that was logged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import MsgspecError

from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.whole_file import write_whole

T = TypeVar("T")

Split = Literal["train", "held_out"]
HELD_OUT = "eval_"


def metrics_line(step: int, logs: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a trainer logged, as a line: `step`, `split` and its numbers, null where not finite; None for a summary."""
    if "train_runtime" in logs:
        return None
    answered = "learning_rate" not in logs and any(name.startswith(HELD_OUT) for name in logs)
    split: Split = "held_out" if answered else "train"
    numbers = {
        name.removeprefix(HELD_OUT if split == "held_out" else ""): _finite(value)
        for name, value in logs.items()
        if isinstance(value, int | float | None)
    }
    return {"step": step, "split": split, **numbers}


def append_metrics(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_lines(path: Path, decode: Callable[[bytes], T], *, fault: str, mend: str) -> list[tuple[T, bytes]]:
    """What stands in the lines, each with its line and that one's end; a last line that a crash has cut is left out.

    Raises AdjudgeError for a file that cannot be read, with the `mend`, and for a line that has the `fault`.
    """
    try:
        lines = path.read_bytes().split(b"\n")  # and at no other break: texts hold U+2028 and the like as they are
    except OSError as error:
        raise AdjudgeError(f"cannot read {path} ({error.strerror}): {mend}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append((decode(line), line + b"\n"))
        except (ValueError, MsgspecError) as error:
            if number < len(lines):
                raise AdjudgeError(f"line {number} of {path} {fault} ({reason(error)}): remove it") from error
    return found


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a run; the last one may be half-written after a crash and is then left out."""
    lines = read_lines(path, json.loads, fault="is not JSON", mend="name the output folder of a run")
    return [line for line, _ in lines]


def last_answered(path: Path) -> int | None:
    """The last step after which held-out prompts were answered."""
    steps = [line["step"] for line in (read_metrics(path) if path.exists() else ()) if line["split"] == "held_out"]
    return max(steps, default=None)


def cut_metrics(path: Path, step: int) -> None:
    """Forget what was logged after a step, from which a run goes on."""
    if path.exists():
        kept = [line for line in read_metrics(path) if line["step"] <= step]
        write_whole(path, "".join(json.dumps(line) + "\n" for line in kept).encode())


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The mean of what is finite among the values, by their weights; NaN where there is none."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if weight and math.isfinite(value)]
    return math.fsum(v * w for v, w in known) / math.fsum(w for _, w in known) if known else math.nan


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
