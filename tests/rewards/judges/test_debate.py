from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.debate import AGENTS
from adjudge.rewards.judges.judge import WINDOW
from adjudge.rewards.judges.principle import GOOD
from adjudge.rewards.records.verdict import Item
from tests.engine.reference import next_logprobs, open_reference
from tests.rewards.debating import EXAMPLES, ITEMS, WIDE, Rulings, agent_of, index, judge_of, weights
from tests.rewards.scripted import ScriptedEngine


@pytest.fixture(scope="module")
def wide() -> Engine:
    return Engine(WIDE, kv_cache_gb=0.2)


# ---- who decides


@pytest.mark.parametrize(
    ("judged", "reviewed", "score", "decided"),
    [
        (0.9, 0.8, 0.9, "judge"),
        (0.2, 0.4, 0.2, "judge"),
        (0.9, 0.5, 0.9, "judge"),
        (0.5, 0.4, 0.5, "judge"),  # even is not good: the ruling is 0, which the review upholds
        (0.9, 0.24, 0.24, "reflect"),
        (0.9, 0.1, 0.1, "reflect"),
        (0.2, 0.76, 0.76, "reflect"),
        (0.2, 0.9, 0.9, "reflect"),
    ],
)
def test_a_review_ratifies_or_overrides_and_the_score_is_that_of_who_decided(
    wide: Engine, judged: float, reviewed: float, score: float, decided: str
) -> None:
    chances = {"judge": judged, "reflect": reviewed}
    engine = Rulings(wide, lambda agent, shown: chances[agent])
    [verdict] = judge_of(engine).judge(ITEMS[:1])
    assert verdict.score == pytest.approx(score, abs=1e-6) and verdict.abstained is None
    assert weights(verdict) == {name: float(name == decided) for name in ("judge", "reflect")}
    for name, part in verdict.breakdown.items():
        assert part.distribution == pytest.approx((1 - chances[name], chances[name]), abs=1e-6)
        assert part.score == pytest.approx(chances[name], abs=1e-6) and part.mass == pytest.approx(1)


@pytest.mark.parametrize(
    ("judged", "reviewed", "score", "decided"),
    [
        ((0.9, 0.8), (0.4, 0.7), 0.8, "judge again"),
        ((0.9, 0.3), (0.4, 0.6), 0.3, "judge again"),  # still in doubt: the ruling stands
        ((0.9, 0.8), (0.4, 0.1), 0.1, "reflect again"),
        ((0.1, 0.2), (0.6, 0.9), 0.9, "reflect again"),
    ],
)
def test_a_doubt_has_the_debate_held_once_more(
    wide: Engine, judged: tuple[float, float], reviewed: tuple[float, float], score: float, decided: str
) -> None:
    rulings = {"judge": list(judged), "reflect": list(reviewed)}
    engine = Rulings(wide, lambda agent, shown: rulings[agent].pop(0))
    [verdict] = judge_of(engine).judge(ITEMS[:1])
    assert verdict.score == pytest.approx(score, abs=1e-6)
    names = ("judge", "reflect", "judge again", "reflect again")
    assert weights(verdict) == {name: float(name == decided) for name in names}
    assert verdict.analysis is not None
    assert verdict.analysis["positive"] == ('{"positive point": "said 0"}', '{"positive point": "said 1"}')
    assert len(set(engine.seeds)) == 4
    assert "An earlier ruling" not in engine.scored[0] and "An earlier ruling" in engine.scored[2]
    assert "negative point: said 1" in engine.scored[2] and "said 0" not in engine.scored[2]


def test_how_sure_an_override_must_be_is_the_users(wide: Engine) -> None:
    for override, score, asked in ((0.5, 0.4, 2), (0.59, 0.4, 2), (0.61, 0.9, 4)):
        engine = Rulings(wide, lambda agent, shown: 0.9 if agent == "judge" else 0.4)
        [verdict] = judge_of(engine, override=override).judge(ITEMS[:1])
        assert verdict.score == pytest.approx(score) and len(engine.scored) == asked


def test_a_review_exactly_as_sure_as_it_must_be_overrides(wide: Engine) -> None:
    engine = Rulings(wide, lambda agent, shown: 0.9 if agent == "judge" else 0.5)  # 0.5 is exact in binary
    [verdict] = judge_of(engine, override=0.5).judge(ITEMS[:1])
    assert verdict.score == 0.5 and weights(verdict) == {"judge": 0.0, "reflect": 1.0}


