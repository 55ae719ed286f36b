"""`adjudge replay` of the folder of a training run: its rewards again, compared bit for bit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from adjudge.commands.output import check_writable, make_folder_of, open_output
from adjudge.engine.errors import AdjudgeError
from adjudge.training.replay import Replayed, replay_rewards
from adjudge.training.reward_log import read_rewards
from adjudge.training.run_folder import RunFolder


def list_steps(source: Path) -> None:
    """Print the steps of a run with what they were rewarded."""
    table = Table("step", "prompts", "completions", "mean reward", "abstained", box=SIMPLE_HEAD)
    for (step, split), group in groupby(read_rewards(RunFolder(source).rewards), key=lambda one: (one.step, one.split)):
        lines = list(group)
        values = [one.reward for one in lines if one.reward is not None]
        mean = f"{fmean(values):.4f}" if values else "–"
        table.add_row(str(step), split.replace("_", " "), str(len(lines)), mean, str(len(lines) - len(values)))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def replay_training(source: Path, output: Path | None) -> None:
    """Recompute the rewards of a run from its journal, write each beside the trainer's, and say whether all are equal.

    Exits with 1 where one is not.
    """
    if output is not None:
        if output.resolve().parent == source.resolve():
            raise AdjudgeError(f"{output} is in the folder that is read: name a file elsewhere")
        make_folder_of(output)
        check_writable(output)
    replayed = []
    with open_output(output) as write:
        for one in replay_rewards(source):
            replayed.append(one)
            write(_line(one))
    other = [one for one in replayed if one.kept and not one.equal]
    _say(replayed, other)
    if other:
        raise SystemExit(1)


def _line(one: Replayed) -> bytes:
    line = msgspec.to_builtins(one.rewarded)
    return msgspec.json.encode({**line, "replayed": one.reward, "kept": one.kept, "equal": one.equal}) + b"\n"


def _say(replayed: Sequence[Replayed], other: Sequence[Replayed]) -> None:
    steps = len({(one.rewarded.step, one.rewarded.split) for one in replayed})
    lost = sum(not one.kept for one in replayed)
    told = [f"{len(replayed)} rewards of {steps} steps: {len(replayed) - lost - len(other)} are the same, bit for bit"]
    if lost:
        told.append(f"{lost} were never judged (no time, or no server)")
    if other:
        first = other[0]
        told.append(
            f"{len(other)} are others, the first in step {first.rewarded.step}: {first.rewarded.reward} then,"
            f" {first.reward} now"
        )
    print(f"adjudge: {'; '.join(told)}", file=sys.stderr)
