"""What all judges share, with judges whose answers are written down beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.aliases import HOUSE
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.aspects import HANNA
from adjudge.rewards.journal import Journal
from adjudge.rewards.pointwise import PointwiseJudge
from adjudge.rewards.verdict import Item
from tests.rewards.judged import WrittenJudge

ITEM = Item(prompt="Write.", response="A story.", id="mine")


def test_of_judges_that_share_a_journal_all_go_by_the_first_verdict(tmp_path: Path) -> None:
    first, second = WrittenJudge(lambda text: 2.0), WrittenJudge(lambda text: first.judge([ITEM])[0].score + 1e-6)  # type: ignore[operator]
    with Journal(tmp_path / "a") as one, Journal(tmp_path / "a") as other:
        first.journal, second.journal = one, other
        [verdict] = second.judge([ITEM])
        assert len(second.calls) == 1 and verdict.score == 2.0 and verdict.id == "mine"
        assert second.judge([ITEM]) == [verdict]


@pytest.mark.parametrize("reason", ["timeout", "cancelled", "unsupported"])
def test_what_does_not_lie_in_the_text_is_asked_again(tmp_path: Path, reason: Reason) -> None:
    said: list[float | Reason] = [reason, 4.0]
    judge = WrittenJudge(lambda text: said.pop(0))
    with Journal(tmp_path / "a") as judge.journal:
        assert [judge.judge([ITEM])[0].score for _ in range(3)] == [None, 4.0, 4.0] and not said


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(AdjudgeError, match="window is 0"):
        list(WrittenJudge(lambda text: 1.0).judge_iter([ITEM], window=0))


def test_house_reads_a_text_as_one_paragraph_whatever_its_lines_and_others_as_it_stands() -> None:
    item = Item("Tell\tone.\r\n", "It was dark.\n\n\nA lamp\u00a0 burned.")
    flat = Item("Tell one.", "It was dark. A lamp burned.")

    def shown(judged: Item, weights: str, adapter: str | None = None) -> list[str]:
        judge = PointwiseJudge(AbsentEngine(Card(fingerprint=weights, adapter=adapter)), HANNA[:1])
        [question] = judge.ask(judged)[0]
        return [segment.text for segment in question.prompt.segments if not segment.trusted]

    house = HOUSE.fingerprint
    assert shown(item, house) == shown(flat, house) == shown(flat, "another's") == [flat.prompt, flat.response]
    for weights, adapter in (("another's", None), (house, "mine")):
        assert shown(item, weights, adapter) == [item.prompt, item.response]


def test_what_house_read_with_its_lines_is_not_taken_for_what_it_reads_now(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = PointwiseJudge(AbsentEngine(Card(fingerprint=HOUSE.fingerprint)), HANNA[:1])
    now = judge.key(Item("p", "r"))
    monkeypatch.setattr("adjudge.rewards.judge.is_flowing", lambda weights: False)
    assert judge.key(Item("p", "r")) != now