# ---- what each agent reads


def test_rulings_are_read_at_their_slots_as_plain_transformers_does(wide: Engine) -> None:
    engine = Rulings(wide)
    [verdict] = judge_of(engine, index(), override=0.5).judge(ITEMS[:1])
    reference = open_reference(WIDE)
    for name, shown in zip(("judge", "reflect"), engine.scored, strict=True):
        assert shown.endswith("assistant\nRuling: <ANSWER> ") and agent_of(shown) == name
        logprobs = next_logprobs(reference, wide.tokenizer.encode(shown, True))
        chances = logprobs[[wide.tokenizer.encode(label, True)[0] for label in GOOD.labels]].exp()
        part = verdict.breakdown[name]
        assert part.distribution == pytest.approx((chances / chances.sum()).tolist(), abs=1e-4)
        assert part.mass == pytest.approx(float(chances.sum()), abs=1e-5)


def test_every_agent_reads_those_before_it(wide: Engine) -> None:
    engine = Rulings(wide, lambda agent, shown: 0.9)
    [verdict] = judge_of(engine, index(), k=2).judge(ITEMS[:1])
    positive, negative = engine.asked
    judge, reflect = engine.scored
    retrieved = "1. A toast.\nTo us!\n\n2. A wish.\nSleep well."  # its own text is not among them
    for shown in (positive, negative, judge, reflect):
        assert "Good morning 0." in shown and retrieved in shown
    for shown in (positive, negative):
        assert "point: said" not in shown
    for shown in (judge, reflect):
        assert "- positive point: said 0" in shown and "- negative point: said 0" in shown
    assert "The first ruling" not in judge and "The first ruling: 1" in reflect
    assert verdict.analysis == {
        "retrieval": (retrieved,),
        "positive": ('{"positive point": "said 0"}',),
        "negative": ('{"negative point": "said 0"}',),
    }


def test_all_agents_of_a_debate_share_its_beginning(wide: Engine) -> None:
    engine = Rulings(wide, lambda agent, shown: 0.9)
    judge_of(engine, index()).judge(ITEMS[:1])
    beginnings = {shown[: shown.index("[Text ends]")] for shown in engine.asked + engine.scored}
    assert len(beginnings) == 1


def test_in_the_papers_layout_the_task_comes_first_and_only_the_sides_see_examples(wide: Engine) -> None:
    engine = Rulings(wide, lambda agent, shown: 0.9)
    judge_of(engine, index(), layout="paper").judge(ITEMS[:1])
    for shown in engine.asked + engine.scored:
        assert shown.index("Your part is") < shown.index("Good morning 0.")
        assert ("Sleep well." in shown) == (agent_of(shown) in ("positive", "negative"))


def test_prompts_are_there_in_chinese(wide: Engine) -> None:
    engine = ScriptedEngine(wide, lambda shown, before: "{}")
    [verdict] = judge_of(engine, index(), language="zh").judge(ITEMS[:1])
    assert verdict.score is not None and all("你只负责找出" in shown for shown in engine.asked)


def test_both_sides_of_a_window_are_one_call_and_so_is_each_ruling(wide: Engine) -> None:
    engine = Rulings(wide, lambda agent, shown: 0.9)
    judge_of(engine).judge(ITEMS)
    assert engine.calls == [["positive", "negative"] * 4, ["judge"] * 4, ["reflect"] * 4]


def test_a_debate_computes_little_more_than_it_adds() -> None:
    engine = Engine(WIDE, kv_cache_gb=0.2)
    judge_of(engine, index(), without=["positive", "negative"]).judge(ITEMS)
    assert engine.stats.prompts == 2 * len(ITEMS) and engine.stats.sharing > 1.5


# ---- leaving agents out


@pytest.mark.parametrize("left_out", AGENTS)
def test_each_agent_can_be_left_out(wide: Engine, left_out: str) -> None:
    """Without the judge the reflect agent rules, in the judge's words."""
    engine = Rulings(wide, lambda agent, shown: 0.8)
    [verdict] = judge_of(engine, index(), without=[left_out]).judge(ITEMS[:1])
    said = {agent_of(shown) for shown in engine.asked + engine.scored}
    expected = {"positive", "negative", "judge", "reflect"} - {left_out}
    assert said == (expected if left_out != "judge" else {"positive", "negative", "judge"})
    assert verdict.score == pytest.approx(0.8) and list(weights(verdict).values()).count(1.0) == 1
    last = engine.scored[-1]
    assert ("Sleep well." in last) == (left_out != "retrieval")
    for side in ("positive", "negative"):
        assert (f"{side} point" in last) == (left_out != side)
    assert left_out not in (verdict.analysis or {}) and left_out not in verdict.breakdown
    assert set(verdict.breakdown) == {"judge", "reflect"} - {left_out}


