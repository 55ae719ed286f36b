from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from adjudge.engine.engine import Engine
from adjudge.engine.errors import ModelCorrupt, ModelUnsupported
from adjudge.engine.models.adapters import Base, write_base
from adjudge.engine.models.aliases import ALIASES, HOUSE, bare
from adjudge.engine.models.merging import ADAPTER, WEIGHTS, merge
from adjudge.engine.models.sources import open_source, resolve


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    """A model's folder, and that of an adapter of it whose numbers are not zero."""
    model, tokenizer = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    one = "model.layers.1.self_attn.q_proj"
    other = {"rank_pattern": {one: 6}, "alpha_pattern": {one: 3}}
    form = LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules="all-linear", **other)
    peft = get_peft_model(model, form)
    torch.manual_seed(0)
    for name, weight in peft.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    peft.save_pretrained(adapter)
    return base, adapter


def test_a_merged_model_scores_as_the_adapter_over_its_base_does(saved: tuple[Path, Path], tmp_path: Path) -> None:
    base, adapter = saved
    merged = tmp_path / "merged"
    merged.mkdir()
    merge(base, adapter, merged)
    prompts, labels = ["one two three", "another text to score"], ["a", "b", "c"]
    alone, laid, whole = (
        [score.probabilities for score in Engine(str(model), adapter=over).score(prompts, labels)]
        for model, over in ((base, None), (base, adapter), (merged, None))
    )
    assert all(one == pytest.approx(other, abs=1e-5) for one, other in zip(laid, whole, strict=True))
    assert any(one != pytest.approx(other, abs=1e-3) for one, other in zip(alone, whole, strict=True))


def test_an_adapter_of_another_base_is_refused_with_both_names(saved: tuple[Path, Path], tmp_path: Path) -> None:
    base, adapter = saved
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "some-other"}))
    narrower = {name: tensor[..., :-1].contiguous() for name, tensor in load_file(base / WEIGHTS).items()}
    (tmp_path / "narrower").mkdir()
    save_file(narrower, tmp_path / "narrower" / WEIGHTS)
    with pytest.raises(ModelUnsupported, match="is of some-other, and does not fit narrower"):
        merge(tmp_path / "narrower", adapter, tmp_path)


def test_an_adapter_says_what_it_was_trained_over_and_is_refused_elsewhere(saved: tuple[Path, Path]) -> None:
    base, adapter = saved
    write_base(adapter, Base("their-model", Engine(str(base)).fingerprint))
    assert Engine(str(base), adapter=adapter).adapter is not None
    with pytest.raises(ModelUnsupported, match="was trained over their-model, and this is dummy:tiny-llama: open it"):
        Engine("dummy:tiny-llama", adapter=adapter)
    write_base(adapter, Base("dummy:tiny-llama", "of another day"))
    with pytest.raises(ModelUnsupported, match="over a dummy:tiny-llama of other weights .* or remove its base.json"):
        Engine("dummy:tiny-llama", adapter=adapter)
    write_base(adapter, Base("their-model", Engine(str(base)).fingerprint))
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == "their-model"
    (adapter / "base.json").write_text("{broken")
    with pytest.raises(ModelCorrupt, match="base.json of the adapter in .* is unreadable"):
        Engine(str(base), adapter=adapter)


def test_an_adapter_with_another_models_name_and_no_more_is_warned_of(
    saved: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    base, adapter = saved
    config = json.loads((adapter / "adapter_config.json").read_text())
    for name, warned in (("somebody/their-model", True), (f"somebody/{base.name.upper()}", False), (None, False)):
        caplog.clear()
        (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": name}))
        assert Engine(str(base), adapter=adapter, kv_cache_gb=0.05).adapter is not None
        assert (f"was trained over {name}, and this is {base}" in caplog.text) == warned


def test_the_house_judge_is_the_writing_model_with_its_adapter() -> None:
    assert ALIASES["house"] is HOUSE and HOUSE.sha256 == ALIASES["smollm2-135m"].sha256
    assert HOUSE.fingerprint != ALIASES["smollm2-135m"].fingerprint
    assert HOUSE.adapter is not None and (HOUSE.adapter / ADAPTER).stat().st_size <= 12_000_000
    other = msgspec.structs.replace(HOUSE, adapter=None)
    assert other.fingerprint == ALIASES["smollm2-135m"].fingerprint
    assert [bare(name) for name in ("house", "smollm2-135m", "a/b")] == ["smollm2-135m", "smollm2-135m", "a/b"]
