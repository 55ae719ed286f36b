"""The engine with what lies between attention and dense layers compiled by torch.

Run as a script, this file prints what a compiled engine answers, and whether torch compiled anything: its compiler
wants a process in which nobody has imported distutils.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.errors import ModelUnsupported

ROOT = Path(__file__).parents[3]
PROMPTS = [[(7 * n + m) % 251 for n in range(5 + 9 * m)] for m in range(4)]


def scores(engine: Engine, prompts: list[list[int]]) -> list[list[float]]:
    return [list(score.full_logprobs or ()) for score in engine.score(prompts, ["1", "2", "10"])]


def answers(torch_compile: bool) -> dict[str, Any]:
    """The scores of all prompts together, then of each alone, and what is written on them."""
    engine = Engine("dummy:tiny-llama", device="cpu", kv_cache_gb=0.05, torch_compile=torch_compile)
    together = scores(engine, PROMPTS)
    engine.cache.clear()
    alone = [scores(engine, [prompt])[0] for prompt in reversed(PROMPTS)]
    texts = engine.generate(PROMPTS, max_tokens=6, temperature=0.0, ignore_eos=True)
    return {
        "together": together,
        "alone": alone[::-1],
        "texts": [list(text.token_ids) for text in texts],
        "invariant": engine.runner.batch_invariant,
        "compiled": torch_compile and bool(torch._dynamo.utils.counters["frames"]["ok"]),
    }


@pytest.mark.skipif(which("g++") is None, reason="torch.compile wants a C++ compiler")
def test_a_compiled_model_gives_the_same_answers_in_any_company(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    compiled, plain = json.loads(done.stdout.splitlines()[-1]), answers(torch_compile=False)
    assert compiled["compiled"] and compiled["invariant"]
    assert compiled["alone"] == compiled["together"] and compiled["texts"] == plain["texts"]
    for ours, expected in zip(compiled["together"], plain["together"], strict=True):
        assert ours == pytest.approx(expected, abs=1e-5)


def test_what_cannot_be_compiled_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **how: broken)
    with pytest.raises(
        ModelUnsupported, match=r"does not run compiled, on a packed .* no compiler: leave torch_compile"
    ):
        Engine("dummy:tiny-llama", device="cpu", torch_compile=True)


if __name__ == "__main__":
    print(json.dumps(answers(torch_compile=True)))
