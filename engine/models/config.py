"""What is read off a model's modules and configuration before it runs here, and what is fixed there."""

from __future__ import annotations

from typing import Any

from torch import nn

from adjudge.engine.errors import ModelUnsupported


def head_width(decoder: nn.Module, config: Any) -> int:
    """How wide a head of attention is, the widest where layers differ."""
    try:
        return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    except RuntimeError:  # of a configuration that has one for each layer
        widths = [getattr(module, "head_dim", None) for module in decoder.modules() if hasattr(module, "layer_idx")]
        return max(width for width in widths if isinstance(width, int))


def mixes_tokens(module: nn.Module) -> bool:
    """Whether a layer's name tells that tokens meet in it in another way than by attention."""
    name = type(module).__name__.lower()
    return any(
        word in name for word in ("conv", "mamba", "ssm", "recurrent", "rglru", "rwkv", "deltanet", "linearattention")
    )


def fix_rope(model: Any) -> None:
    """Fix rope factors that would follow the longest position of each batch to those of the configured context."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    context = getattr(model.config.get_text_config(), "max_position_embeddings", 0)
    for module in model.modules():
        kind = getattr(module, "rope_type", None)
        if isinstance(kind, str) and (kind == "longrope" or "dynamic" in kind):
            frequencies, module.attention_scaling = ROPE_INIT_FUNCTIONS[kind](
                module.config, model.device, seq_len=context
            )
            module.inv_freq.copy_(frequencies)
            module.rope_type = "default"
        elif isinstance(kind, dict) and any(k == "longrope" or "dynamic" in k for k in kind.values()):
            raise ModelUnsupported(
                f"{type(model).__name__} changes its rope factors by layer and by length: choose another model"
            )


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a text: those that the model's files name, and the tokenizer's, which they may not name."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if ends is None:
        ends = getattr(model.config.get_text_config(), "eos_token_id", None)
    named = ends if isinstance(ends, (list, tuple)) else (ends,)
    return frozenset({*named, tokenizer.eos_token_id} - {None})
