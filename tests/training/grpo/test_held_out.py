"""What held-out prompts come to: one mean, however they are batched, late or abstained from."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("trl", reason="needs the extra train")


from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.grpo.trainer import held_out_batch, weigh
from adjudge.training.reward_log import read_rewards
from tests.jsonl import write_lines
from tests.training.runs import Vowels, tiny_recipe


class Nine(Vowels):
    """1 for the prompt "nine", 0 for the others; the first call takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds

    def _group(self, group: Group) -> GroupReward:
        time.sleep(self.seconds)
        self.seconds = 0.0
        values = (float(group.prompt.endswith("nine")),) * len(group.responses)
        return GroupReward(values, (None,) * len(values), {"nine": values})


NINE = ["a", "b", *(f"number {n}" for n in range(8)), "nine"]


def test_what_held_out_prompts_come_to_is_their_mean_whatever_their_number(tmp_path: Path) -> None:
    tables = {"data": {"prompts": NINE, "held_out": 9}, "optimiser": {"steps": 1}}
    assert train_grpo(tiny_recipe(tmp_path, **tables), reward=Nine()).before == pytest.approx(1 / 9)


def test_what_held_out_prompts_come_to_is_the_mean_of_their_rewards_wherever_some_abstain() -> None:
    metrics = {
        "r/abstained": [0.75, 0.0, 1.0],
        "reward": [0.0, 1.0, math.nan],
        "rewards/r/mean": [0.0, 1.0, math.nan],
        "r/mean/part": [2.0, 4.0],
        "kl": [0.1, 0.2, 0.3],
    }
    weigh(metrics, "r")
    assert metrics["reward"] == metrics["rewards/r/mean"] == [0.8] and metrics["r/mean/part"] == [3.6]
    assert metrics["kl"] == [0.1, 0.2, 0.3]


def test_held_out_rewards_of_batches_that_abstain_unalike_are_one_mean(tmp_path: Path) -> None:
    rows = [{"prompt": f"t{n}", "odd": False} for n in range(4)]
    rows += [{"prompt": "h" * (1 + n % 3) + str(n), "odd": n < 7} for n in range(16)]
    write_lines(tmp_path / "rows.jsonl", *rows)
    data = {"train": "rows.jsonl", "prompts": [], "held_out": 16, "chat": False}
    reward = Vowels()
    run = train_grpo(tiny_recipe(tmp_path, data=data, optimiser={"steps": 1}), reward=reward)
    groups = [group for group in reward.groups if group.prompt.startswith("h") and not group.columns["odd"]]
    known = [value for group in groups[:9] for value in Vowels()._group(group).rewards]
    assert run.before == pytest.approx(fmean(known), abs=1e-6)


@pytest.mark.parametrize("at_once", [16, 64])
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_batches_of_held_out_prompts_are_alike_and_of_whole_groups(processes: int, at_once: int) -> None:
    for prompts in range(1, 40):
        for group in (2, 4, 8, 12, 16, 32):
            size = held_out_batch(prompts, group, processes, at_once)
            if group % processes == 0:
                assert prompts * group % (size * processes) == 0 and size <= max(at_once, group)
            assert size * processes % group == 0
    assert held_out_batch(9, 8, 1, at_once) == (24 if at_once == 64 else 8) and held_out_batch(5, 8, 3, at_once) == 8
    assert held_out_batch(8, 8, 1, at_once) == held_out_batch(32, 8, 1, at_once) == at_once


@pytest.mark.parametrize(("micro", "together"), [(2, 5), (20, 10)])
def test_held_out_prompts_are_answered_as_many_at_once_as_the_policy_learns_from(
    tmp_path: Path, micro: int, together: int
) -> None:
    sizes = []

    class Counted(Vowels):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            sizes.append(len(groups))
            return super().score_groups(groups)

    data = {"prompts": [f"number {n}" for n in range(20)], "held_out": 10}
    optimiser = {"steps": 1, "prompts_per_step": 10, "micro_batch": micro}
    train_grpo(tiny_recipe(tmp_path, data=data, optimiser=optimiser), reward=Counted())
    before, after = sizes[: len(sizes) // 2], sizes[-(len(sizes) // 2) :]
    assert before == after == [together] * (10 // together)


def test_a_first_call_that_is_too_late_leaves_the_table_of_completions_whole(tmp_path: Path) -> None:
    tables = {"data": {"prompts": NINE, "held_out": 9}, "optimiser": {"steps": 1}}
    recipe = tiny_recipe(tmp_path, **tables, reward={"deadline": 0.5, "journal": True}, logging={"completions": True})
    run = train_grpo(recipe, reward=Nine(seconds=1.0))
    lines = [one for one in read_rewards(run.folder.rewards) if one.split == "held_out" and one.step == 0]
    assert len(lines) == 18 and {line.abstained for line in lines} == {"timeout", None}
    assert all((line.reward is None) == (line.parts.get("nine") is None) for line in lines)


def test_completions_are_kept_in_files_and_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tiny_recipe(tmp_path, optimiser={"steps": 2}, data={"held_out": 2}, logging={"completions": True})
    folder = train_grpo(recipe, reward=Vowels()).folder
    kept = sorted(path.name for path in (folder.path / "completions").iterdir())
    assert kept == [f"completions_0000{step}.parquet" for step in (0, 1, 2)]
    assert capsys.readouterr().out == ""
