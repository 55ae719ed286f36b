"""A GGUF file of a few kilobytes with everything that a whole one has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType, TokenType
from gguf.quants import quantize

from adjudge.engine.models.dummy import ADDED, CHATML, SPECIAL
from adjudge.engine.text.token_bytes import byte_characters


def write_gguf(
    path: Path,
    without: str = "no tensor",
    scaling: tuple[RopeScalingType, float, int] | None = None,
    factors: Sequence[float] | None = None,
    attention: float | None = None,
) -> None:
    """With a `scaling` of its rotary embedding (kind, factor, original length), or by `factors` for each frequency.

    With an `attention` factor besides.
    """
    tokens = [*byte_characters(), *SPECIAL, *ADDED, "he", "the"]
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(16)
    if scaling is not None:
        writer.add_rope_scaling_type(scaling[0])
        writer.add_rope_scaling_factor(scaling[1])
        writer.add_rope_scaling_orig_ctx_len(scaling[2])
    if attention is not None:
        writer.add_rope_scaling_attn_factors(attention)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    types = {**dict.fromkeys(SPECIAL, TokenType.CONTROL), **dict.fromkeys(ADDED, TokenType.USER_DEFINED)}
    writer.add_token_types([types.get(token, TokenType.NORMAL) for token in tokens])
    writer.add_token_merges(["h e", "t he"])  # transformers 5.17 cannot read a single one
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(258)
    writer.add_chat_template(CHATML)
    random = np.random.default_rng(0)
    matrices = {"token_embd": (len(tokens), 64)}
    vectors = ["output_norm"]
    for layer in range(2):
        sizes = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64)}
        sizes |= {"ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)}
        matrices |= {f"blk.{layer}.{name}": size for name, size in sizes.items()}
        vectors += [f"blk.{layer}.attn_norm", f"blk.{layer}.ffn_norm"]
    for name, size in matrices.items():
        weights = random.normal(scale=0.2, size=size).astype(np.float32)
        packed = quantize(weights, GGMLQuantizationType.Q4_1)
        if name != without:
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=GGMLQuantizationType.Q4_1)
    for name in vectors:
        writer.add_tensor(f"{name}.weight", random.normal(1, 0.1, 64).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
