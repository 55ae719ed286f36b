from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.function_reward import FunctionReward
from adjudge.rewards.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.filling import LoneAbstention
from adjudge.rewards.trainers.slime import for_slime
from tests.rewards.trainers.rewards import Patient, Relative, Told, fails_on_second

ARGS = SimpleNamespace(group_rm=True, custom_rm_path="rewards.custom_rm")


@dataclass
class SlimeSample:
    """The attributes of slime's samples that a reward model reads and writes, with their defaults there."""

    response: str
    prompt: Any = "Tell one."
    label: str | None = None
    group_index: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    remove_sample: bool = False


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
    with pytest.raises(AdjudgeError, match=r"samples\[0\] is list: .*without --group-rm"):
        asyncio.run(for_slime(Relative())(ARGS, [[SlimeSample("a"), SlimeSample("bb")], [SlimeSample("c")]]))


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
