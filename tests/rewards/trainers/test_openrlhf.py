from __future__ import annotations

import asyncio

import pytest
import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.trainers.filling import LoneAbstention
from adjudge.rewards.trainers.openrlhf import for_openrlhf
from adjudge.rewards.trainers.openrlhf_queries import KEPT
from tests.rewards.trainers.rewards import Relative, Told, fails_on_second

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


def test_more_samples_than_asyncio_has_threads_wait_for_their_groups() -> None:
    async def actor() -> list[float]:
        reward_func = for_openrlhf(Relative(), 2)  # loaded inside of the loop that calls it
        prompts = [str(number) for number in range(64)]
        queries = [(prompt + text, prompt) for text in ("a", "bbb") for prompt in prompts]
        calls = [asyncio.to_thread(reward_func, [query], [prompt], [""]) for query, prompt in queries]
        return [found["rewards"].item() for found in await asyncio.wait_for(asyncio.gather(*calls), 60)]

    assert asyncio.run(actor()) == [-1.0] * 64 + [1.0] * 64


def test_what_openrlhf_reads_of_one_sample_are_numbers() -> None:
    found = for_openrlhf(Told(lambda text: float(len(text))), 1)(["pab"], ["p"], [""])
    for value in (found["rewards"], found["scores"], found["extra_logs"]["abstained"]):
        assert torch.tensor([value]).shape == (1,)  # how its samples generator puts them into an experience
    assert found["scores"] is not None and found["rewards"].item() == 2.0


def test_what_ends_the_run_is_an_error_in_the_log_since_openrlhf_swallows_it(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AdjudgeError, match="no such rubric"):
        for_openrlhf(Told(fails_on_second), 1)(["pB"], ["p"], [""])
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert caplog.records[0].getMessage().startswith('reward "told" failed: AdjudgeError: ')


def test_a_prompt_whose_beginning_was_cut_off_is_known_by_its_end() -> None:
    reward = Relative()
    prompt = "word " * 200 + "Now tell a story of a lighthouse keeper and her brother.<|assistant|>"
    for left in (len(prompt) - 7, 500, KEPT):
        for_openrlhf(reward, 1)([prompt[-left:] + "Once.<|assistant|>"], [prompt], [""])
    assert [(group.prompt, list(group.responses)) for group in reward.asked] == [(prompt, ["Once.<|assistant|>"])] * 3
    with pytest.raises(AdjudgeError, match="leave room for both in --data.max_len"):
        for_openrlhf(reward, 1)([prompt[-KEPT + 1 :]], [prompt], [""])


def test_a_token_before_the_prompt_is_no_part_of_the_response() -> None:
    reward = Relative()
    for_openrlhf(reward, 1)(["<s>p story p"], ["p"], None)
    assert list(reward.asked[0].responses) == [" story p"]


def test_an_abstention_is_neutral_and_logged() -> None:
    found = for_openrlhf(Told(lambda text: None if text == "a" else float(len(text))), 3)(
        ["pa", "pbb", "pcccc"], ["p"] * 3, [None] * 3
    )
    assert found["rewards"].tolist() == [3.0, 2.0, 4.0]
    assert found["extra_logs"]["abstained"].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("fill", [None, 0.5])
def test_what_its_filter_reads_of_a_group_with_fewer_than_two_rewards_is_not_what_it_trains_on(
    fill: float | None,
) -> None:
    reward_func = for_openrlhf(Told(lambda text: float(text) if text else None), 3, fill=fill)
    prompts = [prompt for prompt in "pqr" for _ in range(3)]
    answers = ["1", "3", "", "5", "", "", "", "", ""]
    found = reward_func([*map("".join, zip(prompts, answers, strict=True))], prompts, None)
    usual = 3.0 if fill is None else fill
    assert found["rewards"].tolist() == [1.0, 3.0, 2.0, 5.0, 5.0, 5.0, *[usual] * 3]
    assert found["scores"].tolist() == [1.0, 3.0, 2.0, *[fill or 0.0] * 6]
    assert found["extra_logs"]["abstained"].tolist() == [0.0, 0.0, *[1.0] * 7]


def test_a_sample_that_abstains_alone_is_an_error_in_the_log_or_gets_the_number_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    silent = Told(lambda text: None)
    with pytest.raises(LoneAbstention):
        for_openrlhf(silent, 1)(["pa"], ["p"], [""])
    assert caplog.messages[0].startswith('reward "told" failed: LoneAbstention: ')
    found = for_openrlhf(silent, 1, fill=0.5)(["pa"], ["p"], [""])
    assert found["rewards"].tolist() == [0.5] and found["extra_logs"]["abstained"].tolist() == [1.0]
    with pytest.raises(TypeError, match="num_generations"):
        for_openrlhf(silent)  # type: ignore[call-arg]


def test_lists_that_do_not_fit_are_named() -> None:
    with pytest.raises(AdjudgeError, match=r"queries\[1\] does not hold prompts\[1\]"):
        for_openrlhf(Relative(), 1)(["pa", "pb"], ["p", "q"], [None, None])
    with pytest.raises(AdjudgeError, match="threads is 3: give at least num_generations, 8"):
        for_openrlhf(Relative(), 8, threads=3)
    with pytest.raises(AdjudgeError, match="ends is '</s>': give a list of markers"):
        for_openrlhf(Relative(), 1, ends="</s>")
    with pytest.raises(AdjudgeError, match="threads is '9': give a whole number"):
        for_openrlhf(Relative(), 8, threads="9")  # type: ignore[arg-type]
    with pytest.raises(AdjudgeError, match="1 queries, 2 prompts, 0 labels"):
        for_openrlhf(Relative(), 1)(["pa"], ["p", "q"], [])
