from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.judges.ensemble import EnsembleAspect, draw_partners, ensemble, holistic, pooled
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwisePairJudge
from adjudge.rewards.records.verdict import Item, Pair
from tests.rewards.scripted import ScriptedEngine

ITEMS = [Item(prompt=f"Prompt {n}.", response=f"Story number {n}.", id=f"s{n}") for n in range(5)]
GOOD = "Fine. <ANSWER> 4 </ANSWER> | <ANSWER> 2 </ANSWER>"
QUESTIONS = 4
"""About a pair: two aspects, one order, the score of each story."""
NAMES = [f"story-{n}" for n in range(40)]


@pytest.fixture(scope="module")
def judge(tiny: Engine) -> PairwiseJudge:
    return PairwiseJudge(tiny, HANNA[:2], orders="ab")


def test_each_story_has_the_scores_of_both_orders_with_each_partner_and_each_answers_its_own_prompt(
    judge: PairwiseJudge,
) -> None:
    verdicts = ensemble(judge, ITEMS, partners=2)
    assert [verdict.id for verdict in verdicts] == [item.id for item in ITEMS]
    by_id = {item.id: item for item in ITEMS}
    for item, verdict in zip(ITEMS, verdicts, strict=True):
        others = [by_id[name] for name in verdict.partners]
        assert len(others) == 2 and item not in others
        first = judge.compare([_pair(item, other) for other in others])
        second = judge.compare([_pair(other, item) for other in others])
        for name, aspect in verdict.aspects.items():
            expected = [v.aspects[name].score_a for v in first] + [v.aspects[name].score_b for v in second]
            assert list(aspect.scores) == expected and len(set(expected)) == 4
            assert aspect.mean == pytest.approx(sum(score or 0 for score in expected) / 4)


def _pair(first: Item, second: Item) -> Pair:
    return Pair(a=first.response, b=second.response, prompt_a=first.prompt, prompt_b=second.prompt)


def test_without_partners_a_story_stands_beside_itself_in_both_places_of_one_pass(
    tiny: Engine, judge: PairwiseJudge
) -> None:
    before = tiny.stats.prompts
    verdicts = ensemble(judge, ITEMS, partners=0)
    assert tiny.stats.prompts - before == len(ITEMS) * QUESTIONS
    for item, verdict in zip(ITEMS, verdicts, strict=True):
        [alone] = judge.compare([_pair(item, item)])
        assert verdict.partners == ()
        for name, aspect in verdict.aspects.items():
            assert aspect.scores == (alone.aspects[name].score_a, alone.aspects[name].score_b)


def test_a_pair_that_two_stories_ask_for_is_judged_once(tiny: Engine, judge: PairwiseJudge) -> None:
    before = tiny.stats.prompts
    verdicts = ensemble(judge, ITEMS, partners=4)  # everybody with everybody
    assert tiny.stats.prompts - before == 5 * 4 * QUESTIONS
    assert all(len(aspect.scores) == 8 for verdict in verdicts for aspect in verdict.aspects.values())


def test_order_and_windows_change_no_scores(judge: PairwiseJudge) -> None:
    expected = ensemble(judge, ITEMS, partners=2)
    assert ensemble(judge, ITEMS[::-1], partners=2, window=3) == expected[::-1]
    assert ensemble(judge, ITEMS, partners=2, seed=1) != expected


def test_items_that_can_be_read_only_once_are_all_judged(judge: PairwiseJudge) -> None:
    assert ensemble(judge, iter(ITEMS), partners=2) == ensemble(judge, ITEMS, partners=2)


