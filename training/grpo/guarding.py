"""Guards in a run: it ends once the step that a guard stops it on is saved, and what they remember is saved with it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from adjudge.engine.errors import reason
from adjudge.rewards.guards.guard import GuardTripped
from adjudge.rewards.guards.guarded import Guarded, GuardedState
from adjudge.rewards.trainers.processes import Result, share, values_of

log = logging.getLogger("adjudge")


class Guarding(TrainerCallback, ExportableState):
    """Ends a run that a guard stops when it has been logged and saved; the trainer keeps its `state` in checkpoints.

    `iterations` steps share the same completions, and no checkpoint amid them can be resumed: the run ends after them,
    or with its last step.
    """

    def __init__(self, guarded: Guarded, iterations: int) -> None:
        self.guarded, self.iterations = guarded, iterations
        guarded.raises = False
        self.tripped: GuardTripped | None = None

    def go_on(self, checkpoint: Path, step: int) -> None:
        """Bring the guards to where they were at a checkpoint; if it does not say, they begin anew, with a warning."""
        path = checkpoint / "trainer_state.json"
        try:
            kept = json.loads(path.read_bytes())["stateful_callbacks"][type(self).__name__]["attributes"]
            self.guarded.state = msgspec.convert(kept, GuardedState)
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.warning("%s does not hold what the guards knew (%s): they begin anew", path, reason(error))
            self.guarded.step = -(-step // self.iterations)  # completions are rewarded once for all iterations

    def state(self) -> dict[str, Any]:
        """What the guards know, as the trainer keeps it."""
        return {"args": {}, "attributes": msgspec.to_builtins(self.guarded.state)}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Make the place that the trainer writes the state to, which a checkpoint without guards has not."""
        state.stateful_callbacks.setdefault(type(self).__name__, {})

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have all processes log, save and end where a guard, which watches in the first, stops the run."""
        whole = state.global_step % self.iterations == 0 or state.global_step >= state.max_steps
        if self.guarded.stop_on and whole:
            self.tripped = values_of(share(Result(self.guarded.tripped)))[0]
        if self.tripped is not None:
            control.should_log = control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raise GuardTripped where that was the end."""
        if self.tripped is not None:
            raise self.tripped