def test_the_judge_alone_reads_nothing_but_the_text(wide: Engine) -> None:
    engine = Rulings(wide, lambda agent, shown: 0.8)
    [verdict] = judge_of(engine, index(), without=["retrieval", "positive", "negative", "reflect"]).judge(ITEMS[:1])
    assert verdict.score == pytest.approx(0.8) and verdict.analysis is None and engine.asked == []
    assert "what has been said" not in engine.scored[0]


# ---- nothing depends on company


def test_verdicts_do_not_depend_on_order_windows_or_which_text_ends_first(wide: Engine) -> None:
    """A doubt on some, an unreadable text on others, and retries in between."""

    def chance(agent: str, shown: str) -> float:
        doubted = "morning 2" in shown and "An earlier ruling" not in shown
        return 0.9 if agent == "judge" else 0.4 if doubted else 0.8

    def script(shown: str, before: int) -> str:
        if "morning 3" in shown and not before:
            return "no"
        return f'{{"{agent_of(shown)}": "{len(shown)}"}}'

    def verdicts(items: Sequence[Item], window: int = WINDOW, **how: Any) -> list[bytes]:
        judge = judge_of(Rulings(wide, chance, script, **how), index())
        return [msgspec.json.encode(verdict) for verdict in judge.judge_iter(items, window)]

    expected = verdicts(ITEMS)
    assert [verdict.count(b" again") for verdict in expected] == [0, 0, 2, 0]
    assert verdicts(ITEMS[::-1]) == expected[::-1]
    assert verdicts(ITEMS, 1) == verdicts(ITEMS, 3) == verdicts(ITEMS, last_first=True) == expected


def test_a_real_engine_writes_the_same_in_any_company(wide: Engine) -> None:
    judge = judge_of(wide, index(), attempts=6)
    expected = judge.judge(ITEMS)
    assert judge.judge(ITEMS[2:]) == expected[2:] and judge.judge(ITEMS[::-1]) == expected[::-1]
    assert any(verdict.score is not None for verdict in expected)
    assert judge_of(wide, index(), attempts=6, seed=1).judge(ITEMS[:1])[0].analysis != expected[0].analysis


def test_a_killed_run_goes_on_with_what_was_under_way(wide: Engine, tmp_path: Path) -> None:
    expected = judge_of(Rulings(wide, lambda agent, shown: 0.9)).judge(ITEMS)
    with Journal(tmp_path / "j") as journal:
        first = judge_of(Rulings(wide, lambda agent, shown: 0.9), journal=journal)
        stopped = first.judge_iter(ITEMS, window=2)
        next(stopped), next(stopped), stopped.close()
        engine = Rulings(wide, lambda agent, shown: 0.9)
        assert judge_of(engine, journal=journal).judge(ITEMS) == expected
        assert len(engine.asked) == 2 * 2 and len(engine.scored) == 2 * 2


def test_the_key_changes_with_everything_that_decides_the_verdict(wide: Engine) -> None:
    def key(item: Item = ITEMS[0], examples: Any = EXAMPLES, **how: Any) -> str:
        return judge_of(wide, examples, **how).key(item)

    keys = [
        key(),
        key(ITEMS[1]),
        key(msgspec.structs.replace(ITEMS[0], prompt="other")),
        key(examples=EXAMPLES[:2]),
        key(examples=index()),
        key(k=2),
        key(without=["positive"]),
        key(override=0.8),
        key(sampling=Sampling(max_tokens=25)),
        key(seed=1),
        key(attempts=2),
        key(min_mass=0.1),
        key(cut="tail"),
        key(language="zh"),
        key(layout="paper"),
        key(mode="reasoned"),
    ]
    assert len(set(keys)) == len(keys)
    assert key(msgspec.structs.replace(ITEMS[0], id="other")) == keys[0]
    assert key(without=["retrieval"]) == key(examples=None, without=["retrieval"])
