"""What every judge is held to: the verdict on one subject does not depend on the others, nor on being kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.engine import Engine
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.verdict import PairVerdict


def value_of(verdict: Any) -> float | None:
    value: float | None = verdict.preference if isinstance(verdict, PairVerdict) else verdict.score
    return value


def assert_same_in_any_company(
    judge_of: Callable[..., Any], subjects: list[Any], engine: Engine, kept_in: Path, asked: int
) -> None:
    """Verdicts are the same in any order, in windows, and on from a journal, where only the first has been kept.

    `asked` is how many prompts the engine is then given for the others.
    """
    judge = judge_of(journal=None)
    expected = judge.judge(subjects)
    assert len({value_of(verdict) for verdict in expected}) == len(subjects)
    assert judge.judge(subjects[::-1]) == expected[::-1]
    for window in (1, 2):
        assert list(judge.judge_iter(iter(subjects), window)) == expected
    with Journal(kept_in) as journal:
        kept = judge_of(journal=journal)
        first = next(kept.judge_iter(subjects, 1))
        [line] = journal.get([first.key]).values()
        assert value_of(msgspec.json.decode(line, type=type(first))) == value_of(first)
        before = engine.stats.prompts
        assert kept.judge(subjects) == expected
        assert engine.stats.prompts - before == asked
