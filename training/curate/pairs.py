"""Preference pairs from a debate's rulings on several texts to one prompt (Igniting, 3.1; arXiv 2508.21476)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item, Verdict
from adjudge.rewards.records.wire import item_of, label_of
from adjudge.training.stages import Passed, Unusable, grouped, passed, sifted, without_repeats


class Candidate(msgspec.Struct, frozen=True):
    """A text that may become half of a pair; `label` is what people said of it, `columns` its row."""

    item: Item
    label: bool | None
    columns: Mapping[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """The row, with the id by which it goes here."""
        return {**self.columns, "id": self.item.id}


class ScoredCandidate(msgspec.Struct, frozen=True):
    """A candidate whose verdict has a score, the probability that it is good."""

    candidate: Candidate
    score: float

    @property
    def item(self) -> Item:
        """The text and its prompt."""
        return self.candidate.item

    @property
    def record(self) -> dict[str, Any]:
        """The candidate's, with the score."""
        return {**self.candidate.record, "score": self.score}


class PreferencePair(msgspec.Struct, frozen=True):
    """A text and a worse one to the same prompt, as reward models are trained on, with their ids and scores."""

    prompt: str
    chosen: str
    rejected: str
    chosen_id: str
    rejected_id: str
    chosen_score: float
    rejected_score: float


class Rules(msgspec.Struct, frozen=True):
    """Which pairs are made.

    By "rulings", the paper's way, a good text stands against a bad one: good is a score above 0.5 + `margin`, bad one
    below 0.5 − `margin`, and the rest is in no pair. By "scores", for judges that find everything good or nothing, any
    text stands against one whose score is lower by more than `margin`, whatever was ruled.

    Of the pairs of a prompt those `per_prompt` count whose scores are farthest apart (equally far ones in the order of
    the texts); 0 stands for all of them. The paper has 7,896 pairs of 10,000 prompts, hence one; it gives no margin.
    Raises AdjudgeError for rules that no pair could meet.
    """

    per_prompt: int = 1
    margin: float = 0.0
    by: Literal["rulings", "scores"] = "rulings"

    def __post_init__(self) -> None:
        if self.per_prompt < 0:
            raise AdjudgeError(f"{self.per_prompt} pairs a prompt: give at least 1, or 0 for all")
        if not 0 <= self.margin < 0.5:
            raise AdjudgeError(f"the margin is {self.margin}: give at least 0 and less than 0.5")

    def ruling(self, one: ScoredCandidate) -> bool | None:
        """Whether a text is good; None where it is neither good nor bad."""
        return None if abs(one.score - 0.5) <= self.margin else one.score > 0.5

    def takes(self, one: ScoredCandidate) -> bool:
        """Whether a text can be in a pair at all."""
        return self.by == "scores" or self.ruling(one) is not None

    def prefers(self, one: ScoredCandidate, other: ScoredCandidate) -> bool:
        """Whether the first is chosen over the other."""
        if self.by == "scores":
            return one.score - other.score > self.margin
        return self.ruling(one) is True and self.ruling(other) is False


class Rulings(msgspec.Struct, frozen=True):
    """How debates ended: `ratified` rulings of the judge, `overridden` ones, and `alone`, without one of two agents.

    `again` of them all were held a second time.
    """

    ratified: int
    overridden: int
    alone: int
    again: int

    @staticmethod
    def of(verdicts: Sequence[Verdict]) -> Rulings:
        """The count over verdicts; those that abstained ended without a ruling."""
        ended: Counter[str] = Counter()
        ruled = [verdict for verdict in verdicts if verdict.abstained is None]
        for verdict in ruled:
            both = {"judge", "reflect"} <= verdict.breakdown.keys()
            decided = next(name for name, part in verdict.breakdown.items() if part.weight)
            ended["alone" if not both else "ratified" if decided.startswith("judge") else "overridden"] += 1
        again = sum("judge again" in verdict.breakdown for verdict in ruled)
        return Rulings(ended["ratified"], ended["overridden"], ended["alone"], again)


def candidates_of(rows: Sequence[Row]) -> list[Candidate]:
    """The texts of rows with `prompt` and `response`, and `label` and `id` where they have them.

    Raises AdjudgeError naming the row: a column that is missing or no text, a label that is neither 0 nor 1; and where
    no prompt has two texts, of which a pair could be made.
    """
    found = [Candidate(item_of(row, number), label_of(row), row.columns) for number, row in enumerate(rows, 1)]
    texts = {_text(candidate.item) for candidate in found}
    if max(Counter(prompt for prompt, _ in texts).values()) < 2:
        raise AdjudgeError("no prompt has two different texts: pairs are made of several texts to one prompt")
    return found


def judge_candidates(
    judge: DebateJudge, candidates: Sequence[Candidate]
) -> tuple[Passed[ScoredCandidate], list[Verdict]]:
    """The candidates that have a score, those that were dropped, and every verdict, in order."""
    verdicts: list[Verdict] = []

    def results() -> Iterator[tuple[int, ScoredCandidate | Unusable]]:
        for place, verdict in enumerate(judge.judge_iter(candidate.item for candidate in candidates)):
            verdicts.append(verdict)
            if verdict.score is None:
                yield place, Unusable(verdict.abstained or "unparsable")
            else:
                yield place, ScoredCandidate(candidates[place], verdict.score)

    return passed("debate", [candidate.record for candidate in candidates], results()), verdicts


def make_pairs(
    judged: Sequence[ScoredCandidate], rules: Rules
) -> tuple[list[PreferencePair], list[Passed[ScoredCandidate]]]:
    """The pairs, prompts in the order of their first texts, and the stages that texts went through on the way.

    A text that stands twice below its prompt counts once ("twice"); one that is neither good nor bad is "even"; one
    that no other text to its prompt differs from is "all_good" or "all_bad", or, where scores decide, "all_even"; one
    that is in no pair for want of room is "spare".
    """
    different = without_repeats(judged, lambda one: _text(one.item), "twice", stage="texts")
    ruled = sifted("rulings", different.kept, lambda one: None if rules.takes(one) else "even")
    pairs: list[PreferencePair] = []
    alone: dict[str, str] = {}
    for group in grouped(ruled.kept, lambda one: _text(one.item)[0]).values():
        found = [(one, other) for one, other in product(group, group) if rules.prefers(one, other)]
        if not found:
            same = "even" if rules.by == "scores" else "good" if rules.ruling(group[0]) else "bad"
            alone |= {one.item.id: f"all_{same}" for one in group}
        found.sort(key=lambda pair: pair[1].score - pair[0].score)
        pairs += [_pair(*pair) for pair in found[: rules.per_prompt or None]]
    used = {name for pair in pairs for name in (pair.chosen_id, pair.rejected_id)}
    paired = sifted("pairs", ruled.kept, lambda one: None if one.item.id in used else alone.get(one.item.id, "spare"))
    return pairs, [different, ruled, paired]


def _pair(one: ScoredCandidate, other: ScoredCandidate) -> PreferencePair:
    texts = one.item.response, other.item.response
    return PreferencePair(one.item.prompt, *texts, one.item.id, other.item.id, one.score, other.score)


def _text(item: Item) -> tuple[str, str]:
    return well_formed(item.prompt).strip(), well_formed(item.response).strip()
