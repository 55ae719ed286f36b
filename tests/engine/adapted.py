"""Adapters and other weights for tiny models, and what their scores are to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.models.dummy import tiny_tokenizer
from tests.engine.reference import next_logprobs, open_reference
from tests.engine.tiny import TINY

PROMPTS = [[7, 11, 13 + n, 200, n] * (n + 1) for n in range(6)]
LABELS = ["1", "2", "3"]
EMBEDDING = "model.embed_tokens.weight"


def save_adapter(folder: Path, model: str = TINY, seed: int = 0, **how: Any) -> Any:
    """A LoRA adapter that changes much, as PEFT saves it; returns the model with it in place."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    options: dict[str, Any] = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | how
    peft: Any = get_peft_model(open_reference(model), LoraConfig(**options))
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    peft.save_pretrained(folder)
    return peft.eval()


def saved_with_tokenizer(folder: Path) -> Path:
    tiny_tokenizer().save_pretrained(folder)
    return folder


def changed(model: str, **how: Any) -> Any:
    """The same architecture with other weights, final norm included."""
    reference = open_reference(model)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return reference


def full_logprobs(engine: Engine) -> list[tuple[float, ...] | None]:
    return [score.full_logprobs for score in engine.score(PROMPTS, LABELS)]


def assert_agree(engine: Engine, reference: Any) -> None:
    ids = engine.label_ids(PROMPTS[0], LABELS)
    for prompt, found in zip(PROMPTS, full_logprobs(engine), strict=True):
        assert found == pytest.approx(next_logprobs(reference, tuple(prompt))[ids].tolist(), abs=1e-4)


def whole(engine: Engine) -> dict[str, torch.Tensor]:
    """A copy of every tensor of the model, as it is without an adapter."""
    return {name: tensor.clone() for name, tensor in engine.runner.weights.after({}).items()}


def assert_untouched(engine: Engine, before: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(tensor, before[name]) for name, tensor in whole(engine).items())
