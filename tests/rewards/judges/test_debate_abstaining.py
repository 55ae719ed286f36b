from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from adjudge.engine.embedding import Embedding
from adjudge.engine.engine import Engine
from adjudge.rewards.judges.retrieval import Index
from adjudge.rewards.records.verdict import Part
from tests.rewards.debating import EXAMPLES, ITEMS, WIDE, Rulings, agent_of, argue, judge_of


@pytest.fixture(scope="module")
def wide() -> Engine:
    return Engine(WIDE, kv_cache_gb=0.2)


@pytest.mark.parametrize("side", ["positive", "negative"])
def test_a_side_that_says_nothing_readable_ends_its_debate_alone(wide: Engine, side: str) -> None:
    def script(shown: str, before: int) -> str:
        return "no" if agent_of(shown) == side and "morning 1" in shown else argue(shown, before)

    engine = Rulings(wide, lambda agent, shown: 0.9, script)
    verdicts = judge_of(engine, attempts=3).judge(ITEMS)
    assert [verdict.abstained for verdict in verdicts] == [None, "unparsable", None, None]
    assert verdicts[1].breakdown == {side: Part(None, 1.0, abstained="unparsable")}
    assert sum("morning 1" in shown and agent_of(shown) == side for shown in engine.asked) == 3
    assert not any("morning 1" in shown for shown in engine.scored)
    assert verdicts[1].analysis is not None and verdicts[1].analysis[side] == ("no",)


@pytest.mark.parametrize("agent", ["judge", "reflect"])
def test_a_ruling_without_a_score_abstains_with_its_reason(wide: Engine, agent: str) -> None:
    engine = Rulings(wide, lambda asked, shown: None if asked == agent else 0.9)
    [verdict] = judge_of(engine).judge(ITEMS[:1])
    assert (verdict.score, verdict.abstained) == (None, "non_finite")
    assert verdict.breakdown[agent].weight == 1.0


def test_low_mass_abstains(wide: Engine) -> None:
    engine = Rulings(wide)
    [verdict] = judge_of(engine, min_mass=1.0).judge(ITEMS[:1])
    assert verdict.abstained == "low_mass" and list(verdict.breakdown) == ["judge"] and verdict.mass is not None


@pytest.mark.parametrize(("reason", "abstained"), [("too_long", None), ("timeout", "timeout")])
def test_a_prompt_that_cannot_be_embedded_is_judged_without_examples_which_is_noted(
    wide: Engine, reason: Any, abstained: str | None
) -> None:
    """Unless the reason lies in the moment: that verdict would not come again."""

    def embed(texts: Sequence[str]) -> list[Embedding]:
        rows = [[float(len(text)), 1.0] for text in texts]
        return [
            Embedding(None, reason) if text == "A greeting." else Embedding.of(np.array(row, np.float32), 1)
            for text, row in zip(texts, rows, strict=True)
        ]

    engine = Rulings(wide, lambda agent, shown: 0.9)
    [verdict] = judge_of(engine, Index(EXAMPLES, embed)).judge(ITEMS[:1])
    assert verdict.abstained == abstained and (verdict.score is None) == (abstained is not None)
    assert verdict.breakdown["retrieval"] == Part(None, float(abstained is not None), abstained=reason)
    assert not any("known to be good" in shown for shown in engine.asked)
