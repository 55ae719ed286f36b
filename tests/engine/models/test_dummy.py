from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from adjudge.engine.errors import ModelNotFound, ModelUnsupported
from adjudge.engine.models.dummy import read_config, tiny_config, tiny_tokenizer
from adjudge.engine.models.sources import open_source, open_tokenizer, resolve

DENSE = ["llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "cohere2", "smollm3"]
OTHERS = ["gpt2", "gpt_neox", "falcon", "opt", "starcoder2", "glm4", "granite", "deepseek_v3", "qwen3_moe", "gpt_oss"]


def opened(name: str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    return open_source(resolve(name), dtype=dtype)


@pytest.mark.parametrize("model_type", DENSE + OTHERS)
def test_any_model_type_gives_logits_that_vary(model_type: str) -> None:
    model, tokenizer = opened(f"dummy:tiny-{model_type}")
    assert model.config.model_type == model_type
    assert not model.training
    assert sum(parameter.numel() for parameter in model.parameters()) < 2_000_000
    with torch.no_grad():
        logits = model(**tokenizer("a tiny model", return_tensors="pt")).logits
    assert torch.isfinite(logits).all()
    assert logits.std(dim=-1).min() > 0.05
    assert logits.std(dim=1).min() > 0


def test_weights_are_the_same_every_time_and_leave_the_random_state_alone() -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, _ = opened("dummy:tiny-llama")
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    second, _ = opened("dummy:tiny-llama")
    for name, weights in first.state_dict().items():
        assert torch.equal(weights, second.state_dict()[name])


def test_lower_precision_rounds_the_same_weights_and_keeps_the_rotary_frequencies() -> None:
    exact, _ = opened("dummy:tiny-llama")
    rounded, _ = opened("dummy:tiny-llama", torch.bfloat16)
    for name, weights in exact.state_dict().items():
        assert torch.equal(weights.to(torch.bfloat16), rounded.state_dict()[name])
    assert torch.equal(rounded.model.rotary_emb.inv_freq, exact.model.rotary_emb.inv_freq)


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_embeddings_can_be_tied_and_untied(model_type: str) -> None:
    tied, _ = opened(f"dummy:tiny-{model_type}-tied")
    untied, _ = opened(f"dummy:tiny-{model_type}-untied")
    assert tied.lm_head.weight is tied.model.embed_tokens.weight
    assert not torch.equal(untied.lm_head.weight, untied.model.embed_tokens.weight)


@pytest.mark.parametrize("model_type", ["llama", "gemma2", "gpt2"])
def test_a_reward_model_has_a_head_of_one_number(model_type: str) -> None:
    model, tokenizer = opened(f"dummy:tiny-{model_type}-reward")
    assert model.score.out_features == 1 and not hasattr(model, "lm_head")
    with torch.no_grad():
        rewards = {float(model(**tokenizer(text, return_tensors="pt")).logits) for text in ("a lamp", "a moth")}
    assert len(rewards) == 2
    with pytest.raises(ModelNotFound, match="no sequence classifier of the type 'cohere2'"):
        opened("dummy:tiny-cohere2-reward")


def test_a_configuration_says_which_head_its_dummy_has(tmp_path: Path) -> None:
    for name, head in (("qwen3", "lm_head"), ("qwen3-reward", "score")):
        opened(f"dummy:tiny-{name}")[0].config.save_pretrained(tmp_path)
        assert hasattr(opened(f"dummy:{tmp_path}")[0], head)


def test_no_vector_of_weights_is_left_at_its_start() -> None:
    model, _ = opened("dummy:tiny-qwen2")
    for name, vector in model.named_parameters():
        if vector.ndim == 1:
            assert vector.std() > 0.01, name


def test_kinds_of_layers_are_mixed_and_windows_are_short() -> None:
    config = tiny_config("gemma3_text")
    assert config.layer_types == ["sliding_attention", "full_attention"]
    assert config.sliding_window == 64


def test_an_unknown_model_type_names_its_neighbours() -> None:
    with pytest.raises(ModelNotFound, match="no causal model type 'qwen33'; did you mean .*qwen3"):
        opened("dummy:tiny-qwen33")


def test_a_model_that_reads_images_is_small_in_all_its_parts() -> None:
    model, _ = opened("dummy:tiny-mistral3")
    assert sum(parameter.numel() for parameter in model.parameters()) < 2_000_000
    assert type(model).__name__ == "Mistral3ForConditionalGeneration"
    assert model.config.text_config.hidden_size == 64 and model.config.vision_config.num_hidden_layers == 2


def test_the_tokenizer_has_bytes_special_tokens_and_added_ones() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer("é\x00<|im_end|><think>").input_ids == [0xC3, 0xA9, 0, 258, 259]
    assert tokenizer.decode(list("naïve 漢字\n".encode())) == "naïve 漢字\n"
    assert tokenizer.added_tokens_decoder[257].special and not tokenizer.added_tokens_decoder[259].special
    assert len(tokenizer) == 261
    turns = [{"role": "user", "content": "hi"}]
    rendered = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_a_configuration_file_is_enough(tmp_path: Path) -> None:
    config = tiny_config("qwen3")
    config.save_pretrained(tmp_path)
    by_folder, tokenizer = opened(f"dummy:{tmp_path}")
    by_file, _ = opened(f"dummy:{tmp_path / 'config.json'}")
    assert by_folder.config.model_type == "qwen3"
    assert torch.equal(by_folder.lm_head.weight, by_file.lm_head.weight)
    assert len(tokenizer) == 261


def test_a_folder_lends_its_tokenizer(tiny_gguf: Path, cache: Path) -> None:
    source = resolve(str(tiny_gguf))
    dummy = resolve(f"dummy:{source.path}")
    assert len(open_tokenizer(dummy)) == 263
    real, random = open_source(source, dtype=torch.float32), open_source(dummy, dtype=torch.float32)
    assert real.model.config.vocab_size == random.model.config.vocab_size
    assert not torch.equal(real.model.lm_head.weight, random.model.lm_head.weight)


def test_a_quantised_configuration_gives_a_dense_dummy(tmp_path: Path) -> None:
    values = tiny_config("llama").to_dict() | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert not hasattr(read_config(tmp_path / "config.json"), "quantization_config")


def test_a_vocabulary_smaller_than_the_tokenizer_is_refused(tmp_path: Path) -> None:
    config = tiny_config("llama")
    config.vocab_size = 100
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelUnsupported, match="vocab_size is 100, but the tokenizer needs 261"):
        opened(f"dummy:{tmp_path}")


def test_a_configuration_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelUnsupported, match=f"cannot build {tmp_path}"):
        opened(f"dummy:{tmp_path}")


def test_an_absent_configuration_says_what_can_be_written() -> None:
    with pytest.raises(ModelNotFound, match="there is no configuration .*dummy:tiny-llama"):
        resolve("dummy:smolm2")


def test_the_fingerprint_follows_the_configuration(tmp_path: Path) -> None:
    names = ["dummy:tiny-llama", "dummy:tiny-llama-tied", f"dummy:{tmp_path}"]
    config = tiny_config("llama")
    config.save_pretrained(tmp_path)
    prints = [resolve(name).fingerprint for name in names]
    config.rms_norm_eps = 0.5
    config.save_pretrained(tmp_path)
    prints.append(resolve(names[2]).fingerprint)
    assert len(set(prints)) == 4
    assert resolve(names[0]).fingerprint == prints[0]
