"""`adjudge replay` of the folder of a training run: its rewards again, compared bit for bit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

import msgspec

from adjudge.commands.runs.output import check_output, open_output_anew
from adjudge.engine.errors import AdjudgeError
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.grpo.replay import Replayed, replay_rewards
from adjudge.training.recipe import read_recipe
from adjudge.training.reward_log import read_rewards
from adjudge.training.run_folder import RunFolder
from adjudge.training.terminal import counted, open_console, ruled_table


def list_steps(source: Path) -> None:
    """Print the steps of a run with what they were rewarded."""
    table = ruled_table("step", "prompts", "completions", "mean reward", "abstained")
    for (step, split), group in groupby(read_rewards(RunFolder(source).rewards), key=lambda one: (one.step, one.split)):
        lines = list(group)
        values = [one.reward for one in lines if one.reward is not None]
        mean = f"{fmean(values):.4f}" if values else "–"
        table.add_row(str(step), split.replace("_", " "), str(len(lines)), mean, str(len(lines) - len(values)))
    open_console(160).print(table)


def replay_training(
    source: Path, output: Path | None, recipe: Path | None, step: int | None, overwrite: bool = False
) -> None:
    """Recompute rewards from a run's journal, write each beside the trainer's, and say whether all are equal.

    They are those of the whole run, or of one `step`. With a `recipe` they are those of its [reward], from the same
    verdicts. Exits with 1 where one is another than the run's, or rests on a verdict that the journal does not hold,
    and where nothing could be compared.
    """
    rewards = None if recipe is None else read_recipe(recipe, GrpoRecipe).reward
    if output is not None:
        if output.resolve().parent == source.resolve():
            raise AdjudgeError(f"{output} is in the folder that is read: name a file elsewhere")
        check_output(output, overwrite)
    replayed = []
    with open_output_anew(output) as write:
        for one in replay_rewards(source, rewards, step=step):
            replayed.append(one)
            write(_line(one))
    told = [_equals(replayed) if recipe is None else _means(replayed, recipe), *_lost(replayed)]
    print(f"adjudge: {'; '.join(told)}", file=sys.stderr)
    other = any(one.lost == "verdict" or (recipe is None and one.kept and not one.equal) for one in replayed)
    if other or not any(one.kept for one in replayed):
        raise SystemExit(1)


def _line(one: Replayed) -> bytes:
    line = msgspec.to_builtins(one.rewarded)
    now = {"replayed": one.reward, "kept": one.kept, "lost": one.lost, "equal": one.equal}
    return msgspec.json.encode({**line, **now}) + b"\n"


def _count(replayed: Sequence[Replayed]) -> str:
    done = {(one.rewarded.step, one.rewarded.split) for one in replayed}
    evaluations = sum(split == "held_out" for _, split in done)
    besides = f" and {counted(evaluations, 'evaluation')}" if evaluations else ""
    return f"{counted(len(replayed), 'reward')} of {counted(len(done) - evaluations, 'step')}{besides}"


def _equals(replayed: Sequence[Replayed]) -> str:
    """How many are what they were."""
    other = [one for one in replayed if one.kept and not one.equal]
    told = f"{_count(replayed)}: {sum(one.equal for one in replayed)} are the same, bit for bit"
    if not other:
        return told
    first = other[0]
    return (
        f"{told}; {len(other)} are others, the first in step {first.rewarded.step}: {first.rewarded.reward} then,"
        f" {first.reward} now"
    )


def _means(replayed: Sequence[Replayed], recipe: Path) -> str:
    """What they were and are on average, where both are known."""
    pairs = ((one.rewarded.reward, one.reward) for one in replayed)
    known = [(then, now) for then, now in pairs if then is not None and now is not None]
    told = f"{_count(replayed)} under {recipe}"
    if not known:
        return f"{told}: none to compare"
    then, now = map(fmean, zip(*known, strict=True))
    return f"{told}: {then:.4f} then, {now:.4f} now on average"


def _lost(replayed: Sequence[Replayed]) -> Iterator[str]:
    """What could not be compared, and why."""
    if count := sum(one.lost == "time" for one in replayed):
        yield f"{count} were never judged (no time, or no server)"
    if count := sum(one.lost == "verdict" for one in replayed):
        yield f"{count} rest on verdicts that the journal does not hold"
