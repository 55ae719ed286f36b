from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item
from adjudge.training.attrition import Count
from adjudge.training.curate.pairs import (
    Candidate,
    Rules,
    ScoredCandidate,
    candidates_of,
    judge_candidates,
    make_pairs,
)
from adjudge.training.curate.pairs import Rulings as Ended
from adjudge.training.kept_engine import KeptEngine
from tests.rewards.debating import WIDE, Rulings, judge_of


@pytest.fixture(scope="module")
def wide() -> Engine:
    return Engine(WIDE, kv_cache_gb=0.2)


def judged(*scores: float, prompt: str = "A wish.") -> list[ScoredCandidate]:
    return [
        ScoredCandidate(Candidate(Item(prompt, f"{prompt} {n}", id=f"{prompt[0]}{n}"), None, {"prompt": prompt}), score)
        for n, score in enumerate(scores)
    ]


def made(texts: list[ScoredCandidate], **rules: Any) -> list[tuple[str, str]]:
    return [(pair.chosen_id, pair.rejected_id) for pair in make_pairs(texts, Rules(**rules))[0]]


def reasons(texts: list[ScoredCandidate], **rules: Any) -> dict[str, dict[str, int]]:
    counts = [Count.of(stage) for stage in make_pairs(texts, Rules(**rules))[1]]
    return {count.stage: count.reasons for count in counts if count.reasons}


MIXED = judged(0.9, 0.2, 0.6, 0.1, 0.5)


def test_the_pair_of_a_prompt_is_its_best_text_with_its_worst() -> None:
    assert made(MIXED) == [("A0", "A3")]
    assert reasons(MIXED) == {"rulings": {"even": 1}, "pairs": {"spare": 2}}


def test_more_pairs_of_a_prompt_are_those_whose_scores_are_farthest_apart() -> None:
    assert made(MIXED, per_prompt=2) == [("A0", "A3"), ("A0", "A1")]
    assert made(MIXED, per_prompt=0) == [("A0", "A3"), ("A0", "A1"), ("A2", "A3"), ("A2", "A1")]
    assert reasons(MIXED, per_prompt=0) == {"rulings": {"even": 1}}


def test_a_margin_leaves_out_what_is_nearly_even() -> None:
    assert made(MIXED, per_prompt=0, margin=0.35) == [("A0", "A3")]
    assert reasons(MIXED, margin=0.35) == {"rulings": {"even": 3}}


def test_texts_are_paired_with_those_to_the_same_prompt_alone() -> None:
    texts = [*judged(0.9, 0.8), *judged(0.1, prompt="Good luck."), *judged(0.3, 0.7, prompt="Hello.")]
    assert made(texts) == [("H1", "H0")]
    assert reasons(texts) == {"pairs": {"all_good": 2, "all_bad": 1}}


def test_by_scores_the_better_text_is_chosen_whatever_was_ruled() -> None:
    texts = [*judged(0.9, 0.8, 0.84), *judged(0.1, 0.12, prompt="Hello.")]
    assert made(texts, by="scores") == [("A0", "A1"), ("H1", "H0")]
    assert made(texts, by="scores", margin=0.05, per_prompt=0) == [("A0", "A1"), ("A0", "A2")]
    assert reasons(texts, by="scores", margin=0.05) == {"pairs": {"all_even": 2, "spare": 1}}


def test_a_text_that_stands_twice_below_its_prompt_counts_once() -> None:
    again = ScoredCandidate(Candidate(Item("A wish. ", " A wish. 0", id="again"), None, {}), 0.9)
    assert made([*judged(0.9, 0.2), again], per_prompt=0) == [("A0", "A1")]
    assert reasons([*judged(0.9, 0.2), again]) == {"texts": {"twice": 1}}


def test_a_pair_is_what_a_reward_model_is_trained_on() -> None:
    [pair], _ = make_pairs(judged(0.2, 0.9), Rules())
    assert (pair.prompt, pair.chosen, pair.rejected) == ("A wish.", "A wish. 1", "A wish. 0")
    assert (pair.chosen_score, pair.rejected_score) == (0.9, 0.2)


@pytest.mark.parametrize("rules", [{"per_prompt": -1}, {"margin": 0.5}, {"margin": -0.1}])
def test_rules_that_no_pair_could_meet_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(AdjudgeError):
        Rules(**rules)


# ---- from debates

CHANCES = {"text 0": (0.9, 0.8), "text 1": (0.8, 0.1), "text 2": (0.2, 0.4), "text 3": (None, 0.5)}
ROWS = [Row(f"line {n}", {"prompt": "A wish.", "response": f"text {n}", "label": n == 0}) for n in range(4)]


def rows(**columns: Any) -> list[Row]:
    return [Row(row.place, {**row.columns, "label": int(row.columns["label"]), **columns}) for row in ROWS]


def chance(agent: str, shown: str) -> float | None:
    [text] = [text for text in CHANCES if text in shown]
    return CHANCES[text][agent == "reflect"]


def test_final_rulings_make_the_pairs_and_abstentions_are_dropped_with_their_reason(wide: Engine) -> None:
    debated, verdicts = judge_candidates(judge_of(Rulings(wide, chance)), candidates_of(rows()))
    pairs, stages = make_pairs(debated.kept, Rules(per_prompt=0))
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [("text 0", "text 1"), ("text 0", "text 2")]
    assert Count.of(debated) == Count("debate", 4, 3, {"non_finite": 1})
    assert [drop.row["id"] for drop in debated.dropped] == ["4"] and not any(stage.dropped for stage in stages)
    assert Ended.of(verdicts) == Ended(ratified=2, overridden=1, alone=0, again=0)


def test_without_a_reviewer_nothing_is_ratified(wide: Engine) -> None:
    engine = Rulings(wide, chance)
    debated, verdicts = judge_candidates(judge_of(engine, without=["reflect"]), candidates_of(rows()))
    pairs, _ = make_pairs(debated.kept, Rules())
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [("text 0", "text 2")]
    assert Ended.of(verdicts) == Ended(ratified=0, overridden=0, alone=3, again=0)


def test_a_run_that_was_killed_in_a_debate_asks_for_nothing_twice(wide: Engine, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def killing(agent: str, shown: str) -> float | None:
        if agent == "reflect" and "text 1" in shown:
            raise Killed
        return chance(agent, shown)

    first, second, alone = Rulings(wide, killing), Rulings(wide, chance), Rulings(wide, chance)
    candidates = candidates_of(rows())
    with Journal(tmp_path / "journal") as book, pytest.raises(Killed):
        judge_candidates(judge_of(KeptEngine(first, book), journal=book), candidates)
    with Journal(tmp_path / "journal") as book:
        _, verdicts = judge_candidates(judge_of(KeptEngine(second, book), journal=book), candidates)
    _, expected = judge_candidates(judge_of(alone), candidates)
    assert verdicts == expected
    assert len(first.asked) == 8 and second.asked == []  # both sides of four debates
    assert sorted(second.scored) == sorted(shown for shown in alone.scored if "Your part is to review" in shown)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (rows(response="same"), "no prompt has two different texts"),
        (rows()[:1], "no prompt has two different texts"),
        (rows(label=2), 'line 0: "label" is 2'),
        (rows(response=None), 'line 0: "response" is missing'),
    ],
)
def test_rows_that_make_no_pairs_are_refused(given: list[Row], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        candidates_of(given)
