"""The loop in which TRL's asynchronous trainer scores: generation goes on meanwhile, and a dead judge does not end it.

The trainer as a whole wants a vLLM server on a GPU, which takes its weights; its loop is run here as it is.
"""

from __future__ import annotations

import asyncio
import queue
from collections import Counter, defaultdict
from collections.abc import Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.trl import for_trl
from tests.rewards.trainers.rewards import Told

pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore:You are importing from 'trl.experimental'")

ANSWERS = {"a": 1.0, "b": 3.0}


def loop_of(function: Any) -> Any:
    """TRL's loop with what scoring needs of it."""
    from accelerate import PartialState
    from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

    PartialState(cpu=True)  # which TRL's logger wants
    loop: Any = object.__new__(_AsyncRolloutLoop)
    vars(loop).update(
        reward_funcs=[function], reward_func_names=["told"], _env_reward_types=[], _provides_rollout_reward=False,
        _groups_to_score=asyncio.Queue(), rollout_buffer=queue.Queue(), _metrics_queue=queue.Queue(),
        _heartbeat_value=SimpleNamespace(value=0.0), _inflight=0, _total_completion_tokens=0,
        _pushed_completion_tokens=0, _pushed_at=0.0, _total_groups_scored=0, log_completions=False,
        _counters=Counter(), _rates=defaultdict(lambda: [0.0, 0.0]),
    )  # fmt: skip
    return loop


def group(prompt: str) -> Any:
    from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup

    row = SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])
    return RolloutGroup(
        prompts=[[{"role": "user", "content": prompt}]] * 2, reward_kwargs={}, completions_ids=[[1]] * 2,
        completions=[[{"role": "assistant", "content": text}] for text in ANSWERS], group_id=0, env_rewards=[],
        completions_sequences=[[row]] * 2, tool_call_counts=[0] * 2, tool_failure_counts=[0] * 2, model_version=0,
        rollout_rewards=[], queued_at=0.0,
    )  # fmt: skip


async def scored(function: Any, generate: Any) -> list[Any]:
    """The samples of all groups, once generation and scoring have ended."""
    loop = loop_of(function)
    await asyncio.gather(generate(loop._groups_to_score), loop._score_loop(asyncio.Event()))
    return [loop.rollout_buffer.get_nowait() for _ in range(loop.rollout_buffer.qsize())]


class Patient(Told):
    """Answers on the first group only once the second one is generated."""

    def __init__(self) -> None:
        super().__init__(ANSWERS.__getitem__)
        self.asked, self.generated = Event(), Event()

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.asked.set()
        assert self.generated.wait(60)
        return super().score_groups(groups)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_next_group_is_generated_while_a_group_is_scored(asynchronous: bool) -> None:
    reward = Patient()

    async def generate(groups: asyncio.Queue[Any]) -> None:
        groups.put_nowait(group("one"))
        while not reward.asked.is_set():
            await asyncio.sleep(0)
        groups.put_nowait(group("two"))
        reward.generated.set()
        groups.put_nowait(None)

    samples = asyncio.run(scored(for_trl(reward, asynchronous=asynchronous), generate))
    assert [sample.prompt[0]["content"] for sample in samples] == ["one", "one", "two", "two"]
    assert [sample.advantage for sample in samples] == pytest.approx([-1.0, 1.0] * 2, abs=1e-3)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_judge_that_never_answers_costs_the_rewards_of_its_groups_and_not_the_run(asynchronous: bool) -> None:
    never = Event()

    class Dead(Told):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            never.wait(60)
            return super().score_groups(groups)

    async def generate(groups: asyncio.Queue[Any]) -> None:
        for one in (group("one"), group("two"), None):
            groups.put_nowait(one)

    function = for_trl(Dead(ANSWERS.__getitem__), deadline=0.01, asynchronous=asynchronous)
    try:
        samples = asyncio.run(scored(function, generate))
    finally:
        never.set()
    assert [sample.advantage for sample in samples] == [0.0] * len(samples)
    assert function.measures["abstained/timeout"] == 1.0
