"""What happens beside the steps of a run: metrics are written, a bar moves, curves are drawn."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from adjudge.training.curves import draw_curves
from adjudge.training.metrics import append_metrics, metrics_line, read_metrics
from adjudge.training.pictures import can_draw
from adjudge.training.progress import Pace, bar
from adjudge.training.run_folder import RunFolder


class Watch(TrainerCallback):
    """Writes the metrics of a run, shows how far it is, and draws its curves at every checkpoint and at the end.

    Only on the main process; the numbers themselves are gathered from all of them by the trainer. `epochs` is how often
    the whole run goes through the prompts, where the trainer, whose data are those of every step, would call it once.
    Where there is no terminal for a bar, a line now and then says how far the run is.
    """

    def __init__(self, folder: RunFolder, epochs: float | None = None) -> None:
        self.folder, self.epochs = folder, epochs
        self.progress = bar()
        self.task: Any = None
        self.pace: Pace | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the bar."""
        state.compute_steps(args, state.max_steps)  # a checkpoint has how often an earlier recipe logged and saved
        if state.is_world_process_zero:
            self.task = self.progress.add_task("training", total=state.max_steps, completed=state.global_step)
            self.progress.start()
            self.pace = Pace(self.progress.console, state.max_steps, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Move it."""
        if self.epochs is not None:
            state.epoch = self.epochs * state.global_step / state.max_steps
        if state.is_world_process_zero:
            self.progress.update(self.task, completed=state.global_step)
            if self.pace is not None:
                self.pace.say(f"{self.progress.tasks[0].description}: step", state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write a line of metrics."""
        if not state.is_world_process_zero or (line := metrics_line(state.global_step, logs or {})) is None:
            return
        append_metrics(self.folder.metrics, line)
        if (reward := line.get("reward")) is not None and line["split"] == "train" and self.task is not None:
            self.progress.update(self.task, description=f"training, reward {reward:.3f}")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Draw the curves so far."""
        if state.is_world_process_zero:
            self.draw()

    def close(self) -> None:
        """Take the bar away, however the run ended."""
        self.progress.stop()

    def draw(self) -> None:
        """Draw the curves, where matplotlib is there."""
        if can_draw() and self.folder.metrics.exists():
            draw_curves([read_metrics(self.folder.metrics)], self.folder.curves, self.folder.path.name)
