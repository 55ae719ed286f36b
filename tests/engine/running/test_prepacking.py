"""Weights that an engine on CPU keeps prepacked beside the plain ones: its answers know nothing of them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.running import memory, runner
from adjudge.kernels import prepacked_weights
from adjudge.kernels.linear import agreeing_rows, prepacking_agrees
from adjudge.kernels.prepacked_weights import prepacking_of
from tests.engine.adapted import LABELS, PROMPTS, changed
from tests.engine.tiny import TINY

LAYER = "model.layers.0.self_attn.q_proj.weight"


def opened(monkeypatch: pytest.MonkeyPatch, prepacked_bytes: int, name: str = TINY) -> Engine:
    monkeypatch.setattr(runner, "PREPACKED_BYTES", prepacked_bytes)
    return Engine(name, kv_cache_gb=0.05)


def answers(engine: Engine) -> tuple[Any, ...]:
    return engine.score(PROMPTS, LABELS), engine.generate(PROMPTS, max_tokens=9, seed=3, logprobs=2)


def kept(engine: Engine) -> list[str]:
    """The weights that have a prepacking, by name."""
    return [name for name, weight in engine.runner.model.named_parameters() if prepacking_of(weight) is not None]


@pytest.mark.parametrize("name", [TINY, "dummy:tiny-llama-tied", "dummy:tiny-qwen2"])
def test_answers_are_the_same_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepacked, plain = opened(monkeypatch, 1 << 30, name), opened(monkeypatch, 0, name)
    assert not kept(plain) and any("mlp" in one for one in kept(prepacked))
    assert any("embed" in one or "head" in one for one in kept(prepacked)), "the head's is kept too"
    assert answers(prepacked) == answers(plain)


def test_changed_weights_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, plain = opened(monkeypatch, 1 << 30), opened(monkeypatch, 0)
    new = changed(TINY).state_dict()
    before = answers(engine)
    for one in (engine, plain):
        one.update_weights(new)
    assert answers(engine) == answers(plain) != before
    only = {LAYER: torch.zeros_like(new[LAYER])}
    for one in (engine, plain):
        one.update_weights(only)
    assert answers(engine) == answers(plain)


def test_the_first_layers_are_kept_where_there_is_no_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.empty(64, 64).nbytes
    assert kept(opened(monkeypatch, layer)) == [LAYER]
    assert kept(opened(monkeypatch, layer - 1)) == []
    for spare, names in ((8 * layer, [LAYER]), (8 * layer - 1, []), (0, [])):
        monkeypatch.setattr(runner, "spare_memory", lambda spare=spare: spare)
        assert kept(opened(monkeypatch, 1 << 30)) == names
    monkeypatch.setattr(runner, "spare_memory", lambda: None)
    assert len(kept(opened(monkeypatch, 1 << 30))) > 10


def test_what_a_host_has_to_spare_is_read_where_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    monkeypatch.setattr(memory, "MEMINFO", path)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.spare_memory() is None
    path.write_text("MemTotal:       24736148 kB\nMemAvailable:   23736148 kB\nHugePages_Total:       0\n")
    assert memory.spare_memory() == 23736148 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    for limit, spare in (("max\n", 23736148 * 1024), ("5000\n", 4000), ("900\n", 0)):
        (tmp_path / "memory.max").write_text(limit)
        assert memory.spare_memory() == spare
    (tmp_path / "memory.max").write_text("5000\n")
    for told, spare in (("anon 90\nactive_file 200\ninactive_file 50\n", 4250), ("anon 90\n", 4000), ("odd\n", 4000)):
        (tmp_path / "memory.stat").write_text(told)
        assert memory.spare_memory() == spare
    (tmp_path / "memory.max").unlink()
    for strange in ("", "MemTotal: 1 kB\n", "MemAvailable: much\n", "no\n"):
        path.write_text(strange)
        assert memory.spare_memory() is None


def test_prepacked_weights_go_with_their_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = len(prepacked_weights._prepackings)
    engine = opened(monkeypatch, 1 << 30)
    answers(engine)
    layer = engine.runner.model.get_parameter(LAYER)
    kind = *layer.shape[::-1], layer.dtype, False, torch.get_num_threads()
    prepacking = prepacking_of(layer)
    assert prepacking and bool(prepacking._parts) == (agreeing_rows(*kind) > 0 and prepacking_agrees(*kind))
    del engine, layer, prepacking
    gc.collect()
    assert len(prepacked_weights._prepackings) == before
