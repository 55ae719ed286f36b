from __future__ import annotations

import math
from pathlib import Path

import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.asking import Answer
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.kept_answers import KeptAnswers
from adjudge.rewards.judges.pairwise import SCALE, PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.judges.rescoring import Rescoring
from adjudge.rewards.records.verdict import Item, Pair
from tests.rewards.scripted import ScriptedEngine

STYLE, WIT, PACE = Aspect("style", "How is it written?"), Aspect("wit", "Is it witty?"), Aspect("pace", "Is it slow?")
PAIRS = [Pair(a=f"A story {n}.", b=f"Another {n}, \ud800longer.", prompt="Tell one.", id=str(n)) for n in range(3)]
ITEMS = [Item("Tell one.", pair.a, pair.id) for pair in PAIRS]


def test_other_weights_fewer_aspects_and_one_order_give_what_a_fresh_judge_gives(tiny: Engine, tmp_path: Path) -> None:
    absent = AbsentEngine(Card.of(tiny))
    with Journal(tmp_path / "j") as journal:
        PairwiseJudge(tiny, [STYLE, WIT, PACE], journal=journal, min_mass=0.0).judge(PAIRS)
        earlier = PairwiseJudge(absent, [STYLE, WIT, PACE], min_mass=0.0)
        weighted = [Aspect("pace", PACE.definition, 3.0), Aspect("style", STYLE.definition, 0.5)]
        for orders in ("both", "ab"):
            rescored = Rescoring(earlier, PairwiseJudge(absent, weighted, orders=orders, min_mass=0.0), journal)  # type: ignore[arg-type]
            fresh = PairwiseJudge(tiny, weighted, orders=orders, min_mass=0.0).judge(PAIRS)  # type: ignore[arg-type]
            assert list(rescored.judge_iter(PAIRS)) == fresh
            assert fresh[0].preference is not None


def test_another_least_mass_makes_old_answers_abstain(tiny: Engine, tmp_path: Path) -> None:
    absent = AbsentEngine(Card.of(tiny))
    with Journal(tmp_path / "j") as journal:
        known = PointwiseJudge(tiny, [STYLE], journal=journal, min_mass=0.0).judge(ITEMS)
        judge = PointwiseJudge(absent, [STYLE], min_mass=1.0)
        rescored = list(Rescoring(PointwiseJudge(absent, [STYLE], min_mass=0.0), judge, journal).judge_iter(ITEMS))
    assert all(verdict.score is not None for verdict in known)
    assert [(verdict.score, verdict.abstained, verdict.id) for verdict in rescored] == [
        (None, "low_mass", item.id) for item in ITEMS
    ]


def test_a_text_that_was_shortened_then_is_said_to_be_now(tiny: Engine, tmp_path: Path) -> None:
    absent, items = AbsentEngine(Card.of(tiny)), [Item("Tell one.", "word " * 5000, "long"), ITEMS[0]]
    heavy = [Aspect("style", STYLE.definition, 2.0), WIT]
    with Journal(tmp_path / "j") as journal:
        PointwiseJudge(tiny, [STYLE, WIT], journal=journal, min_mass=0.0).judge(items)
        earlier, judge = (PointwiseJudge(absent, aspects, min_mass=0.0) for aspects in ([STYLE, WIT], heavy))
        rescored = list(Rescoring(earlier, judge, journal).judge_iter(items))
    assert [verdict.truncated for verdict in rescored] == [True, False]
    assert rescored == PointwiseJudge(tiny, heavy, min_mass=0.0).judge(items)


def test_only_the_very_same_question_counts_whatever_it_is_called(tiny: Engine, tmp_path: Path) -> None:
    absent = AbsentEngine(Card.of(tiny))
    with Journal(tmp_path / "j") as journal:
        PointwiseJudge(tiny, [STYLE], journal=journal).judge(ITEMS)
        earlier = PointwiseJudge(absent, [STYLE])
        for other in (
            PointwiseJudge(absent, [Aspect("style", "Is it long?")]),
            PointwiseJudge(absent, [STYLE], layout="paper"),
            PointwiseJudge(absent, [STYLE, WIT]),
        ):
            with pytest.raises(AdjudgeError, match='on "0" the question "(style|wit)" was never asked in these words'):
                list(Rescoring(earlier, other, journal).judge_iter(ITEMS))
        with pytest.raises(AdjudgeError, match="written in another way"):
            Rescoring(earlier, PointwiseJudge(absent, [STYLE], mode="reasoned"), journal)
        with pytest.raises(AdjudgeError, match="keeps no answers on row 1"):
            list(Rescoring(earlier, earlier, journal).judge_iter([Item("p", "never judged")]))


def test_answers_in_writing_are_kept_with_their_texts(tiny: Engine, tmp_path: Path) -> None:
    def how(journal: Journal | None = None) -> dict[str, object]:
        return {"mode": "reasoned", "sampling": Sampling(max_tokens=9, temperature=0.7), "n": 2, "journal": journal}

    scripted = ScriptedEngine(tiny, lambda prompt, times: f"Thought {times}. <ANSWER> {times % 2 + 2} </ANSWER>")
    absent = AbsentEngine(Card.of(scripted))
    heavy = [Aspect("style", STYLE.definition, 2.0), WIT]
    with Journal(tmp_path / "j") as journal:
        PointwiseJudge(scripted, [STYLE, WIT], **how(journal)).judge(ITEMS)  # type: ignore[arg-type]
        asked = len(scripted.asked)
        earlier, judge = (PointwiseJudge(absent, aspects, **how()) for aspects in ([STYLE, WIT], heavy))  # type: ignore[arg-type]
        rescored = list(Rescoring(earlier, judge, journal).judge_iter(ITEMS))
    assert len(scripted.asked) == asked
    again = ScriptedEngine(tiny, scripted.script)
    assert rescored == PointwiseJudge(again, heavy, **how()).judge(ITEMS)  # type: ignore[arg-type]
    assert rescored[0].analysis is not None and len(rescored[0].analysis["style"]) == 2


def test_kept_answers_come_back_to_the_last_bit() -> None:
    scores = (
        Score.of(SCALE.labels, [-0.1, -2.3, -math.inf, -4.0, -5.5], SCALE.numbers, 7),
        Score.abstained(SCALE.labels, "timeout", 9),
        Score.of(SCALE.labels, [-math.inf] * 5, SCALE.numbers, 7),
    )
    kept = KeptAnswers.unpacked(KeptAnswers.of({"q": Answer(scores, ("text",))}, True).packed)
    assert kept.truncated and kept.by_name["q"].answer(SCALE) == Answer(scores, ("text",))
    spread = Answer(scores[:1], ("text", "another"), (0.25,))
    assert KeptAnswers.unpacked(KeptAnswers.of({"q": spread}, True).packed).by_name["q"].answer(SCALE) == spread
