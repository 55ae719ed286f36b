"""The adapter under TRL's own trainer, on CPU, with a tiny policy and a tiny judge."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.engine.models.sources import open_source, resolve
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.parts.combining import WeightedSum
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.trl import for_trl
from tests.rewards.trainers.rewards import Judged, Relative, Told, fails_on_second

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


@pytest.mark.parametrize(("page", "references"), [("README.md", 0), ("docs/training.md", 1)])
def test_the_example_of_a_page_makes_a_trainer(
    page: str, references: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tiny policy in the place of a real one and what a CPU wants; nothing is trained."""
    text = (Path(__file__).parents[3] / page).read_text()
    [code] = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    on_a_cpu = "use_cpu=True, bf16=False"
    for shown, tried in (("Qwen/Qwen3-0.6B", "dummy:tiny-llama"), (f"),  # on a CPU also {on_a_cpu}", f"{on_a_cpu}),")):
        assert shown in code
        code = code.replace(shown, tried)
    trainer, names = Mock(), dict[str, Any]()
    monkeypatch.setattr("trl.GRPOTrainer", trainer)
    monkeypatch.chdir(tmp_path)
    exec(code, names)
    [told] = trainer.call_args_list
    assert told.args == ("dummy:tiny-llama",) and told.kwargs["args"].num_generations == 8
    assert len(told.kwargs["train_dataset"]) == 64
    assert len(names["base"].known if references else ()) == references  # one prompt, one reference
    [reward] = told.kwargs["reward_funcs"]
    assert callable(reward) and pickle.loads(pickle.dumps(reward)) is not None
    trainer.return_value.train.assert_called_once_with()


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


