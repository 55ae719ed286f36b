"""A process that was forked, in which none of its parent's threads is."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakSet

from adjudge.engine.errors import AdjudgeError

Made = TypeVar("Made")

_mine = threading.local()  # whether this thread has computed with others', and whether that was before a fork


def require_process(process: int) -> None:
    """Raise AdjudgeError where the thread that an engine has is in another process than this."""
    if os.getpid() != process:
        raise AdjudgeError("this process was forked, and the engine's thread is in its parent: open an engine here")


def require_helpers() -> None:
    """Raise AdjudgeError where this thread would wait for ever for those of OpenMP that compute with it.

    They are its own: other threads of the process get theirs.
    """
    import torch  # what makes tokens asks for `Renewed`, and wants no torch

    if torch.get_num_threads() > 1:
        if getattr(_mine, "left_behind", False):
            raise AdjudgeError(
                "this process was forked from one that had computed with several threads, which are not here: call"
                " torch.set_num_threads(1) first, or start it by spawn"
            )
        _mine.helped = True


class Renewed(Generic[Made]):
    """A lock, or threads, of which a forked process makes its own: `here` is this process's.

    Its parent's may be held by a thread that is not there, or have work done by such.
    """

    _all: ClassVar[WeakSet[Renewed[Any]]] = WeakSet()

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self.here = make()
        self._all.add(self)

    @classmethod
    def _begin_anew(cls) -> None:
        for one in cls._all:
            one.here = one._make()


def _leave_behind() -> None:
    _mine.left_behind = getattr(_mine, "helped", False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Renewed._begin_anew)
if sys.platform == "linux":  # GNU's OpenMP: others find out by themselves
    os.register_at_fork(after_in_child=_leave_behind)
