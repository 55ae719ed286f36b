from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.layer import Layer
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.filling import LoneAbstention
from adjudge.rewards.trainers.verl import for_verl, for_verl_batch
from tests.rewards.trainers.rewards import Judged, Patient, Relative, Told


def info(prompt: Any, **further: Any) -> dict[str, Any]:
    """What a row of a verl data set says, with what its reward loop adds."""
    return {"index": 0, "split": "train", "prompt": prompt, "num_turns": None, "rollout_reward_scores": {}, **further}


def test_single_samples_wait_for_their_group() -> None:
    reward = Relative()
    compute_score = for_verl(reward, num_generations=2)
    assert inspect.iscoroutinefunction(compute_score)  # by this verl tells that it can be awaited

    async def rollouts() -> list[Any]:
        return await asyncio.gather(
            *[
                compute_score(
                    data_source="stories", solution_str=text, ground_truth="Once.", extra_info=info(prompt, id=text),
                    reward_router_address="127.0.0.1:1",
                )
                for prompt, text in (("p", "a"), ("q", "a"), ("p", "bbb"), ("q", "bb"))
            ]
        )  # fmt: skip

    assert [given["score"] for given in asyncio.run(rollouts())] == [-1.0, -0.5, 1.0, 0.5]
    group = next(group for group in reward.asked if group.prompt == "p")
    assert (list(group.responses), group.reference) == (["a", "bbb"], "Once.")
    assert group.columns["data_source"] == "stories" and group.columns["split"] == "train"


def test_what_was_pickled_scores_as_what_it_was_made_of() -> None:
    one = for_verl(Relative(), {"train": 2}, identity="sample_id")
    batch = for_verl_batch(Relative(), 2)

    async def rollouts(compute_score: Any) -> list[Any]:
        infos = [info("p", sample_id=text) for text in ("a", "bbb")]
        return await asyncio.gather(*[compute_score("s", each["sample_id"], "", each) for each in infos])

    before = asyncio.run(rollouts(one))  # whose buffer has had a thread by now
    sent: Any = pickle.loads(pickle.dumps(one))
    assert inspect.iscoroutinefunction(sent)
    assert (
        asyncio.run(rollouts(sent)) == before == [{"score": -1.0, "abstained": 0.0}, {"score": 1.0, "abstained": 0.0}]
    )
    columns = (["s"] * 2, ["a", "bbb"], [""] * 2, [info("p")] * 2)
    assert pickle.loads(pickle.dumps(batch))(*columns) == batch(*columns) == before


def test_what_verl_gives_beside_a_sample_may_have_any_name() -> None:
    beside: dict[str, Any] = dict.fromkeys(("prompt", "identity", "buffer", "sizes", "scorer", "num_generations"))
    one = asyncio.run(for_verl(Relative(), 1)("s", "a", "", info("p"), **beside))
    assert for_verl_batch(Relative(), 1)(["s"], ["a"], [""], [info("p")], **beside) == [one]


def test_a_retried_sample_is_known_by_its_identity() -> None:
    reward = Relative()
    compute_score = for_verl(reward, 2, identity="sample_id")

    async def rollouts() -> list[Any]:
        calls = [("a", 1), ("a", 1), ("bbb", 2)]
        return await asyncio.gather(*[compute_score("s", text, None, info("p", sample_id=n)) for text, n in calls])

    assert [given["score"] for given in asyncio.run(rollouts())] == [-1.0, -1.0, 1.0]
    assert [list(group.responses) for group in reward.asked] == [["a", "bbb"]]


class Learnt(Layer):
    """Notes the prompts of what it learns from."""

    def __init__(self, reward: Reward) -> None:
        self.reward = reward
        self.prompts: list[str] = []

    def after(self, groups: Sequence[Group], rewards: list[GroupReward]) -> list[GroupReward]:
        self.prompts += [group.prompt for group in groups if self.learning]
        return rewards


@pytest.mark.parametrize(("training", "learnt"), [("train", ["p", "q"]), ("easy", ["p", "q", "v", "w"])])
def test_guards_and_length_trends_see_nothing_of_a_validation_that_is_told_apart(
    training: str, learnt: list[str]
) -> None:
    layer = Learnt(reward := Patient())
    compute_score = for_verl(layer, {training: 1, "test": 1})

    async def rollouts() -> list[Any]:
        rows = [("p", training), ("v", "test"), ("q", training), ("w", "test")]  # ready together, but for the first
        asked = [compute_score("s", "a", None, info(prompt, split=split)) for prompt, split in rows]
        return await asyncio.gather(*asked, reward.others())

    assert [given["score"] for given in asyncio.run(rollouts())[:4]] == [0.0] * 4
    assert sorted(layer.prompts) == learnt


