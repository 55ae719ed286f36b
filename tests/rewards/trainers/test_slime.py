from __future__ import annotations

import asyncio
import importlib
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.filling import LoneAbstention
from adjudge.rewards.trainers.slime import for_slime, slime_advantages
from tests.rewards.trainers.rewards import Patient, Relative, Told, fails_on_second

ARGS = SimpleNamespace(group_rm=True, custom_rm_path="rewards.custom_rm")


@dataclass
class SlimeSample:
    """The attributes of slime's samples that are read and written here, with their defaults there."""

    response: str
    prompt: Any = "Tell one."
    label: str | None = None
    group_index: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    remove_sample: bool = False
    reward: Any = None


def test_a_group_is_scored_as_one() -> None:
    reward = Relative()
    samples = [SlimeSample(text, label="Once.", group_index=3, metadata={"genre": "g"}) for text in ("a", "bbb")]
    assert asyncio.run(for_slime(reward)(ARGS, samples)) == [-1.0, 1.0]
    assert reward.asked == [Group("Tell one.", ["a", "bbb"], "Once.", columns={"genre": "g"})]
    assert not any(sample.remove_sample for sample in samples)


def test_samples_of_several_groups_are_told_apart() -> None:
    custom_rm = for_slime(Relative())
    samples = [SlimeSample(text, group_index=index) for text, index in (("a", 0), ("a", 1), ("bbb", 0), ("bb", 1))]
    assert asyncio.run(custom_rm(ARGS, samples)) == [-1.0, -0.5, 1.0, 0.5]


def test_without_group_rm_a_sample_comes_by_itself() -> None:
    messages = [{"role": "user", "content": "Tell one."}]
    custom_rm = for_slime(Told(lambda text: float(len(text))))
    assert asyncio.run(custom_rm(ARGS, SlimeSample("abc", messages))) == 3.0


def test_an_abstention_is_neutral_and_masked_out_of_the_loss() -> None:
    samples = [SlimeSample(text) for text in ("a", "bb", "cccc")]
    custom_rm = for_slime(Told(lambda text: None if text == "a" else float(len(text))))
    assert asyncio.run(custom_rm(ARGS, samples)) == [3.0, 2.0, 4.0]
    assert [sample.remove_sample for sample in samples] == [True, False, False]
    assert samples[0].metadata == {"adjudge_abstained": "low_mass"}


def test_a_sample_that_comes_again_is_back_in_the_loss_and_nobody_sees_what_was_said_of_its_first_try() -> None:
    reward = Told(lambda text: None if text == "a" else float(len(text)))
    custom_rm = for_slime(reward)
    samples = [SlimeSample(text, metadata={"genre": "g"}) for text in ("a", "bb", "cccc")]
    asyncio.run(custom_rm(ARGS, samples))
    assert samples[0].remove_sample
    samples[0].response = "aaa"
    assert asyncio.run(custom_rm(ARGS, samples)) == [3.0, 2.0, 4.0]
    assert [sample.remove_sample for sample in samples] == [False] * 3
    assert [sample.metadata for sample in samples] == [{"genre": "g"}] * 3

    seen = Relative()
    samples[0].response = "a"
    asyncio.run(custom_rm(ARGS, samples))
    asyncio.run(for_slime(seen)(ARGS, samples[:1]))
    assert seen.asked[0].columns == {"genre": "g"}


def test_a_sample_that_others_took_out_of_the_loss_stays_out() -> None:
    custom_rm = for_slime(Told(lambda text: None if text == "a" else float(len(text))))
    samples = [SlimeSample(text, remove_sample=text != "cccc") for text in ("a", "bb", "cccc")]
    for response in ("a", "a", "aaa"):
        samples[0].response = response
        asyncio.run(custom_rm(ARGS, samples))
        assert [sample.remove_sample for sample in samples] == [True, True, False]
    assert samples[0].metadata == {}


