"""Rewards for verl, one sample at a time (written against verl 0.9.1) or a batch at a time (verl 0.6).

verl calls `compute_score(data_source=, solution_str=, ground_truth=, extra_info=)` for each sample, awaiting it if it
is a coroutine function; with a reward model of its own it adds `reward_router_address` and `reward_model_tokenizer`.
What it wants back is a number, or a dictionary with the number as "score" and the same further keys for every sample.
The managers `naive`, `dapo` and `gdpo` of its reward loop do so. `remote` takes no coroutine function. `rate_limited`
turns errors, and what takes longer than its own `timeout`, into a reward of 0, which is a reward like any other, and
lets `max_concurrent` samples in at a time (1 by default), too few for a group.
verl 0.6 had batch managers besides, which call
`compute_score(data_sources=, solution_strs=, ground_truths=, extra_infos=)`; the reward loop, which verl 0.7 made the
default, has none.
Source: https://verl.readthedocs.io/en/latest/preparation/reward_function.html, section "Customized",
verl/experimental/reward_loop/reward_manager/naive.py, and for the batch verl/workers/reward_manager/batch.py.

Put this into the file that `reward.custom_reward_function.path` names (without `reward.` in older releases):

    compute_score = for_verl(reward, num_generations={"train": 8, "test": 1})
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from adjudge.engine.checking import at_least
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.records.grouping import Sample, collected, group_of
from adjudge.rewards.records.messages import prompt_of, text_of
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.buffer import Buffer, waited
from adjudge.rewards.trainers.filling import Filling, Member
from adjudge.rewards.trainers.scoring import OnFailure, Scorer

Kept = dict[str, float]
"""What verl keeps of a sample."""

INDEX = "index"
"""The key of `extra_info` under which verl's own data sets number their rows: one prompt may be in several."""

RAY = 1000
"""How many calls of a coroutine Ray has under way in an actor, where nobody says otherwise; verl does not."""

RAW = "raw_prompt"
"""The key under which verl's naive reward manager passes the prompt's messages, since the agent loop adds them."""


def for_verl(
    reward: Reward | Function,
    num_generations: int | Mapping[str, int],
    *,
    prompt: str = "prompt",
    identity: str | None = None,
    patience: float = 300.0,
    deadline: float | None = None,
    on_failure: OnFailure = "stop",
    fill: float | None = None,
    concurrency: int = RAY,
) -> Callable[..., Coroutine[Any, Any, Kept]]:
    """`compute_score` for single samples, which waits until the group of the sample's prompt is whole: see `Buffer`.

    `prompt` is the key of `extra_info` that holds the prompt (a text or messages), or where it is absent verl's own
    "raw_prompt"; `identity` that of a name by which a retried sample is known, which no column of the data set is.
    `ground_truth`, where it is a text, is the reference; the rest of `extra_info` are columns.

    `num_generations` is verl's `rollout.n`; 1 scores every sample by itself. As validation has groups of its own size,
    give the sizes by what the data set has as `extra_info["split"]`, {"train": 8, "test": 1}: beside "train" every
    split is held out, and guards and length trends see nothing of it. To them each call of the reward is a step. A
    group comes together in one process: set `reward.num_workers=1`. Ray lets `concurrency` samples into that process at
    a time; where so many wait for others that cannot come in, it is an error. What never reaches it: prompts in a batch
    × (num_generations − 1) < 1000.

    verl knows no abstention: such a sample's score is the mean of its group (`filled`), and "abstained" is 1. A group
    without any gets the mean of the latest rewards (`Filling`; held-out splits that of their own), or `fill`. A sample
    that is alone is an error (LoneAbstention), or gets `fill`. It pickles if its reward does, without what waits.
    """
    sizes = dict(num_generations) if isinstance(num_generations, Mapping) else {}
    scorer = Scorer(reward, deadline, on_failure)
    at_least(1, concurrency=concurrency)
    buffer = Buffer(scorer, _largest(num_generations), patience, fill=fill, most=concurrency)
    return partial(_of_sample, buffer, sizes, prompt, identity)  # verl looks through it for the coroutine function


