"""verl's reward loop and OpenRLHF's rollouts themselves, on rewards from here; skipped where they are not installed.

    pip install --no-deps verl openrlhf
    pip install aiohttp tensordict hydra-core omegaconf codetiming torchdata orjson pylatexenc
    pytest tests/rewards/trainers/test_real_trainers.py

on a CPU, in an environment of their own (with this project in it): their dependencies are GPU builds of torch and vLLM.
"""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers.normalizers import NFC
from transformers import AutoTokenizer

from adjudge.engine.models.sources import resolve

RESPONSES = ("It rained.", "It rained, and then it stopped.", "No.")
LENGTHS = [len(response) for response in RESPONSES]
RELATIVE = [length - sum(LENGTHS) / len(LENGTHS) for length in LENGTHS]
PROMPTS = ("Tell of rain.", "Tell of the e\u0301te\u0301.")  # which tokenizers like Qwen's compose


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    found = AutoTokenizer.from_pretrained(resolve("smollm2-135m").path)
    found.backend_tokenizer.normalizer = NFC()
    return found


def reward_file(folder: Path, trainer: str, made: str) -> Path:
    path = folder / "reward.py"
    path.write_text(
        textwrap.dedent(f"""
        from adjudge import for_{trainer}
        from tests.rewards.trainers.rewards import Relative

        {made}
        """)
    )
    return path


def test_verls_reward_loop_scores_whole_groups_of_single_samples(tmp_path: Path, tokenizer: Any) -> None:
    reward_loop = pytest.importorskip("verl.experimental.reward_loop.reward_manager")
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.reward import get_custom_reward_fn

    path = reward_file(tmp_path, "verl", 'compute_score = for_verl(Relative(), {"train": 3, "test": 1})')
    function = get_custom_reward_fn(
        OmegaConf.create({"reward": {"custom_reward_function": {"path": str(path), "name": "compute_score"}}})
    )

    def sample(prompt: str, response: str, split: str) -> Any:
        ids = torch.tensor([tokenizer(response, add_special_tokens=False)["input_ids"]])
        columns = {
            "data_source": "rain",
            "reward_model": {"ground_truth": None},
            "extra_info": {"index": PROMPTS.index(prompt), "split": split},
            "tool_extra_fields": {"raw_prompt": [{"role": "user", "content": prompt}]},
        }
        return DataProto.from_dict(
            {
                "prompts": ids[:, :1],
                "responses": ids,
                "attention_mask": torch.ones(1, 1 + ids.shape[1], dtype=torch.long),
            },
            {name: [value] for name, value in columns.items()},
        )

    async def scored(split: str) -> list[Any]:
        manager = reward_loop.get_reward_manager_cls("naive")(OmegaConf.create({}), tokenizer, function)
        samples = [sample(prompt, response, split) for response in RESPONSES for prompt in PROMPTS]
        return await asyncio.gather(*map(manager.run_single, samples))

    results = asyncio.run(scored("train"))
    for place in range(len(PROMPTS)):
        group = results[place :: len(PROMPTS)]
        assert [result["reward_score"] for result in group] == pytest.approx(RELATIVE)
        assert [result["reward_extra_info"]["abstained"] for result in group] == [0.0] * 3
    assert [result["reward_score"] for result in asyncio.run(scored("test"))] == [0.0] * 6  # groups of one


def test_openrlhfs_rollouts_score_whole_groups_of_single_samples(tmp_path: Path, tokenizer: Any) -> None:
    agent = pytest.importorskip("openrlhf.utils.agent")
    path = reward_file(tmp_path, "openrlhf", 'reward_func = for_openrlhf(Relative(), 3, ends=["<|im_end|>"])')

    class Policy:
        def __init__(self, response: str) -> None:
            self.token_ids = tokenizer(response + "<|im_end|>", add_special_tokens=False)["input_ids"]

        async def generate(self, *_: Any, **__: Any) -> Any:
            output = SimpleNamespace(token_ids=self.token_ids, finish_reason="stop", logprobs=None)
            return SimpleNamespace(outputs=[output])

    async def scored() -> list[Any]:
        executor = agent.SingleTurnAgentExecutor(str(path))
        sampling = SimpleNamespace(max_tokens=64, logprobs=None)
        return await asyncio.gather(
            *(
                executor.execute(f"<|im_start|>{prompt}\n", "", sampling, 128, tokenizer, Policy(response))
                for response in RESPONSES
                for prompt in PROMPTS
            )
        )

    results = asyncio.run(scored())
    for place in range(len(PROMPTS)):
        group = results[place :: len(PROMPTS)]
        assert [float(result["reward"]) for result in group] == pytest.approx(RELATIVE)
        assert [float(result["extra_logs"]["abstained"]) for result in group] == [0.0] * 3
