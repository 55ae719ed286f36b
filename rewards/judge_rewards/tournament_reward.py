"""`TournamentReward`: how a response does against the others of its group, as its reward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.engines.specification import JudgeSource, JudgeSpec
from adjudge.rewards.judge_rewards.judged import Judged
from adjudge.rewards.judge_rewards.references import Reference, StaticReference
from adjudge.rewards.judges.judge import Judge
from adjudge.rewards.judges.pairing import Kind as Pairing
from adjudge.rewards.judges.tournament import Ranking, Tournament, check_reviews, commonest
from adjudge.rewards.records.group import Group, GroupVerdict, Outcome
from adjudge.rewards.records.verdict import Pair, PairVerdict, least_mass
from adjudge.rewards.reward import GroupReward, ResponseReward, together
from adjudge.rewards.words import count_words


class TournamentReward(Judged):
    """How each response does against the others of its group, and the reference where there is one: see `Tournament`.

    `over` "group" (default) is a response's strength, in log-odds with mean zero over the different texts, or with
    `ranking` "borda" its mean preference over the others, in [0, 1]; "reference" the probability that it is better than
    the reference (from `reference`, or the group's own). Texts that are all the same have the strength of a tie, 0 or
    with "borda" 0.5, and so has a lone response, as the only one that passed a gate: it is paid more than what the gate
    shut out, if that is below. One whose comparisons all abstained abstains, for their reason, and so does over
    "group" one that only those join to the largest part of the group: see `GroupVerdict`. `judge` is one of pairs, open
    or a specification, or a reward model; `options` are those of `Tournament`. Measures of a response are the `error`
    of its strength and, of the pairs it was in, the share that abstained ("pairs_abstained"), the least label mass
    ("mass"), and the mean position bias ("bias").
    """

    def __init__(
        self,
        judge: Judge[Any, Any] | JudgeSpec,
        *,
        over: Literal["group", "reference"] = "group",
        reference: Reference | None = None,
        pairing: Pairing = "all",
        k: int = 4,
        budget: int | None = None,
        ranking: Ranking = "bradley_terry",
        seed: int = 0,
        name: str = "tournament",
    ) -> None:
        if over not in ("group", "reference"):
            raise AdjudgeError(f'over is "{over}": choose group or reference')
        if reference is None and over == "reference":
            reference = StaticReference()
        super().__init__(judge.of_pairs if isinstance(judge, JudgeSpec) else judge, reference, name)
        if not self.source.of_pairs and self.source.kind != "scalar":
            raise AdjudgeError("a tournament needs a judge of pairs: choose pairwise, pointwise or scalar")
        check_reviews(self.source.kind)
        if (over, ranking) == ("reference", "borda") and pairing != "all":
            raise AdjudgeError(
                f'Borda counts pairs with the reference, which most texts do not meet with pairing "{pairing}": choose'
                ' pairing "all" or ranking "bradley_terry"'
            )
        self.over = over
        self.tournament = Tournament(
            _AtOneGo(self.source), pairing=pairing, k=k, budget=budget, ranking=ranking, seed=seed
        )

    @property
    def below_zero(self) -> bool:
        """Log-odds have the mean 0."""
        return self.over == "group" and self.tournament.ranking != "borda"

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order; a round of all groups is one call of the judge."""
        references = self.referenced(groups)
        told = [
            msgspec.structs.replace(group, reference=one.text)
            for group, one in zip(groups, references, strict=True)
            if group.responses and one.abstained is None
        ]
        ranked = iter(self.tournament.rank(told))
        return [
            self._rewarded(group, next(ranked) if group.responses and one.abstained is None else one.abstained)
            for group, one in zip(groups, references, strict=True)
        ]

    def _rewarded(self, group: Group, verdict: GroupVerdict | Reason | None) -> GroupReward:
        words = [{"words": float(count_words(response))} for response in group.responses]
        if verdict is None or isinstance(verdict, str):
            return together([ResponseReward(None, verdict or "unsupported", measures=one) for one in words])
        values = verdict.strengths if self.over == "group" else verdict.preferences or (None,) * len(group.responses)
        texts = list(map(well_formed, group.responses))
        pairs = [_pairs(texts.index(text), verdict) for text in texts]
        return together(
            [
                ResponseReward(
                    value,
                    None if value is not None else commonest(own) or commonest(verdict.outcomes) or "unsupported",
                    {"strength": strength},
                    {**measured, "error": error, **_measures(own)},
                )
                for value, own, strength, measured, error in zip(
                    values, pairs, verdict.strengths, words, verdict.errors, strict=True
                )
            ]
        )


def _pairs(place: int, verdict: GroupVerdict) -> list[Outcome]:
    """The pairs that a response was in; those of equal responses are the first's."""
    return [one for one in verdict.outcomes if place in (one.a, one.b)]


def _measures(pairs: Sequence[Outcome]) -> dict[str, float | None]:
    """What is worth watching of a response's pairs, None where there were none."""
    biases = [one.bias for one in pairs if one.bias is not None]
    return {
        "pairs_abstained": fmean(one.abstained is not None for one in pairs) if pairs else None,
        "mass": least_mass(pairs),
        "bias": fmean(biases) if biases else None,
    }


class _AtOneGo:
    """The judge of a tournament, opened when it is first asked; all pairs of a round are in its engine together."""

    def __init__(self, source: JudgeSource) -> None:
        self.source = source

    def compare_iter(self, pairs: Iterable[Pair], /) -> Iterator[PairVerdict]:
        together = list(pairs)
        judge: Any = self.source.judge
        compare = getattr(judge, "compare_iter", judge.judge_iter)  # a judge of one's own may have no other name for it
        return compare(together, window=max(1, len(together)))  # type: ignore[no-any-return]
