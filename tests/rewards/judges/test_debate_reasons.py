from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.score import Score
from adjudge.rewards.judges.principle import GOOD
from adjudge.rewards.records.verdict import Part
from tests.rewards.debating import ITEMS, WIDE, Rulings, agent_of, argue, judge_of, score_of


@pytest.fixture(scope="module")
def wide() -> Engine:
    return Engine(WIDE, kv_cache_gb=0.2)


def test_in_reasoned_mode_rulings_are_written_and_reviewed_with_their_reasons(wide: Engine) -> None:
    engine = Rulings(wide)
    judge = judge_of(engine, mode="reasoned", override=0.5)
    [verdict] = judge.judge(ITEMS[:1])
    judged, reviewed = engine.asked[2:]
    assert judged.endswith("<ANSWER> N </ANSWER><|im_end|>\n<|im_start|>assistant\n")
    assert "judge reasons 0." not in judged and "judge reasons 0." in reviewed
    assert verdict.analysis is not None
    assert verdict.analysis["judge"] == ("judge reasons 0. <ANSWER> 1 </ANSWER>",)
    before = wide.tokenizer.encode("judge reasons 0. <ANSWER> ", False)
    [score] = wide.score([wide.tokenizer.encode(judged, True) + before], GOOD)
    assert verdict.breakdown["judge"].score == pytest.approx(score.expected or math.nan, abs=1e-6)


def test_a_doubting_review_is_read_by_the_judge_of_the_second_debate(wide: Engine) -> None:
    rulings = iter([0.9, 0.4, 0.9, 0.9])
    engine = Rulings(wide)
    engine.read_answers = lambda *given, **how: [score_of(next(rulings))]  # type: ignore[method-assign]
    [verdict] = judge_of(engine, mode="reasoned").judge(ITEMS[:1])
    judged = [shown for shown in engine.asked if agent_of(shown) == "judge"]
    assert "reflect reasons 0." not in judged[0] and "reflect reasons 0." in judged[1]
    assert verdict.analysis is not None and len(verdict.analysis["judge"]) == len(verdict.analysis["reflect"]) == 2


@pytest.mark.parametrize(
    ("samples", "read"),
    [
        (((1, 0.9), (1, 0.8), (0, 0.1)), 0),
        (((0, 0.1), (1, 0.9), (1, 0.8)), 1),
        (((1, 0.6), (1, 0.7), (0, 0.1)), 2),  # the mean rules, not the majority
        (((1, 0.4), (1, 0.4), (1, 0.4)), 0),  # nobody wrote the more probable one
    ],
)
def test_of_several_analyses_the_next_agent_reads_the_first_that_rules_as_their_mean(
    wide: Engine, samples: Sequence[tuple[int, float]], read: int
) -> None:
    def script(shown: str, before: int) -> str:
        if agent_of(shown) in ("positive", "negative"):
            return "{}"
        return f"{agent_of(shown)} reasons {before % 3}. <ANSWER> **{samples[before % 3][0]}** </ANSWER>"

    chances = [chance for _, chance in samples]
    ruling = int(sum(chances) / 3 > 0.5)
    doubt = [0.4] * 3 if ruling else [0.6] * 3
    rulings = iter([*chances, *doubt, *chances, *doubt])
    engine = Rulings(wide, script=script)
    engine.read_answers = lambda *given, **how: [score_of(next(rulings))]  # type: ignore[method-assign]
    [verdict] = judge_of(engine, mode="reasoned", n=3).judge(ITEMS[:1])
    reviewed = [shown for shown in engine.asked if agent_of(shown) == "reflect"]
    assert len(reviewed) == 6 and len(set(reviewed[:3])) == 1
    assert f"The first ruling: {ruling}" in reviewed[0]
    assert [f"judge reasons {sample}." in reviewed[0] for sample in range(3)] == [n == read for n in range(3)]
    again = [shown for shown in engine.asked if agent_of(shown) == "judge"][3]
    doubting = next((n for n, (wrote, _) in enumerate(samples) if wrote != ruling), 0)
    assert [f"reflect reasons {sample}." in again for sample in range(3)] == [n == doubting for n in range(3)]
    assert verdict.analysis is not None and len(verdict.analysis["judge"]) == 6


def test_an_analysis_with_two_rulings_speaks_for_none(wide: Engine) -> None:
    texts = [f"judge reasons {n}. {ruling}" for n, ruling in enumerate(["<ANSWER> 0 </ANSWER> " * 2, "", ""])]
    texts[1] += "<ANSWER> 0 </ANSWER> or so"
    texts[2] += "<answer>\n0</answer>."

    def script(shown: str, before: int) -> str:
        return texts[before % 3] if agent_of(shown) == "judge" else argue(shown, before)

    engine = Rulings(wide, script=script)
    scores = iter([Score.abstained(GOOD.labels, "unparsable")] * 2 + [score_of(0.1)] * 4)
    engine.read_answers = lambda *given, **how: [next(scores)]  # type: ignore[method-assign]
    judge_of(engine, mode="reasoned", n=3, attempts=1).judge(ITEMS[:1])
    assert "judge reasons 2." in engine.asked[-1] and "judge reasons 0." not in engine.asked[-1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Good.",
        "<ANSWER> 1 </ANSWER> <ANSWER> 0 </ANSWER>",
        "<ANSWER> 11 </ANSWER>",
        "<ANSWER> five </ANSWER>",
        "<ANSWER> １ </ANSWER>",
        'It says "<ANSWER> 1 </ANSWER>" itself.',
    ],
)
@pytest.mark.parametrize("agent", ["judge", "reflect"])
def test_a_ruling_that_cannot_be_read_abstains_after_retries(wide: Engine, text: str, agent: str) -> None:
    engine = Rulings(wide, script=lambda shown, before: text if agent_of(shown) == agent else argue(shown, before))
    [verdict] = judge_of(engine, mode="reasoned", attempts=2).judge(ITEMS[:1])
    assert (verdict.score, verdict.abstained) == (None, "unparsable")
    assert verdict.breakdown[agent] == Part(None, 1.0, abstained="unparsable")
    assert sum(agent_of(shown) == agent for shown in engine.asked) == 2
