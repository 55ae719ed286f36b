"""Every reward of a run, as the trainer was given it: a line of JSON for each completion."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.text.tokenizer import well_formed
from adjudge.engine.whole_file import write_whole
from adjudge.rewards.engines.specification import EngineSpec, engines_open
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.parts.combining import LENGTH, WITH_TREND
from adjudge.rewards.records.messages import text_of
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.processes import place_among_processes
from adjudge.rewards.trainers.trl import NO_COLUMNS, TrlReward
from adjudge.rewards.words import count_words
from adjudge.training.metrics import read_lines
from adjudge.training.prompts import Prompts
from adjudge.training.run_folder import RunFolder

log = logging.getLogger("adjudge")


class Rewarded(msgspec.Struct, frozen=True):
    """A completion and its reward, None where it `abstained`.

    `call` counts the trainer's calls since the run began or was resumed, `place` the completions of a call over all
    processes; `group` of them in a row answer one prompt. `parts` is what the reward is made of, `columns` what the
    data says about the prompt, and the completion's tokens (`completion_ids`) where a function of the reward takes
    them, as JSON has it: see `kept`.
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
        /,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        *,
        trainer_state: Any,
        log_extra: Any,
        log_metric: Any,
        **columns: Any,
    ) -> list[float | None]:
        """The rewards of this process's completions; raises AdjudgeError for a column that cannot be kept."""
        texts, answers = kept("prompt", list(prompts)), kept("completion", list(completions))
        read = self.function.with_ids(columns, completion_ids)
        told = {name: kept(name, list(values)) for name, values in read.items() if name not in NO_COLUMNS}
        table: dict[str, Sequence[Any]] = {}

        def note(column: str, values: list[Any]) -> None:
            table[column.removeprefix(f"{self.__name__}/")] = values[-len(texts) :]  # a new one has earlier rows, too
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
                prompt=texts[place],
                completion=answers[place],
                columns={name: values[place] for name, values in told.items()},
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
        """Write the lines; the engines that were opened by now are noted beside, after those of a run resumed.

        Each of several processes notes its own: where the room for prompts follows a GPU's memory they may differ.
        """
        try:
            _append(self.folder.rewards, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            opened = engines_open(self.function.scorer.reward.engines)
            if opened.keys() - self._engines:
                now = [Opened(spec, Card.of(engine)) for spec, engine in opened.items()]
                with _alone(self.folder.rewards):
                    earlier = read_engines(self.folder.engines)
                    cards = [*(one for one in earlier if one not in now), *now]
                    write_whole(self.folder.engines, msgspec.json.format(msgspec.json.encode(cards)))
                known = {one.card.fingerprint for one in earlier}
                others = sorted({one.card.name for one in now if one.card.fingerprint not in known})
                if earlier and others and not self._engines:
                    log.warning(
                        "other weights judge than did before the run was resumed: those of %s", ", ".join(others)
                    )
                self._engines |= opened.keys()
        except OSError as error:
            where = self.folder.rewards
            raise AdjudgeError(f"cannot write {where} ({error.strerror}): make room, then --resume") from error


def kept(name: str, value: Any) -> Any:
    """A value of the column `name` as the file keeps it, and a replay hands it to a judge again.

    Arrays, tensors and tuples become lists, lone surrogates U+FFFD. Raises AdjudgeError for what JSON has no form for:
    dates, bytes, numbers that are not finite or beyond 64 bits. Such a number in a completion becomes its text: a
    policy may write any as an argument of a tool, which no judge reads and which must not end its run.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple):
        return [kept(name, one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {well_formed(key): kept(name, one) for key, one in value.items()}
    if hasattr(value, "tolist") and not isinstance(plain := value.tolist(), type(value)):
        return kept(name, plain)
    if name == "completion" and isinstance(value, int | float):
        return json.dumps(value)
    what = value if isinstance(value, int | float) else type(value).__name__
    raise AdjudgeError(
        f'column "{name}" holds {what}, which the journal of a run cannot keep: make it text, a finite number, a truth'
        " value, or a list or table of these"
    )


def check_columns(prompts: Prompts) -> None:
    """Raise AdjudgeError naming the first row with a column that cannot be kept, and the column."""
    for row in (*prompts.train, *prompts.held_out):
        for name, value in row.columns.items():
            try:
                kept(name, value)
            except AdjudgeError as error:
                raise AdjudgeError(f"{row.place}: {error}") from error


def _append(path: Path, content: bytes) -> None:
    """Add to the file all of it or nothing, whichever of several processes writes; raises OSError."""
    with _alone(path) as file:
        end, left = os.lseek(file, 0, os.SEEK_END), memoryview(content)
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            os.ftruncate(file, end)
            raise


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """The file, open to add to it, while no other process has it so; raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def read_rewards(path: Path) -> list[Rewarded]:
    """The rewards of a run, in order; a last line that a crash has cut is left out.

    Raises AdjudgeError for a file that is not there, and for a line that is none.
    """
    found = [one for one, _ in _read(path)]
    return sorted(found, key=lambda one: (one.step, one.split != "train", one.call, one.place))


def cut_rewards(path: Path, step: int, answered: int | None) -> None:
    """Forget what was rewarded after a step, from which a run goes on, and held-out prompts of steps after `answered`.

    Held-out prompts whose answers are not all there, for the run ended meanwhile, are answered again.
    """
    if path.exists():
        last = {"train": step, "held_out": -1 if answered is None else min(step, answered)}
        write_whole(path, b"".join(line for one, line in _read(path) if one.step <= last[one.split]))


def _read(path: Path) -> list[tuple[Rewarded, bytes]]:
    """The rewards with the lines that they stand in."""
    mend = "name a run whose recipe has journal = true in [reward]"
    return read_lines(path, msgspec.json.Decoder(Rewarded).decode, fault="is no reward", mend=mend)


def remember(reward: Reward, lines: Sequence[Rewarded]) -> None:
    """Bring a `LengthFree` reward to where these lines, whole groups, have left it; other rewards remember nothing."""
    if not isinstance(reward, LengthFree):
        return
    trained = iter([one for one in lines if one.split == "train"])  # held-out prompts leave training alone
    for first in trained:
        group = [first, *islice(trained, first.group - 1)]
        reward.remember([_words(one) for one in group], [one.parts.get(WITH_TREND, one.reward) for one in group])


def _words(line: Rewarded) -> float:
    """How many words of a completion counted; the lines of earlier versions do not say."""
    said = line.parts.get(LENGTH)
    return float(count_words(text_of(line.completion, "a completion"))) if said is None else said


def read_engines(path: Path) -> list[Opened]:
    """The engines of a run, those opened last at the end; a specification that came to other cards has them all."""
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Opened])
    except (OSError, msgspec.MsgspecError) as error:
        raise AdjudgeError(f"cannot read {path} ({reason(error)}): put it back as the run wrote it") from error