def test_the_two_answers_that_online_dpo_has_to_each_prompt_are_a_group(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    reward, policy = Sized(), open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    prompts = [[{"role": "user", "content": text}] for text in (*PROMPTS, "Tell three.", "Tell four.")]
    OnlineDPOTrainer(
        model=policy.model.requires_grad_(True),
        processing_class=policy.tokenizer,
        reward_funcs=[for_trl(reward)],
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        args=OnlineDPOConfig(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, max_new_tokens=4, use_cpu=True,
            bf16=False, report_to=[], disable_tqdm=True, save_strategy="no",
        ),
    ).train()  # fmt: skip
    assert reward.sizes == [2, 2, 2, 2]


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


def test_guards_and_length_trends_see_nothing_of_an_evaluation(tmp_path: Path) -> None:
    trainer = train(guarded := Guarded(LengthFree(Sized()), []), tmp_path)
    for _ in range(2):
        assert "eval_sized/guards/over" not in trainer.evaluate()
        assert (guarded.step, guarded.reward.state.groups) == (1, 2)  # type: ignore[attr-defined]


def test_beside_another_reward_function_trl_takes_an_abstention_for_a_zero_of_which_it_warns(tmp_path: Path) -> None:
    def other(completions: list[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    calls = iter(range(1000))
    with pytest.warns(UserWarning, match="one of 2 reward functions"):
        trainer = train(Told(lambda response: float(n) if (n := next(calls)) else None), tmp_path, others=[other])
    assert trainer._logs["advantages"][0] < 0  # 1 + nothing, against 1 + 1, 1 + 2, 1 + 3
    assert trainer.state.log_history[0]["told/abstained"] == pytest.approx(1 / 8)


class OneShort(Told):
    """One reward too few for every group."""

    def __init__(self) -> None:
        super().__init__(len)

    def _scored(self, group: Group) -> GroupReward:
        return GroupReward((1.0,) * (len(group.responses) - 1), (None,) * (len(group.responses) - 1))


class Away(Told):
    """A judge behind a server that is gone whenever it is asked about the second prompt."""

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        if any(group.prompt == PROMPTS[1] for group in groups):
            raise RemoteError("nobody answers there")
        return super().score_groups(groups)


def test_a_judge_that_cannot_be_asked_about_a_group_costs_that_group_or_stops_the_run_as_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = iter(range(1000))
    trainer = train(Away(lambda response: float(next(calls)) ** 1.5), tmp_path, on_failure="abstain")
    prompts = list(trainer._logs["prompt"])
    gains = dict.fromkeys(PROMPTS, ())
    for prompt, gain in zip(prompts, trainer._logs["advantages"], strict=True):
        gains[prompt] += (gain,)
    assert gains[PROMPTS[1]] == (0.0,) * 4
    assert all(gains[PROMPTS[0]]) and sum(gains[PROMPTS[0]]) == pytest.approx(0.0, abs=1e-5)
    log = trainer.state.log_history[0]
    assert log["told/abstained"] == log["told/abstained/cancelled"] == 0.5
    assert f'reward "told" failed on prompt "{PROMPTS[1]}", which abstains: RemoteError: nobody' in caplog.text
    with pytest.raises(RemoteError, match="nobody answers there"):
        train(Away(lambda response: 1.0), tmp_path)


def test_nan_of_a_part_abstains_is_named_in_the_log_and_leaves_the_others_a_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = iter(range(1000))

    def judge(response: str) -> float:
        return float("nan") if (number := next(calls)) in (1, 6) else float(number) ** 1.5

    trainer = train(WeightedSum({"judge": Told(judge), "length": Told(len)}, {"length": 0.0}, name="both"), tmp_path)
    rewards = torch.tensor(trainer._logs["rewards"]["both"]).view(2, 4)
    advantages = torch.tensor(trainer._logs["advantages"]).view(2, 4)
    assert rewards.isnan().nonzero().tolist() == [[0, 1], [1, 2]]
    assert advantages[rewards.isnan()].tolist() == [0.0, 0.0]
    for row, gains in zip(rewards, advantages, strict=True):
        valid = row[~row.isnan()]
        expected = (valid - valid.mean()) / (valid.std() + 1e-4)
        assert gains[~row.isnan()].tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    log = trainer.state.log_history[0]
    assert log["both/abstained/non_finite"] == pytest.approx(2 / 8)
    assert log["both/mean/judge/non_finite"] == pytest.approx(2 / 8)  # the part's share
    assert 'part "judge" gave 1 of 4 rewards that are not finite: they abstain' in caplog.text


@pytest.mark.parametrize("on_failure", ["stop", "abstain"])
@pytest.mark.parametrize(
    ("reward", "how", "message"),
    [
        (OneShort(), {}, 'reward "told", prompt "Tell .*": 3 rewards for 4 completions'),
        (Told(len), {"columns": ("rubric",)}, 'column "rubric" is missing .the data set has: .*reference'),
        (Told(len), {"num_generations": 2}, "num_generations is 2 here and 4 in the trainer"),
        (Told(lambda response: "five"), {}, 'reward "told", prompt "Tell .*": a reward is str'),
    ],
)
def test_mistakes_stop_the_training_with_their_names_whatever_failures_do(
    tmp_path: Path, on_failure: str, reward: Reward, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        train(reward, tmp_path, on_failure=on_failure, **how)


# The asynchronous trainer: its worker's own code, without the server that generates


async def scored_by_worker(function: Any, answers: Sequence[str], prompts: Sequence[str] | None = None) -> list[Any]:
    """What the worker makes of a group whose completions are `answers`."""
    from accelerate import PartialState
    from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup, _AsyncRolloutLoop
    from trl.trainer.utils import get_callable_name

    PartialState()  # which the worker's log wants
    worker = SimpleNamespace(
        reward_funcs=[function], reward_func_names=[get_callable_name(function)], _env_reward_types=[],
        _provides_rollout_reward=False,
    )  # fmt: skip
    count = len(answers)
    row = SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])
    group = RolloutGroup(
        prompts=[[{"role": "user", "content": prompt}] for prompt in prompts or ["Tell one."] * count],
        reward_kwargs={"reference": ["Once."] * count},
        completions=[[{"role": "assistant", "content": text}] for text in answers], completions_ids=[[1]] * count,
        completions_sequences=[[row]] * count, tool_call_counts=[0] * count, tool_failure_counts=[0] * count,
        model_version=0, group_id=0, env_rewards=[], rollout_rewards=[],
    )  # fmt: skip
    return await _AsyncRolloutLoop._score_group(worker, group)


def answer_of(response: str) -> float | None:
    return {"a": 1.0, "b": None, "c": 3.0}[response]


in_async_grpo = pytest.mark.filterwarnings("ignore:You are importing from 'trl.experimental'")


@pytest.mark.parametrize("asynchronous", [False, True])
@in_async_grpo
def test_the_worker_of_the_asynchronous_trainer_scores_whole_groups(asynchronous: bool) -> None:
    function = for_trl(Told(answer_of), asynchronous=asynchronous)
    samples = asyncio.run(scored_by_worker(function, "abc"))
    assert [sample.advantage for sample in samples] == pytest.approx([-1.0, 0.0, 1.0])
    assert samples[1].advantage == 0.0
    assert function.measures["abstained"] == pytest.approx(1 / 3)
    assert samples[0].metrics["rewards/told"] == 1.0


@pytest.mark.parametrize("asynchronous", [False, True])
@in_async_grpo
def test_what_the_asynchronous_trainer_sends_to_its_worker_is_awaited_there_under_its_name(asynchronous: bool) -> None:
    from trl.trainer.utils import get_callable_name, is_async_callable

    function = pickle.loads(pickle.dumps(for_trl(Told(answer_of), 3, 60.0, asynchronous=asynchronous)))
    assert get_callable_name(function) == "told"
    assert is_async_callable(function) is asynchronous
    samples = asyncio.run(scored_by_worker(function, "abc"))
    assert [sample.advantage for sample in samples] == pytest.approx([-1.0, 0.0, 1.0])


@in_async_grpo
def test_groups_that_overlap_in_the_asynchronous_trainer_are_scored_each_by_itself() -> None:
    function = for_trl(Relative(), asynchronous=True)

    async def worker() -> list[list[Any]]:
        return await asyncio.gather(scored_by_worker(function, ["a", "bbb"]), scored_by_worker(function, ["cc", "c"]))

    rewards = [[sample.metrics["reward"] for sample in group] for group in asyncio.run(worker())]
    assert rewards == [[-1.0, 1.0], [0.5, -0.5]]


@pytest.mark.parametrize("asynchronous", [False, True])
@in_async_grpo
def test_in_the_asynchronous_trainer_a_failing_judge_stops_the_worker_or_moves_nothing(asynchronous: bool) -> None:
    with pytest.raises(AdjudgeError, match="no such rubric"):
        asyncio.run(scored_by_worker(for_trl(Told(fails_on_second), asynchronous=asynchronous), ["a", "B"]))
    function = for_trl(Told(fails_on_second), asynchronous=asynchronous, on_failure="abstain")
    samples = asyncio.run(scored_by_worker(function, ["a", "B"]))
    assert [sample.advantage for sample in samples] == [0.0, 0.0]
    assert function.measures["abstained/cancelled"] == 1.0


@pytest.mark.parametrize("asynchronous", [False, True])
@in_async_grpo
def test_prompts_that_an_environment_made_different_are_a_group_only_by_their_number(asynchronous: bool) -> None:
    prompts = ["Tell one. It is 7.", "Tell one. It is 8."]
    function = for_trl(reward := Relative(), 2, asynchronous=asynchronous)
    if asynchronous:
        asyncio.run(scored_by_worker(function, ["a", "bbb"], prompts))
        assert [list(group.responses) for group in reward.asked] == [["a", "bbb"]]
    else:
        with pytest.raises(AdjudgeError, match="completions 0 to 1 answer different prompts"):
            asyncio.run(scored_by_worker(function, ["a", "bbb"], prompts))
