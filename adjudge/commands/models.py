"""`adjudge models`: what can be named after --model."""

from __future__ import annotations

from adjudge.engine.models.sources import list_models
from adjudge.training.terminal import open_console, plain_table


def models() -> None:
    """List the models that can be named, and where they are kept."""
    table = plain_table("model", "what", "licence", "download")
    table.add_column("on disk", overflow="fold")
    for model in list_models():
        kept = f"{_megabytes(model.disk_size)} in {model.path}" if model.path else "fetched on first use"
        table.add_row(model.name, model.about, model.licence or "", _megabytes(model.download_size), kept)
    console = open_console(120)
    console.print(table)
    console.print(
        "\nAlso: a folder a transformers model was saved to, a hub id (ORG/NAME), a .gguf file,"
        "\nor random weights for benchmarks: dummy:<config.json or folder>, dummy:<alias>, dummy:tiny-llama.",
        highlight=False,
        markup=False,
    )


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.0f} MB"