def test_a_data_set_s_own_column_of_abstentions_is_left_alone() -> None:
    sample = SlimeSample("a", metadata={"abstained": "no", "removed_before": 3}, remove_sample=True)
    asyncio.run(for_slime(Told(lambda text: 1.0))(ARGS, [sample, SlimeSample("b")]))
    assert (sample.metadata, sample.remove_sample) == ({"abstained": "no", "removed_before": 3}, True)


def test_an_error_leaves_no_trace_of_an_earlier_try() -> None:
    custom_rm = for_slime(Told(fails_on_second))
    sample = SlimeSample("B", metadata={"adjudge_abstained": "timeout"}, remove_sample=True)
    with pytest.raises(AdjudgeError, match="no such rubric"):
        asyncio.run(custom_rm(ARGS, [sample]))
    assert (sample.metadata, sample.remove_sample) == ({}, False)


def test_the_parts_of_a_split_rollout_and_no_samples_at_all_come_as_lists_without_group_rm() -> None:
    custom_rm = for_slime(Told(lambda text: float(len(text))))
    assert asyncio.run(custom_rm(ARGS, [SlimeSample(text, group_index=0) for text in ("a", "bb")])) == [1.0, 2.0]
    assert asyncio.run(custom_rm(ARGS, [])) == []


def test_samples_whose_rollout_was_split_are_refused_with_group_rm() -> None:
    with pytest.raises(AdjudgeError, match=r"samples\[0\] is list, .*leave --group-rm out"):
        asyncio.run(for_slime(Relative())(ARGS, [[SlimeSample("a"), SlimeSample("bb")], [SlimeSample("c")]]))


def test_metadata_that_are_no_dictionary_are_refused_by_their_sample() -> None:
    sample = SlimeSample("a", metadata='{"year": 1}')
    with pytest.raises(AdjudgeError, match=r"samples\[0\].metadata is str: give a dictionary"):
        asyncio.run(for_slime(Relative())(ARGS, [sample]))


def test_other_samples_are_generated_while_the_judge_works() -> None:
    async def rollout() -> Any:
        reward = Patient()
        samples = [SlimeSample("a"), SlimeSample("bbb")]
        return (await asyncio.gather(for_slime(reward)(ARGS, samples), reward.others()))[0]

    assert asyncio.run(rollout()) == [-1.0, 1.0]


def test_groups_that_come_while_the_judge_works_are_judged_together() -> None:
    calls: list[int] = []

    class Counted(Patient):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            calls.append(len(groups))
            return super().score_groups(groups)

    async def rollout() -> list[Any]:
        reward = Counted()
        custom_rm = for_slime(reward)
        first = asyncio.create_task(custom_rm(ARGS, [SlimeSample("a"), SlimeSample("bbb")]))
        while not reward.began.is_set():
            await asyncio.sleep(0)
        groups = [[SlimeSample("a" * n), SlimeSample("")] for n in (2, 4, 6)]
        others = [asyncio.create_task(custom_rm(ARGS, group)) for group in groups]
        for _ in range(3):  # all of them have asked
            await asyncio.sleep(0)
        await reward.others()
        return [await one for one in (first, *others)]

    assert asyncio.run(rollout()) == [[-1.0, 1.0], [1.0, -1.0], [2.0, -2.0], [3.0, -3.0]]
    assert calls == [1, 3]


def test_a_sample_that_abstains_alone_is_an_error_or_gets_the_number_given_and_is_masked() -> None:
    silent, sample = Told(lambda text: None), SlimeSample("a")
    with pytest.raises(LoneAbstention):
        asyncio.run(for_slime(silent)(ARGS, sample))
    assert asyncio.run(for_slime(silent, fill=0.5)(ARGS, sample)) == 0.5
    assert sample.remove_sample


def test_what_the_metadata_say_of_each_sample_reaches_a_function() -> None:
    custom_rm = for_slime(FunctionReward(lambda completions, calls: calls))
    samples = [SlimeSample(text, metadata={"calls": n}) for n, text in enumerate("abc")]
    assert asyncio.run(custom_rm(ARGS, samples)) == [0.0, 1.0, 2.0]


