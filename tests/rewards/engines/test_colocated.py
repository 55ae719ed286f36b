from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from threading import Barrier, Thread
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import open_source, resolve
from adjudge.rewards.engines.colocated import Colocated
from adjudge.rewards.engines.lending import PolicyWeights
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.parts.combining import WeightedSum
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward

GROUPS = [Group("Tell one.", ("A lamp.", "Two lamps went out.")), Group("Another.", ("Sea.", ""))]


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return Engine("dummy:tiny-llama", kv_cache_gb=0.05)


class Watched(Reward):
    """Notes whether its engine was awake, then does what a test says."""

    def __init__(self, engine: Any, does: Any = None) -> None:
        self.engine, self.does, self.awake = engine, does, list[bool]()

    @property
    def engines(self) -> tuple[Any, ...]:
        return (self.engine,)

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.awake.append(not self.engine.asleep)
        if self.does is not None:
            self.does()
        return []


def test_50_steps_wake_and_sleep_and_change_no_bit(tiny: Engine) -> None:
    plain = JudgeReward(PointwiseJudge(tiny, HANNA[:1], min_mass=0.0))
    reward = plain.during_training()
    expected = plain.score_groups(GROUPS)
    for _ in range(50):
        assert reward.score_groups(GROUPS) == expected
        assert tiny.asleep
    tiny.wake()
    assert plain.during_training(sleep=False) is plain


def test_the_engines_of_a_function_sleep_between_calls_and_their_tokens_are_counted(tiny: Engine) -> None:
    def rated(completions: Sequence[str]) -> list[Any]:
        return list(tiny.score([f"Rate it: {text}" for text in completions], list("123")))

    plain = FunctionReward(rated, engines=[tiny])
    reward = WeightedSum({"rated": plain}).during_training()
    told, expected = dict[str, Any](), plain.score_groups(GROUPS)
    function = reward.for_trl(2)
    texts = [text for group in GROUPS for text in group.responses]
    values = function([group.prompt for group in GROUPS for _ in range(2)], texts, log_metric=told.__setitem__)
    assert tiny.asleep and told["sum/tokens_computed"] > 0 and len(values) == 4
    assert plain.engines == reward.engines == (tiny,)
    tiny.wake()
    assert plain.score_groups(GROUPS) == expected
    with pytest.raises(AdjudgeError, match="engine is 'house': give an open one"):
        FunctionReward(rated, engines=["house"])  # type: ignore[list-item]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_over_50_steps_the_peak_on_a_gpu_is_the_larger_need_and_not_the_sum() -> None:
    gigabyte = 1 << 30
    engine = Engine("dummy:tiny-llama", device="cuda", kv_cache_gb=2.0)
    reward = JudgeReward(PointwiseJudge(engine, HANNA[:1], min_mass=0.0)).during_training()
    expected = reward.score_groups(GROUPS)
    before, free = torch.cuda.memory_allocated(), []
    torch.cuda.reset_peak_memory_stats()
    for _ in range(50):
        generation = torch.ones(3 * gigabyte, dtype=torch.uint8, device="cuda")  # while the policy has the memory
        del generation
        torch.cuda.empty_cache()
        assert reward.score_groups(GROUPS) == expected
        free.append(torch.cuda.mem_get_info()[0])
    peak = torch.cuda.max_memory_allocated() - before
    assert 3 * gigabyte <= peak < 3.2 * gigabyte, "the judge's two gigabytes come on top"
    assert torch.cuda.memory_allocated() == before and free[-1] >= free[0]


def test_the_engine_is_awake_in_a_call_and_asleep_after_it_even_when_it_fails(tiny: Engine) -> None:
    def fail() -> None:
        raise AdjudgeError("no")

    watched = Watched(tiny, fail)
    for _ in range(2):
        with pytest.raises(AdjudgeError, match="no"):
            Colocated(watched).score_groups(GROUPS)
        assert tiny.asleep
    assert watched.awake == [True, True]
    tiny.wake()


