"""The folder of a training run: its recipe, its metrics, its checkpoints, its policy."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.whole_file import write_whole

CHECKPOINT = re.compile(r"checkpoint-(\d+)")
FREE = ("output", "logging")
"""What may be otherwise in a recipe when its run goes on: where it is, and what is written down of it."""
REACHED_BY = ("url", "max_concurrency", "timeout", "retries")
"""How a server is asked, which may be otherwise too: it is the same model at another address."""
STEPS = "optimiser.steps"
COMPLETIONS = "completions"
"""Where TRL keeps what a policy wrote."""
BESIDE = ("kind", "prompts", "rows", "files", "start", "weights")
"""What a run's record may have beside the fields of its recipe: what these say of files, and of weights."""


class RunFolder(msgspec.Struct, frozen=True):
    """Where a run keeps what it has.

    `recipe.json` (all fields, also those left out), `metrics.jsonl`, `curves.png`, `checkpoint-*`, and `policy`, the
    trained model or adapter.
    """

    path: Path

    @property
    def recipe(self) -> Path:
        """The recipe as it was run."""
        return self.path / "recipe.json"

    @property
    def metrics(self) -> Path:
        """A line for each logged step, and for each time the held-out prompts were answered."""
        return self.path / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        """The plots."""
        return self.path / "curves.png"

    @property
    def journal(self) -> Path:
        """The judges' verdicts, where the recipe wants them kept."""
        return self.path / "rewards.journal"

    @property
    def rewards(self) -> Path:
        """Every reward that the trainer was given, where the recipe wants verdicts kept."""
        return self.path / "rewards.jsonl"

    @property
    def engines(self) -> Path:
        """Which models the judges were, beside the rewards."""
        return self.path / "engines.json"

    @property
    def made_rows(self) -> Path:
        """The rows that were made of texts, where the run made its own."""
        return self.path / "made-rows.jsonl"

    @property
    def policy(self) -> Path:
        """The trained policy, as `adjudge judge --model` (or --adapter) opens it."""
        return self.path / "policy"

    @property
    def making(self) -> Path:
        """Where that is put together before it takes its name, and a dummy's weights stand until trainers have them."""
        return self.path / "policy.making"

    @property
    def command(self) -> str | None:
        """The command whose run it is, "train grpo" and the like; None where its recipe does not tell."""
        try:
            return command_of(self.record())
        except AdjudgeError:
            return None

    def record(self, mend: str = "name the output folder of a run") -> dict[str, Any]:
        """What recipe.json says; raises AdjudgeError with the `mend` where that cannot be read."""
        try:
            return msgspec.json.decode(self.recipe.read_bytes(), type=dict[str, Any])
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else reason(error)
            raise AdjudgeError(f"cannot read {self.recipe} ({why}): {mend}") from error

    def checkpoint(self) -> Path | None:
        """The latest whole checkpoint; the trainer writes its state last, which a crash may cut."""
        found = {
            int(match[1]): path
            for path in self.path.glob("checkpoint-*")
            if (match := CHECKPOINT.fullmatch(path.name)) and _is_json(path / "trainer_state.json")
        }
        return found[max(found)] if found else None

    def earlier(self) -> list[Path]:
        """All that an earlier run has left here, which a new one forgets, and its recipe last."""
        folders = (*self.path.glob("checkpoint-*"), self.policy, self.making, self.path / COMPLETIONS)
        rewards = (self.rewards, self.engines, *self.path.glob("rewards.journal*"))
        files = (self.metrics, self.curves, self.made_rows, *rewards)
        return [path for path in (*folders, *files, self.recipe) if path.exists()]

    def of_others(self) -> list[Path]:
        """What has the name of something that a run leaves, in a folder without a run's recipe.

        An empty folder of the trainer's, which it makes before there is a recipe, is not counted.
        """
        return [path for path in self.earlier() if not (path.name == COMPLETIONS and not any(path.iterdir()))]

    def check_inputs(self, record: Mapping[str, Any]) -> None:
        """Raise AdjudgeError where the recipe names a file or folder among those that a new run forgets."""
        forgotten = [Path(os.path.realpath(path)) for path in self.earlier()]
        for text in _texts(record):
            path = os.path.expanduser(text.removeprefix("dummy:"))
            if os.sep in path and any(_real(path).is_relative_to(one) for one in forgotten):
                raise AdjudgeError(f"{text} is in the folder of this run, which forgets it: name another output")

    def check(self, resume: bool, overwrite: bool, record: Mapping[str, Any]) -> None:
        """Raise AdjudgeError where an earlier run stands in the way, or is of another recipe than the one to resume.

        And where it is to be resumed and forgotten.
        More steps are no other recipe where no step depends on how many there are.
        """
        if resume and overwrite:
            raise AdjudgeError(f"resume goes on with the run in {self.path}, and overwrite forgets it: leave one out")
        if overwrite:
            return
        if not self.recipe.exists():
            if found := self.of_others():
                raise AdjudgeError(
                    f"{self.path} holds {found[0].name}, but no {self.recipe.name} of a run: name another output, or"
                    " forget what is there by --overwrite"
                )
            return
        if not resume:
            raise AdjudgeError(
                f"{self.path} holds an earlier run: continue it with --resume, or forget it by --overwrite"
            )
        earlier = self.record("begin anew with --overwrite")
        now = json.loads(msgspec.json.encode({**record, **{name: earlier.get(name) for name in FREE}}))
        if (changed := first_difference(_lengthened(earlier, now), now)) is not None:
            longer = " (it can be raised where the rate is constant, without a warmup)" * (changed == STEPS)
            raise AdjudgeError(
                f"{changed} is not what the run in {self.path} began with{longer}: put it back, name another output, or"
                " begin anew with --overwrite"
            )

    def begin(self, record: Mapping[str, Any], *, resume: bool) -> None:
        """Make the folder, and forget what an earlier run left in it unless that is continued.

        Raises AdjudgeError where it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for path in () if resume else self.earlier():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                    if path.name == COMPLETIONS:  # which the trainer has made by now
                        path.mkdir()
                else:
                    path.unlink(missing_ok=True)
            write_whole(self.recipe, msgspec.json.format(msgspec.json.encode(record)))
        except OSError as error:
            raise AdjudgeError(
                f"cannot write {error.filename or self.path} ({error.strerror}): name another output"
            ) from error


def command_of(record: Any) -> str | None:
    """The command that trained by this record; None where that is not to be told."""
    if not isinstance(record, dict):
        return None
    if isinstance(kind := record.get("kind"), str):
        return f"train {'reward' if kind == 'preference' else kind}"
    return "train grpo" if "reward" in record else "train sft" if "response" in record else None


def _texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _real(path: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # what no file can be called
        return Path()


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def first_difference(one: Any, other: Any, name: str = "") -> str | None:
    """The name of the first field in which two JSON values differ, but for how a server is asked."""
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = _wherever(one), _wherever(other)
        for key in {**one, **other}:
            within = f"{name}.{key}" if name else key
            if (found := first_difference(one.get(key), other.get(key), within)) is not None:
                return found
        return None
    return None if one == other else name


def _lengthened(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The earlier record with the steps of this one, where it could have had them: its own are the first of those."""
    before, after = earlier.get("optimiser"), now.get("optimiser")
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return earlier
    steps, more = before.get("steps"), after.get("steps")
    constant = before.get("schedule") == "constant" and not before.get("warmup")
    if not (constant and isinstance(steps, int) and isinstance(more, int) and steps < more):
        return earlier
    if steps % before.get("iterations", 1):  # it ended amid completions that several steps share
        return earlier
    return {**earlier, "optimiser": {**before, "steps": more}}


def _wherever(table: dict[str, Any]) -> dict[str, Any]:
    """A table without how a server is asked, where it tells of one: of its address, only that there is one."""
    if table.get("url") is None:
        return table
    return {**{name: value for name, value in table.items() if name not in REACHED_BY}, "url": ""}