def test_a_batch_is_grouped_wherever_its_samples_stand() -> None:
    reward = Relative()
    compute_score = for_verl_batch(reward, num_generations=2)
    prompts, texts = ["p", "q", "p", "q", "p", "p"], ["a", "a", "bbb", "bb", "c", "cc"]
    scores = compute_score(
        data_sources=["s"] * 6, solution_strs=texts, ground_truths=[None] * 6, extra_infos=[info(p) for p in prompts]
    )
    assert [score["score"] for score in scores] == [-1.0, -0.5, 1.0, 0.5, -0.5, 0.5]
    assert [list(group.responses) for group in reward.asked] == [["a", "bbb"], ["c", "cc"], ["a", "bb"]]


def test_one_prompt_of_different_sources_or_truths_is_different_groups() -> None:
    reward = Relative()
    for_verl_batch(reward)(["s", "t", "s"], ["a", "b", "c"], ["1", "1", "2"], [info("p")] * 3)
    assert [group.reference for group in reward.asked] == ["1", "1", "2"]


def test_rows_with_one_prompt_are_groups_of_their_own_where_the_data_set_numbers_them() -> None:
    reward = Relative()
    infos = [{**info("p"), "index": index, "genre": genre} for index, genre in ((3, "ode"), (9, "news")) * 2]
    scores = for_verl_batch(reward, 2)(["s"] * 4, ["a", "b", "ccc", "d"], [None] * 4, infos)
    assert [score["score"] for score in scores] == [-1.0, 0.0, 1.0, 0.0]
    assert [group.columns["genre"] for group in reward.asked] == ["ode", "news"]


def test_an_abstention_is_the_mean_of_its_group_and_marked_and_all_samples_have_the_same_keys() -> None:
    compute_score = for_verl_batch(Told(lambda text: None if text == "a" else float(len(text))))
    scores = compute_score(["s"] * 3, ["a", "bb", "cccc"], [None] * 3, [info("p")] * 3)
    assert scores == [
        {"score": 3.0, "abstained": 1.0},
        {"score": 2.0, "abstained": 0.0},
        {"score": 4.0, "abstained": 0.0},
    ]


def test_a_group_without_a_reward_gets_the_mean_of_its_batch_and_of_batches_before() -> None:
    compute_score = for_verl_batch(Told(lambda text: float(text) if text else None))

    def scored(*responses: str) -> list[float]:
        prompts = [info(prompt) for prompt in "ppqqrr"]
        return [one["score"] for one in compute_score(["s"] * 6, responses, [None] * 6, prompts)]

    assert scored("", "", "1", "3", "8", "") == [4.0, 4.0, 1.0, 3.0, 8.0, 8.0]
    assert scored("", "", "", "", "", "") == [4.0] * 6
    single = for_verl(Told(lambda text: float(text) if text else None), 2)

    async def groups() -> list[Any]:
        pairs = [("p", ("1", "3")), ("q", ("", ""))]
        return [await asyncio.gather(*[single("s", text, None, info(p)) for text in two]) for p, two in pairs]

    assert asyncio.run(groups())[1] == [{"score": 2.0, "abstained": 1.0}] * 2


def test_prompts_may_be_messages_as_parquet_gives_them() -> None:
    import numpy as np

    reward = Relative()
    messages = np.array([{"role": "user", "content": "Tell one."}], dtype=object)
    for_verl_batch(reward, prompt="chat")(["s"], ["a"], [None], [{"chat": messages}])
    [group] = reward.asked
    assert group.conversation == (("user", "Tell one."),)
    assert group == Group(
        "Tell one.", ["a"], columns={"data_source": "s", "ground_truth": None}, conversation=group.conversation
    )


def test_the_prompt_that_verl_itself_passes_is_taken_where_the_data_set_has_none() -> None:
    import numpy as np

    reward = Relative()
    raw = np.array([{"role": "user", "content": "Tell one."}], dtype=object)
    extra = {"index": 0, "raw_prompt": raw, "num_turns": np.int64(2), "rollout_reward_scores": {}, "turn_scores": []}
    asyncio.run(for_verl(reward, 1)(data_source="s", solution_str="a", ground_truth=None, extra_info=extra))
    asyncio.run(for_verl(reward, 1)("s", "a", None, {**extra, "prompt": "Tell two."}))
    assert [group.prompt for group in reward.asked] == ["Tell one.", "Tell two."]
    assert all("raw_prompt" not in group.columns and "prompt" not in group.columns for group in reward.asked)


def test_groups_have_the_size_of_their_split() -> None:
    reward = Relative()
    compute_score = for_verl(reward, {"train": 2, "test": 1})

    async def rollouts() -> list[Any]:
        rows = [("a", "train"), ("bbb", "train"), ("cc", "test")]
        return await asyncio.gather(*[compute_score("s", text, None, info("p", split=where)) for text, where in rows])

    assert [given["score"] for given in asyncio.run(rollouts())] == [-1.0, 1.0, 0.0]
    with pytest.raises(AdjudgeError, match='num_generations has no "dev" \\(it has: train, test\\)'):
        asyncio.run(compute_score("s", "a", None, info("p", split="dev")))
    for sizes, message in (
        ({"train": 0}, 'of "train" is 0'),
        ({}, "is empty"),
        (0, "num_generations is 0"),
        (8.5, "a whole"),
    ):
        with pytest.raises(AdjudgeError, match=message):
            for_verl(reward, sizes)  # type: ignore[arg-type]