def test_of_calls_that_overlap_the_last_one_puts_the_engine_to_sleep(tiny: Engine) -> None:
    inside = Barrier(2)
    watched = Watched(tiny, lambda: inside.wait(30))
    reward = Colocated(watched)
    threads = [Thread(target=reward.score_groups, args=(GROUPS,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert watched.awake == [True, True] and tiny.asleep
    tiny.wake()


def test_another_reward_on_the_same_engine_does_not_put_it_to_sleep_in_the_midst_of_a_call(tiny: Engine) -> None:
    inner = Colocated(Watched(tiny))
    asleep: list[bool] = []

    def another() -> None:
        inner.score_groups(GROUPS)
        asleep.append(tiny.asleep)

    Colocated(Watched(tiny, another)).score_groups(GROUPS)
    assert asleep == [False] and tiny.asleep
    tiny.wake()


def test_an_engine_at_work_stays_awake_and_the_log_says_so(tiny: Engine, caplog: pytest.LogCaptureFixture) -> None:
    answers = tiny.score_iter(["a", "b c"], ["1", "2"])
    next(answers)
    tiny.start(tiny.score_call(["still"], ["1", "2"]), 0, None)
    with caplog.at_level(logging.WARNING, "adjudge"):
        Colocated(Watched(tiny)).score_groups(GROUPS)
    assert not tiny.asleep and "stays awake" in caplog.text
    list(tiny.score_iter(["c"], ["1", "2"]))
    while tiny.scheduler.has_work():
        tiny.step()


def test_it_is_opened_where_it_is_used() -> None:
    spec = JudgeSpec("pointwise", {"aspects": HANNA[:1]}, EngineSpec("dummy:tiny-llama", kv_cache_gb=0.05))
    reward = pickle.loads(pickle.dumps(JudgeReward(spec).during_training()))
    assert reward.engines == () and reward.name == "pointwise"
    first = reward.score_groups(GROUPS)
    assert reward.engines[0].asleep and reward.score_groups(GROUPS) == first


def test_after_an_engine_that_could_not_be_woken_the_next_call_ends_asleep(
    tiny: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError

    reward = Colocated(Watched(tiny))
    with monkeypatch.context() as patch:
        patch.setattr(tiny, "wake", fail)
        with pytest.raises(MemoryError):
            reward.score_groups(GROUPS)
    reward.score_groups(GROUPS)
    assert tiny.asleep
    tiny.wake()


def test_a_judge_on_the_policys_base_weights_gives_what_one_of_its_own_gives_while_the_policy_learns() -> None:
    peft = pytest.importorskip("peft", reason="needs the extra train")
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    policy = peft.get_peft_model(opened.model, peft.LoraConfig(r=2, task_type="CAUSAL_LM"))
    aspects = {"aspects": HANNA[:1], "min_mass": 0.0}
    own = JudgeReward(JudgeSpec("pointwise", aspects, EngineSpec("dummy:tiny-llama", kv_cache_gb=0.06)))
    judged = JudgeReward(JudgeSpec("pointwise", aspects, EngineSpec("policy", kv_cache_gb=0.05)))
    reward = judged.during_training(policy=PolicyWeights(policy, opened.tokenizer))
    expected = own.score_groups(GROUPS)
    for _ in range(2):
        assert reward.score_groups(GROUPS) == expected
        assert reward.engines[0].asleep
        with torch.no_grad():
            for name, weight in policy.named_parameters():
                weight.add_(0.5 if "lora_" in name else 0.0)
    [engine] = reward.engines
    assert {id(one) for one in engine.runner.model.parameters()} <= {id(one) for one in policy.parameters()}
    with pytest.raises(AdjudgeError, match="cannot be pickled"):
        pickle.dumps(reward)


def test_without_a_policy_that_lends_its_weights_the_error_says_how() -> None:
    reward = JudgeReward(JudgeSpec("pointwise", engine=EngineSpec("policy")))
    with pytest.raises(AdjudgeError, match=r"use reward\.during_training\(policy=model\)"):
        reward.during_training().score_groups(GROUPS)
    with pytest.raises(AdjudgeError, match="leave out adapter, device and dtype"):
        EngineSpec("policy", device="cpu")


def test_engines_that_are_not_to_sleep_stay_awake_beside_a_policy(tiny: Engine) -> None:
    tiny.wake()
    reward = pickle.loads(pickle.dumps(Colocated(JudgeReward(JudgeSpec("pointwise")), sleep=False)))
    assert not reward.sleep
    Colocated(Watched(tiny), sleep=False).score_groups(GROUPS)
    assert not tiny.asleep


def test_two_rewards_that_share_an_engine_by_its_specification_both_have_it_awake() -> None:
    spec = EngineSpec("dummy:tiny-llama", kv_cache_gb=0.05)
    first, second = (JudgeReward(JudgeSpec("pointwise", {}, spec)).during_training() for _ in range(2))
    rewards = first.score_groups(GROUPS)
    assert first.engines[0].asleep
    assert second.score_groups(GROUPS) == rewards and second.engines == first.engines
    assert first.engines[0].asleep and not spec.open().asleep  # type: ignore[attr-defined]


def test_an_open_judge_wakes_its_engine_where_another_reward_has_put_it_to_sleep() -> None:
    spec = EngineSpec("dummy:tiny-llama", kv_cache_gb=0.05)
    first, second = (JudgeReward(JudgeSpec("pointwise", {}, spec)) for _ in range(2))
    rewards = first.score_groups(GROUPS)
    assert second.during_training().score_groups(GROUPS) == rewards and first.engines[0].asleep
    assert first.score_groups(GROUPS) == rewards
