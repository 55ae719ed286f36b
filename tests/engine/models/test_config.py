"""Factors of rotary positions that would follow a batch's longest prompt are those of the whole context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.errors import ModelUnsupported
from adjudge.engine.models.dummy import tiny_config
from adjudge.engine.score import Score
from tests.engine.reference import next_logprobs, open_reference

SHORT, LONG = list(range(65, 77)), list(range(65, 165))
LABELS = ["1", "2", "3"]
NEAR, FAR = [1.0] * 8, [4.0 + place for place in range(8)]
SCALED = {"rope_theta": 10_000.0, "factor": 4.0}
LONGROPE = {**SCALED, "rope_type": "longrope", "long_factor": FAR, "original_max_position_embeddings": 32}
DYNAMIC = {**SCALED, "rope_type": "dynamic"}


def saved(folder: Path, kind: str, rope: dict[str, Any]) -> str:
    """The name of a tiny model whose positions turn as `rope` says."""
    config = tiny_config(kind)
    config.rope_parameters = rope
    config.save_pretrained(folder)
    return f"dummy:{folder}"


@pytest.mark.parametrize(
    ("rope", "of_the_context"),
    [
        ({**LONGROPE, "short_factor": NEAR}, {**LONGROPE, "short_factor": FAR}),
        (DYNAMIC, {"rope_theta": 10_000.0, "rope_type": "default"}),  # it stretches what is beyond the context alone
    ],
    ids=["longrope", "dynamic"],
)
def test_a_short_prompt_has_the_factors_of_the_whole_context_alone_and_beside_a_long_one(
    rope: dict[str, Any], of_the_context: dict[str, Any], tmp_path: Path
) -> None:
    model = saved(tmp_path / "model", "llama", rope)

    def score(*prompts: list[int]) -> list[Score]:
        return Engine(model, kv_cache_gb=0.05).score(prompts, LABELS)

    [alone] = score(SHORT)
    assert score(LONG, SHORT)[1] == alone == score(SHORT, LONG)[0]
    reference = open_reference(saved(tmp_path / "reference", "llama", of_the_context))
    expected = next_logprobs(reference, tuple(SHORT))[[ord(label) for label in LABELS]]
    assert torch.allclose(torch.tensor(alone.full_logprobs).double(), expected, atol=1e-4)


def test_factors_by_layer_that_follow_the_length_are_refused(tmp_path: Path) -> None:
    rope = {"full_attention": DYNAMIC, "sliding_attention": {"rope_theta": 10_000.0, "rope_type": "default"}}
    with pytest.raises(ModelUnsupported, match="changes its rope factors by layer and by length: choose another"):
        Engine(saved(tmp_path, "gemma3_text", rope), kv_cache_gb=0.01)
