from __future__ import annotations

import asyncio

import pytest
import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.trainers.openrlhf import for_openrlhf
from tests.rewards.trainers.rewards import Relative, Told

PROMPT = "<|user|>Tell one.<|assistant|>"


def test_a_batch_gets_the_tensors_that_openrlhf_reads() -> None:
    reward = Relative()
    reward_func = for_openrlhf(reward, 2, ends=("</s>", "<|end|>"))
    prompts = [PROMPT, "q", PROMPT, "q"]
    texts = ["a<|end|></s>", "a", "bbb</s>", "bb"]
    queries = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    found = reward_func(queries, prompts, ["Once.", None, "Once.", None])
    for name in ("rewards", "scores"):
        assert torch.equal(found[name], torch.tensor([-1.0, -0.5, 1.0, 0.5]))
    assert torch.equal(found["extra_logs"]["abstained"], torch.zeros(4))
    group = next(group for group in reward.asked if group.prompt == PROMPT)
    assert (list(group.responses), group.reference, group.columns) == (["a", "bbb"], "Once.", {"label": "Once."})


def test_samples_that_come_one_by_one_from_threads_wait_for_their_group() -> None:
    reward_func = for_openrlhf(Relative(), 2)

    async def sampler() -> list[float]:
        calls = [asyncio.to_thread(reward_func, ["p" + text], ["p"], ["label"]) for text in ("a", "bbb")]
        return [found["rewards"].item() for found in await asyncio.gather(*calls)]

    assert asyncio.run(sampler()) == [-1.0, 1.0]


def test_a_token_before_the_prompt_is_no_part_of_the_response() -> None:
    reward = Relative()
    for_openrlhf(reward)(["<s>p story p"], ["p"], None)
    assert list(reward.asked[0].responses) == [" story p"]


def test_an_abstention_is_neutral_and_logged() -> None:
    found = for_openrlhf(Told(lambda text: None if text == "a" else float(len(text))), 3)(
        ["pa", "pbb", "pcccc"], ["p"] * 3, [None] * 3
    )
    assert found["rewards"].tolist() == [3.0, 2.0, 4.0]
    assert found["extra_logs"]["abstained"].tolist() == [1.0, 0.0, 0.0]


def test_lists_that_do_not_fit_are_named() -> None:
    with pytest.raises(AdjudgeError, match=r"queries\[1\] does not hold prompts\[1\]"):
        for_openrlhf(Relative())(["pa", "pb"], ["p", "q"], [None, None])
    with pytest.raises(AdjudgeError, match="1 queries, 2 prompts, 0 labels"):
        for_openrlhf(Relative())(["pa"], ["p", "q"], [])
