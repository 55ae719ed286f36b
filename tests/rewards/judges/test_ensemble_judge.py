from __future__ import annotations

from pathlib import Path
from statistics import stdev

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.engines.specification import JudgeSpec
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.ensemble import EnsembleJudge, accompanied, ensemble
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwisePairJudge
from adjudge.rewards.records.verdict import Item, Pair
from tests.rewards.scripted import ScriptedEngine

ITEMS = [Item(prompt=f"Prompt {n}.", response=f"Story number {n}.", id=f"s{n}") for n in range(5)]
ASPECTS = (Aspect("wit", "Is it funny?", 3.0), Aspect("end", "Does it end well?"))


def test_a_verdict_is_the_mean_of_the_ensembles_scores_in_any_company(tiny: Engine) -> None:
    pairwise = PairwiseJudge(tiny, ASPECTS, orders="ab")
    judge, subjects = EnsembleJudge(pairwise), accompanied(ITEMS, partners=2)
    verdicts = judge.judge(subjects)
    for verdict, found in zip(verdicts, ensemble(pairwise, ITEMS, partners=2), strict=True):
        means = {name: aspect.mean for name, aspect in found.aspects.items()}
        assert verdict.id == found.id and {name: part.score for name, part in verdict.breakdown.items()} == means
        assert verdict.score == pytest.approx((3 * (means["wit"] or 0) + (means["end"] or 0)) / 4)
        assert verdict.breakdown["wit"].spread == pytest.approx(
            stdev(score or 0 for score in found.aspects["wit"].scores)
        )
        wit = verdict.breakdown["wit"].distribution or ()
        assert sum(p * label for label, p in enumerate(wit, 1)) == pytest.approx(means["wit"])
    assert list(judge.judge_iter(subjects[::-1], window=2)) == verdicts[::-1]
    [alone] = judge.judge(ITEMS[:1])
    assert alone.score is not None and alone.key != verdicts[0].key  # beside itself


def test_a_verdict_is_kept_as_soon_as_its_own_pairs_are_there(tmp_path: Path) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.05, max_batch_tokens=256)
    with Journal(tmp_path / "j") as journal:
        pairwise = PairwiseJudge(engine, ASPECTS, orders="ab", journal=journal)
        verdict = next(EnsembleJudge(pairwise).judge_iter(ITEMS))
        kept = journal.get([pairwise.key(Pair(item.response, item.response, item.prompt)) for item in ITEMS])
        assert journal.get([verdict.key]) and 0 < len(kept) < len(ITEMS)


def test_items_that_can_be_read_only_once_have_their_partners() -> None:
    assert accompanied(iter(ITEMS), partners=2) == accompanied(ITEMS, partners=2)


def test_items_that_have_partners_get_others() -> None:
    assert accompanied(accompanied(ITEMS, partners=1), partners=2) == accompanied(ITEMS, partners=2)


def test_what_lies_in_the_moment_is_asked_again_and_what_cannot_be_read_is_left_out(
    tiny: Engine, tmp_path: Path
) -> None:
    late = True

    def writes(shown: str, before: int) -> str | tuple[str, str]:
        if late and "Story number 3" in shown:
            return "", "timeout"
        return "no" if "Story number 4" in shown else "Fine. <ANSWER> 4 </ANSWER> | <ANSWER> 2 </ANSWER>"

    how = {"mode": "reasoned", "sampling": Sampling(max_tokens=9), "attempts": 1}
    with Journal(tmp_path / "j") as journal:
        scripted = ScriptedEngine(tiny, writes)  # type: ignore[arg-type]
        judge = EnsembleJudge(PairwiseJudge(scripted, ASPECTS[:1], orders="ab", **how, journal=journal))  # type: ignore[arg-type]
        subjects = accompanied(ITEMS, partners=4)
        first, fourth, last = (judge.judge(subjects)[place] for place in (0, 3, 4))
        assert (first.abstained, first.score, fourth.abstained) == ("timeout", None, "timeout")
        late = False
        first, fourth, last = (judge.judge(subjects)[place] for place in (0, 3, 4))
        assert first.abstained is None and first.score is not None and fourth.score is not None
        assert (last.abstained, last.score) == ("unparsable", None)
        assert len((first.analysis or {})["wit"]) == 8


def test_an_ensemble_needs_one_order_and_the_texts_of_a_file(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match='give it a judge with orders="ab"'):
        EnsembleJudge(PairwiseJudge(tiny, ASPECTS))
    with pytest.raises(AdjudgeError, match="give it a PairwiseJudge"):
        EnsembleJudge(PointwisePairJudge(tiny, ASPECTS))  # type: ignore[arg-type]
    with pytest.raises(AdjudgeError, match="ensemble judges the texts of a file beside each other"):
        JudgeSpec("ensemble")
    with pytest.raises(AdjudgeError, match="5 partners for each of 5 stories: give from 0 to 4"):
        accompanied(ITEMS, partners=5)
