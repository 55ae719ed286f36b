"""Rewards for slime, for a group or for single samples (written against slime 0.4).

slime loads the function that `--custom-rm-path` names and awaits `custom_rm(args, samples)` with the samples of one
prompt when `--group-rm` is set, `custom_rm(args, sample)` otherwise. It evaluates without `--group-rm` only: name the
function in the evaluation's own `custom_rm_path`, too. A sample has `prompt` (a text or messages), `response`, `label`,
`metadata` and `group_index`; one with `remove_sample` set is masked out of the loss. It wants a number for each.
Rollouts that a custom generate function splits into several samples come as a list of their own without `--group-rm`,
and cannot be scored with it.
What `--custom-reward-post-process-path` names it calls with `(args, samples)`, all samples of a step, for two lists of
a number for each: rewards for its log, and what its estimator begins with.
Source: https://github.com/THUDM/slime/blob/main/docs/en/get_started/customization.md, "Reward Model" and "Reward
Post-Processing", slime/rollout/rm_hub/__init__.py, slime/rollout/sglang_rollout.py and slime/ray/rollout.py.

Put this into a module, and name it there (`adjudge.slime_advantages` can be named as it is):

    custom_rm = for_slime(reward)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Any, SupportsFloat

import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.kernels.advantages import group_advantages
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.records.grouping import Sample, collected
from adjudge.rewards.records.messages import prompt_of, text_of
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.buffer import Buffer, waited
from adjudge.rewards.trainers.scoring import OnFailure, Scorer

_ABSTAINED, _REMOVED_BEFORE = "adjudge_abstained", "adjudge_removed_before"  # names that no data set has

CENTRED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""slime's estimators that take a group's mean from its rewards (cispo since its pull request 2067)."""

SCALED = ("grpo", "gspo", "cispo")
"""Those that divide by the group's standard deviation, too."""


