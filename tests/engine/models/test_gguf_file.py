from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, RopeScalingType, dequantize
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoTokenizer, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from adjudge.engine.errors import ModelCorrupt, ModelNotFound, ModelUnsupported
from adjudge.engine.models import gguf_file
from tests.engine.tiny_gguf import write_gguf

# llama.cpp's names of tensors that no permutation stands before, and transformers' names of them.
UNTOUCHED = {
    "token_embd.weight": "model.embed_tokens.weight",
    "blk.1.attn_v.weight": "model.layers.1.self_attn.v_proj.weight",
    "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
    "blk.1.ffn_norm.weight": "model.layers.1.post_attention_layernorm.weight",
}


def ignore(line: str) -> None:
    """A status line nobody reads."""


def test_converted_weights_are_exactly_the_dequantised_ones(tiny_gguf: Path, tmp_path: Path) -> None:
    gguf_file.convert(tiny_gguf, tmp_path, "tiny", "0" * 64)
    converted = load_file(tmp_path / "model.safetensors")
    packed = {tensor.name: tensor for tensor in GGUFReader(tiny_gguf).tensors}
    for theirs, ours in UNTOUCHED.items():
        tensor = packed[theirs]
        assert converted[ours].dtype == np.float32
        np.testing.assert_array_equal(converted[ours], dequantize(tensor.data, tensor.tensor_type))
    # Rotary halves are interleaved in GGUF: rows 0, 2, 4, ... of a head come first in transformers.
    query = packed["blk.0.attn_q.weight"]
    heads = dequantize(query.data, query.tensor_type).reshape(4, 8, 2, 64).swapaxes(1, 2).reshape(64, 64)
    np.testing.assert_array_equal(converted["model.layers.0.self_attn.q_proj.weight"], heads)


def test_texts_begin_and_end_with_the_tokens_that_the_file_names(tiny_gguf: Path, tmp_path: Path) -> None:
    gguf_file.convert(tiny_gguf, tmp_path, "tiny", "0" * 64)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (256, 258, None)


def test_conversion_prints_nothing(tiny_gguf: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gguf_file.convert(tiny_gguf, tmp_path, "tiny", "0" * 64)
    assert capfd.readouterr() == ("", "")


def test_a_file_is_converted_once(cache: Path, tiny_gguf: Path) -> None:
    lines: list[str] = []
    folder = gguf_file.converted(tiny_gguf, "0" * 64, lines.append)
    assert gguf_file.converted(tiny_gguf, "0" * 64, lines.append) == folder
    assert lines == ["converting tiny.Q4_1.gguf once"]


def test_a_file_that_lacks_weights_is_refused(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "incomplete.gguf"
    write_gguf(path, without="blk.1.ffn_down")
    with pytest.raises(ModelCorrupt, match=r"has no weights for model\.layers\.1\.mlp\.down_proj\.weight"):
        gguf_file.converted(path, "0" * 64, ignore)
    assert not list((cache / "models").glob("[!.]*"))


@pytest.mark.parametrize("length", [4, 100, 20_000])
def test_a_truncated_file_is_refused(cache: Path, tiny_gguf: Path, tmp_path: Path, length: int) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(tiny_gguf.read_bytes()[:length])
    with pytest.raises(ModelUnsupported, match=f"cannot read {path}"):
        gguf_file.converted(path, "0" * 64, ignore)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html>404</html>")
    with pytest.raises(ModelCorrupt, match="is not a GGUF file"):
        gguf_file.check(path)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no file"):
        gguf_file.check(tmp_path / "absent.gguf")


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big-00001-of-00003.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelUnsupported, match="one part of a split model"):
        gguf_file.check(path)


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "factor": 8.0}


def test_how_a_file_scales_its_rotary_embedding_is_kept(tmp_path: Path) -> None:
    def rope(name: str, **how: Any) -> dict[str, Any]:
        write_gguf(tmp_path / name, **how)
        gguf_file.convert(tmp_path / name, tmp_path / f"{name}-made", "tiny", "0" * 64)
        found: dict[str, Any] = AutoConfig.from_pretrained(tmp_path / f"{name}-made").rope_parameters
        return found

    usual = {"rope_theta": 10_000.0}
    assert rope("plain") == usual | {"rope_type": "default"}
    linear = rope("linear", scaling=(RopeScalingType.LINEAR, 4.0, 64))
    assert (linear["rope_type"], linear["factor"]) == ("linear", 4.0)
    yarn = usual | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert rope("yarn", scaling=(RopeScalingType.YARN, 4.0, 64)) == yarn
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, rope_parameters={"rope_type": "llama3", **usual, **LLAMA3}
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    factors = 10_000.0 ** (-np.arange(0, 16, 2) / 16) / scaled.numpy()
    assert sorted(factors)[-2] > 1.0 and min(factors) == pytest.approx(1.0)
    assert rope("llama3", factors=list(factors)) == usual | LLAMA3 | {"rope_type": "llama3"}
    for name, how in (
        ("own", {"factors": [1.0] * 7 + [3.0]}),
        ("long", {"scaling": (RopeScalingType.LONGROPE, 4.0, 64)}),
        ("more", {"scaling": (RopeScalingType.YARN, 4.0, 64), "attention": 2.0}),
    ):
        with pytest.raises(ModelUnsupported, match="rotary embedding .* pass the folder that it was made of"):
            rope(name, **how)
