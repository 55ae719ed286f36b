"""`Call`: a reward asked in a thread of its own, which may be waited for until a deadline."""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import Callable
from threading import Lock, Thread

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.reward import GroupReward

Answer = GroupReward | AdjudgeError
"""What a group got: its rewards, or what was wrong with it."""

_log = logging.getLogger("adjudge")


class Call(Thread):
    """A call under way, which keeps the scorer `busy` until it is over, whether anybody waits for it or not.

    It has the context variables of whoever asks.
    """

    def __init__(self, ask: Callable[[], list[Answer]], busy: Lock, reward: str) -> None:
        super().__init__(name="adjudge-reward", daemon=True)  # a dead judge must not keep the process
        self._answers: list[Answer] | None = None
        self._error: BaseException | None = None
        self._ask, self._busy, self._reward = ask, busy, reward
        self._context = contextvars.copy_context()
        self._late, self._ending = False, Lock()
        self._device = _cuda_device()

    def answers_by(self, ends: float) -> list[Answer] | None:
        """What came of it, None where it is not done at that time; raises what it failed of."""
        self.join(max(0.0, ends - time.monotonic()))
        with self._ending:
            if self._error is not None:
                raise self._error
            self._late = self._answers is None
            return self._answers

    def run(self) -> None:
        """Ask."""
        try:
            if self._device is not None:
                import torch

                torch.cuda.set_device(self._device)  # a new thread begins on the first device
            answers = self._context.run(self._ask)
            with self._ending:
                self._answers = answers
            if error := next((one for one in answers if isinstance(one, AdjudgeError)), None):
                self._log_if_late(error)
        except BaseException as error:
            with self._ending:
                self._error = error
            self._log_if_late(error)
        finally:
            self._busy.release()

    def _log_if_late(self, error: BaseException) -> None:
        """Nobody waits any more for what ended the call: the log is the only place for it."""
        if self._late:
            what = f"{type(error).__name__}: {error}"
            _log.error('reward "%s" failed after its deadline had passed: %s', self._reward, what)


def _cuda_device() -> int | None:
    """The device that this thread works on, if it works on any."""
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else None
