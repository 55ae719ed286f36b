"""`adjudge score`: label distributions at the end of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.options import DEFAULT_MODEL, Adapter, Columns, Device, Dtype, Model, OverwriteFile


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
    from adjudge.commands.score import score_file

    score_file(
        prompts,
        prompt,
        labels,
        output,
        columns=columns,
        overwrite=overwrite,
        chat=chat,
        model=model,
        adapter=adapter,
        device=device,
        dtype=dtype,
    )
