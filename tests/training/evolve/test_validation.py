from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.records.verdict import Pair
from adjudge.training.evolve.judges import BetterJudge, QualityJudge
from adjudge.training.evolve.rationale import Rationale, read_rationales
from adjudge.training.evolve.validation import Validated, stages_of, validate, validation_table
from tests.jsonl import write_lines
from tests.rewards.scripted import ScriptedEngine
from tests.training.evolve.known_engine import KnownEngine, rationale

SAME = {"id_a": "a", "id_b": "b"}
LEFT_OUT = {"reason": "r"}


def pools(tmp_path: Path) -> tuple[list[Rationale], list[Rationale]]:
    """One question: "best" is left, "dull" fell at the rule, "flat" at the attack, after it was written again."""
    kept = [rationale("best", response="best 2", drafts=["best 1"], passed=["rule", "refine", "attack"], **SAME)]
    dropped = [
        rationale("dull", response="dull 1", **SAME, dropped={"stage": "rule", **LEFT_OUT}),
        rationale("flat", response="flat 2", drafts=["flat 1"], passed=["rule", "refine"], **SAME)
        | {"dropped": {"stage": "attack", **LEFT_OUT}},
    ]
    return (
        read_rationales(write_lines(tmp_path / "kept.jsonl", *kept)),
        read_rationales(write_lines(tmp_path / "dropped.jsonl", *dropped)),
    )


def texts(rows: list[Rationale]) -> list[str]:
    return [one.response for one in rows]


def test_each_stage_has_its_rationales_in_the_words_they_had_then(tmp_path: Path) -> None:
    initial, rule, refine, attack = stages_of(*pools(tmp_path))
    assert (initial.name, texts(initial.kept)) == ("initial", ["best 1", "dull 1", "flat 1"])
    assert (rule.name, texts(rule.kept), texts(rule.dropped)) == ("rule", ["best 1", "flat 1"], ["dull 1"])
    assert (refine.name, texts(refine.kept), texts(refine.dropped)) == ("refine", ["best 2", "flat 2"], [])
    assert (attack.name, texts(attack.kept), texts(attack.dropped)) == ("attack", ["best 2"], ["flat 2"])
    assert [(a.response, b.response) for a, b in rule.matches] == [("best 1", "dull 1"), ("flat 1", "dull 1")]


def test_rationales_of_other_questions_are_not_compared(tmp_path: Path) -> None:
    kept, dropped = pools(tmp_path)
    other = read_rationales(write_lines(tmp_path / "o.jsonl", rationale("o", a=1, **SAME, dropped={"stage": "rule"})))
    assert len(stages_of(kept, [*dropped, *other])[1].matches) == 2


def test_the_judge_rates_what_is_left_and_compares_it_with_what_is_not(tiny: Engine, tmp_path: Path) -> None:
    quality = {"best 1": "4", "dull 1": "1", "flat 1": "3", "best 2": "5", "flat 2": "2"}

    def choose(shown: str) -> str:
        shown = shown[shown.rindex("[Question ends]") :]
        named = sorted((shown.index(text), text) for text in quality if text in shown)
        if len(named) == 1:
            return quality[named[0][1]]
        return "1" if int(quality[named[0][1]]) > int(quality[named[1][1]]) else "2"

    engine = KnownEngine(tiny, lambda shown, before: "", choose)
    rows = list(validate(stages_of(*pools(tmp_path)), QualityJudge(engine), BetterJudge(engine)))
    assert [(row.stage, row.rated, row.compared, row.unrated, row.uncompared) for row in rows] == [
        ("initial", 3, 0, 0, 0),
        ("rule", 2, 2, 0, 0),
        ("refine", 2, 0, 0, 0),
        ("attack", 1, 1, 0, 0),
    ]
    assert [row.win_rate for row in rows] == [None, 1.0, None, 1.0]
    # 2/3 on the label meant and 1/12 on each other.
    assert [row.quality for row in rows] == pytest.approx([7 / 12 * x + 15 / 12 for x in (8 / 3, 3.5, 3.5, 5)])
    some = list(validate(stages_of(*pools(tmp_path)), QualityJudge(engine), BetterJudge(engine), sample=1))
    assert [(row.rated, row.compared) for row in some] == [(1, 0), (1, 1), (1, 0), (1, 1)]


def test_abstentions_are_counted_apart(tiny: Engine, tmp_path: Path) -> None:
    engine = KnownEngine(tiny, lambda shown, before: "", lambda shown: "1")
    judges = QualityJudge(engine, min_mass=1.0), BetterJudge(engine, min_mass=1.0)
    engine.choose = lambda shown: "none of them"  # 0.075 or 0.3 on each label, less than 1 together
    rows = list(validate(stages_of(*pools(tmp_path)), *judges))
    assert [(row.quality, row.rated, row.unrated) for row in rows][:2] == [(None, 0, 3), (None, 0, 2)]
    assert [(row.win_rate, row.compared, row.uncompared) for row in rows][1] == (None, 0, 2)
    assert [row.reasons for row in rows][:2] == [{"low_mass": 3}, {"low_mass": 4}]


def test_how_far_several_analyses_of_two_rationales_lie_apart_is_told(tiny: Engine) -> None:
    choices = ["A. <ANSWER> 1 </ANSWER>", "Quite different. <ANSWER> 2 </ANSWER>", "B. <ANSWER> 1 </ANSWER>"]
    engine = ScriptedEngine(tiny, lambda shown, before: choices[before % 3])
    judge = BetterJudge(engine, mode="reasoned", sampling=Sampling(max_tokens=40), n=3, min_mass=0.0)
    [verdict] = judge.compare([Pair(prompt="Which score?", a="It drifts.", b="It climbs.")])
    aspect = verdict.aspects["quality"]
    assert aspect.spread_a == aspect.spread_b and 0 < aspect.spread_a < 1  # type: ignore[operator]


def test_files_of_different_runs_and_of_none_are_refused(tmp_path: Path) -> None:
    kept, dropped = pools(tmp_path)
    other = read_rationales(write_lines(tmp_path / "o.jsonl", rationale("o", passed=["attack"])))
    with pytest.raises(AdjudgeError, match="have passed different stages"):
        stages_of([*kept, *other], dropped)
    with pytest.raises(AdjudgeError, match="have passed no stage"):
        stages_of(read_rationales(write_lines(tmp_path / "o.jsonl", rationale("o"))), [])


def test_the_last_stage_may_have_left_nothing(tmp_path: Path) -> None:
    _, dropped = pools(tmp_path)
    stages = stages_of([], dropped)
    assert [(stage.name, len(stage.kept), len(stage.dropped)) for stage in stages] == [
        ("initial", 2, 0),
        ("rule", 1, 1),
        ("refine", 1, 0),
        ("attack", 0, 1),
    ]


def test_the_papers_figures_stand_beside_the_papers_pipeline_only() -> None:
    def shown(*names: str) -> str:
        out = io.StringIO()
        rows = [Validated(name, 3.5, 0.1, 4, 0, 0.75, 3, 1) for name in names]
        Console(file=out, width=160).print(validation_table(rows, "m"))
        return out.getvalue()

    assert "3.22" in shown("initial", "rule", "refine", "rule", "attack", "confidence")
    assert "paper" not in shown("initial", "rule") and "75.0%" in shown("initial", "rule")
