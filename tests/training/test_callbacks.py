from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from adjudge.training import callbacks, progress
from adjudge.training.metrics import read_metrics
from adjudge.training.run_folder import RunFolder


def test_where_stderr_is_no_terminal_a_run_says_now_and_then_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = SimpleNamespace(
        is_world_process_zero=True, global_step=2, max_steps=6, epoch=0.0, compute_steps=lambda args, steps: None
    )
    monkeypatch.setattr(progress, "BURST", -1.0)  # each step by itself
    said = []
    for first, every in ((60.0, 60.0), (0.0, 60.0), (0.0, 0.0)):
        monkeypatch.setattr(progress, "FIRST", first)
        monkeypatch.setattr(progress, "EVERY", every)
        state.global_step = 2  # goes on from there
        watch = callbacks.Watch(RunFolder(tmp_path))
        watch.on_train_begin(None, state, None)
        for step in (2, 3, 4, 5, 6):
            state.global_step = step
            watch.on_log(None, state, None, {"loss": 0.5, "reward": step / 10, "learning_rate": 1e-3})
            watch.on_step_end(None, state, None)
        watch.close()
        said.append(capsys.readouterr().err.splitlines())
    assert said == [
        [],
        ["training, reward 0.400: step 4 of 6, 0 min left"],
        [f"training, reward 0.{step}00: step {step} of 6, 0 min left" for step in (4, 5)],
    ]
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 15
