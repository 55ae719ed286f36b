"""The adapter under TRL's own trainer, on CPU, with a tiny policy and a tiny judge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adjudge.engine.sources import open_source, resolve
from adjudge.rewards.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.trl import for_trl
from tests.rewards.trainers.rewards import Judged, Told

pytest.importorskip("trl")

PROMPTS = ["Tell one.", "Tell two."]


class Sized(Reward):
    """Notes how large the groups are; a part for each completion."""

    name = "sized"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.sizes += [len(group.responses) for group in groups]
        return [self._scored(tuple(float(len(response)) for response in group.responses)) for group in groups]

    def _scored(self, lengths: tuple[float, ...]) -> GroupReward:
        return GroupReward(lengths, (None,) * len(lengths), {"length": lengths})


def train(
    reward: Reward, folder: Path, prompts: list[Any] = PROMPTS, steps: int = 1, others: Sequence[Any] = (), **how: Any
) -> Any:
    """The trainer after its steps: two groups of four in each."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    data = Dataset.from_dict({"prompt": prompts, "reference": ["A story."] * len(prompts)})
    policy = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    trainer = GRPOTrainer(
        model=policy.model.requires_grad_(True),
        processing_class=policy.tokenizer,
        reward_funcs=[for_trl(reward, **how), *others],
        train_dataset=data,
        eval_dataset=data,
        args=GRPOConfig(
            output_dir=str(folder), max_steps=steps, per_device_train_batch_size=8, num_generations=4,
            max_completion_length=6, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, bf16=False,
            disable_tqdm=True, seed=1, num_generations_eval=2, log_completions=True,
        ),
    )  # fmt: skip
    trainer.train()
    return trainer


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_judge_trains_a_policy(tmp_path: Path, asynchronous: bool) -> None:
    trainer = train(Judged(), tmp_path, steps=2, asynchronous=asynchronous)
    first, second = trainer.state.log_history[:2]
    assert first["grad_norm"] > 0 and first["rewards/judged/mean"] == pytest.approx(first["reward"])
    for log in (first, second):
        assert log["judged/abstained"] == 0.0
        assert log["judged/mean/mass"] > 0 and log["judged/tokens_saved"] > 0
    assert list(trainer._logs["extra"]["judged/abstained"]) == [None] * 8


def test_conversations_are_trained_on(tmp_path: Path) -> None:
    prompts = [[{"role": "user", "content": text}] for text in PROMPTS]
    trainer = train(Judged(), tmp_path, prompts)
    assert trainer.state.log_history[0]["judged/abstained"] == 0.0
    assert set(trainer.reward_funcs[0].scorer.reward.prompts) == set(PROMPTS)


def test_when_30_percent_of_the_calls_fail_those_move_nothing_and_the_others_are_a_group(tmp_path: Path) -> None:
    calls = iter(range(1000))

    def fails_sometimes(response: str) -> float | None:
        number = next(calls)
        return None if number % 10 in (1, 4, 6) else float(number) ** 1.5

    trainer = train(Told(fails_sometimes), tmp_path)
    rewards = torch.tensor(trainer._logs["rewards"]["told"]).view(2, 4)
    advantages = torch.tensor(trainer._logs["advantages"]).view(2, 4)
    failed = rewards.isnan()
    assert failed.tolist() == [[False, True, False, False], [True, False, True, False]]
    assert advantages[failed].tolist() == [0.0, 0.0, 0.0]
    for row, gains in zip(rewards, advantages, strict=True):
        valid = ~row.isnan()
        assert gains[valid].tolist() == pytest.approx(
            ((row[valid] - row[valid].mean()) / (row[valid].std() + 1e-4)).tolist(), abs=1e-6
        )
        assert gains[valid].abs().min() > 0
    log = trainer.state.log_history[0]
    assert log["told/abstained"] == pytest.approx(3 / 8)
    assert log["reward"] == pytest.approx(float(rewards.nanmean()))


def test_a_group_with_one_valid_member_moves_nothing(tmp_path: Path) -> None:
    calls = iter(range(1000))
    trainer = train(Told(lambda response: None if (number := next(calls)) in (1, 2, 3) else float(number)), tmp_path)
    assert list(trainer._logs["advantages"])[:4] == [0.0] * 4
    assert all(list(trainer._logs["advantages"])[4:])
    assert trainer.state.log_history[0]["told/abstained/too_few"] == pytest.approx(1 / 8)


def test_evaluation_has_groups_of_its_own_size(tmp_path: Path) -> None:
    trainer = train(reward := Sized(), tmp_path)
    found = trainer.evaluate()
    assert reward.sizes == [4, 4, 2, 2]
    assert found["eval_sized/abstained"] == 0.0


def test_beside_another_reward_function_trl_takes_an_abstention_for_a_zero_of_which_it_warns(tmp_path: Path) -> None:
    def other(completions: list[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    calls = iter(range(1000))
    with pytest.warns(UserWarning, match="one of 2 reward functions"):
        trainer = train(Told(lambda response: float(n) if (n := next(calls)) else None), tmp_path, others=[other])
    assert trainer._logs["advantages"][0] < 0  # 1 + nothing, against 1 + 1, 1 + 2, 1 + 3
    assert trainer.state.log_history[0]["told/abstained"] == pytest.approx(1 / 8)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.filterwarnings("ignore:You are importing from 'trl.experimental'")
def test_the_worker_of_the_asynchronous_trainer_scores_whole_groups(asynchronous: bool) -> None:
    from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup, _AsyncRolloutLoop

    answers = {"a": 1.0, "b": None, "c": 3.0}
    function = for_trl(Told(answers.__getitem__), asynchronous=asynchronous)
    worker = SimpleNamespace(
        reward_funcs=[function], reward_func_names=["told"], _env_reward_types=[], _provides_rollout_reward=False
    )
    row = SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])
    group = RolloutGroup(
        prompts=[[{"role": "user", "content": "Tell one."}]] * 3, reward_kwargs={"reference": ["Once."] * 3},
        completions=[[{"role": "assistant", "content": text}] for text in answers], completions_ids=[[1]] * 3,
        completions_sequences=[[row]] * 3, tool_call_counts=[0] * 3, tool_failure_counts=[0] * 3, model_version=0,
        group_id=0, env_rewards=[], rollout_rewards=[],
    )  # fmt: skip
    samples = asyncio.run(_AsyncRolloutLoop._score_group(worker, group))
    assert [sample.advantage for sample in samples] == pytest.approx([-1.0, 0.0, 1.0])
    assert samples[1].advantage == 0.0
    assert function.measures["abstained"] == pytest.approx(1 / 3)
