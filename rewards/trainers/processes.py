"""The processes of a training run: what each of them knows, known to all, and an error of one raised in all."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError

Value = TypeVar("Value")


class RewardError(AdjudgeError):
    """A reward that cannot be given; raised in every process, wherever it came up."""


class Outcome(msgspec.Struct, Generic[Value], frozen=True):
    """What a process arrived at: a value, or what went wrong."""

    value: Value | None = None
    error: str | None = None


def attempt(work: Callable[[], Value]) -> tuple[Outcome[Value], Exception | None]:
    """What came of the work, and the error itself, which stays in this process."""
    try:
        return Outcome(work()), None
    except AdjudgeError as error:
        return Outcome(error=str(error)), error
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {error}"), error


def place_among_processes() -> tuple[int, int]:
    """This process's rank, and how many there are."""
    import torch.distributed

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def share(outcome: Outcome[Value]) -> list[Outcome[Value]]:
    """Every process's outcome, by rank, in every process: all of them must call this.

    Values are pickled before the processes meet: an error there, in one of them alone, would leave the others waiting.
    """
    import torch.distributed

    _, count = place_among_processes()
    if count == 1:
        return [outcome]
    packed: list[Any] = [None] * count
    torch.distributed.all_gather_object(packed, _packed(outcome))
    return [_unpacked(raw) for raw in packed]


def values_of(outcomes: Sequence[Outcome[Value]], cause: Exception | None = None) -> list[Value]:
    """The values; raises RewardError with what went wrong first, by rank (`cause`: this process's own error)."""
    for rank, outcome in enumerate(outcomes):
        if outcome.error is not None:
            place = f"process {rank}: " if len(outcomes) > 1 and not outcome.error.startswith("process ") else ""
            raise RewardError(place + outcome.error) from cause
    return [outcome.value for outcome in outcomes]  # type: ignore[misc]


def _packed(outcome: Outcome[Any]) -> bytes:
    try:
        return pickle.dumps((outcome.value, outcome.error))
    except Exception as error:
        return pickle.dumps((None, f"cannot be sent to the other processes ({type(error).__name__}: {error})"))


def _unpacked(raw: bytes) -> Outcome[Any]:
    try:
        return Outcome(*pickle.loads(raw))
    except Exception as error:
        return Outcome(error=f"cannot be read in another process ({type(error).__name__}: {error})")