async def _of_sample(
    buffer: Buffer,
    sizes: Mapping[str, int],
    prompt: str,
    identity: str | None,
    /,  # not to be taken for what verl names
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    **further: Any,
) -> Kept:
    """`compute_score` of `for_verl`."""
    sample = _sample(data_source, solution_str, ground_truth, extra_info, prompt)
    name = None if identity is None else _known(extra_info, identity)
    split = _split(sizes, extra_info) if sizes else None
    size = None if split is None else sizes[split]
    learns = "train" not in sizes or split == "train"
    return _kept(await waited(buffer.put((_group(sample), split), sample, name, size, learns)))


def for_verl_batch(
    reward: Reward | Function,
    num_generations: int | None = None,
    *,
    prompt: str = "prompt",
    deadline: float | None = None,
    on_failure: OnFailure = "stop",
    fill: float | None = None,
) -> Callable[..., list[Kept]]:
    """`compute_score` for the batch managers of verl 0.6: groups are the samples of one prompt.

    They may stand anywhere in a batch: verl balances it, which scatters a group. With `num_generations` a prompt that
    is there several times over is so many groups. To guards and length trends each batch is a step, a validation's too,
    as verl does not tell them apart. Everything else is as in `for_verl`.
    """
    if num_generations is not None:
        at_least(1, num_generations=num_generations)
    return partial(_of_batch, Scorer(reward, deadline, on_failure), Filling(fill), num_generations, prompt)


def _of_batch(
    scorer: Scorer,
    filling: Filling,
    num_generations: int | None,
    prompt: str,
    /,
    data_sources: Sequence[Any],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Any],
    **further: Any,
) -> list[Kept]:
    """`compute_score` of `for_verl_batch`."""
    columns = data_sources, solution_strs, ground_truths, extra_infos
    if len(lengths := {len(column) for column in columns}) > 1:
        raise AdjudgeError(f"the lists of a batch have {min(lengths)} to {max(lengths)} entries: give one for each")
    samples = [_sample(*column, prompt) for column in zip(*columns, strict=True)]
    places = collected([_group(sample) for sample in samples], num_generations)
    rewards = scorer.score([group_of([samples[place] for place in group]) for group in places]).rewards
    filling.note(rewards)
    kept: dict[int, Kept] = {}
    for group, given in zip(places, rewards, strict=True):
        kept |= {place: _kept(member) for place, member in zip(group, filling.members(given), strict=True)}
    return [kept[place] for place in range(len(samples))]


def _sample(data_source: Any, response: Any, truth: Any, info: Any, prompt: str) -> Sample:
    raw = isinstance(info, Mapping) and info.get(prompt) is None and info.get(RAW) is not None
    key = RAW if raw else prompt
    asked, turns = prompt_of(_known(info, key), f'extra_info["{key}"]')
    columns = {name: value for name, value in info.items() if name not in (prompt, RAW)}
    columns |= {"data_source": data_source, "ground_truth": truth}
    if isinstance(truth, str) and truth:
        columns["reference"] = truth
    return Sample(asked, text_of(response, "solution_str"), columns, turns)


def _known(info: Any, name: str) -> Any:
    if not isinstance(info, Mapping) or info.get(name) is None:
        there = ", ".join(sorted(map(str, info))) if isinstance(info, Mapping) else type(info).__name__
        raise AdjudgeError(
            f'extra_info has no "{name}" (it has: {there}): write it when the data set is prepared, or name the key'
            " that holds it"
        )
    value = info[name]
    return value.tolist() if hasattr(value, "tolist") else value  # messages come from parquet as arrays


def _largest(num_generations: int | Mapping[str, int]) -> int:
    if not isinstance(num_generations, Mapping):
        return num_generations
    at_least(1, **{f'num_generations of "{split}"': size for split, size in num_generations.items()})
    if not num_generations:
        raise AdjudgeError('num_generations is empty: give a size for each split, {"train": 8, "test": 1}')
    return max(num_generations.values())


def _split(sizes: Mapping[str, int], info: Any) -> str:
    split: str = _known(info, "split")
    if split not in sizes:
        raise AdjudgeError(f'num_generations has no "{split}" (it has: {", ".join(sizes)}): add the size of its groups')
    return split


def _group(sample: Sample) -> tuple[str, ...]:
    named = (str(sample.columns.get(name)) for name in ("data_source", "ground_truth", INDEX))
    return sample.prompt, *named


def _kept(member: Member) -> Kept:
    """All samples must have the same keys."""
    return {"score": member.filled, "abstained": float(member.reward is None)}
