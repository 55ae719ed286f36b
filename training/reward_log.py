"""Every reward of a run, as the trainer was given it: a line of JSON for each completion."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.rewards.specification import EngineSpec, engines_open
from adjudge.rewards.trainers.processes import place_among_processes
from adjudge.rewards.trainers.trl import TrlReward
from adjudge.training.run_folder import RunFolder, write_whole


class Rewarded(msgspec.Struct, frozen=True):
    """A completion and its reward, None where it `abstained`.

    `call` counts the trainer's calls since the run began or was resumed, `place` the completions of a call over all
    processes; `group` of them in a row answer one prompt. `parts` is what the reward is made of, `columns` what the
    data says about the prompt.
    """

    step: int
    split: Literal["train", "held_out"]
    call: int
    place: int
    group: int
    prompt: Any
    completion: Any
    columns: dict[str, Any]
    reward: float | None
    abstained: str | None = None
    parts: dict[str, float | None] = {}


class Opened(msgspec.Struct, frozen=True):
    """An engine of a run, and what decides its answers."""

    spec: EngineSpec
    card: Card


class Recorded:
    """A reward function of TRL's that leaves what it returns, and for what, in the folder of the run."""

    def __init__(self, function: TrlReward, folder: RunFolder) -> None:
        self.function, self.folder = function, folder
        self.__name__ = function.__name__
        self.calls = 0
        self._engines: set[EngineSpec] = set()

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        *,
        trainer_state: Any,
        log_extra: Any,
        log_metric: Any,
        **columns: Any,
    ) -> list[float | None]:
        """The rewards of this process's completions."""
        table: dict[str, Sequence[Any]] = {}

        def note(column: str, values: list[Any]) -> None:
            table[column.removeprefix(f"{self.__name__}/")] = values
            log_extra(column, values)

        logs = {"trainer_state": trainer_state, "log_extra": note, "log_metric": log_metric}
        rewards = self.function(prompts, completions, completion_ids, **logs, **columns)
        abstained = table.pop("abstained")
        trainer, first = log_metric.__self__, place_among_processes()[0] * len(rewards)
        training = bool(trainer.model.training)
        lines = [
            Rewarded(
                step=trainer_state.global_step + training,
                split="train" if training else "held_out",
                call=self.calls,
                place=first + place,
                group=trainer.num_generations if training else trainer.num_generations_eval,
                prompt=prompts[place],
                completion=completions[place],
                columns={name: values[place] for name, values in columns.items()},
                reward=rewards[place],
                abstained=abstained[place],
                parts={name: values[place] for name, values in table.items()},
            )
            for place in range(len(rewards))
        ]
        self._append(lines)
        self.calls += 1
        return rewards

    def _append(self, lines: Sequence[Rewarded]) -> None:
        """Write all at once, as several processes write; the engines that were opened by now are noted beside."""
        content = b"".join(msgspec.json.encode(line, enc_hook=str) + b"\n" for line in lines)
        try:
            file = os.open(self.folder.rewards, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(file, content)
            finally:
                os.close(file)
            opened = engines_open(self.function.scorer.reward.engines)
            if place_among_processes()[0] == 0 and opened.keys() - self._engines:
                cards = [Opened(spec, Card.of(engine)) for spec, engine in opened.items()]
                write_whole(self.folder.engines, msgspec.json.format(msgspec.json.encode(cards)))
                self._engines |= opened.keys()
        except OSError as error:
            where = self.folder.rewards
            raise AdjudgeError(f"cannot write {where} ({error.strerror}): make room, then --resume") from error


def read_rewards(path: Path) -> list[Rewarded]:
    """The rewards of a run, in order; a last line that a crash has cut is left out.

    Raises AdjudgeError for a file that is not there, and for a line that is none.
    """
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise AdjudgeError(
            f"cannot read {path} ({error.strerror}): name a run whose recipe has journal = true in [reward]"
        ) from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=Rewarded))
        except msgspec.MsgspecError as error:
            if number < len(lines) or line.endswith(b"\n"):
                raise AdjudgeError(f"line {number} of {path} is no reward ({reason(error)}): remove it") from error
    return sorted(found, key=lambda one: (one.step, one.split != "train", one.call, one.place))


def read_engines(path: Path) -> dict[EngineSpec, Card]:
    """The engines of a run by their specifications; {} where none was opened."""
    if not path.exists():
        return {}
    try:
        return {one.spec: one.card for one in msgspec.json.decode(path.read_bytes(), type=list[Opened])}
    except (OSError, msgspec.MsgspecError) as error:
        raise AdjudgeError(f"cannot read {path} ({reason(error)}): put it back as the run wrote it") from error
