"""GRPO as accelerate starts it from the examples' configurations, in one process and in two."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

from adjudge.training.grpo.replay import replay_rewards
from adjudge.training.metrics import read_metrics
from adjudge.training.reward_log import read_rewards
from adjudge.training.run_folder import RunFolder

EXAMPLES = Path(__file__).parents[3] / "examples" / "recipes"
IN_TURN = Path(__file__).with_name("in_turn.py")
WHOLE = """
output = "whole"
policy.model = "dummy:tiny-llama"
data.prompts = ["one", "two", "three", "four", "five", "six", "seven"]
data.held_out = 1
reward.parts.ends = {kind = "check", ends_with = ["a", "e", "i", "o", "u", "0", "1", "2", "3", "4", "5"]}
reward.journal = true
guards.every = 1000
generation = {group = 2, max_tokens = 6}
optimiser = {lr = 0.01, prompts_per_step = 3, steps = 2, micro_batch = 3, beta = 0.1}
"""
STOPPED = """
output = "stopped"
policy.model = "dummy:tiny-llama"
data.prompts = ["one", "two", "three"]
reward.parts.long = {kind = "length", words = [20, 30]}
reward.journal = true
guards = {use = ["degenerate"], stop_on = ["degenerate"], degenerate = {tolerance = -1.0}}
generation = {group = 2, max_tokens = 6}
optimiser = {prompts_per_step = 3, steps = 4, micro_batch = 3}
"""


def launched(config: str, *command: Any) -> CompletedProcess[str]:
    """What accelerate starts from one of the examples' configurations came to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launch = ["accelerate.commands.launch", "--config_file", str(EXAMPLES / config), "--main_process_port", port]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", *launch, *map(str, command)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where recipes and runs stand."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "whole.toml").write_text(WHOLE)
    (folder / "stopped.toml").write_text(STOPPED)
    return folder


@pytest.fixture(scope="module")
def together(folder: Path) -> CompletedProcess[str]:
    """Two processes that train to the end, and then, as one pair still, until a guard stops them."""
    return launched("two-processes.yaml", IN_TURN, folder / "whole.toml", folder / "stopped.toml")


def assert_trained_well(run: RunFolder) -> None:
    """A local batch of three cut a group of two: all of it was logged, once, and comes again."""
    lines = read_metrics(run.metrics)
    assert [(line["split"], line["step"]) for line in lines] == [
        ("held_out", 0),
        ("train", 1),
        ("train", 2),
        ("held_out", 2),
    ]
    assert all("reward/abstained" in line for line in lines)
    replayed = list(replay_rewards(run.path))
    places = [(one.rewarded.step, one.rewarded.split, one.rewarded.place) for one in replayed]
    assert all(one.equal for one in replayed) and len(set(places)) == len(places)
    assert [place for step, _, place in places if step == 1] == [0, 1, 2, 3, 4, 5]


def test_two_processes_train_one_policy(folder: Path, together: CompletedProcess[str]) -> None:
    assert f"{folder / 'whole.toml'} ended with 0" in together.stderr, together.stderr
    assert "3 at once, in 2 processes" in together.stderr and together.stdout.count("policy: ") == 1
    assert_trained_well(RunFolder(folder / "whole"))


def test_two_processes_end_together_when_a_guard_stops_them_and_have_saved_what_they_had(
    folder: Path, together: CompletedProcess[str]
) -> None:
    assert together.returncode != 0 and "step 1: the guard degenerate measures worst" in together.stderr
    run = RunFolder(folder / "stopped")
    assert [(line["split"], line["step"]) for line in read_metrics(run.metrics)] == [("train", 1)]
    assert len(read_rewards(run.rewards)) == 6 and (run.path / "checkpoint-1").is_dir()


def test_one_process_trains_as_two_do(tmp_path: Path) -> None:
    (tmp_path / "whole.toml").write_text(WHOLE)
    result = launched("one-process.yaml", "-m", "adjudge", "train", "grpo", tmp_path / "whole.toml")
    assert result.returncode == 0, result.stderr
    assert "3 at once, 2 times, in 1 process" in result.stderr and result.stdout.count("policy: ") == 1
    assert_trained_well(RunFolder(tmp_path / "whole"))
