from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.errors import ModelNotFound, ModelUnsupported
from adjudge.engine.models.adapters import CONFIG
from adjudge.engine.models.merging import ADAPTER
from adjudge.training.house.averaging import average, check_alike, half_precision
from tests.engine.adapted import save_adapter


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    save_adapter(folder)
    return folder


def test_an_adapter_in_half_precision_is_half_the_size_and_does_nearly_the_same(adapter: Path) -> None:
    size, before = (adapter / ADAPTER).stat().st_size, load_file(adapter / ADAPTER)
    half_precision(adapter)
    assert (adapter / ADAPTER).stat().st_size < 0.6 * size
    after = load_file(adapter / ADAPTER)
    assert all(torch.allclose(after[name].float(), before[name], rtol=2**-8) for name in before)


def test_the_average_of_adapters_lies_between_them(adapter: Path, tmp_path: Path) -> None:
    shutil.copytree(adapter, tmp_path / "later")
    before = load_file(adapter / ADAPTER)
    save_file({name: tensor + 1 for name, tensor in before.items()}, tmp_path / "later" / ADAPTER)
    average(tmp_path / "later", adapter, 0.25)
    after = load_file(tmp_path / "later" / ADAPTER)
    assert all(torch.allclose(after[name].float(), before[name].float() + 0.75, atol=0.02) for name in before)


def test_adapters_of_different_forms_are_not_averaged(adapter: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    check_alike(adapter, other)

    config = json.loads((adapter / CONFIG).read_text())
    (other / CONFIG).write_text(json.dumps({**config, "lora_alpha": 32}))
    with pytest.raises(ModelUnsupported, match=r"adapter and .*other differ in form \(at lora_alpha\)"):
        check_alike(adapter, other)

    shutil.copy(adapter / CONFIG, other / CONFIG)
    tensors = load_file(adapter / ADAPTER)
    left_out = sorted(tensors)[0]
    save_file({name: tensor for name, tensor in tensors.items() if name != left_out}, other / ADAPTER)
    with pytest.raises(ModelUnsupported, match=left_out):
        check_alike(adapter, other)
    with pytest.raises(ModelNotFound, match="holds no adapter"):
        check_alike(adapter, tmp_path / "nowhere")
