"""What a bare model makes of texts."""

from __future__ import annotations

from statistics import fmean

import pytest

from adjudge.bench.agreement.bare_model import BareModel
from adjudge.engine.engine import Engine
from adjudge.engine.text.labels import LabelSet

TINY = "dummy:tiny-llama"


@pytest.fixture(scope="module")
def bare() -> BareModel:
    return BareModel(TINY, "cpu", "float32")


def test_likelihood_is_the_mean_that_the_engine_reads_token_by_token(bare: BareModel) -> None:
    engine = Engine(TINY, device="cpu", dtype="float32")
    before, after = engine.tokenizer.prompt("Tell.\n\n"), engine.tokenizer.encode("It rains <|im_end|>", False)
    whole = before + after
    places = range(len(before), len(whole))
    scores = engine.score([whole[:place] for place in places], [LabelSet.of_ids([whole[place]]) for place in places])
    known = fmean(score.full_logprobs[0] for score in scores if score.full_logprobs)
    assert bare.likelihood("Tell.", "It rains <|im_end|>") == pytest.approx(known, abs=1e-4)
    assert bare.likelihood("Tell.", "") is None and bare.likelihood("long " * 5000, "text") is None
