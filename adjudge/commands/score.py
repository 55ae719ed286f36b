"""`adjudge score`: free prompts and labels in, label distributions out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from adjudge.commands.options.files import Columns, OverwriteFile
from adjudge.commands.options.models import DEFAULT_MODEL, Adapter, Device, Dtype, Model
from adjudge.commands.runs.output import check_apart, check_output, open_output_anew
from adjudge.commands.runs.rows import columns_suggested, named_rows
from adjudge.engine.errors import AdjudgeError, LabelError
from adjudge.engine.score import LEAST_MASS, Score
from adjudge.engine.text.labels import Labels, check_labels
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.rewards.judges.judge import WINDOW
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import json_line, labels_of_row, with_columns
from adjudge.training.progress import bar


def score(
    prompts: Annotated[
        Path | None, typer.Argument(help="JSONL, JSON, CSV or Parquet with a column `prompt`, optionally `labels`.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="Labels after commas, where rows have none of their own.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Score this one prompt instead of a file.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")] = False,
    columns: Columns = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSONL (default: standard output).")] = None,
    overwrite: OverwriteFile = False,
    model: Model = DEFAULT_MODEL,
    adapter: Adapter = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Read the distribution over labels at the end of each prompt, without generating.

    Example: `adjudge score --prompt "The capital of France is" --labels " Paris, Rome"`. Each line of the output has
    `logprobs` by label (summing to one over the labels), `expected` where all labels are numbers, `best`, and `mass`,
    the labels' share of the whole vocabulary's probability. Special-token strings inside a prompt are plain text.
    """
    if (prompts is None) == (prompt is None):
        raise AdjudgeError("give either a file of prompts or --prompt")
    if prompts is None:
        if columns is not None:
            raise AdjudgeError("--columns names those of a file: give one, or leave it out")
        rows = [Row("--prompt", {"prompt": prompt})]
    else:
        rows = named_rows(prompts, columns)
    with columns_suggested(columns):
        texts = [_prompt(row) for row in rows]
    shared = labels.split(",") if labels else None
    if shared:
        _checked(shared, "--labels")
    sets = [_checked(labels_of_row(row, shared), row.place) for row in rows]
    _warn(sets)
    if output is not None:
        check_apart(output, *([] if prompts is None else [prompts]))
        check_output(output, overwrite)
    from adjudge.engine.engine import Engine

    engine = Engine(model, adapter=adapter, device=device, dtype=dtype)
    faint = 0
    with open_output_anew(output) as write:
        asked = [engine.chat([Message("user", Prompt((Segment(text),)))]) if chat else text for text in texts]
        with bar(shown=len(rows) > 1) as progress:
            task = progress.add_task("scoring", total=len(rows))
            for start in range(0, len(rows), WINDOW):
                part = slice(start, start + WINDOW)
                for row, score in zip(rows[part], engine.score(asked[part], sets[part]), strict=True):
                    write(json_line(_record(row, score)))
                    faint += score.mass is not None and score.mass < LEAST_MASS
                    progress.advance(task)
    if faint:
        _tell(f"the labels have less than {LEAST_MASS} of the probability together in {faint} of {len(rows)} prompts")


def _prompt(row: Row) -> str:
    text = row.text("prompt", "score")
    if not text:
        raise AdjudgeError(f'{row.place}: "prompt" is empty: give a text')
    return text


def _checked(labels: Sequence[str], place: str) -> Labels:
    checked = Labels(tuple(labels))
    try:
        check_labels(checked)
    except LabelError as error:
        raise AdjudgeError(f"{place}: {error}") from error
    return checked


def _warn(sets: Sequence[Labels]) -> None:
    """Say of labels what is likely not meant."""
    if any(len(one.labels) == 1 for one in sets):
        _tell("one label alone has all the probability: give two or more")
    if any(len({label.startswith(" ") for label in one.labels}) > 1 for one in sets):
        _tell("some labels begin with a blank and some do not, which are other tokens: write all alike")


def _tell(line: str) -> None:
    print(f"adjudge: {line}", file=sys.stderr)


def _record(row: Row, score: Score) -> dict[str, Any]:
    logprobs = None if score.logprobs is None else dict(zip(score.labels, score.logprobs, strict=True))
    record = {
        "logprobs": logprobs,
        "expected": score.expected,
        "best": score.best,
        "mass": score.mass,
        "abstained": score.reason,
    }
    return with_columns(record, row, ("prompt", "labels"))
