"""`Tournament`: the responses of a group ranked from pairs, with as few pairs as one cares to pay for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Literal, Protocol

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.journal import content_key
from adjudge.rewards.judges.pairing import Kind, Members, Pairing, seeded_order
from adjudge.rewards.judges.ranking import PRIOR_SD, BradleyTerry, borda, bradley_terry
from adjudge.rewards.records.group import Group, GroupVerdict, Outcome
from adjudge.rewards.records.verdict import Pair, PairVerdict, each_of

Ranking = Literal["bradley_terry", "borda"]


class PairJudge(Protocol):
    """What a tournament asks of a judge: a verdict for every pair, in order. `PairwiseJudge` is one."""

    def compare_iter(self, pairs: Iterable[Pair], /) -> Iterator[PairVerdict]:
        """Verdicts in order as they come."""


class Tournament:
    """Ranks the responses of each group, and its reference among them, from the preferences of a pair judge.

    `pairing` chooses the pairs: "all", "circular" (each text meets `k` others) or "uncertain" (`budget` pairs a group,
    those that tell most; see `Pairing`). `ranking` turns preferences into strengths: "bradley_terry" or "borda" (see
    `ranking.py`). Equal texts are one member and get one strength; pairs on which the judge abstains are left out. Who
    meets whom, and who is shown first, follows from the texts and the `seed`, never from the order of the responses:
    permuted responses get the same strengths, to the last bit, from the same pairs in the judge's journal.
    Raises AdjudgeError for what is no judge of pairs, and for options that do not go together.
    """

    def __init__(
        self,
        judge: PairJudge,
        *,
        pairing: Kind = "all",
        k: int = 4,
        budget: int | None = None,
        ranking: Ranking = "bradley_terry",
        seed: int = 0,
    ) -> None:
        if ranking not in ("bradley_terry", "borda"):
            raise AdjudgeError(f'ranking is "{ranking}": choose bradley_terry or borda')
        if not callable(getattr(judge, "compare_iter", None)):
            raise AdjudgeError(f"judge is {shown(judge)}: give one of pairs, as PairwiseJudge(engine)")
        self.judge = judge
        self.pairing = Pairing(pairing, k, budget)
        self.ranking = ranking
        self.seed = seed

    def rank(self, groups: Iterable[Group]) -> list[GroupVerdict]:
        """A verdict for every group, in order.

        Raises AdjudgeError, before anything is judged, for a group without responses and for one that the budget
        cannot join.
        """
        return list(self.rank_iter(groups))

    def rank_iter(self, groups: Iterable[Group]) -> Iterator[GroupVerdict]:
        """Verdicts in order as they come. The next round of all groups is one call of the judge."""
        waiting = deque(_Contest(group, number, self) for number, group in enumerate(each_of(groups, Group), 1))
        yield from _ended(waiting)
        while waiting:
            asked = [(contest, members) for contest in waiting for members in contest.next_pairs()]
            verdicts = self.judge.compare_iter(contest.pair(members) for contest, members in asked)
            for (contest, members), verdict in zip(asked, verdicts, strict=True):
                contest.verdicts[members] = verdict
                yield from _ended(waiting)


def members_of(group: Group, seed: int) -> list[str]:
    """The different texts of a group, its reference among them, as they sit on the circle."""
    texts = [*group.responses] if group.reference is None else [*group.responses, group.reference]
    return seeded_order(map(well_formed, texts), seed)


def check_reviews(kind: str | None) -> None:
    """Raise AdjudgeError for a judge, by its name among KINDS, that goes by reviews, which groups have not."""
    if kind == "personal of pairs":
        raise AdjudgeError("a tournament has no reviews to give to a personal judge: choose another")


def commonest(answers: Iterable[Outcome | PairVerdict]) -> Reason | None:
    """The commonest reason why pairs abstained; None where none did."""
    reasons = Counter(one.abstained for one in answers if one.abstained)
    return reasons.most_common(1)[0][0] if reasons else None


class _Contest:
    """A group under way: its members, and the verdicts on the pairs asked so far."""

    def __init__(self, group: Group, number: int, tournament: Tournament) -> None:
        if not group.responses:
            raise AdjudgeError(f"{group.place(number)}: it has no responses, give at least one")
        self.group = group
        self.rules = tournament
        self.texts = members_of(group, tournament.seed)
        place = {text: member for member, text in enumerate(self.texts)}
        self.responses = [place[well_formed(text)] for text in group.responses]
        self.reference = None if group.reference is None else place[well_formed(group.reference)]
        try:
            self.size = tournament.pairing.size(len(self.texts))
        except AdjudgeError as error:
            raise AdjudgeError(f"{group.place(number)}: {error}") from None
        self.verdicts: dict[Members, PairVerdict] = {}

    @property
    def ended(self) -> bool:
        return len(self.verdicts) >= self.size

    @property
    def preferences(self) -> dict[Members, float]:
        """What was answered; pairs on which the judge abstained are left out."""
        answered = ((pair, verdict.preference) for pair, verdict in self.verdicts.items())
        return {pair: preference for pair, preference in answered if preference is not None}

    def next_pairs(self) -> list[Members]:
        if not self.verdicts:
            return self.rules.pairing.opening(len(self.texts))
        return [] if self.ended else self.rules.pairing.following(self.fit(), self.verdicts)

    def pair(self, members: Members) -> Pair:
        a, b = members
        return Pair(a=self.texts[a], b=self.texts[b], prompt=self.group.prompt, id=self.group.id)

    def fit(self) -> BradleyTerry:
        return bradley_terry(len(self.texts), self.preferences)

    def verdict(self) -> GroupVerdict:
        members = range(len(self.texts))
        better: dict[int, float | None]
        strengths: tuple[float | None, ...]
        errors: tuple[float | None, ...]
        if len(self.texts) == 1:  # once or several times: a tie
            strengths, errors, better = (0.5 if self.rules.ranking == "borda" else 0.0,), (None,), {}
        elif self.rules.ranking == "borda":
            strengths, errors = borda(len(self.texts), self.preferences), (None,) * len(self.texts)
            better = self._met_reference()
        else:
            fit = self.fit()
            strengths, errors = fit.strengths, fit.errors
            better = {i: None if self.reference is None else fit.preference(i, self.reference) for i in members}
        if self.reference is not None:
            better[self.reference] = 0.5  # of a response that is the reference, whatever was asked
        verdicts = self.verdicts.values()
        return GroupVerdict(
            id=self.group.id,
            strengths=tuple(strengths[i] for i in self.responses),
            errors=tuple(errors[i] for i in self.responses),
            reference_strength=None if self.reference is None else strengths[self.reference],
            preferences=None if self.reference is None else tuple(better.get(i) for i in self.responses),
            outcomes=tuple(self._outcome(pair, verdict) for pair, verdict in self.verdicts.items()),
            abstained=None if self.preferences else commonest(verdicts),
            truncated=any(verdict.truncated for verdict in verdicts),
            model=next((verdict.model for verdict in verdicts), ""),
            key=self._key(),
            adapter=next((verdict.adapter for verdict in verdicts), msgspec.UNSET),
        )

    def _met_reference(self) -> dict[int, float | None]:
        """The preference over the reference of each member that met it, without a model: for Borda."""
        met: dict[int, float | None] = {}
        for (i, j), preference in self.preferences.items():
            if j == self.reference:
                met[i] = preference
            elif i == self.reference:
                met[j] = 1 - preference
        return met

    def _outcome(self, pair: Members, verdict: PairVerdict) -> Outcome:
        a, b = (self.responses.index(i) if i in self.responses else None for i in pair)
        return Outcome(a, b, verdict.preference, verdict.abstained, verdict.key, verdict.mass, verdict.bias)

    def _key(self) -> str:
        """What stands for all that decides the verdict; the pairs asked stand for how they were chosen."""
        return content_key(
            judge="tournament",
            ranking=(self.rules.ranking, PRIOR_SD),
            prompt=well_formed(self.group.prompt),
            responses=[self.texts[i] for i in self.responses],
            reference=None if self.reference is None else self.texts[self.reference],
            pairs=[verdict.key for verdict in self.verdicts.values()],
        )


def _ended(waiting: deque[_Contest]) -> Iterator[GroupVerdict]:
    """The verdicts of the groups at the head of the queue that wait for nothing more."""
    while waiting and waiting[0].ended:
        yield waiting.popleft().verdict()
