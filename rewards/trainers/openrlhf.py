"""Rewards for OpenRLHF as a python function; `adjudge serve` has the HTTP form, /v1/rewards.

OpenRLHF loads `reward_func` from the file that `--remote_rm_url` names and calls
`reward_func(queries, prompts, labels)` with lists of texts, where a query is a prompt with its response and a label
comes from `--label_key`. It wants a dictionary of tensors: `rewards` for the advantages, `scores` for its filters,
`extra_logs` for its logs. The asynchronous sampler calls it sample by sample, from several threads.
Source: https://github.com/OpenRLHF/OpenRLHF, README, "Reinforced Fine-tuning", and examples/python/reward_func.py.

Put this into that file:

    reward_func = for_openrlhf(reward, num_generations=8)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.buffer import Buffer
from adjudge.rewards.trainers.samples import Sample
from adjudge.rewards.trainers.scoring import OnFailure, Scorer


def for_openrlhf(
    reward: Reward,
    num_generations: int = 1,
    *,
    ends: Sequence[str] = (),
    patience: float = 300.0,
    deadline: float | None = None,
    on_failure: OnFailure = "stop",
) -> Callable[..., dict[str, Any]]:
    """`reward_func`, which waits until the groups of its prompts are whole, over as many calls as it takes.

    `num_generations` is OpenRLHF's `--n_samples_per_prompt`; 1 scores every sample by itself. See `Buffer` for
    `patience`. A call waits in a thread of its caller: there must be as many threads as samples under way. Labels that
    are texts are references. Prompts are judged as they come, with the chat markers of the policy's template; `ends`
    are markers to take off the ends of responses ("<|im_end|>").

    OpenRLHF knows no abstention: such a sample's reward is the mean of its group (`filled`), and `abstained` in its
    logs is 1.
    """
    buffer = Buffer(Scorer(reward, deadline, on_failure), num_generations, patience)

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any] | None = None, **further: Any
    ) -> dict[str, Any]:
        given = [None] * len(queries) if labels is None else labels
        if not len(queries) == len(prompts) == len(given):
            raise AdjudgeError(f"{len(queries)} queries, {len(prompts)} prompts, {len(given)} labels: give one of each")
        samples = [_sample(*row, ends, place) for place, row in enumerate(zip(queries, prompts, given, strict=True))]
        futures = [buffer.put((sample.prompt, str(sample.columns["label"])), sample) for sample in samples]
        members = [future.result() for future in futures]
        rewards = torch.tensor([member.filled for member in members])
        abstained = torch.tensor([float(member.reward is None) for member in members])
        return {"rewards": rewards, "scores": rewards.clone(), "extra_logs": {"abstained": abstained}}

    return reward_func


def _sample(query: str, prompt: str, label: Any, ends: Sequence[str], place: int) -> Sample:
    start = query.find(prompt)  # a token that begins every text may stand before it
    if start < 0:
        raise AdjudgeError(f"queries[{place}] does not hold prompts[{place}]: a query is a prompt with its response")
    response = query[start + len(prompt) :]
    while end := next((end for end in ends if end and response.endswith(end)), None):
        response = response.removesuffix(end)
    columns = {"label": label}
    if isinstance(label, str) and label:
        columns["reference"] = label
    return Sample(prompt, response, columns)
