"""The likelihood of texts under a bare model."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from adjudge.bench.agreement.comparison import Scores
from adjudge.bench.agreement.dataset import OVERALL, DataSet, RatedPair, RatedText
from adjudge.bench.agreement.likelihood import BareModel, by_likelihood, likelihood_of
from adjudge.bench.agreement.preferring import Choices
from adjudge.engine.engine import Engine
from adjudge.engine.text.labels import LabelSet
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.verdict import Item, Pair

TINY = "dummy:tiny-llama"


@pytest.fixture(scope="module")
def bare() -> BareModel:
    return BareModel(TINY, "cpu", "float32")


def test_each_text_is_computed_once_and_ranks_texts_and_pairs(
    bare: BareModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [("P", "one two"), ("P", "three"), ("P", "")]
    with Journal(tmp_path / "l.journal") as book:
        found = [likelihood_of(bare, book, *text) for text in texts]
        monkeypatch.setattr(BareModel, "likelihood", lambda *_: pytest.fail("asked twice"))
        assert [likelihood_of(bare, book, *text) for text in texts] == found and found[2] is None
        rows = tuple(RatedText(Item(*text), {OVERALL: (1.0,)}, "P", "") for text in texts)
        scores = by_likelihood(DataSet("own", "items", rows), ["wit"], bare, book)
        assert isinstance(scores, Scores)
        assert scores.by_target == {"wit": found, OVERALL: found} and scores.scale is None
        pairs = tuple(RatedPair(Pair(a, b, "P"), 1.0, "P", "") for a, b in (("one two", "three"), ("three", "")))
        choices = by_likelihood(DataSet("own", "pairs", pairs), [], bare, book)
        assert isinstance(choices, Choices)
        first, second = choices.overall
        assert first.preference == float((found[0] or 0) > (found[1] or 0)) and second.preference is None


def test_likelihood_is_the_mean_that_the_engine_reads_token_by_token(bare: BareModel) -> None:
    engine = Engine(TINY, device="cpu", dtype="float32")
    before, after = engine.tokenizer.prompt("Tell.\n\n"), engine.tokenizer.encode("It rains <|im_end|>", False)
    whole = before + after
    places = range(len(before), len(whole))
    scores = engine.score([whole[:place] for place in places], [LabelSet.of_ids([whole[place]]) for place in places])
    known = fmean(score.full_logprobs[0] for score in scores if score.full_logprobs)
    assert bare.likelihood("Tell.", "It rains <|im_end|>") == pytest.approx(known, abs=1e-4)
    assert bare.likelihood("Tell.", "") is None and bare.likelihood("long " * 5000, "text") is None
