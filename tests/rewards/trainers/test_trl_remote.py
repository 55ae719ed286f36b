"""The adapter with its judge on a server, as AsyncGRPOTrainer needs it: pickled into a process without a GPU."""

from __future__ import annotations

import asyncio
import pickle

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.aspects import STORYER
from adjudge.rewards.trainers.trl import AsyncTrlReward, TrlReward, for_trl
from tests.engine.http.serving import MODEL, served

GROUP = (["Tell one."] * 3, ["A story.", "", "Once upon a time."])


def reward(engine: EngineSpec) -> JudgeReward:
    return JudgeReward(JudgeSpec("pointwise", {"aspects": STORYER[:2]}, engine))


def test_a_judge_on_a_server_gives_what_one_in_the_process_gives_and_its_end_costs_rewards_only() -> None:
    local = for_trl(reward(EngineSpec(MODEL, kv_cache_gb=0.1)))
    assert isinstance(local, TrlReward)
    engine = AsyncEngine(Engine(MODEL, kv_cache_gb=0.1))
    try:
        with served(engine) as site:
            remote = for_trl(reward(EngineSpec(None, url=site.url)), deadline=60.0, asynchronous=True)
            remote = pickle.loads(pickle.dumps(remote))
            assert isinstance(remote, AsyncTrlReward)
            assert asyncio.run(remote(*GROUP)) == local(*GROUP)
            assert remote.measures["tokens_saved"] > 0
    finally:
        engine.worker.close(drain=False)
    remote.scorer.deadline, remote.scorer.on_failure = 1.0, "abstain"
    assert asyncio.run(remote(*GROUP)) == [None, None, None]
    assert remote.measures["abstained/timeout"] + remote.measures["abstained/cancelled"] == 1.0
