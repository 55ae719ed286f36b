"""Models with random weights, for benchmarks and tests: any configuration, no download."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adjudge.engine.errors import ModelNotFound, ModelUnsupported, reason
from adjudge.engine.models.classes import model_class
from adjudge.engine.models.quiet import quiet

if TYPE_CHECKING:
    import torch

SEED = 0
RECIPE = 1
"""Raise this when the same name begins to give other weights."""

TINY = "tiny-"
REWARD = "-reward"
TINY_VOCABULARY = 272
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<think>", "</think>")
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

LARGE = 200_000_000
"""From this many parameters on, weights are drawn on the device itself: faster, but other numbers than on a CPU."""


def tiny_config(spec: str) -> Any:
    """A configuration of `<model_type>`, `<model_type>-tied` or `<model_type>-untied`, a few hundred kilobytes large.

    `<model_type>-reward` is that of a reward model: a sequence classifier with one label.

    At least two layers, one of each kind the architecture mixes; sliding windows of 64 tokens, so that tests reach past
    them; weights wide enough that logits differ. Raises ModelNotFound for a type that transformers does not know.
    """
    from transformers import CONFIG_MAPPING, AutoConfig
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    )

    if spec.endswith(REWARD):
        config = tiny_config(base := spec.removesuffix(REWARD))
        if (classifier := MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.get(config.model_type)) is None:
            raise ModelNotFound(f"dummy:tiny-{spec}: transformers knows no sequence classifier of the type {base!r}")
        config.architectures, config.num_labels = [classifier], 1
        return config
    model_type, _, tying = spec.rpartition("-") if spec.endswith(("-tied", "-untied")) else (spec, "", "")
    known = {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES} & {*CONFIG_MAPPING}
    if model_type not in known:
        near = difflib.get_close_matches(model_type, sorted(known), 3)
        hint = f"did you mean {', '.join(near)}?" if near else "try tiny-llama"
        raise ModelNotFound(f"dummy:tiny-{spec}: transformers knows no causal model type {model_type!r}; {hint}")
    with _buildable(f"dummy:tiny-{spec}"):
        sizes = _tiny_sizes(AutoConfig.for_model(model_type))
        if tying:
            sizes["tie_word_embeddings"] = tying == "tied"
        return AutoConfig.for_model(model_type, **sizes)


def _tiny_sizes(usual: Any) -> dict[str, Any]:
    """Small values for the sizes that a model type has, given its usual configuration; where it has parts, of each."""
    if usual.get_text_config(decoder=True) is not usual:
        parts = {name: part for name in usual.sub_configs if (part := getattr(usual, name, None)) is not None}
        pad = {"pad_token_id": TINY_VOCABULARY - 1}  # some need one in the place of an image's tokens
        return {name: {"model_type": part.model_type, **_tiny_sizes(part), **pad} for name, part in parts.items()}
    sizes: dict[str, Any] = {
        "vocab_size": TINY_VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        "initializer_range": 0.2,
        "bos_token_id": 256,
        "eos_token_id": 258,
        "pad_token_id": None,  # its row of the embeddings would be zero
    }
    experts = {
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "num_experts": 4,
        "num_local_experts": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
    }
    images = {"depth": 2, "num_heads": 4, "embed_dim": 64, "out_hidden_size": 64, "num_position_embeddings": 16}
    others = {"vocab_size_per_layer_input": TINY_VOCABULARY}
    sizes |= {name: size for name, size in (experts | images | others).items() if hasattr(usual, name)}
    if (rope := getattr(usual, "rope_parameters", None)) and usual.model_type.endswith(("vl_text", "v_text")):
        quarter = int(2 * rope.get("partial_rotary_factor", 1))  # of half a head; by default that is a large one's
        sizes["rope_parameters"] = {**rope, "mrope_section": [quarter, quarter, 2 * quarter]}
    if hasattr(usual, "qk_rope_head_dim"):  # latent attention
        sizes |= {"num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32}
        sizes |= {"head_dim": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
    if getattr(usual, "sliding_window", None):
        sizes["sliding_window"] = 64
    if hasattr(usual, "rotary_dim"):
        sizes["rotary_dim"] = 8
    if kinds := list(dict.fromkeys(vars(usual).get("layer_types") or ())):
        sizes["layer_types"] = (kinds * 2)[: max(2, len(kinds))]
        sizes["num_hidden_layers"] = len(sizes["layer_types"])
    kinds_of = {name: getattr(type(usual), name, None) for name in sizes}
    fixed = {name for name, kind in kinds_of.items() if isinstance(kind, property) and kind.fset is None}
    return {name: size for name, size in sizes.items() if name not in fixed}


def tiny_tokenizer() -> Any:
    """A byte-level tokenizer without merges: 256 bytes, three special tokens, two added ones; ChatML template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from adjudge.engine.text.token_bytes import byte_characters

    vocabulary = {character: place for place, character in enumerate(byte_characters())}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=backend,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[0],
        chat_template=CHATML,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )


def read_config(path: Path) -> Any:
    """The configuration in a config.json, without its quantisation."""
    from transformers import AutoConfig

    with _buildable(str(path)):
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


@contextlib.contextmanager
def _buildable(name: str) -> Iterator[None]:
    """Turn whatever a configuration fails with, there are as many ways as architectures, into ModelUnsupported."""
    try:
        with quiet():
            yield
    except Exception as error:
        raise ModelUnsupported(
            f"transformers cannot build {name} ({reason(error)}): pass another configuration"
        ) from error


def random_model(name: str, config: Any, dtype: torch.dtype, device: torch.device | str) -> Any:
    """A model of the configuration's class, weights drawn from a fixed seed; the global random state stays as it was.

    Up to LARGE parameters the numbers are drawn on the CPU in float32 and rounded, so that they agree across devices
    and dtypes. Vectors (norm weights, biases) are moved off their usual ones and zeros, so that none can be forgotten.
    """
    import torch

    auto = model_class(name, config)

    def empty(dtype: torch.dtype, device: torch.device | str) -> Any:
        with torch.device(device):
            return auto.from_config(config, dtype=dtype)

    with _buildable(name):
        count = sum(parameter.numel() for parameter in empty(dtype, "meta").parameters())
    if name.startswith(f"dummy:{TINY}") and count > LARGE // 4:
        raise ModelUnsupported(f"{name} has {count:,} parameters: name the model type of its text part alone")
    with quiet():
        if count > LARGE:
            return _drawn(lambda: empty(dtype, device), torch.device(device))
        model = _drawn(lambda: empty(torch.float32, "cpu"), torch.device("cpu"))
        if dtype != torch.float32:  # a cast of the whole model would round its rotary frequencies too
            exact, model = model, empty(dtype, "cpu")
            model.load_state_dict(exact.state_dict())
        return model.to(device)


def _drawn(make: Any, device: torch.device) -> Any:
    import torch

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        torch.manual_seed(SEED)
        model = make()
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model