def for_slime(
    reward: Reward | Function,
    *,
    deadline: float | None = None,
    on_failure: OnFailure = "stop",
    fill: float | None = None,
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """`custom_rm` for groups (set `--group-rm`) and, where a reward compares nobody, for single samples.

    Labels that are texts are references; a sample's metadata are columns. Other samples are generated while the judge
    works, and what comes meanwhile is judged together: see `Buffer`. To guards and length trends each such call is a
    step, an evaluation's too, as slime does not tell them apart: name there a function of the reward without them. A
    sample on which it abstained gets the mean of its group (`filled`), in a group without any that of the latest
    rewards (`Filling`) or `fill`, `remove_sample`, and the reason as `metadata["adjudge_abstained"]`; one that comes
    again (an aborted rollout) loses these first, and keeps a `remove_sample` that was somebody else's. One that came
    alone has no such mean: it is an error (LoneAbstention), or gets `fill`. With `slime_advantages` beside it a group's
    standard deviation is that of its rewards, which the means in it would shrink.
    """
    buffer = Buffer(Scorer(reward, deadline, on_failure), 1, fill=fill)

    async def custom_rm(args: Any, samples: Any, **further: Any) -> Any:
        if not isinstance(samples, list):
            return (await custom_rm(args, [samples]))[0]
        for place, sample in enumerate(samples):
            if isinstance(sample, list):
                raise AdjudgeError(f"samples[{place}] is list, a rollout split into several: leave --group-rm out")
            _forget(sample)
        read = [_sample(sample, place) for place, sample in enumerate(samples)]
        call = object()  # a group is that of one call
        keys = [(call, _group(sample, one)) for sample, one in zip(samples, read, strict=True)]
        sizes = Counter(keys)
        with buffer.together:
            puts = [buffer.put(key, one, size=sizes[key]) for key, one in zip(keys, read, strict=True)]
        members = await asyncio.gather(*map(waited, puts))
        for sample, member in zip(samples, members, strict=True):
            if member.reward is None:
                _remove(sample, member.abstained or "too_few")
        return [member.filled for member in members]

    return custom_rm


def slime_advantages(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """What slime logs as rewards, and advantages in which an abstention counts for nothing.

    As slime's own normalisation: minus the group's mean and, unless `--disable-grpo-std-normalization`, divided by the
    group's standard deviation + 1e-6, for the estimators that do so (`CENTRED`, `SCALED`); with the others, or
    `--disable-rewards-normalization`, the rewards as they are. But the mean and the deviation are those of the rewards
    that `for_slime` gave: a sample on which it abstained has advantage 0, and so has a group with fewer than two. One
    that something else took out of the loss (`remove_sample`) counts, as it does in slime.

    Groups are those of `group_index`, of whatever size: slime takes a batch that is not n_samples_per_prompt ×
    rollout_batch_size for a single group (issue 1414 there). Samples without it are cut by n_samples_per_prompt.
    Settings that `args` lacks are slime's defaults. Raises AdjudgeError naming a sample that has no number as reward.
    """
    key = getattr(args, "reward_key", None)
    rewards = [_reward(sample, f"samples[{place}]", key) for place, sample in enumerate(samples)]
    estimator = getattr(args, "advantage_estimator", "grpo")
    if estimator not in CENTRED or not getattr(args, "rewards_normalization", True):
        return rewards, rewards
    known = [
        None if _ABSTAINED in (sample.metadata or {}) else reward
        for sample, reward in zip(samples, rewards, strict=True)
    ]
    groups = collected(_group_keys(samples, getattr(args, "n_samples_per_prompt", 1)))
    order = [place for group in groups for place in group]
    scaled = estimator in SCALED and getattr(args, "grpo_std_normalization", True)
    advantages = group_advantages(
        [known[place] for place in order],
        offsets=torch.tensor([0, *accumulate(map(len, groups))]),
        scale="group_std" if scaled else "none",
        eps=1e-6,
    ).advantages
    found = dict(zip(order, advantages.tolist(), strict=True))
    return rewards, [found[place] for place in range(len(samples))]


def _reward(sample: Any, where: str, key: str | None) -> Any:
    """A sample's number, under the `key` of `--reward-key` where it has several; raises AdjudgeError without one."""
    if isinstance(sample, list):
        raise AdjudgeError(
            f"{where} is list: slime lays rollouts out that were split where the first is one, so have what"
            " --custom-generate-function-path names return a list for each, or for none"
        )
    reward = sample.reward
    if reward is not None and key:
        if not isinstance(reward, Mapping):
            raise AdjudgeError(f'{where}.reward is {type(reward).__name__}, without "{key}": leave --reward-key out')
        if key not in reward:
            raise AdjudgeError(f'{where}.reward has no "{key}": name one of {", ".join(reward)} by --reward-key')
        reward = reward[key]
    if isinstance(reward, Mapping):
        raise AdjudgeError(f"{where}.reward is {type(reward).__name__}: name the number in it by --reward-key")
    if not isinstance(reward, SupportsFloat):
        raise AdjudgeError(
            f"{where}.reward is {None if reward is None else type(reward).__name__}: have what --custom-rm-path names"
            " give each sample a number, with --group-rm where it compares a group's"
        )
    return reward


def _group_keys(samples: Sequence[Any], size: int) -> list[Hashable]:
    """What tells the groups of a step's samples apart: what slime calls them, or else which `size` of samples it is."""
    indices = [getattr(sample, "group_index", None) for sample in samples]
    return [("cut", place // size) if index is None else index for place, index in enumerate(indices)]


def _remove(sample: Any, why: str) -> None:
    """Keep a sample out of the loss, with a note of why, and of whether it was out before."""
    note = {_ABSTAINED: why} | ({_REMOVED_BEFORE: True} if sample.remove_sample else {})
    sample.metadata = {**(sample.metadata or {}), **note}
    sample.remove_sample = True


def _forget(sample: Any) -> None:
    """Undo `_remove` for a sample that comes again: what was said of its first try is not said of this one."""
    if _ABSTAINED in (sample.metadata or {}):
        sample.remove_sample = _REMOVED_BEFORE in sample.metadata
        notes = (_ABSTAINED, _REMOVED_BEFORE)
        sample.metadata = {name: each for name, each in sample.metadata.items() if name not in notes}


def _sample(sample: Any, place: int) -> Sample:
    if not isinstance(sample.metadata or {}, Mapping):
        raise AdjudgeError(f"samples[{place}].metadata is {type(sample.metadata).__name__}: give a dictionary")
    columns = dict(sample.metadata or {})
    if isinstance(sample.label, str) and sample.label:
        columns["reference"] = sample.label
    where, response = f"samples[{place}].prompt", sample.response or ""
    prompt, turns = prompt_of(sample.prompt, where)
    return Sample(prompt, text_of(response, f"samples[{place}].response"), columns, turns)


def _group(sample: Any, read: Sample) -> Hashable:
    return sample.group_index if getattr(sample, "group_index", None) is not None else read.prompt
