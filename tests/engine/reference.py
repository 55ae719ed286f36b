"""Plain transformers, one prompt at a time: what the engine's scores are compared with."""

from __future__ import annotations

from typing import Any

import torch

from adjudge.engine.models.sources import open_source, resolve


def open_reference(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """The model as transformers runs it, with its eager attention."""
    model = open_source(resolve(name), dtype=dtype).model
    model.set_attn_implementation("eager")
    return model


@torch.inference_mode()
def next_logprobs(model: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    """Log-probabilities of every next token, in float64 from the model's logits."""
    logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
    return torch.log_softmax(logits.double(), -1)
