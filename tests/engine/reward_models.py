"""Tiny reward models with random weights, saved as transformers and PEFT save them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.models.dummy import tiny_config, tiny_tokenizer
from tests.engine.reference import open_reference


def save_reward_model(folder: Path, model: str = "llama", seed: int = 0, labels: int = 1, **config: Any) -> Any:
    """A sequence classifier with random weights, vectors moved off their ones and zeros; returns it."""
    settings = tiny_config(model)
    settings.num_labels = labels
    for name, value in config.items():
        setattr(settings, name, value)
    torch.manual_seed(seed)
    classifier: Any = AutoModelForSequenceClassification.from_config(settings, attn_implementation="eager")
    with torch.no_grad():
        for parameter in classifier.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    classifier.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return classifier.eval()


def save_reward_adapter(folder: Path, base: Any, seed: int = 0, **how: Any) -> Any:
    """A LoRA adapter on a sequence classifier, and the head it was trained with; returns the model with both."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    options: dict[str, Any] = {"r": 4, "target_modules": "all-linear", "task_type": "SEQ_CLS"} | how
    peft: Any = get_peft_model(base, LoraConfig(**options))
    for name, parameter in peft.named_parameters():
        if "lora_B" in name or "modules_to_save" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    peft.save_pretrained(folder)
    return peft.eval()


def save_base(folder: Path, model: str, seed: int) -> Any:
    """A causal language model in a folder; returns it."""
    reference = open_reference(f"dummy:tiny-{model}")
    reference.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return reference


def save_two_adapters(folder: Path) -> Any:
    """A causal model `base`, and the reward adapters `old` and `new` over it; returns the model with the new one."""
    save_base(folder / "base", "llama", 0)
    for seed, name in enumerate(("old", "new")):
        base = AutoModelForSequenceClassification.from_pretrained(folder / "base", num_labels=1)
        newest = save_reward_adapter(folder / name, base, seed)
    return newest


def change_before_first_step(engine: AsyncEngine, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another adapter comes between the next reward call, once it has looked at the head, and its first step."""
    begun = engine.open_embed

    async def open_embed(*prompts: Any, **how: Any) -> Any:
        monkeypatch.setattr(engine, "open_embed", begun)
        await engine.update_weights(adapter=adapter)
        return await begun(*prompts, **how)

    monkeypatch.setattr(engine, "open_embed", open_embed)


@torch.inference_mode()
def own_reward(model: Any, tokens: tuple[int, ...]) -> float:
    """The reward as the model's own class computes it, alone in its batch."""
    return float(model(input_ids=torch.tensor([tokens]), use_cache=False).logits.flatten()[0])
