from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.judges.tree_nodes import CONTENT, FORMAT
from adjudge.rewards.records.verdict import Item, Part
from tests.rewards.scripted import ScriptedEngine
from tests.rewards.writings import FORMATTED, ITEM, ITEMS, WEIGHED, Written, review, scores_of, writer


def test_generated_weights_are_written_once_for_an_instruction_and_used(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, writer(review))
    judge = TreeJudge(engine, weights="generated", min_mass=0)
    verdicts = judge.judge(ITEMS)
    assert len(engine.asked) == 2  # content and format
    for verdict in verdicts:
        leaves = scores_of(verdict)
        content = sum(WEIGHED[name] * leaves[f"content/{name}"] for name in CONTENT)
        formatted = sum(FORMATTED[name] * leaves[f"format/{name}"] for name in FORMAT)
        assert verdict.breakdown["content"].score == pytest.approx(content, abs=1e-9)
        assert verdict.breakdown["content/argument & logic"].weight == pytest.approx(0.4)
        assert verdict.score == pytest.approx((5 * content + 3 * formatted + leaves["impression"]) / 9, abs=1e-9)
    judge.judge([msgspec.structs.replace(ITEM, response="Another.")])
    assert len(engine.asked) == 2


def test_a_resumed_run_asks_for_no_weights_again(tiny: Engine, tmp_path: Path) -> None:
    engine = ScriptedEngine(tiny, writer(review))
    with Journal(tmp_path / "j") as journal:
        first = TreeJudge(engine, weights="generated", min_mass=0, journal=journal).judge(ITEMS[:2])
        resumed = TreeJudge(engine, weights="generated", min_mass=0, journal=journal)
        assert resumed.judge(ITEMS[:3])[:2] == first
        assert len(engine.asked) == 2


def test_weights_that_are_known_hold_up_no_item_however_few_its_questions(tiny: Engine, tmp_path: Path) -> None:
    halves = '{"formatting": 0.5, "paragraphing": 0.5}'
    engine = ScriptedEngine(tiny, writer(review, lambda shown: halves))
    others = ["content", "impression", "plots & structure"]  # formatting and paragraphing are left: one question
    with Journal(tmp_path / "j") as journal:
        how: Any = {"weights": "generated", "without": others, "min_mass": 0, "journal": journal}
        for item in ITEMS[:3]:
            [verdict] = TreeJudge(engine, **how).judge([item])
            assert verdict.score is not None
        assert TreeJudge(engine, **how).judge(ITEMS)[-1].score is not None
    assert len(engine.asked) == 1


def test_weights_that_ran_out_of_time_conclude_no_item_of_a_later_window(tiny: Engine) -> None:
    texts: list[Written] = [("", "timeout"), '{"formatting": 0.5, "paragraphing": 0.5}']
    engine = ScriptedEngine(tiny, writer(review, lambda shown: texts.pop(0)))
    others = ["content", "impression", "plots & structure"]  # one question: it may be answered before any weights are
    judge = TreeJudge(engine, weights="generated", without=others, min_mass=0)
    first, second = judge.judge_iter(ITEMS[:2], window=1)
    assert (first.score, first.abstained) == (None, "timeout")
    assert second.score is not None and texts == []


def test_an_instruction_shortened_for_its_weights_alone_is_said_so(tiny: Engine) -> None:
    judge = TreeJudge(ScriptedEngine(tiny, writer(review)), weights="generated", min_mass=0)

    def item(words: int) -> Item:
        return Item(prompt="word " * words, response="x")

    longest = bisect_left(range(5000), True, key=lambda words: judge.ask(item(words))[1]) - 1
    [short, long] = judge.judge([item(longest // 2), item(longest)])
    assert (short.truncated, long.truncated) == (False, True)


def test_weights_that_cannot_be_read_make_the_item_abstain(tiny: Engine) -> None:
    bad = '{"opening & ending": 1, "language & rhetoric": 1}'
    engine = ScriptedEngine(tiny, writer(review, lambda shown: bad))
    [verdict] = TreeJudge(engine, weights="generated", attempts=2, min_mass=0).judge([ITEM])
    assert (verdict.score, verdict.abstained) == (None, "unparsable")
    assert verdict.breakdown["content"] == Part(None, 5 / 9, abstained="unparsable")
    assert verdict.breakdown["content/emotion"].score is not None and verdict.breakdown["impression"].score is not None
    assert len(engine.asked) == 2 * 2


def test_weights_are_written_while_leaves_are_scored(tiny: Engine) -> None:
    """Both calls are under way before either has ended."""

    class Watched(ScriptedEngine):
        events: list[str]

        def score_iter(self, *arguments: Any, **how: Any) -> Any:
            self.events.append("leaves begin")
            yield from super().score_iter(*arguments, **how)
            self.events.append("leaves end")

        def generate_iter(self, *arguments: Any, **how: Any) -> Any:
            self.events.append("weights begin")
            yield from super().generate_iter(*arguments, **how)

    engine = Watched(tiny, writer(review))
    engine.events = []
    TreeJudge(engine, weights="generated").judge(ITEMS[:2])
    assert engine.events == ["leaves begin", "weights begin", "weights begin", "leaves end"]
