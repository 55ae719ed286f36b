"""Judges of a test's own: what they say of texts is written down beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from adjudge.engine.score import Reason
from adjudge.rewards.judges.judge import WINDOW, Judge
from adjudge.rewards.judges.preference import sigmoid
from adjudge.rewards.records.verdict import AspectVerdict, Item, Pair, PairVerdict, Part, Verdict


class WrittenJudge(Judge[Item, Verdict]):
    """Says of a response what `says` does, a score or the reason why there is none; `calls` counts those judged."""

    verdict_type = Verdict
    range = (0.0, 1.0)

    def __init__(self, says: Callable[[str], float | Reason], kind: str = "") -> None:
        super().__init__()
        self.says, self.kind = says, kind
        self.calls: list[list[str]] = []

    def key(self, subject: Item) -> str:
        return f"{subject.prompt}\0{subject.response}"

    def _judge(self, subjects: Mapping[str, Item]) -> Iterator[Verdict]:
        self.calls.append([item.response for item in subjects.values()])
        for key, item in subjects.items():
            said = self.says(item.response)
            score, reason = (None, said) if isinstance(said, str) else (said, None)
            yield Verdict("", score, {"all": Part(score, mass=0.75, abstained=reason)}, reason, False, "written", key)


class WrittenPairJudge(Judge[Pair, PairVerdict]):
    """Says of a pair's aspects what `says` does: (score of a, score of b), or the reason why there are none."""

    verdict_type = PairVerdict
    kind = "pairwise"

    def __init__(self, says: Callable[[str, str], Mapping[str, Any]]) -> None:
        super().__init__()
        self.says = says
        self.calls: list[list[Pair]] = []

    def key(self, subject: Pair) -> str:
        return f"{subject.prompt}\0{subject.a}\0{subject.b}"

    def compare_iter(self, pairs: Any, window: int = WINDOW) -> Iterator[PairVerdict]:
        return self.judge_iter(pairs, window)

    def _judge(self, subjects: Mapping[str, Pair]) -> Iterator[PairVerdict]:
        self.calls.append(list(subjects.values()))
        for key, pair in subjects.items():
            aspects = {name: _aspect(said) for name, said in self.says(pair.a, pair.b).items()}
            reason = next((aspect.abstained for aspect in aspects.values() if aspect.abstained), None)
            mean = sum(aspect.preference or 0.0 for aspect in aspects.values()) / len(aspects)
            yield PairVerdict("", None if reason else mean, aspects, reason, False, "written", key)


def _aspect(said: Any) -> AspectVerdict:
    if isinstance(said, str):
        return AspectVerdict(None, None, None, None, 0.5, abstained=said)  # type: ignore[arg-type]
    a, b = said
    return AspectVerdict(a, b, sigmoid(a - b), bias=0.25, mass=0.5)