def test_the_pooled_list_holds_every_score_that_there_is(tiny: Engine) -> None:
    """In reasoned mode a partner may leave no readable score: the others stay."""

    def writes(shown: str, before: int) -> str:
        return "no" if "Story 1 begins]\nStory number 3" in shown else GOOD

    judge = PairwiseJudge(
        ScriptedEngine(tiny, writes), HANNA[:1], orders="ab", mode="reasoned", sampling=Sampling(max_tokens=9)
    )
    verdicts = ensemble(judge, ITEMS, partners=4)
    aspects = [verdict.aspects["relevance"] for verdict in verdicts]
    assert [Counter(aspect.abstained) for aspect in aspects] == [
        Counter({None: 4, "unparsable": 4}) if verdict.id == "s3" else Counter({None: 7, "unparsable": 1})
        for verdict in verdicts
    ]
    assert all(
        (score is None) == (why is not None) for a in aspects for score, why in zip(a.scores, a.abstained, strict=True)
    )
    assert pooled(verdicts) == [
        (verdict.id, "relevance", score)
        for verdict in verdicts
        for score in verdict.aspects["relevance"].scores
        if score is not None
    ]
    assert len(pooled(verdicts)) == 4 * 7 + 4
    known = [score for score in aspects[3].scores if score is not None]
    assert aspects[3].mean == pytest.approx(sum(known) / 4)
    assert EnsembleAspect((None, None), ("unparsable", "low_mass")).mean is None


def test_an_ensemble_goes_on_from_its_journal(tiny: Engine, tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        judge = PairwiseJudge(tiny, HANNA[:1], orders="ab", journal=journal)
        expected = ensemble(judge, ITEMS, partners=1)
        before = tiny.stats.prompts
        assert ensemble(judge, ITEMS, partners=1) == expected
        assert tiny.stats.prompts == before


# ---- the draw


def test_partners_are_as_many_as_asked_for_none_twice_and_never_oneself() -> None:
    for count in (0, 1, 4, 39):
        for name, partners in draw_partners(NAMES, count).items():
            assert len(set(partners)) == count and name not in partners and set(partners) <= set(NAMES)


def test_the_draw_is_the_same_in_any_order_and_another_with_another_seed() -> None:
    drawn = draw_partners(NAMES, 4)
    assert draw_partners(NAMES[::-1], 4) == drawn == draw_partners(NAMES, 4, seed=0)
    assert sum(drawn[name] == partners for name, partners in draw_partners(NAMES, 4, seed=1).items()) <= 1
    assert drawn["story-0"] == ("story-3", "story-9", "story-17", "story-12")  # on every machine


def test_a_smaller_draw_is_the_beginning_of_a_larger_one() -> None:
    larger = draw_partners(NAMES, 16)
    assert all(partners == larger[name][:4] for name, partners in draw_partners(NAMES, 4).items())


def test_a_story_that_is_taken_out_leaves_only_its_own_places() -> None:
    drawn = draw_partners(NAMES, 4)
    without = draw_partners(NAMES[1:], 4)
    for name, partners in without.items():
        kept = tuple(other for other in drawn[name] if other != NAMES[0])
        assert partners[: len(kept)] == kept and len(kept) >= 3


def test_every_story_is_drawn_about_as_often_as_any_other() -> None:
    drawn = Counter(partner for partners in draw_partners(NAMES, 10).values() for partner in partners)
    assert sum(drawn.values()) == 400 and min(drawn.values()) >= 3 and max(drawn.values()) <= 20


@pytest.mark.parametrize(
    ("ids", "count", "reason"),
    [
        (["a", "b", "a"], 1, '2 stories have the id "a"'),
        (["a", "b"], 2, "from 0 to 1"),
        (["a", "b"], -1, "from 0 to 1"),
        (["a"], 1, "from 0 to 0"),
    ],
)
def test_a_draw_that_cannot_be_is_one_sentence(ids: list[str], count: int, reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        draw_partners(ids, count)


def test_hostile_ids_are_drawn_like_others() -> None:
    ids = ["", "\ud800", "\0", "a" * 10_000]
    assert set(draw_partners(ids, 3)["\ud800"]) == set(ids) - {"\ud800"}


def test_a_judge_of_both_orders_is_refused(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match='orders="ab"'):
        ensemble(PairwiseJudge(tiny), ITEMS)


# ---- OpenMEVA


def test_the_holistic_score_is_the_plain_mean_of_the_aspects_and_none_with_one_missing() -> None:
    assert holistic([1.0, 2.0, 4.5]) == 2.5
    assert holistic([1.0, None]) is None
    assert holistic([]) is None


def test_a_judge_that_shows_no_story_beside_another_is_refused(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match="not a PointwisePairJudge: give it a PairwiseJudge"):
        ensemble(PointwisePairJudge(tiny), ITEMS)  # type: ignore[arg-type]
