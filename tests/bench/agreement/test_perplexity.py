"""The likelihood of texts under a bare model."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from adjudge.bench.agreement.dataset import OVERALL, DataSet, RatedPair, RatedText
from adjudge.bench.agreement.perplexity import BareModel, likelihood_choices, likelihood_scores, likelihoods
from adjudge.engine.engine import Engine
from adjudge.engine.labels import LabelSet
from adjudge.rewards.journal import Journal
from adjudge.rewards.verdict import Item, Pair

TINY = "dummy:tiny-llama"


@pytest.fixture(scope="module")
def bare() -> BareModel:
    return BareModel(TINY, "cpu", "float32")


def test_it_is_the_mean_that_the_engine_reads_token_by_token(bare: BareModel) -> None:
    engine = Engine(TINY, device="cpu", dtype="float32")
    before, after = engine.tokenizer.prompt("Tell.\n\n"), engine.tokenizer.encode("It rains <|im_end|>", False)
    whole = before + after
    places = range(len(before), len(whole))
    scores = engine.score([whole[:place] for place in places], [LabelSet.of_ids([whole[place]]) for place in places])
    known = fmean(score.full_logprobs[0] for score in scores if score.full_logprobs)
    assert bare.likelihood("Tell.", "It rains <|im_end|>") == pytest.approx(known, abs=1e-4)
    assert bare.likelihood("Tell.", "") is None


def test_each_text_is_computed_once_and_ranks_texts_and_pairs(
    bare: BareModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [("P", "one two"), ("P", "three"), ("P", "")]
    with Journal(tmp_path / "l.journal") as book:
        found = list(likelihoods(texts, bare, book))
        monkeypatch.setattr(BareModel, "likelihood", lambda *_: pytest.fail("asked twice"))
        assert list(likelihoods(texts, bare, book)) == found and found[2] is None
        rows = tuple(RatedText(Item(*text), {OVERALL: (1.0,)}, "P", "") for text in texts)
        scores = likelihood_scores(DataSet("own", "items", rows), ["wit"], bare, book)
        assert scores.by_target == {"wit": found, OVERALL: found} and scores.scale is None
        pairs = tuple(RatedPair(Pair(a, b, "P"), 1.0, "P", "") for a, b in (("one two", "three"), ("three", "")))
        first, second = likelihood_choices(DataSet("own", "pairs", pairs), bare, book).overall
        assert first.preference == float((found[0] or 0) > (found[1] or 0)) and second.preference is None