def settings(**further: Any) -> SimpleNamespace:
    """slime's own defaults, for groups of four."""
    usual = {"advantage_estimator": "grpo", "rewards_normalization": True, "grpo_std_normalization": True}
    return SimpleNamespace(**{**usual, "n_samples_per_prompt": 4, "reward_key": None, **further})


def rolled_out(*groups: Sequence[float | None]) -> list[SlimeSample]:
    """What comes of rollouts of which each group is scored by itself, as slime does it; None for an abstention."""
    custom_rm = for_slime(Told(lambda text: float(text) if text else None))
    whole: list[SlimeSample] = []
    for index, group in enumerate(groups):
        texts = ["" if reward is None else str(reward) for reward in group]
        samples = [SlimeSample(text, group_index=index) for text in texts]
        for sample, reward in zip(samples, asyncio.run(custom_rm(ARGS, samples)), strict=True):
            sample.reward = reward
        whole += samples
    return whole


def test_slime_loads_what_makes_advantages_by_its_path_and_calls_it_with_its_settings_and_a_step_s_samples() -> None:
    found = getattr(importlib.import_module("adjudge"), "slime_advantages")  # noqa: B009, as slime does
    assert found is slime_advantages and [*inspect.signature(found).parameters] == ["args", "samples"]
    samples = rolled_out([1.0, 2.0, 4.0, 5.0], [0.5, 0.5, None, 3.5])
    rewards, advantages = found(settings(), samples)
    for numbers in (rewards, advantages):
        assert isinstance(numbers, list) and len(numbers) == 8 and {*map(type, numbers)} == {float}
    assert rewards == [sample.reward for sample in samples] == [1.0, 2.0, 4.0, 5.0, 0.5, 0.5, 1.5, 3.5]
    bare = [SlimeSample("", reward=0.5), SlimeSample("", reward=1.5)]  # the settings and samples of its contract tests
    assert [len(numbers) for numbers in found(SimpleNamespace(), bare)] == [2, 2]
    assert found(settings(), []) == ([], [])


def test_an_abstention_counts_for_nothing_in_an_advantage_where_the_mean_in_its_place_shrinks_the_deviation() -> None:
    rewards, advantages = slime_advantages(settings(), samples := rolled_out([1.0, 3.0, *[None] * 6]))
    assert advantages == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5), *[0.0] * 6], rel=2e-6)
    assert advantages[2:] == [0.0] * 6 and [sample.remove_sample for sample in samples] == [False] * 2 + [True] * 6
    seen = torch.tensor(rewards)
    assert ((seen - seen.mean()) / seen.std())[1].item() == pytest.approx(math.sqrt(3.5))  # as slime has it by itself


def test_advantages_of_whole_groups_are_those_that_slime_has_by_itself() -> None:
    torch.manual_seed(3)
    values = torch.rand(3, 4)
    samples = rolled_out(*values.tolist())
    apart = values - values.mean(-1, keepdim=True)
    for further, expected in (
        ({}, apart / (values.std(-1, keepdim=True) + 1e-6)),
        ({"advantage_estimator": "gspo"}, apart / (values.std(-1, keepdim=True) + 1e-6)),
        ({"advantage_estimator": "cispo"}, apart / (values.std(-1, keepdim=True) + 1e-6)),
        ({"grpo_std_normalization": False}, apart),
        ({"advantage_estimator": "reinforce_plus_plus_baseline"}, apart),
        ({"rewards_normalization": False}, values),
        ({"advantage_estimator": "reinforce_plus_plus"}, values),
        ({"advantage_estimator": "ppo"}, values),
    ):
        rewards, advantages = slime_advantages(settings(**further), samples)
        assert rewards == values.flatten().tolist()
        assert advantages == pytest.approx(expected.flatten().tolist(), abs=1e-5)


