"""The options that all commands take whose stages ask a model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from adjudge.commands.source import Source

Earlier = Literal["resume", "overwrite", "refuse"]
"""What becomes of an earlier run of the same output."""


class RunOptions(msgspec.Struct, frozen=True):
    """Whom a run asks, what becomes of an earlier one, and where its answers are kept (None: beside the output)."""

    source: Source
    earlier: Earlier = "refuse"
    journal: Path | None = None
