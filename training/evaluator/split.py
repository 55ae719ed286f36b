"""Rows that people judged, split by prompt: no prompt is on both sides."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row, renamed
from adjudge.training.evaluator.recipe import JudgedRows
from adjudge.training.prompts import COLUMNS, fingerprint_of, plain
from adjudge.training.terminal import counted

FAR = 1.5
"""By what factor the share of the prompts that are held out may miss the one asked for without a word."""
PROMPTS = ("prompt", "prompt_a", "prompt_b")


class Split(msgspec.Struct, frozen=True):
    """Rows to train on and rows that are held out.

    On neither side are pairs that have prompts of both (`straddling`), and rows of the training file whose prompts are
    in the file of the held-out ones (`shared`). Of `prompts`, `drawn` are held out, where a `share` was asked for.
    """

    train: tuple[Row, ...]
    held_out: tuple[Row, ...]
    straddling: int = 0
    shared: int = 0
    prompts: int = 0
    drawn: int = 0
    share: float = 0.0

    @property
    def told(self) -> list[str]:
        """What a user is told: rows on neither side, and where prompts held out are far from the share asked for."""
        told = []
        if self.straddling:
            told.append(f"{counted(self.straddling, 'pair')} left out: one prompt to train on, the other held out")
        if self.shared:
            told.append(
                f"{counted(self.shared, 'row')} left out of training: their prompts are held out in the other file"
            )
        if self.share and not 1 / FAR <= self.drawn / (self.share * self.prompts) <= FAR:
            told.append(
                f"held out: {self.drawn} of {counted(self.prompts, 'prompt')}, where [data] held_out is"
                f" {self.share:g}; each is drawn by itself, another seed draws others"
            )
        return told

    @property
    def fingerprint(self) -> str:
        """Changes with every row, and with nothing else."""
        return fingerprint_of("rows", self.train, self.held_out)


def read_split(data: JudgedRows, seed: int) -> Split:
    """The rows of a recipe; raises AdjudgeError for ids that come twice, and for a side that is left empty."""
    assert data.train is not None
    rows = _rows(Path(data.train), data)
    share, prompts = 0.0, set[str]()
    if isinstance(data.held_out, str):
        held_out = _rows(Path(data.held_out), data)
        taken = {prompt for row in held_out for prompt in prompts_of(row)}
    else:
        share = data.held_out
        held_out = []
        prompts = {prompt for row in rows for prompt in prompts_of(row)}
        taken = _held_out(prompts, share, seed)
    sides = [sum(prompt in taken for prompt in prompts_of(row)) / len(prompts_of(row)) for row in rows]
    train = tuple(row for row, side in zip(rows, sides, strict=True) if side == 0)
    shared = sides.count(1)
    if not isinstance(data.held_out, str):
        shared = 0
        held_out = [row for row, side in zip(rows, sides, strict=True) if side == 1]
        if data.held_out and not held_out:
            raise AdjudgeError("[data] held_out leaves no prompt to test on: raise it, or give another seed")
    if not train:
        mend = "name a file of other prompts" if isinstance(data.held_out, str) else "lower it, or give another seed"
        raise AdjudgeError(f"[data] held_out leaves no rows to train on: {mend}")
    straddling = sum(0 < side < 1 for side in sides)
    return Split(train, tuple(held_out), straddling, shared, len(prompts), len(taken), share)


def prompts_of(row: Row) -> tuple[str, ...]:
    """The prompts of a row, of a pair both, however they are spaced; raises AdjudgeError for a row without."""
    own = tuple(dict.fromkeys(plain(str(row.columns.get(name) or "")) for name in PROMPTS))
    own = tuple(prompt for prompt in own if prompt)
    if not own:
        if not any(name in row.columns for name in PROMPTS):
            raise row.without("prompt", "rows are split by it")
        raise AdjudgeError(f'{row.place}: "prompt" is missing (rows are split by it): fill it in or take the row out')
    return own


def place_of(prompt: str, seed: int) -> float:
    """Where a prompt stands in [0, 1): the same wherever it comes from, and another with another seed."""
    return int(digest("split", str(seed), well_formed(prompt))[:13], 16) / 16**13


def held_out_of(prompts: Collection[str], share: float, seed: int) -> set[str]:
    """About a share of the prompts, to be held out; of two or more at least one on either side."""
    placed = sorted((place_of(prompt, seed), prompt) for prompt in prompts)
    taken = {prompt for place, prompt in placed if place < share}
    if share and placed:
        taken = (taken | {placed[0][1]}) - ({placed[-1][1]} if len(placed) > 1 else set())
    return taken


def _held_out(prompts: Collection[str], share: float, seed: int) -> set[str]:
    """As `held_out_of`; raises AdjudgeError for one alone."""
    if share and len(prompts) == 1:
        raise AdjudgeError(
            "[data] held_out parts rows by their prompts, and these have one: write held_out = 0, or give rows of more"
        )
    return held_out_of(prompts, share, seed)


def check_ids(rows: Iterable[Row]) -> None:
    """Raise AdjudgeError where two rows have one id."""
    places: dict[Any, str] = {}
    for row in rows:
        name = row.columns.get("id")
        if name in (None, ""):
            continue
        if (other := places.setdefault(json.dumps(name), row.place)) != row.place:
            raise AdjudgeError(f"{row.place}: the id {json.dumps(name)} is that of {other} too: give each row its own")


def _rows(path: Path, data: JudgedRows) -> Sequence[Row]:
    rows = renamed(read_rows(path), data.columns, COLUMNS)
    check_ids(rows)
    return rows
