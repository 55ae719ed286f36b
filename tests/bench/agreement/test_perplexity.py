"""The likelihood of texts under a bare model."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.bench.agreement.dataset import OVERALL, DataSet, RatedPair, RatedText
from adjudge.bench.agreement.perplexity import likelihood_choices, likelihood_scores, likelihoods
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.verdict import Item, Pair
from adjudge.training.bare_model import BareModel

TINY = "dummy:tiny-llama"


@pytest.fixture(scope="module")
def bare() -> BareModel:
    return BareModel(TINY, "cpu", "float32")


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
