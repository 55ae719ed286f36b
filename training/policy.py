"""The policy of a recipe: its weights, its tokenizer, and the adapter that is laid over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.reward_head import NAMES
from adjudge.engine.models.sources import ModelSource, OpenModel, open_source, resolve
from adjudge.training.recipe import Policy


def open_policy(policy: Policy, folder: Path, *, gpu: bool) -> OpenModel:
    """The policy ready to be trained, on CPU, and its tokenizer.

    Trainers open its folder again for the reference of the KL term; one with random weights (dummy:...) has none, and
    is written to `folder` first. Raises what `resolve` and `open_source` do.
    """
    import torch

    source = resolve(policy.model)
    if source.kind == "dummy":
        source = _written(source, folder)
    # An adapter's weights are kept in float32 by peft itself.
    exact = policy.method == "full" or not computes_bfloat16(policy, gpu=gpu)
    model, tokenizer = open_source(source, dtype=torch.float32 if exact else torch.bfloat16)
    tokenizer.padding_side = "left"
    if tokenizer.eos_token is None:
        raise AdjudgeError(f"the tokenizer of {policy.model} has no end-of-text token: give the model one that has")
    model.config.name_or_path = source.path
    return OpenModel(model.train().requires_grad_(True), tokenizer)


def computes_bfloat16(policy: Policy, *, gpu: bool) -> bool:
    """Whether the policy computes in bfloat16, on a machine with or without a GPU."""
    return policy.dtype == "bfloat16" or (policy.dtype == "auto" and gpu)


def room(max_tokens: int, model: Any) -> int:
    """The longest text in tokens that a recipe and the context of its model allow."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return min(max_tokens, context or max_tokens)


def adapter_over(model: Any, policy: Policy, task: str = "CAUSAL_LM") -> Any:
    """The peft configuration of the adapter that is trained, `task` as peft calls it; None where all weights are.

    Raises AdjudgeError for a target that is no layer of the model, or its head, over which engines lay none.
    """
    if policy.method == "full":
        return None
    import torch
    from peft import LoraConfig

    lora, head = policy.lora, model.get_output_embeddings()
    layers = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer is not head and name not in NAMES
    ]
    for target in () if lora.targets == "all" else lora.targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            known = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in layers))
            raise AdjudgeError(
                f'[policy.lora] targets has "{target}", which is no layer that an adapter goes over: they are {known}'
            )
    return LoraConfig(
        task_type=task,
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear" if lora.targets == "all" else list(lora.targets),
    )


def _written(source: ModelSource, folder: Path) -> ModelSource:
    """A dummy, written to a folder, once for all processes."""
    import torch
    from accelerate import PartialState

    with PartialState().main_process_first():
        if not (folder / "config.json").is_file():
            model, tokenizer = open_source(source, dtype=torch.float32)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    return msgspec.structs.replace(source, kind="folder", path=str(folder))
