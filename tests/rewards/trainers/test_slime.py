from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from adjudge.rewards.group import Group
from adjudge.rewards.trainers.slime import for_slime
from tests.rewards.trainers.rewards import Patient, Relative, Told

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
    assert samples[0].metadata == {"abstained": "low_mass"}


def test_other_samples_are_generated_while_the_judge_works() -> None:
    async def rollout() -> Any:
        reward = Patient()
        samples = [SlimeSample("a"), SlimeSample("bbb")]
        return (await asyncio.gather(for_slime(reward)(ARGS, samples), reward.others()))[0]

    assert asyncio.run(rollout()) == [-1.0, 1.0]
