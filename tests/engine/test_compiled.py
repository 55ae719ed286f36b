"""The engine with what lies between attention and dense layers compiled by torch."""

from __future__ import annotations

from shutil import which
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.errors import ModelUnsupported

PROMPTS = [[(7 * n + m) % 251 for n in range(5 + 9 * m)] for m in range(4)]


def scores(engine: Engine, prompts: list[list[int]]) -> list[Any]:
    return [score.full_logprobs for score in engine.score(prompts, ["1", "2", "10"])]


@pytest.mark.skipif(which("g++") is None, reason="torch.compile wants a C++ compiler")
def test_a_compiled_model_gives_the_same_answers_in_any_company() -> None:
    plain = Engine("dummy:tiny-llama", device="cpu", kv_cache_gb=0.05)
    compiled = Engine("dummy:tiny-llama", device="cpu", kv_cache_gb=0.05, torch_compile=True)
    assert torch._dynamo.utils.counters["frames"]["ok"] and compiled.runner.batch_invariant
    together = scores(compiled, PROMPTS)
    for ours, expected in zip(together, scores(plain, PROMPTS), strict=True):
        assert ours == pytest.approx(expected, abs=1e-5)
    compiled.cache.clear()
    assert [scores(compiled, [prompt])[0] for prompt in reversed(PROMPTS)] == together[::-1]
    texts = [engine.generate(PROMPTS, max_tokens=6, temperature=0.0, ignore_eos=True) for engine in (plain, compiled)]
    assert [text.token_ids for text in texts[0]] == [text.token_ids for text in texts[1]]


def test_what_cannot_be_compiled_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: Any, **_: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **how: lambda *given, **named: broken(function))
    with pytest.raises(
        ModelUnsupported, match="does not run compiled, on a packed batch .*: no compiler: leave torch_compile out"
    ):
        Engine("dummy:tiny-llama", device="cpu", torch_compile=True)
