"""The processes of a training run: what each of them knows, known to all, and an error of one raised in all."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError

Value = TypeVar("Value")


class RewardError(AdjudgeError):
    """A reward that cannot be given, for a reason that is no AdjudgeError of its own."""


class Result(msgspec.Struct, Generic[Value], frozen=True):
    """What a process arrived at: a value, or what went wrong."""

    value: Value | None = None
    error: AdjudgeError | None = None


def attempt(work: Callable[[], Value]) -> Result[Value]:
    """What came of the work."""
    try:
        return Result(work())
    except AdjudgeError as error:
        return Result(error=error)
    except Exception as error:
        failure = RewardError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        return Result(error=failure)


def place_among_processes() -> tuple[int, int]:
    """This process's rank, and how many there are."""
    import torch.distributed

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def share(outcome: Result[Value]) -> list[Result[Value]]:
    """Every process's outcome, by rank, in every process: all of them must call this.

    Values are pickled before the processes meet: an error there, in one of them alone, would leave the others waiting.
    """
    import torch.distributed

    rank, count = place_among_processes()
    if count == 1:
        return [outcome]
    packed: list[Any] = [None] * count
    torch.distributed.all_gather_object(packed, _packed(outcome))
    return [_unpacked(raw) if outcome.error is None or place != rank else outcome for place, raw in enumerate(packed)]


def values_of(outcomes: Sequence[Result[Value]]) -> list[Value]:
    """The values; raises what went wrong first, by rank, with a note of where."""
    for rank, outcome in enumerate(outcomes):
        if outcome.error is not None:
            if len(outcomes) > 1 and not getattr(outcome.error, "__notes__", ()):
                outcome.error.add_note(f"in process {rank} of {len(outcomes)}")
            raise outcome.error
    return [outcome.value for outcome in outcomes]  # type: ignore[misc]


def _packed(outcome: Result[Any]) -> bytes:
    try:
        raw = pickle.dumps((outcome.value, outcome.error))
        if outcome.error is not None:
            pickle.loads(raw)  # not every error survives it
        return raw
    except Exception as error:
        what = outcome.error or f"cannot be sent to the other processes ({type(error).__name__}: {error})"
        return pickle.dumps((None, RewardError(str(what))))


def _unpacked(raw: bytes) -> Result[Any]:
    try:
        return Result(*pickle.loads(raw))
    except Exception as error:
        return Result(error=RewardError(f"cannot be read in another process ({type(error).__name__}: {error})"))
