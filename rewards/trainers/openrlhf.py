"""Rewards for OpenRLHF as a python function (written against 0.11.2); `adjudge serve` has the HTTP form, /v1/rewards.

OpenRLHF loads `reward_func` from the file that `--reward.remote_url` names (`--remote_rm_url` in older releases) and
calls `reward_func(queries, prompts, labels)` with lists of texts, where a query is a prompt with its response, all
special tokens in it, and a label comes from `--data.label_key`. It wants a dictionary of tensors: `rewards` for the
advantages, `scores` for its filters, `extra_logs` for its logs. Its rollout actors call it sample by sample, each in a
thread of the event loop's default executor; all samples of a prompt come to the same actor. An exception in it is a
line in their log at level INFO, and the sample goes on without a reward.
Source: https://github.com/OpenRLHF/OpenRLHF, README, "Reinforced Fine-tuning", openrlhf/utils/agent.py and
openrlhf/trainer/ray/vllm_engine.py.

Put this into that file:

    reward_func = for_openrlhf(reward, num_generations=8)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from adjudge.engine.checking import at_least, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.records.grouping import Sample
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.buffer import Buffer
from adjudge.rewards.trainers.openrlhf_queries import response_of
from adjudge.rewards.trainers.scoring import OnFailure, Scorer

_log = logging.getLogger("adjudge")


def for_openrlhf(
    reward: Reward | Function,
    num_generations: int,
    *,
    ends: Sequence[str] = (),
    patience: float = 300.0,
    deadline: float | None = None,
    on_failure: OnFailure = "stop",
    threads: int = 4096,
    fill: float | None = None,
) -> Callable[..., dict[str, Any]]:
    """`reward_func`, which waits until the groups of its prompts are whole, over as many calls as it takes.

    `num_generations` is OpenRLHF's `--rollout.n_samples_per_prompt`; 1 scores every sample by itself. See `Buffer` for
    `patience`, which groups of another size wait out: make `--eval.n_samples_per_prompt` the same. To guards and length
    trends an evaluation's groups are steps too, as OpenRLHF does not tell them apart. A call waits in a thread of its
    caller, and asyncio has 32 of them at most, which samples of unfinished groups would fill until nobody can come to
    finish one: made inside of a running event loop, as OpenRLHF loads the file, this gives the loop up to `threads`,
    for at least as many samples as are under way in one actor.

    Labels that are texts are references. Prompts are judged as they come, with the chat markers of the policy's
    template; `ends` are markers to take off the ends of responses ("<|im_end|>").

    OpenRLHF knows no abstention: such a sample's reward is the mean of its group (`filled`), and `abstained` in its
    logs is 1. A group without any gets the mean of its actor's latest rewards (`Filling`), or `fill`. `scores` are the
    rewards, but 0 or `fill` in a group with fewer than two: its filter (`--algo.dynamic_filtering_range`, between 0 and
    1 by default) replaces a group of zeros. A sample that is alone is an error (LoneAbstention), or gets `fill`. What
    ends the run is an error in the log too, as OpenRLHF itself goes on to one that does not say why.
    """
    buffer = Buffer(Scorer(reward, deadline, on_failure), num_generations, patience, fill=fill)
    if isinstance(ends, str):  # whose letters would be taken off
        raise AdjudgeError(f"ends is {shown(ends)}: give a list of markers")
    at_least(1, threads=threads)
    if threads < num_generations:
        raise AdjudgeError(f"threads is {threads}: give at least num_generations, {num_generations}")
    if num_generations > 1:
        _widen(threads)

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any] | None = None, **further: Any
    ) -> dict[str, Any]:
        try:
            samples = _samples(queries, prompts, labels, ends)
            futures = [buffer.put((sample.prompt, str(sample.columns["label"])), sample) for sample in samples]
            members = [future.result() for future in futures]
        except Exception as error:
            _log.error('reward "%s" failed: %s: %s', buffer.scorer.name, type(error).__name__, error)
            raise
        rewards = torch.tensor([member.filled for member in members])
        scores = torch.tensor([(fill or 0.0) if member.few else member.filled for member in members])
        abstained = torch.tensor([float(member.reward is None) for member in members])
        return {"rewards": rewards, "scores": scores, "extra_logs": {"abstained": abstained}}

    return reward_func


def _widen(threads: int) -> None:
    """Let that many calls wait at a time in the event loop that runs here, if one does."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    loop.set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="adjudge-waiting"))


def _samples(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any] | None, ends: Sequence[str]
) -> list[Sample]:
    given = [None] * len(queries) if labels is None else labels
    if not len(queries) == len(prompts) == len(given):
        raise AdjudgeError(f"{len(queries)} queries, {len(prompts)} prompts, {len(given)} labels: give one of each")
    return [_sample(*row, ends, place) for place, row in enumerate(zip(queries, prompts, given, strict=True))]


def _sample(query: str, prompt: str, label: Any, ends: Sequence[str], place: int) -> Sample:
    response = response_of(query, prompt, ends)
    if response is None:
        raise AdjudgeError(
            f"queries[{place}] does not hold prompts[{place}]: a query is a prompt with its response; leave room for"
            " both in --data.max_len"
        )
    columns = {"label": label}
    if isinstance(label, str) and label:
        columns["reference"] = label
    return Sample(prompt, response, columns)
