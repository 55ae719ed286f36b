from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.judges.tree_nodes import CONTENT
from adjudge.rewards.records.verdict import Part
from tests.rewards.scripted import ScriptedEngine
from tests.rewards.writings import ITEM, PATHS, SHORT, Written, review, scores_of, writer


def test_a_genre_decides_the_leaves_of_the_fixed_form_alone(tiny: Engine) -> None:
    poem = msgspec.structs.replace(ITEM, genre="诗歌")
    [fixed] = TreeJudge(tiny, min_mass=0).judge([poem])
    assert "content/instances" not in fixed.breakdown and "format/formatting" not in fixed.breakdown
    assert fixed.score == pytest.approx(sum(scores_of(fixed).values()) / 7, abs=1e-9)
    [parity] = TreeJudge(tiny, min_mass=0, form="parity").judge([poem])
    assert set(PATHS) <= set(parity.breakdown)


def test_dialogue_with_dashes_is_no_list_in_what_the_genre_says_is_fiction(tiny: Engine) -> None:
    def formatting(genre: str | None, **how: Any) -> float | None:
        item = msgspec.structs.replace(ITEM, response="They met.\n- Hello, he said.\n- Hi.", genre=genre)
        [verdict] = TreeJudge(tiny, without=["content", "impression"], min_mass=0, **how).judge([item])
        return verdict.breakdown["format/formatting"].score

    assert formatting(" Story ") == 5.0
    assert formatting(None) == formatting("essay") == formatting("story", form="parity") == 0.0


def test_parity_is_the_published_formula(tiny: Engine) -> None:
    four = {"opening & ending": 0.15, "language & rhetoric": 0.3, "argument & logic": 0.5, "emotion": -0.1}
    engine = ScriptedEngine(tiny, writer(review, lambda shown: json.dumps(four)))
    judge = TreeJudge(engine, weights="generated", form="parity", min_mass=0)
    guide, completion = judge.judge([ITEM, msgspec.structs.replace(ITEM, task="completion")])
    assert len(engine.asked) == 1 and "instances" not in engine.asked[0]
    for verdict in (guide, completion):
        leaves = scores_of(verdict)
        content = (
            0.15 * leaves["content/opening & ending"]
            + 0.3 * leaves["content/language & rhetoric"]
            + 0.15 * leaves["content/instances"]  # 1 - .15 - .3 - .5 + .1
            + 0.5 * leaves["content/argument & logic"]
            - 0.1 * leaves["content/emotion"]
        )
        assert verdict.breakdown["content"].score == pytest.approx(content, abs=1e-6)
        expected = (5 * content + leaves["impression"]) / 6
        if verdict is guide:
            formatted = (leaves["format/plots & structure"] + 10 + leaves["format/paragraphing"]) / 3
            expected = (5 * content + 3 * formatted + leaves["impression"]) / 9
        assert verdict.score == pytest.approx(expected, abs=1e-6)


def test_a_missing_score_becomes_five_in_parity_and_abstains_in_fixed(tiny: Engine) -> None:
    def leaf(shown: str) -> Written:
        return "none" if "Quality to rate: Emotion" in shown else review(shown)

    for form, abstained in (("parity", None), ("fixed", "unparsable")):
        engine = ScriptedEngine(tiny, writer(leaf))
        judge = TreeJudge(engine, form=form, mode="reasoned", sampling=SHORT, min_mass=0)  # type: ignore[arg-type]
        [verdict] = judge.judge([ITEM])
        assert verdict.abstained == abstained
        assert verdict.breakdown["content/emotion"] == Part(None, 0.2, abstained="unparsable")
        assert verdict.breakdown["content"].abstained == abstained and verdict.breakdown["format"].score is not None
        if form == "fixed":
            assert verdict.score is None and verdict.breakdown["content"].score is None
            continue
        leaves = scores_of(verdict) | {"content/emotion": 5.0}
        assert verdict.score == pytest.approx(sum(leaves.values()) / 9, abs=1e-6)


def test_a_leaf_that_weighs_nothing_may_abstain(tiny: Engine) -> None:
    engine = ScriptedEngine(
        tiny, writer(lambda shown: "none" if "Quality to rate: Emotion" in shown else review(shown))
    )
    weights = dict(zip(CONTENT, (1, 1, 1, 1, 0), strict=True))
    [verdict] = TreeJudge(engine, weights=weights, mode="reasoned", sampling=SHORT, min_mass=0).judge([ITEM])
    assert verdict.abstained is None and verdict.breakdown["content/emotion"].abstained == "unparsable"


def test_what_ran_out_of_time_abstains_in_either_form_and_is_not_kept(tiny: Engine, tmp_path: Path) -> None:
    for form in ("fixed", "parity"):
        engine = ScriptedEngine(tiny, writer(lambda shown: ("", "timeout")))
        with Journal(tmp_path / form) as journal:
            how: Any = {"form": form, "mode": "reasoned", "sampling": SHORT, "journal": journal}
            [verdict] = TreeJudge(engine, **how).judge([ITEM])
            assert (verdict.score, verdict.abstained, len(journal)) == (None, "timeout", 0)


def test_in_parity_a_leaf_out_of_time_counts_beside_one_that_cannot_be_read(tiny: Engine, tmp_path: Path) -> None:
    def told(shown: str) -> Written:
        late = "Quality to rate: Emotion" in shown
        return ("", "timeout") if late else "none" if "Quality to rate: Opening" in shown else review(shown)

    with Journal(tmp_path / "j") as journal:
        how: Any = {"form": "parity", "mode": "reasoned", "sampling": SHORT, "min_mass": 0, "journal": journal}
        [verdict] = TreeJudge(ScriptedEngine(tiny, writer(told)), **how).judge([ITEM])
        found = [part.abstained for part in verdict.breakdown.values() if part.abstained]
        assert found == ["timeout", "unparsable", "timeout"]  # the node's, and its leaves'
        assert (verdict.score, verdict.abstained, len(journal)) == (None, "timeout", 0)


def test_parity_without_a_leaf_refuses_weights_that_sum_to_nothing(tiny: Engine) -> None:
    four = {"opening & ending": 0.5, "language & rhetoric": -0.5, "argument & logic": 0.0, "emotion": 1.0}
    engine = ScriptedEngine(tiny, writer(review, lambda shown: json.dumps(four)))
    how: Any = {"weights": "generated", "form": "parity", "min_mass": 0}
    [whole] = TreeJudge(engine, **how).judge([ITEM])
    [without] = TreeJudge(engine, **how, without=["emotion"]).judge([ITEM])
    assert whole.score is not None and without.abstained == "unparsable"
