"""Rewards for verl, one sample at a time or a batch at a time.

verl calls `compute_score(data_source=, solution_str=, ground_truth=, extra_info=)` for each sample (its naive reward
managers; it awaits the function if it is a coroutine function), or
`compute_score(data_sources=, solution_strs=, ground_truths=, extra_infos=)` for a batch (its batch managers). What it
wants back is a number, or a dictionary with the number as "score", for each sample.
Source: https://verl.readthedocs.io/en/latest/preparation/reward_function.html, section "Customized", and
verl/workers/reward_manager/batch.py for the batch.

Put this into the file that `custom_reward_function.path` names:

    compute_score = for_verl(reward, num_generations=8, prompt="question")
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.grouping import text_of
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.buffer import Buffer, Member
from adjudge.rewards.trainers.filling import filled
from adjudge.rewards.trainers.samples import Sample, collected, group_of
from adjudge.rewards.trainers.scoring import OnFailure, Scorer

Score = dict[str, float]


def for_verl(
    reward: Reward,
    num_generations: int,
    *,
    prompt: str = "prompt",
    identity: str | None = None,
    patience: float = 300.0,
    deadline: float | None = None,
    on_failure: OnFailure = "stop",
) -> Callable[..., Coroutine[Any, Any, Score]]:
    """`compute_score` for single samples, which waits until the group of the sample's prompt is whole: see `Buffer`.

    verl passes no prompt: `prompt` is the key of `extra_info` that holds it (a text or messages), and `identity` that
    of a name for the sample, if there is one, by which a retried sample is known. `ground_truth`, where it is a text,
    is the reference; the rest of `extra_info` are the group's columns. `num_generations` is verl's `rollout.n`; 1
    scores every sample by itself. A group comes together in one process: with more than one reward worker set
    `reward.num_workers=1`, as members that go to several wait for `patience` seconds in vain.

    verl knows no abstention: such a sample's score is the mean of its group (`filled`), and "abstained" is 1.
    """
    buffer = Buffer(Scorer(reward, deadline, on_failure), num_generations, patience)

    async def compute_score(
        data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **further: Any
    ) -> Score:
        sample = _sample(data_source, solution_str, ground_truth, extra_info, prompt)
        name = None if identity is None else _known(extra_info, identity)
        return _score(await buffer.member(_group(sample), sample, name))

    return compute_score


def for_verl_batch(
    reward: Reward,
    num_generations: int | None = None,
    *,
    prompt: str = "prompt",
    deadline: float | None = None,
    on_failure: OnFailure = "stop",
) -> Callable[..., list[Score]]:
    """`compute_score` for the batch managers: groups are the samples of one prompt, wherever in the batch they stand.

    verl balances its batches, which scatters a group. With `num_generations` a prompt that is there several times
    over is so many groups. Everything else is as in `for_verl`.
    """
    scorer = Scorer(reward, deadline, on_failure)

    def compute_score(
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any],
        **further: Any,
    ) -> list[Score]:
        columns = zip(data_sources, solution_strs, ground_truths, extra_infos, strict=True)
        samples = [_sample(*column, prompt) for column in columns]
        places = collected([_group(sample) for sample in samples], num_generations)
        rewards = scorer.score([group_of([samples[place] for place in group]) for group in places]).rewards
        scores: dict[int, Score] = {}
        for group, given in zip(places, rewards, strict=True):
            members = map(Member, given.settled, filled(given), given.abstained)
            scores |= {place: _score(member) for place, member in zip(group, members, strict=True)}
        return [scores[place] for place in range(len(samples))]

    return compute_score


def _sample(data_source: Any, response: Any, truth: Any, info: Any, prompt: str) -> Sample:
    shown = text_of(_known(info, prompt), f'extra_info["{prompt}"]')
    columns = {name: value for name, value in info.items() if name != prompt}
    columns |= {"data_source": data_source, "ground_truth": truth}
    if isinstance(truth, str) and truth:
        columns["reference"] = truth
    return Sample(shown, text_of(response, "solution_str"), columns)


def _known(info: Any, name: str) -> Any:
    if not isinstance(info, Mapping) or info.get(name) is None:
        there = ", ".join(sorted(map(str, info))) if isinstance(info, Mapping) else type(info).__name__
        raise AdjudgeError(
            f'extra_info has no "{name}" (it has: {there}): write it when the data set is prepared, or name the key'
            " that holds it"
        )
    value = info[name]
    return value.tolist() if hasattr(value, "tolist") else value  # messages come from parquet as arrays


def _group(sample: Sample) -> tuple[str, str, str]:
    return str(sample.columns["data_source"]), sample.prompt, str(sample.columns["ground_truth"])


def _score(member: Member) -> Score:
    """What verl keeps of a sample; all samples must have the same keys."""
    return {"score": member.filled, "abstained": float(member.reward is None)}
