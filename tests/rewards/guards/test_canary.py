from __future__ import annotations

import math
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.canary import CanaryGuard, CanaryMeasurement, measure_canaries, read_canaries
from adjudge.rewards.guards.probes import DegenerateGuard
from adjudge.rewards.records.group import Group
from adjudge.rewards.words import count_words
from tests.rewards.guards.made_reward import CANARIES, Made, rank


def test_the_shipped_canaries_are_whole_and_cannot_be_ordered_by_length() -> None:
    shipped = read_canaries()
    assert Counter(canary.language for canary in shipped) == {"en": 9, "zh": 3}
    texts = [text for canary in shipped for text in (canary.prompt, *canary.texts, canary.reference)]
    assert all(texts) and len(set(texts)) == len(texts)
    for sign in (1, -1):
        agreement = measure_canaries(Made(lambda group, text: sign * count_words(text)), shipped).agreement  # noqa: B023
        assert agreement is not None and 0.4 < agreement < 0.6


def test_a_canary_is_a_group_of_three_with_its_reference_and_columns() -> None:
    reward = Made()
    measure_canaries(reward, CANARIES)
    [groups] = reward.asked
    assert groups[1] == Group("Prompt 1.", CANARIES[1].texts, "Reference 1.", "canary-1", {})


def test_agreement_is_worked_out_by_hand() -> None:
    """Right, wrong, right; a tie and a right one; one pair alone; none."""
    rows = ((3.0, 1.0, 2.0), (2.0, 2.0, None), (None, 5.0, 1.0), (None, 1.0, None))
    measured = CanaryMeasurement(rows)
    assert measured.agreement == pytest.approx((1 + 1 + 0 + 0.5 + 1) / 5, abs=1e-6)
    assert measured.abstained == pytest.approx(4 / 12, abs=1e-6)
    first = CanaryMeasurement(((3.0, 0.0, 2.0), (4.0, None, 1.0), (None,) * 3, (None,) * 3))
    assert measured.moved(first) == pytest.approx((0 + 1 + 0 + 2) / 4, abs=1e-6)
    assert CanaryMeasurement(((None, 1.0, None),)).agreement is None


def test_drift_is_counted_from_the_first_measurement() -> None:
    guard = CanaryGuard(CANARIES)
    assert all(map(math.isnan, guard.readings().values()))
    guard.probe(Made())
    assert guard.readings() == {"agreement": 1.0, "drift": 0.0, "moved": 0.0, "abstained": 0.0}
    guard.probe(Made(lambda group, text: rank(group, text) + 0.5))
    assert guard.readings() == {"agreement": 1.0, "drift": 0.0, "moved": 0.5, "abstained": 0.0}
    guard.probe(Made(lambda group, text: -rank(group, text)))
    assert guard.readings() == {"agreement": 0.0, "drift": 1.0, "moved": 6.0, "abstained": 0.0}
    assert guard.readings()["drift"] > guard.limits["drift"]
    assert pickle.loads(pickle.dumps(guard)).readings() == guard.readings()


def test_a_judge_that_was_away_at_first_is_measured_from_when_it_came() -> None:
    guard = CanaryGuard(CANARIES)
    guard.probe(Made(lambda group, text: None))
    assert guard.readings()["abstained"] == 1.0 > guard.limits["abstained"]
    assert math.isnan(guard.readings()["drift"])
    guard.probe(Made(lambda group, text: 0.0))  # as behind a gate that lets none of the texts pass
    assert math.isnan(guard.readings()["drift"])
    guard.probe(Made())
    assert guard.readings()["drift"] == 0.0
    guard.probe(Made(lambda group, text: 0.0))
    assert guard.readings()["drift"] == 0.5 > guard.limits["drift"]


@given(st.lists(st.tuples(*[st.none() | st.floats(-1e9, 1e9)] * 3), min_size=1, max_size=6))
def test_agreement_is_a_share_and_turns_round_with_the_reward(rows: list[tuple[float | None, ...]]) -> None:
    measured = CanaryMeasurement(tuple(rows))
    turned = CanaryMeasurement(tuple(tuple(None if v is None else -v for v in row) for row in rows))
    assert (measured.agreement is None) == (turned.agreement is None)
    if measured.agreement is not None and turned.agreement is not None:
        assert 0 <= measured.agreement <= 1
        assert measured.agreement + turned.agreement == pytest.approx(1)


def test_files_of_canaries_name_the_line_that_is_wrong(tmp_path: Path) -> None:
    good = '{"prompt":"p","good":"g","mediocre":"m","bad":"b","reference":"r","columns":{"genre":"letter"}}'
    path = tmp_path / "own.jsonl"
    path.write_text(f"{good}\n\n{good}\n")
    assert [canary.columns for canary in read_canaries(path)] == [{"genre": "letter"}] * 2
    for text, said in [
        (f"{good}\n{{}}", "line 2 of .*own.jsonl is no canary .*prompt.*: mend it"),
        (good.replace("good", "best"), "line 1 .*best"),
        (good, "there are 1 canaries: give at least 2"),
        ("", "there are 0 canaries"),
    ]:
        path.write_text(text)
        with pytest.raises(AdjudgeError, match=said):
            read_canaries(path)
    path.write_bytes(b'{"prompt":"\xff"}')
    with pytest.raises(AdjudgeError, match="line 1"):
        read_canaries(path)
    with pytest.raises(AdjudgeError, match=r"nowhere.jsonl cannot be read"):
        read_canaries(tmp_path / "nowhere.jsonl")


def test_drift_is_of_the_texts_that_were_rewarded_both_times() -> None:
    guard = CanaryGuard(CANARIES, abstained=1.0)
    wrong = {CANARIES[0].good: 0.0}  # so that the pairs are not all alike
    rows = [set(), {CANARIES[1].good}, {CANARIES[0].good}, {CANARIES[0].bad, CANARIES[2].mediocre}]
    for absent in rows:
        guard.probe(Made(lambda group, text, a=absent: None if text in a else wrong.get(text, rank(group, text))))
        assert guard.readings()["drift"] == 0.0 == guard.readings()["moved"]
    agreements = {guard.last.agreement, guard.first.agreement} if guard.first and guard.last else set()
    assert len(agreements) == 2  # which itself moves with what is absent


@pytest.mark.parametrize("told", ["canaries.jsonl", Path("canaries.jsonl"), 3, [{"prompt": "p"}, {"prompt": "q"}]])
def test_what_are_no_canaries_is_refused_before_they_are_asked_about(told: Any) -> None:
    for guard in (CanaryGuard, DegenerateGuard):
        with pytest.raises(AdjudgeError, match=r"canaries are .*: give a list of Canary, of a file read_canaries"):
            guard(told)
