"""Memory that an engine gives back and takes again."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.models.adapters import attach
from adjudge.engine.running import memory, runner
from adjudge.engine.running.packed_decoder import PROBE_BLOCKS
from adjudge.kernels.paged_kv import PagedKV
from tests.engine.adapted import (
    EMBEDDING,
    LABELS,
    PROMPTS,
    TINY,
    changed,
    full_logprobs,
    save_adapter,
)


@pytest.fixture
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


def test_a_sleeping_engine_holds_no_cache_and_wakes_as_it_was(engine: Engine) -> None:
    before = full_logprobs(engine)
    for _ in range(50):
        caches = [weakref.ref(cache) for cache in engine.runner.layers.values()]
        assert caches
        engine.sleep()
        engine.sleep()
        assert not any(cache() for cache in caches)
        assert engine.cache.pool.free == engine.cache.pool.usable
        for call in (lambda: engine.score(PROMPTS, LABELS), lambda: engine.update_weights(adapter=None)):
            with pytest.raises(AdjudgeError, match="asleep"):
                call()
        engine.wake()
        assert full_logprobs(engine) == before


def test_the_cache_is_sized_anew_at_every_waking_and_never_grows_beyond_what_is_free(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before, usual, longest = full_logprobs(engine), engine.cache.pool.count, engine.max_prompt_tokens
    half = (usual - 1) // 2 * engine.runner._block_bytes
    with monkeypatch.context() as patch:
        for free, blocks in ((half, 1 + (usual - 1) // 2), (2 * half, 1 + (usual - 1) // 2 * 2)) * 3:
            patch.setattr(runner, "cache_bytes", lambda *_, free=free: free)
            pool = weakref.ref(engine.cache.pool)
            engine.sleep()
            engine.wake()
            assert pool() is None
            assert engine.runner.blocks == engine.cache.pool.count == blocks
            assert full_logprobs(engine) == before
            assert {cache.key.shape[0] for cache in engine.runner.layers.values()} == {blocks}
        patch.setattr(runner, "cache_bytes", lambda *_: 3 * engine.runner._block_bytes)
        engine.sleep()
        engine.wake()
        assert "room for prompts of 32 tokens, not" in caplog.text
        assert engine.max_prompt_tokens == longest, "texts are shortened alike all along"
        with pytest.raises(AdjudgeError, match="woke with room for 32 tokens, and this needs 4.: leave it more memory"):
            engine.score([list(range(5, 45))], [" a", " b"])
        with pytest.raises(AdjudgeError, match="woke with room for 32 tokens, and this needs 36"):
            engine.generate([[5, 6]], max_tokens=34)
        engine.generate([[5, 6]], max_tokens=5)
        [whole] = engine.generate([[5, 6]], max_tokens=longest, ignore_eos=True)
        assert (len(whole.token_ids), whole.finish_reason) == (30, "length")
        patch.setattr(runner, "cache_bytes", lambda *_: 0)
        engine.sleep()
        with pytest.raises(ModelUnsupported, match="no room for one block of LlamaForCausalLM"):
            engine.wake()
        assert engine.asleep and not engine.runner.layers
    engine.wake()
    assert engine.cache.pool.count == usual and full_logprobs(engine) == before


def test_texts_are_as_long_as_before_where_an_engine_wakes_to_more_room(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "cache_bytes", lambda *_: 5 * engine.runner._block_bytes)
    crowded = Engine(TINY)
    longest = crowded.max_prompt_tokens
    monkeypatch.undo()
    crowded.sleep()
    crowded.wake()
    assert crowded._room() > longest == crowded.max_prompt_tokens
    for left, most in ((3, 3), (3, 2), (4, 500)):
        [text] = crowded.generate([[7] * (longest - left)], max_tokens=most, ignore_eos=True)
        assert len(text.token_ids) == min(left, most)


def test_a_cache_takes_what_it_is_given_or_a_share_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ({0: 1000, 1: 500}[device.index], 2000))
    assert [memory.cache_bytes(torch.device("cuda", place), None) for place in (0, 1)] == [800, 400]
    monkeypatch.setattr(memory, "spare_memory", lambda: 64 << 30)
    assert memory.cache_bytes(torch.device("cpu"), None) == 4 << 30
    for device in ("cpu", "cuda"):
        assert memory.cache_bytes(torch.device(device), 0.5) == 1 << 29


def test_the_cache_is_whole_when_an_engine_is_open_and_its_first_step_makes_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stores(engine: Engine) -> list[int]:
        return [cache.key.data_ptr() for cache in engine.runner.layers.values()]

    made = stores(engine)
    assert len(made) == engine.runner.config.num_hidden_layers
    assert {cache.key.shape[0] for cache in engine.runner.layers.values()} == {engine.cache.pool.count}
    monkeypatch.setattr(PagedKV, "empty", None)
    full_logprobs(engine)
    assert stores(engine) == made


def test_the_cache_is_sized_after_the_adapter_is_on_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []
    monkeypatch.setattr(runner, "cache_bytes", lambda *_: seen.append("cache") or 1 << 20)
    monkeypatch.setattr(runner, "attach", lambda *how: (seen.append("adapter"), attach(*how))[1])
    save_adapter(tmp_path)
    Engine(TINY, adapter=tmp_path)
    assert seen == ["adapter", "cache"]


@pytest.mark.parametrize("failure", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate")])
def test_a_cache_that_does_not_fit_is_told_of_and_no_part_of_it_kept(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, failure: RuntimeError
) -> None:
    before, empty, made = full_logprobs(engine), PagedKV.empty, []

    def short(blocks: int, *how: Any) -> PagedKV:
        if blocks == PROBE_BLOCKS:
            return empty(blocks, *how)
        if made:
            raise failure
        cache = empty(blocks, *how)
        made.append(weakref.ref(cache))
        return cache

    monkeypatch.setattr(PagedKV, "empty", short)
    told = f"the KV cache of LlamaForCausalLM does not fit cpu \\({failure}\\): lower kv_cache_gb"
    with pytest.raises(ModelUnsupported, match=told):
        Engine(TINY, kv_cache_gb=0.05)
    engine.sleep()
    made.clear()
    with pytest.raises(ModelUnsupported, match=told):
        engine.wake()
    gc.collect()
    assert engine.asleep and not engine.runner.layers and made[0]() is None
    monkeypatch.undo()
    engine.wake()
    assert full_logprobs(engine) == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_beside_a_growing_neighbour_the_cache_takes_less_and_gives_all_of_it_back() -> None:
    neighbour = [torch.zeros(torch.cuda.mem_get_info()[0] - (6 << 30), dtype=torch.uint8, device="cuda")]
    engine = Engine(TINY, device="cuda")
    before, sizes, free = full_logprobs(engine), [engine.cache.pool.count], []
    for _ in range(3):
        engine.sleep()
        neighbour.append(torch.zeros(1 << 30, dtype=torch.uint8, device="cuda"))
        free.append(torch.cuda.mem_get_info()[0])
        engine.wake()
        assert full_logprobs(engine) == before
        sizes.append(engine.cache.pool.count)
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]
    neighbour.clear()
    engine.sleep()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= free[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_sleeping_engine_gives_the_gpu_back_and_does_not_grow() -> None:
    engine = Engine(TINY, kv_cache_gb=1.0, device="cuda")
    before = full_logprobs(engine)
    awake, _ = torch.cuda.mem_get_info()
    free = []
    for _ in range(50):
        engine.sleep()
        free.append(torch.cuda.mem_get_info()[0])
        engine.wake()
        assert full_logprobs(engine) == before
    assert min(free) >= awake + (1 << 30)
    assert free[-1] >= free[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_weights_go_to_the_host_once_and_again_when_they_were_written_to() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, device="cuda")

    def places() -> dict[str, int]:
        engine.sleep()
        found = {name: tensor.data_ptr() for name, tensor in engine.runner.model.state_dict().items()}
        engine.wake()
        return found

    before, first = full_logprobs(engine), places()
    assert places() == first and full_logprobs(engine) == before
    engine.update_weights({EMBEDDING: changed(TINY).state_dict()[EMBEDDING]})
    other = full_logprobs(engine)
    moved = {name for name, place in places().items() if place != first[name]}
    assert moved == {EMBEDDING} and full_logprobs(engine) == other != before
