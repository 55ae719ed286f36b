"""The engine on the Triton kernels, in the interpreter, against itself on the torch ones.

Run as a script, this file prints the scores and texts of the kernels that the environment names, the texts with decode
steps played again as a graph would, and the answers of an engine asked not to heed the batch, in it and alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.running import head, invariance, probe, runner
from adjudge.engine.running.decode_graphs import DecodeGraphs, Run
from adjudge.engine.running.invariance import invariant_means
from adjudge.engine.running.packed_decoder import PackedDecoder
from adjudge.kernels.paged_kv import PagedBatch, PagedSequence
from adjudge.kernels.restricted_head_arguments import HeadWeights
from adjudge.kernels.vocabulary_logits import vocabulary_logits
from tests.kernels.interpreter import hasten

ROOT = Path(__file__).parents[3]
STEM = [(7 * n) % 251 for n in range(21)]
PROMPTS = [[*STEM, n, 3] for n in range(3)] + [[*STEM[:19], 9], [5]]  # siblings that part inside a block, and others
COMPANY = PROMPTS[2:]


class Player:
    """Records as CUDA does, as far as a CPU can: what was recorded runs again, and its output stays in place."""

    def __init__(self) -> None:
        self.played = self.recorded = 0

    def __call__(self, run: Run) -> Run:
        output = run()
        self.recorded += 1

        def play() -> torch.Tensor:
            self.played += 1
            return output.copy_(run())

        return play


def answers() -> dict[str, Any]:
    """Scores and texts of a tiny model; a small step makes chunks, and a second call meets a warm cache.

    The texts are written twice, from an empty cache, the second time with decode steps played again.
    """
    engine, player = Engine("dummy:tiny-llama", kv_cache_gb=0.01, max_batch_tokens=14), Player()
    scores = [engine.score(PROMPTS, ["1", "2", "10"]) for _ in range(2)]
    texts = []
    for graphs in (None, DecodeGraphs(engine.runner.decode, lambda: player)):
        engine.runner.graphs = graphs
        engine.cache.clear()
        texts.append(engine.generate(PROMPTS[-2:], max_tokens=4, temperature=0.0, ignore_eos=True))
    return {
        "scores": [list(score.full_logprobs or ()) for call in scores for score in call],
        "texts": [[[[token.token_id, token.logprob] for token in text.logprobs] for text in call] for call in texts],
        "played": player.played,
        "recorded": player.recorded,
    }


def in_any_company(prompts: list[list[int]], **how: Any) -> list[Any]:
    """What an engine says that was asked not to heed the batch: of all prompts together, and of each alone."""
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01, batch_invariant=True, **how)
    writing: dict[str, Any] = {"max_tokens": 2, "temperature": 0.0, "ignore_eos": True}
    together = engine.score(prompts, ["1", "2"]), engine.generate(prompts[1:], **writing)
    engine.cache.clear()
    alone = (
        [engine.score([one], ["1", "2"])[0] for one in prompts],
        [engine.generate([one], **writing)[0] for one in prompts[1:]],
    )
    return [
        [
            [list(score.full_logprobs or ()) for score in scores],
            [[token.logprob for token in text.logprobs] for text in texts],
        ]
        for scores, texts in (together, alone)
    ]


@cache
def on_triton() -> tuple[dict[str, Any], list[Any]]:
    """The answers, and those in any company."""
    pytest.importorskip("triton", reason="triton is not installed")
    named = {"TRITON_INTERPRET": "1", "ADJUDGE_KERNELS": "triton", "ADJUDGE_ATTENTION": "triton"}
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | named
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    found, company = json.loads(done.stdout.splitlines()[-1])
    return found, company


def test_the_engine_gives_the_same_answers_on_the_triton_kernels() -> None:
    (triton, _), torch = on_triton(), answers()
    for ours, expected in zip(triton["texts"][0], torch["texts"][0], strict=True):
        assert [token for token, _ in ours] == [token for token, _ in expected]
    for ours, expected in zip(triton["scores"], torch["scores"], strict=True):
        assert ours == pytest.approx(expected, abs=1e-4)
    assert triton["scores"] != torch["scores"]  # two implementations, not one


def test_decode_steps_that_are_played_give_the_same_bits() -> None:
    found, _ = on_triton()
    plain, graphs = found["texts"]
    assert graphs == plain and found["recorded"] == 1 and found["played"] >= 2


def test_an_engine_asked_not_to_heed_the_batch_does_not() -> None:
    (_, (together, alone)), torch = on_triton(), in_any_company(COMPANY)
    assert together == alone
    assert torch[0] == torch[1] and torch != [together, alone]
    assert together[0][0] == pytest.approx(torch[0][0][0], abs=1e-4)


def test_means_and_logits_are_told_not_to_heed_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    means, told = [], []

    class Means(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            means.extend([1] * (function is torch.Tensor.mean))
            return function(*args, **(kwargs or {}))

    def logits(hidden_ND: torch.Tensor, head: HeadWeights, batch_invariant: bool) -> torch.Tensor:
        told.append(batch_invariant)
        return vocabulary_logits(hidden_ND, head)

    monkeypatch.setattr(invariance, "invariant_means", lambda device: Means())
    monkeypatch.setattr(head, "vocabulary_logits", logits)
    for asked in (False, True):
        means.clear()
        engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01, batch_invariant=asked)
        engine.generate(PROMPTS[:1], max_tokens=1)
        assert bool(means) == asked and told.pop() == asked


def test_a_model_that_mixes_the_tokens_of_neighbours_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = PackedDecoder.decode
    for leak in (lambda hidden: hidden.roll(3, 0), lambda hidden: hidden.roll(-3, 0)):

        def mixing(it: PackedDecoder, *step: Any, leak: Any = leak) -> torch.Tensor:
            hidden = decode(it, *step)
            return hidden + 0.1 * leak(hidden)

        monkeypatch.setattr(PackedDecoder, "decode", mixing)
        monkeypatch.setattr(runner, "read_head", lambda it, output: None)
        with pytest.raises(ModelUnsupported, match="mixes tokens of neighbouring sequences"):
            Engine("dummy:tiny-llama")


def test_what_heeds_the_batch_is_not_opened_where_that_was_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AdjudgeError, match="batch_invariant and torch_compile do not go together"):
        Engine("dummy:tiny-llama", batch_invariant=True, torch_compile=True)
    assert Engine("dummy:tiny-gpt2", batch_invariant=True).runner.batch_invariant  # on a CPU its layers hold
    with pytest.raises(AdjudgeError, match="the work of Triton kernels there"):
        invariant_means(torch.device("meta"))
    probed = probe.probed

    def careless(it: PackedDecoder, *lengths: int, **how: int) -> torch.Tensor:
        return probed(it, *lengths, **how) * (1 + 1e-6 * sum(map(bool, lengths)))

    monkeypatch.setattr(probe, "probed", careless)
    with pytest.raises(AdjudgeError, match="has layers whose numbers depend on the batch: leave batch_invariant out"):
        Engine("dummy:tiny-llama", batch_invariant=True)
    monkeypatch.setattr(probe, "is_batch_invariant", lambda kind: False)
    with pytest.raises(AdjudgeError, match="by triton, and (numba|torch) would serve: set ADJUDGE_ATTENTION"):
        Engine("dummy:tiny-llama", batch_invariant=True)
    assert not Engine("dummy:tiny-llama").runner.batch_invariant


@pytest.mark.parametrize("model", ["dummy:tiny-llama", "dummy:tiny-gemma2"])
def test_a_models_layers_wait_for_no_number(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default):
                waited.append(func)
            return func(*args, **(kwargs or {}))

    engine = Engine(model, kv_cache_gb=0.01)
    decode = engine.runner.decode
    monkeypatch.setattr(engine.runner, "attend", lambda _, query, *given, **how: torch.zeros_like(query))

    def watched(*inputs: Any) -> torch.Tensor:
        with Watch():
            return decode(*inputs)

    monkeypatch.setattr(engine.runner, "decode", watched)
    engine.score(PROMPTS, ["1", "2"])
    assert not waited


def test_other_weights_are_recorded_anew() -> None:
    graphs = DecodeGraphs(lambda *_: pytest.fail("nothing is decoded"), Player)
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    engine.runner.graphs = graphs
    for change in (engine.sleep, lambda: engine.update_weights(adapter=None)):
        graphs._graphs[None] = None  # type: ignore[index, assignment]
        change()
        engine.wake()
        assert not graphs._graphs


def test_where_recording_fails_the_step_is_answered_and_none_is_played_until_memory_is_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fails = True

    def record(run: Run) -> Run:
        if fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        return run

    hidden = torch.arange(32.0)[:, None]
    graphs = DecodeGraphs(lambda ids, positions, batch: hidden, lambda: record)
    writes = torch.zeros(2, 1, dtype=torch.long)
    batch = PagedBatch((PagedSequence(0, 1, 3, [1]),), 16, 32, *writes)
    step = torch.zeros(1, 32, dtype=torch.long), torch.zeros(1, 32, dtype=torch.long), batch
    assert graphs.forward(*step) is hidden and "not permitted when stream is capturing" in caplog.text
    assert graphs.forward(*step) is None
    fails = False
    assert graphs.forward(*step) is None and not graphs._graphs
    graphs.clear()  # as sleep() and another adapter do
    assert graphs.forward(*step) is hidden and len(graphs._graphs) == 1


def test_graphs_are_for_a_gpu() -> None:
    with pytest.raises(AdjudgeError, match="cuda_graphs are for a GPU, and the model is to be on cpu"):
        Engine("dummy:tiny-llama", device="cpu", cuda_graphs=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_engine_asked_not_to_heed_the_batch_does_not_on_cuda(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJUDGE_ATTENTION", "triton")
    together, alone = in_any_company(PROMPTS, device="cuda", dtype=dtype)
    assert together == alone


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_graph_on_cuda_gives_what_the_launches_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJUDGE_ATTENTION", "triton")
    texts = []
    other = Engine("dummy:tiny-llama", device="cuda", dtype="float32", kv_cache_gb=0.1, cuda_graphs=True)
    other.generate(PROMPTS, max_tokens=4, ignore_eos=True)
    for graphs in (False, True):
        engine = Engine("dummy:tiny-llama", device="cuda", dtype="float32", kv_cache_gb=0.1, cuda_graphs=graphs)
        for _ in range(2):
            found = engine.generate(PROMPTS, max_tokens=40, temperature=0.0, ignore_eos=True)
            texts.append([text.token_ids for text in found])
            other.sleep()
            engine.sleep()
            engine.wake()
    assert all(found == texts[0] for found in texts)
    assert engine.runner.graphs is not None and not engine.runner.graphs._graphs


if __name__ == "__main__":
    hasten()
    print(json.dumps([answers(), in_any_company(COMPANY)]))
