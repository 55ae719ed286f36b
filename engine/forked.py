"""A process that was forked, in which none of its parent's threads is."""

from __future__ import annotations

import os
import sys
import threading

import torch

from adjudge.engine.errors import AdjudgeError

_mine = threading.local()  # whether this thread has computed with others', and whether that was before a fork


def require_process(process: int) -> None:
    """Raise AdjudgeError where the thread that an engine has is in another process than this."""
    if os.getpid() != process:
        raise AdjudgeError("this process was forked, and the engine's thread is in its parent: open an engine here")


def require_helpers() -> None:
    """Raise AdjudgeError where this thread would wait for ever for those of OpenMP that compute with it.

    They are its own: other threads of the process get theirs.
    """
    if torch.get_num_threads() > 1:
        if getattr(_mine, "left_behind", False):
            raise AdjudgeError(
                "this process was forked from one that had computed with several threads, which are not here: call"
                " torch.set_num_threads(1) first, or start it by spawn"
            )
        _mine.helped = True


def _leave_behind() -> None:
    _mine.left_behind = getattr(_mine, "helped", False)


if sys.platform == "linux":  # GNU's OpenMP: others find out by themselves
    os.register_at_fork(after_in_child=_leave_behind)