def test_verls_reward_loop_may_bind_further_arguments_and_await_what_it_bound() -> None:
    compute_score = for_verl(Told(lambda text: float(len(text))), 1)

    async def manager() -> Any:  # as verl wraps a function of the user's, for its `reward_kwargs`
        called = functools.partial(lambda raw, extra, **given: raw(**given, **extra), compute_score, {"strict": True})
        return await called(
            data_source="s", solution_str="abc", ground_truth="", extra_info=info("p"),
            reward_router_address="127.0.0.1:1", reward_model_tokenizer=None,
        )  # fmt: skip

    assert asyncio.run(manager()) == {"score": 3.0, "abstained": 0.0}


def test_a_missing_prompt_and_groups_that_are_not_whole_are_named() -> None:
    with pytest.raises(AdjudgeError, match='extra_info has no "prompt" \\(it has: index\\): write it when'):
        asyncio.run(for_verl(Relative(), 1)("s", "a", None, {"index": 0}))
    with pytest.raises(AdjudgeError, match='extra_info has no "prompt" \\(it has: NoneType\\)'):
        asyncio.run(for_verl(Relative(), 1)("s", "a", None))
    with pytest.raises(AdjudgeError, match="no whole groups of 2: check num_generations"):
        for_verl_batch(Relative(), 2)(["s"], ["a"], [None], [info("p")])
    with pytest.raises(AdjudgeError, match="concurrency is 0: give at least 1"):
        for_verl(Relative(), 2, concurrency=0)
    with pytest.raises(AdjudgeError, match="num_generations is '2': give a whole number"):
        for_verl_batch(Relative(), "2")  # type: ignore[arg-type]


def test_a_judge_scores_them() -> None:
    scores = for_verl_batch(Judged())(["s"] * 2, ["A story.", ""], ["", None], [info("p")] * 2)
    assert all(0 < score["score"] < 1 and score["abstained"] == 0 for score in scores)


def test_a_sample_that_abstains_alone_is_an_error_or_gets_the_number_given() -> None:
    silent, batch = Told(lambda text: None), (["s"], ["a"], [None], [info("p")])
    with pytest.raises(LoneAbstention):
        asyncio.run(for_verl(silent, 1)("s", "a", None, info("p")))
    with pytest.raises(LoneAbstention):
        for_verl_batch(silent)(*batch)
    expected = {"score": 0.5, "abstained": 1.0}
    assert asyncio.run(for_verl(silent, 1, fill=0.5)("s", "a", None, info("p"))) == expected
    assert for_verl_batch(silent, fill=0.5)(*batch) == [expected]
    for make in (for_verl, for_verl_batch):
        with pytest.raises(AdjudgeError, match="fill is inf"):
            make(silent, 1, fill=float("inf"))


def test_samples_that_fill_the_worker_while_all_wait_for_others_are_told_so() -> None:
    async def all_at_once(samples: int, concurrency: int) -> list[Any]:
        compute = for_verl(Relative(), 2, patience=60, concurrency=concurrency)
        room = asyncio.Semaphore(concurrency)

        async def one(number: int) -> Any:
            async with room:
                return await compute("s", "a" * (number + 1), None, info(f"p{number % (samples // 2)}"))

        return await asyncio.gather(*map(one, range(samples)), return_exceptions=True)

    assert all(isinstance(found, dict) for found in asyncio.run(all_at_once(10, 6)))
    found = asyncio.run(all_at_once(10, 5))
    assert {type(one) for one in found} == {AdjudgeError} and "5 samples wait for others of their groups" in str(
        found[0]
    )


def test_lists_of_a_batch_that_do_not_fit_are_named() -> None:
    with pytest.raises(AdjudgeError, match="the lists of a batch have 1 to 2 entries: give one for each"):
        for_verl_batch(Relative(), 2)(["s"] * 2, ["a"], [None] * 2, [info("p")] * 2)


def test_what_a_rollout_says_of_each_sample_reaches_a_function() -> None:
    reward = FunctionReward(lambda completions, num_turns, genre: [n + len(genre[n]) for n in num_turns])
    infos = [info(prompt, genre="ode") | {"num_turns": n} for n, prompt in enumerate("pqpq")]
    scores = for_verl_batch(reward, 2)(["s"] * 4, list("abcd"), [None] * 4, infos)
    assert [score["score"] for score in scores] == [3.0, 4.0, 5.0, 6.0]