def test_a_group_with_fewer_than_two_rewards_moves_nothing_nor_do_others_feel_it() -> None:
    samples = rolled_out([1.0, 2.0, 4.0, 5.0], [0.85, None, None, None], [None] * 4)
    rewards, advantages = slime_advantages(settings(grpo_std_normalization=False), samples)
    assert advantages == [-2.0, -1.0, 1.0, 2.0, *[0.0] * 8]
    assert rewards[4:] == pytest.approx([0.85] * 4 + [0.85 / 5 + 12 / 5] * 4, rel=1e-3)


def test_groups_are_those_of_their_index_of_whatever_size_and_wherever_they_stand() -> None:
    samples = rolled_out([1.0, 2.0, 4.0, 5.0], [7.0, 9.0], [5.0, 5.0, 5.0])
    mixed = [samples[place] for place in (8, 0, 4, 1, 5, 6, 2, 3)]  # a step's end was cut off: 7 is missing
    _, advantages = slime_advantages(settings(grpo_std_normalization=False), mixed)
    assert advantages == [0.0, -2.0, -1.0, -1.0, 1.0, 0.0, 1.0, 2.0]


def test_samples_without_an_index_are_cut_by_the_size_of_groups() -> None:
    samples = [SlimeSample("", reward=reward) for reward in (1.0, 3.0, 5.0, 9.0, 4.0)]
    _, advantages = slime_advantages(settings(grpo_std_normalization=False, n_samples_per_prompt=2), samples)
    assert advantages == [-1.0, 1.0, -2.0, 2.0, 0.0]


def test_a_sample_that_others_took_out_of_the_loss_counts_in_its_group_as_in_slime() -> None:
    samples = rolled_out([1.0, 2.0, 6.0])
    samples[2].remove_sample, samples[2].metadata = True, None  # type: ignore[assignment]
    assert slime_advantages(settings(grpo_std_normalization=False), samples)[1] == [-2.0, -1.0, 3.0]


def test_a_reward_among_others_is_the_one_that_slime_is_told_of() -> None:
    samples = [SlimeSample("", group_index=0, reward={"judge": reward, "length": 7}) for reward in (1.0, 3.0)]
    found = slime_advantages(settings(grpo_std_normalization=False, reward_key="judge"), samples)
    assert found == ([1.0, 3.0], [-1.0, 1.0])


def test_several_rewards_without_a_key_or_under_another_are_refused_by_the_sample_and_the_option() -> None:
    samples = [SlimeSample("", reward={"judge": 1.0, "length": 7}), SlimeSample("", reward=2.0)]
    with pytest.raises(AdjudgeError, match=r"^samples\[0\].reward is dict: name the number in it by --reward-key$"):
        slime_advantages(settings(), samples)
    with pytest.raises(
        AdjudgeError, match=r'samples\[0\].reward has no "j": name one of judge, length by --reward-key'
    ):
        slime_advantages(settings(reward_key="j"), samples)
    with pytest.raises(AdjudgeError, match=r'samples\[1\].reward is float, without "judge": leave --reward-key out'):
        slime_advantages(settings(reward_key="judge"), samples)


@pytest.mark.parametrize("estimator", ["grpo", "ppo"])
def test_a_sample_without_a_reward_is_refused_before_it_is_in_slime_s_log(estimator: str) -> None:
    samples = [SlimeSample("", reward=1.0), SlimeSample("")]
    with pytest.raises(AdjudgeError, match=r"samples\[1\].reward is None: .*--custom-rm-path .* with --group-rm"):
        slime_advantages(settings(advantage_estimator=estimator), samples)
    samples = [SlimeSample("", reward={"judge": None})]
    with pytest.raises(AdjudgeError, match=r"samples\[0\].reward is None"):
        slime_advantages(settings(advantage_estimator=estimator, reward_key="judge"), samples)


def test_rollouts_of_which_some_alone_are_split_are_refused() -> None:
    samples: list[Any] = [SlimeSample("", reward=1.0), [SlimeSample("", reward=1.0)]]
    with pytest.raises(AdjudgeError, match=r"samples\[1\] is list: .* return a list for each, or for none"):
        slime_advantages(settings(), samples)
