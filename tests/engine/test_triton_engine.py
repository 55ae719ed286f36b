"""The engine on the Triton kernels, in the interpreter, against itself on the torch ones.

Run as a script, this file prints the scores and texts of the kernels that the environment names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine

ROOT = Path(__file__).parents[2]
STEM = [(7 * n) % 251 for n in range(37)]
PROMPTS = [[*STEM, n, 3] for n in range(3)] + [[*STEM[:21], 9], [5]]  # siblings that part inside a block, and others


def answers() -> dict[str, Any]:
    """Scores and texts of a tiny model; a small step makes chunks, and a second call meets a warm cache."""
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01, max_batch_tokens=24)
    scores = [engine.score(PROMPTS, ["1", "2", "10"]) for _ in range(2)]
    texts = engine.generate(PROMPTS[-2:], max_tokens=3, temperature=0.0, ignore_eos=True)
    return {
        "scores": [score.full_logprobs for call in scores for score in call],
        "texts": [text.token_ids for text in texts],
    }


def test_the_engine_gives_the_same_answers_on_the_triton_kernels() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    named = {"TRITON_INTERPRET": "1", "ADJUDGE_KERNELS": "triton", "ADJUDGE_ATTENTION": "triton"}
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | named
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    triton, torch = json.loads(done.stdout.splitlines()[-1]), answers()
    assert triton["texts"] == [list(text) for text in torch["texts"]]
    for ours, expected in zip(triton["scores"], torch["scores"], strict=True):
        assert ours == pytest.approx(list(expected), abs=1e-4)
    assert triton["scores"] != [list(score) for score in torch["scores"]]  # two implementations, not one


if __name__ == "__main__":
    print(json.dumps(answers()))
