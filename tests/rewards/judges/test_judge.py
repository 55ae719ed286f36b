"""What all judges share, with judges whose answers are written down beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, CallTooLarge
from adjudge.engine.models.adapters import adapter_fingerprint
from adjudge.engine.models.aliases import HOUSE, SMOLLM2
from adjudge.engine.score import Reason
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import HANNA, Aspect
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.judges.ensemble import EnsembleJudge
from adjudge.rewards.judges.judge import WINDOW
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.personal import PersonalJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.judges.retrieval import EngineEmbedder
from adjudge.rewards.judges.rubric_judge import RubricJudge
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.judges.tournament import Tournament
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rubric import Criterion, Rubric
from adjudge.rewards.records.verdict import Item, Pair, Verdict
from tests.rewards.scripted import ScriptedEngine
from tests.rewards.written_judges import WrittenJudge, WrittenPairJudge

TINY = "dummy:tiny-llama"
ITEM = Item(prompt="Write.", response="A story.", id="mine")


def test_of_judges_that_share_a_journal_all_go_by_the_first_verdict(tmp_path: Path) -> None:
    first, second = WrittenJudge(lambda text: 2.0), WrittenJudge(lambda text: first.judge([ITEM])[0].score + 1e-6)  # type: ignore[operator]
    with Journal(tmp_path / "a") as one, Journal(tmp_path / "a") as other:
        first.journal, second.journal = one, other
        [verdict] = second.judge([ITEM])
        assert len(second.calls) == 1 and verdict.score == 2.0 and verdict.id == "mine"
        assert second.judge([ITEM]) == [verdict]


def test_a_verdict_names_the_adapter_that_it_was_judged_with(tiny: Engine, tmp_path: Path) -> None:
    adapted, pair = ScriptedEngine(tiny, lambda shown, before: ""), Pair("One.", "Two.", "Write.")
    adapted.adapter = "f00d"
    aspects = [Aspect("wit", "Is it funny?")]
    for judge, subject in [
        (PointwiseJudge(adapted, aspects), ITEM),
        (PairwiseJudge(adapted, aspects), pair),
        (EnsembleJudge(PairwiseJudge(adapted, aspects, orders="ab")), ITEM),
        (DebateJudge(adapted, without=["retrieval", "positive", "negative"]), ITEM),
        (RubricJudge(adapted, Rubric((Criterion("wit", "Is it funny?", 3),))), ITEM),
    ]:
        with Journal(tmp_path / judge.kind) as judge.journal:  # type: ignore[attr-defined]
            [verdict], [again] = judge.judge([subject]), judge.judge([subject])  # type: ignore[attr-defined]
        assert verdict.adapter == "f00d" and again == verdict
    [ranked] = Tournament(PairwiseJudge(adapted, aspects)).rank([Group("Write.", ("One.", "Two."))])
    assert ranked.adapter == "f00d"
    [bare] = PointwiseJudge(tiny, aspects).judge([ITEM])
    assert "adapter" not in msgspec.to_builtins(bare)


@pytest.mark.parametrize("reason", ["timeout", "cancelled", "unsupported"])
def test_what_does_not_lie_in_the_text_is_asked_again(tmp_path: Path, reason: Reason) -> None:
    said: list[float | Reason] = [reason, 4.0]
    judge = WrittenJudge(lambda text: said.pop(0))
    with Journal(tmp_path / "a") as judge.journal:
        assert [judge.judge([ITEM])[0].score for _ in range(3)] == [None, 4.0, 4.0] and not said


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(AdjudgeError, match="window is 0"):
        list(WrittenJudge(lambda text: 1.0).judge_iter([ITEM], window=0))


def test_as_many_subjects_as_fit_are_in_the_engine_at_a_time() -> None:
    judge = WrittenJudge(lambda text: 1.0)
    assert len(judge.judge(Item("p", str(number)) for number in range(WINDOW + 40))) == WINDOW + 40
    assert [*map(len, judge.calls)] == [WINDOW, 40]


def test_more_subjects_than_a_queue_takes_are_asked_in_turn(tmp_path: Path) -> None:
    items = [Item("p", f"Tale {number}.", id=str(number)) for number in range(21)]
    with Journal(tmp_path / "j") as journal:
        judge = PointwiseJudge(Engine(TINY, kv_cache_gb=0.05, max_queue=8), HANNA[:3], journal=journal)
        verdicts = judge.judge_iter(items)
        first = next(verdicts)
        assert journal.get([first.key])
        assert [first, *verdicts] == PointwiseJudge(Engine(TINY, kv_cache_gb=0.05), HANNA[:3]).judge(items)
    with pytest.raises(CallTooLarge, match="needs 3 places in a queue of 2"):
        PointwiseJudge(Engine(TINY, kv_cache_gb=0.05, max_queue=2), HANNA[:3]).judge(items)


def test_no_subject_is_judged_again_where_a_later_round_is_too_large() -> None:
    class Rounds(WrittenJudge):
        def _judge(self, subjects: Mapping[str, Item]) -> Iterator[Verdict]:
            for number, verdict in enumerate(super()._judge(subjects)):
                if number == 2:
                    raise CallTooLarge("this call needs 2 places in a queue of 1")
                yield verdict

    items = [Item("p", text, id=text) for text in "abcdef"]
    judge = Rounds(lambda text: 1.0)
    assert [verdict.id for verdict in judge.judge(items)] == [*"abcdef"]
    assert judge.calls == [[*"abcdef"], [*"cde"], [*"e"], [*"f"]]


def test_house_reads_a_text_as_it_would_be_typed_and_others_as_it_stands() -> None:
    item = Item("Tell\tone.\r\n", "It was dark .\n\n\nA lamp\u00a0 burned.")
    flat = Item("Tell one.", "It was dark. A lamp burned.")

    def shown(judged: Item, weights: str, adapter: str | None = None) -> list[str]:
        judge = PointwiseJudge(AbsentEngine(Card(fingerprint=weights, adapter=adapter)), HANNA[:1])
        [question] = judge.ask(judged)[0]
        return [segment.text for segment in question.prompt.segments if not segment.trusted]

    house = HOUSE.fingerprint
    assert shown(item, house) == shown(flat, house) == shown(flat, "another's") == [flat.prompt, flat.response]
    assert HOUSE.adapter is not None
    shipped = adapter_fingerprint(HOUSE.adapter)
    assert shown(item, SMOLLM2.fingerprint, shipped) == [flat.prompt, flat.response]
    bare = SMOLLM2.fingerprint
    for weights, adapter in (("another's", None), (house, "mine"), (bare, "mine"), ("another's", shipped)):
        assert shown(item, weights, adapter) == [item.prompt, item.response]


def test_what_house_read_as_it_stood_is_not_taken_for_what_it_reads_now(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = PointwiseJudge(AbsentEngine(Card(fingerprint=HOUSE.fingerprint)), HANNA[:1])
    now = judge.key(Item("p", "r"))
    monkeypatch.setattr("adjudge.rewards.judges.judge.RULES", 0)
    by_other_rules = judge.key(Item("p", "r"))
    monkeypatch.setattr("adjudge.rewards.judges.judge.reads_normalised", lambda weights, adapter: False)
    assert len({judge.key(Item("p", "r")), by_other_rules, now}) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ITEM, r"Item\(prompt='Write.', .* is no list of Items: put it in brackets"),
        (None, "None is no list of Items"),
        ("abc", "'a' is no Item"),
        ([{"prompt": "Write.", "response": "A story."}], r"\{'prompt': .* is no Item: give Item\(…\) objects"),
        ([ITEM, Pair("a", "b")], "Pair.* is no Item"),
    ],
)
def test_what_is_no_list_of_the_judges_subjects_is_one_sentence(given: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        WrittenJudge(lambda text: 1.0).judge(given)


def test_a_judge_of_pairs_takes_pairs_alone() -> None:
    with pytest.raises(AdjudgeError, match="is no Pair: give Pair"):
        WrittenPairJudge(lambda a, b: {}).judge([ITEM])  # type: ignore[list-item]


def test_a_judge_is_built_of_open_things_and_not_of_their_names() -> None:
    engine = AbsentEngine(Card(fingerprint="weights"))
    rubric: Any = "rubric.toml"
    sampling: Any = {"max_tokens": 3}
    made: list[tuple[Callable[[], Any], str]] = [
        (lambda: PointwiseJudge("house"), "engine is 'house': give an open one"),
        (lambda: PointwiseJudge(engine, min_mass="0.1"), "min_mass is '0.1': give a probability"),
        (lambda: ScalarJudge("house"), "engine is 'house': give an open one"),
        (lambda: PointwiseJudge(engine, journal="x.journal"), "journal is 'x.journal': open it, as Journal"),
        (lambda: RubricJudge(engine, rubric), "rubric is 'rubric.toml': give a Rubric"),
        (lambda: PointwiseJudge(engine, mode="reasoned", sampling=sampling), "sampling is .*: give it as Sampling"),
        (lambda: DebateJudge(engine, sampling=sampling), "sampling is .*: give it as Sampling"),
        (lambda: PointwiseJudge(engine, n=5), 'n is 5, and only a judge that writes .*: give it mode="reasoned"'),
        (lambda: TreeJudge(engine, weights="generated", attempts=0), "attempts is 0: give at least 1"),
        (lambda: DebateJudge(engine, k="3"), "k is '3': give at least 1"),
        (lambda: DebateJudge(engine, override="x"), "override is 'x': give a probability"),
        (lambda: PersonalJudge(engine, k="3"), "k is '3': show 0 to 5"),
        (lambda: EngineEmbedder("house"), "engine is 'house': give an open one"),
        (lambda: Tournament("pairwise"), r"judge is 'pairwise': give one of pairs, as PairwiseJudge\(engine\)"),
    ]
    for build, message in made:
        with pytest.raises(AdjudgeError, match=message):
            build()


def test_equal_settings_have_one_key_as_whole_numbers_and_not() -> None:
    pair, item = Pair("a", "b", "p"), Item("p", "r")
    engine = AbsentEngine(Card(fingerprint="x"))
    aspects = [(Aspect("wit", "Is it funny?", weight),) for weight in (2, 2.0)]
    assert len({PairwiseJudge(engine, one, min_mass=least).key(pair) for one in aspects for least in (0, 0.0)}) == 1
    criteria = [Criterion("wit", "Is it funny?", points=points, veto=veto) for points, veto in ((3, 1), (3.0, 1.0))]
    assert len({RubricJudge(engine, Rubric((one,))).key(item) for one in criteria}) == 1
