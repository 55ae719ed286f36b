"""HoWToBench: its rows as a tree judge reads them, and the scores its authors published for ten systems.

Source: Tree of Writing, Table 4 (mean scores of their judge by task, by genre, and over all 1302 instructions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row

SYSTEMS = (
    "deepseek-r1",
    "o3-mini-2025-01-31",
    "gpt-4o-2024-11-20",
    "claude-3-5-sonnet-20241022",
    "gemini-2.0-flash",
    "deepseek-chat",
    "doubao-pro-32k-241215",
    "glm-4-plus-250111",
    "claude-3-haiku-20240307",
    "Llama-3.3-70B-Instruct",
)
"""As the data set's `outputs` name them, in the table's order (deepseek-chat is its DS-V3)."""

_TABLE: dict[str, tuple[float, ...]] = {
    "completion": (6.10, 6.16, 6.60, 5.55, 5.43, 5.44, 5.58, 5.19, 5.12, 4.36),
    "guide": (6.15, 5.80, 5.61, 5.76, 5.53, 5.52, 5.24, 5.51, 5.08, 4.89),
    "open": (6.06, 5.69, 5.36, 5.43, 5.33, 5.31, 5.14, 5.28, 4.85, 4.47),
    "argumentative": (6.24, 6.08, 6.23, 5.73, 5.54, 5.61, 5.74, 5.69, 5.16, 4.77),
    "comment": (5.95, 6.02, 5.98, 5.54, 5.36, 5.53, 5.30, 5.36, 5.10, 4.65),
    "poem": (6.00, 5.81, 6.34, 5.41, 5.42, 5.60, 5.15, 5.47, 4.58, 4.20),
    "prose": (6.25, 5.76, 5.75, 5.49, 5.35, 5.16, 5.06, 5.13, 4.89, 4.33),
    "fiction": (6.08, 5.36, 5.37, 5.32, 5.23, 4.82, 4.84, 4.89, 4.53, 4.25),
    "letters": (6.38, 6.11, 6.13, 6.08, 6.12, 6.18, 6.07, 6.05, 5.47, 5.64),
    "others": (6.33, 6.05, 6.30, 5.91, 6.00, 6.02, 6.42, 5.94, 5.63, 5.12),
    "speech": (6.01, 5.94, 5.64, 5.80, 5.61, 5.74, 5.66, 5.54, 5.28, 4.83),
    "report": (5.90, 6.00, 5.29, 5.82, 5.26, 5.55, 5.18, 5.11, 5.30, 4.81),
    "contract": (5.52, 5.80, 4.97, 5.11, 5.08, 5.33, 5.24, 5.18, 5.06, 4.37),
    "plan": (5.44, 5.75, 5.02, 4.97, 4.94, 5.11, 5.23, 4.83, 4.78, 4.26),
    "regulation": (5.31, 5.13, 4.66, 4.91, 5.07, 4.87, 5.07, 4.69, 4.59, 4.72),
    "all": (6.10, 5.86, 5.81, 5.58, 5.43, 5.42, 5.34, 5.34, 5.01, 4.59),
}
TABLE_4: dict[str, dict[str, float]] = {name: dict(zip(SYSTEMS, row, strict=True)) for name, row in _TABLE.items()}
"""The published score of each system, by task, by genre, and over all."""

NAMES = {
    "id": ("id", "infer_id"),
    "task": ("task", "task_type"),
    "genre": ("genre", "sub_task"),
    "instruction": ("instruction", "basic_instruction"),
    "outputs": ("outputs", "infers"),
}
"""What columns are called, here and in the authors' files."""


def items_of(rows: Iterable[Row], characters: int | None = None) -> Iterator[dict[str, Any]]:
    """Rows of the data set as lines for `adjudge judge --judge tree`, one for each system's output.

    The prompt is the instruction and, where there is one, its information. `characters` shortens the information, the
    reference and each output to so many, out of the middle, so that openings and endings stay. Raises AdjudgeError
    naming the line and the column.
    """
    for row in rows:
        line = Row(row.place, row.columns | _named(row))
        text = {name: line.text(name, "HoWToBench") for name in ("id", "task", "instruction", "reference")}
        outputs = line.columns.get("outputs")
        if not isinstance(outputs, dict) or not all(isinstance(output, str) for output in outputs.values()):
            raise AdjudgeError(f'{row.place}: "outputs" is missing or not texts by system (needed by HoWToBench)')
        information = _shortened(line.optional_text("information", "HoWToBench") or "", characters)
        for system, output in outputs.items():
            yield {
                "id": f"{text['id']}/{system}",
                "instruction": text["id"],
                "system": system,
                "task": text["task"],
                "genre": line.optional_text("genre", "HoWToBench"),
                "prompt": text["instruction"] + (f"\n\n{information}" if information else ""),
                "reference": _shortened(text["reference"], characters),
                "response": _shortened(output, characters),
            }


def _named(row: Row) -> dict[str, Any]:
    """The columns by our names."""
    found = {ours: next((name for name in names if name in row.columns), ours) for ours, names in NAMES.items()}
    return {ours: row.columns.get(name) for ours, name in found.items()}


def _shortened(text: str, characters: int | None) -> str:
    if characters is None or len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[: characters - half]}\n……\n{text[len(text) - half :]}"
