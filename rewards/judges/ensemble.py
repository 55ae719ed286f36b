"""EvolvR's ensemble: each story scored beside N random partners, in both orders, or beside itself (C.1.1)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import UNKEPT, Reason
from adjudge.rewards.journal import content_key
from adjudge.rewards.judges.judge import WINDOW, Judge
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.records.verdict import (
    AspectVerdict,
    Item,
    Pair,
    PairVerdict,
    Part,
    Verdict,
    abstention,
    each_of,
    least_mass,
    weighted_mean,
)


class Accompanied(Item, frozen=True):
    """A text, and the others that it is shown with."""

    partners: tuple[Item, ...] = ()


class EnsembleAspect(msgspec.Struct, frozen=True):
    """A story's scores on one aspect: with each partner shown second, then first. None where the judge abstained."""

    scores: tuple[float | None, ...]
    abstained: tuple[Reason | None, ...]

    @property
    def mean(self) -> float | None:
        """Mean of the scores that there are."""
        known = [score for score in self.scores if score is not None]
        return fmean(known) if known else None


class EnsembleVerdict(msgspec.Struct, frozen=True):
    """All scores of a story, by aspect; `partners` are the ids of the stories it was shown with."""

    id: str
    partners: tuple[str, ...]
    aspects: dict[str, EnsembleAspect]

    @property
    def holistic(self) -> float | None:
        """One score for the story from the means of its aspects: see `holistic`."""
        return holistic(aspect.mean for aspect in self.aspects.values())


def ensemble(
    judge: PairwiseJudge, items: Iterable[Item], partners: int = 4, seed: int = 0, window: int = WINDOW
) -> list[EnsembleVerdict]:
    """2N scores of every story and aspect, from `partners` = N others of `items`, each answering its own prompt.

    With N = 0 a story is shown beside itself, once, which gives the scores of its two places. The judge must show one
    order (`orders="ab"`): both are pairs of their own here. No pair is judged twice, whoever asks for it. Raises
    AdjudgeError for a judge of both orders or of another kind, ids that are not unique, and fewer than N + 1 items.
    """
    judge = checked_pairwise(judge)
    asked = accompanied(each_of(items, Item), partners, seed)
    found = judged_beside(judge, {item.id: item for item in asked}, window)
    return [
        EnsembleVerdict(
            item.id,
            tuple(partner.id for partner in item.partners),
            {
                aspect.name: _aspect([(verdict.aspects[aspect.name], first) for verdict, first in verdicts])
                for aspect in judge.aspects
            },
        )
        for item, (_, verdicts) in zip(asked, found, strict=True)
    ]


def checked_pairwise(judge: PairwiseJudge) -> PairwiseJudge:
    """The same; raises AdjudgeError for a judge of both orders, or one that shows no story beside another."""
    if not isinstance(judge, PairwiseJudge):
        raise AdjudgeError(
            f"the ensemble needs stories shown side by side, not a {type(judge).__name__}: give it a PairwiseJudge with"
            ' orders="ab"'
        )
    if judge.orders != ("ab",):
        raise AdjudgeError('the ensemble shows both orders itself: give it a judge with orders="ab"')
    return judge


def accompanied(items: Iterable[Item], partners: int = 4, seed: int = 0) -> list[Accompanied]:
    """Every item with `partners` others of `items`; raises AdjudgeError as `draw_partners` does.

    Those that they had before count no more.
    """
    items = [Item(**{name: getattr(item, name) for name in Item.__struct_fields__}) for item in items]
    drawn = draw_partners([item.id for item in items], partners, seed)
    by_id = {item.id: item for item in items}
    return [
        Accompanied(**msgspec.structs.asdict(item), partners=tuple(by_id[name] for name in drawn[item.id]))
        for item in items
    ]


def judged_beside(
    judge: PairwiseJudge, items: Mapping[str, Item], window: int = WINDOW
) -> Iterator[tuple[str, list[tuple[PairVerdict, bool]]]]:
    """What `judge` says of the pairs of each item, as they come, and whether it stands first in them.

    No pair is judged twice.
    """
    shown = {key: shown_beside(item) for key, item in items.items()}
    pairs = list(dict.fromkeys(pair for asked in shown.values() for pair, _ in asked))
    coming = zip(pairs, judge.compare_iter(pairs, window), strict=True)
    judged: dict[Pair, PairVerdict] = {}
    for key, asked in shown.items():
        while any(pair not in judged for pair, _ in asked):
            judged.update([next(coming)])
        yield key, [(judged[pair], first) for pair, first in asked]


def draw_partners(ids: Sequence[str], count: int, seed: int = 0) -> dict[str, tuple[str, ...]]:
    """`count` partners of each id, drawn without replacement from the others.

    Every other id gets a number from the seed, the id and itself, and the lowest win. So the order of ids does not
    matter, the partners of a smaller count are among those of a larger one, and an id that is taken out or added
    changes nothing but its own place among partners. Raises AdjudgeError for ids that are not unique, and too few.
    """
    name, times = next(iter(Counter(ids).most_common(1)), ("", 0))
    if times > 1:
        raise AdjudgeError(f'{times} stories have the id "{name[:40]}": give each one of its own')
    if not 0 <= count < max(len(ids), 1):
        raise AdjudgeError(f"{count} partners for each of {len(ids)} stories: give from 0 to {max(len(ids), 1) - 1}")
    own_N = np.array([_number(seed, name) for name in ids], dtype=np.uint64)
    drawn = {}
    for place, name in enumerate(ids):
        lots_N = _lots(own_N[place], own_N)
        lots_N[place] = _LAST
        lowest = np.argpartition(lots_N, count)[:count] if count else own_N[:0].astype(np.intp)
        drawn[name] = tuple(ids[other] for other in lowest[np.argsort(lots_N[lowest])])
    return drawn


def pooled(verdicts: Iterable[EnsembleVerdict]) -> list[tuple[str, str, float]]:
    """Every score that there is, as (id, aspect, score) in one list, not averaged: what the paper's headline is of."""
    return [
        (verdict.id, name, score)
        for verdict in verdicts
        for name, aspect in verdict.aspects.items()
        for score in aspect.scores
        if score is not None
    ]


def holistic(scores: Iterable[float | None]) -> float | None:
    """OpenMEVA's protocol: a story's one score is the unweighted mean over its aspects; None where one abstained."""
    known = list(scores)
    if not known or None in known:
        return None
    return fmean(score for score in known if score is not None)


_LAST = np.uint64(2**64 - 1)


def _number(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(repr((seed, name)).encode(), digest_size=8).digest())


def _lots(own: np.uint64, others_N: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A number for each of the others as one of `own`: both mixed by the finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        mixed_N = others_N ^ (own * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1))
        mixed_N = (mixed_N ^ (mixed_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed_N = (mixed_N ^ (mixed_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed_N ^ (mixed_N >> np.uint64(31))


def shown_beside(item: Item) -> list[tuple[Pair, bool]]:
    """The pairs that score a story, and whether it stands first; beside itself it has both places."""
    others = (item.partners if isinstance(item, Accompanied) else ()) or (item,)
    return [(_pair(item, other), True) for other in others] + [(_pair(other, item), False) for other in others]


def _pair(first: Item, second: Item) -> Pair:
    return Pair(a=first.response, b=second.response, prompt_a=first.prompt, prompt_b=second.prompt)


def _aspect(verdicts: Sequence[tuple[AspectVerdict, bool]]) -> EnsembleAspect:
    scores = tuple(verdict.score_a if first else verdict.score_b for verdict, first in verdicts)
    return EnsembleAspect(scores, tuple(verdict.abstained for verdict, _ in verdicts))


class EnsembleJudge(Judge[Item, Verdict]):
    """Scores a text by the mean of its scores beside each of its partners, in both orders: 2N an aspect.

    A text without partners, any `Item`, is shown beside itself. Pairs on which `judge` abstains are left out of a mean;
    an aspect of nothing else abstains. `judge` must show one order (`orders="ab"`), for both are pairs of their own
    here, and its journal holds them, so that no pair is judged twice. Raises AdjudgeError for a judge of both orders or
    of another kind.
    """

    kind: ClassVar[str] = "ensemble"
    range = (1.0, 5.0)
    verdict_type = Verdict

    def __init__(self, judge: PairwiseJudge) -> None:
        super().__init__(checked_pairwise(judge).journal)
        self.pairwise = judge
        self.engine = judge.engine

    def key(self, subject: Item) -> str:
        """The journal's key: those of its pairs."""
        shown = [(self.pairwise.key(pair), first) for pair, first in shown_beside(subject)]
        return content_key(judge="ensemble", pairs=shown)

    def _judge(self, subjects: Mapping[str, Item]) -> Iterator[Verdict]:
        for key, verdicts in judged_beside(self.pairwise, subjects):
            yield self._verdict(verdicts, key)

    def _verdict(self, judged: Sequence[tuple[PairVerdict, bool]], key: str) -> Verdict:
        parts: dict[str, Part] = {}
        analysis: dict[str, tuple[str, ...]] = {}
        for aspect in self.pairwise.aspects:
            verdicts = [(verdict.aspects[aspect.name], first) for verdict, first in judged]
            parts[aspect.name] = _part(verdicts, aspect.weight)
            if texts := tuple(text for verdict, _ in verdicts for text in verdict.analyses or ()):
                analysis[aspect.name] = texts
        abstained = abstention(parts)
        return Verdict(
            id="",
            score=weighted_mean(parts),
            breakdown=parts,
            abstained=abstained,
            truncated=any(verdict.truncated for verdict, _ in judged),
            model=self.engine.name,
            key=key,
            analysis=analysis or None,
        )


def _part(verdicts: Sequence[tuple[AspectVerdict, bool]], weight: float) -> Part:
    """The mean of one aspect's scores; what another run may answer makes it abstain, so that one asks again."""
    mass = least_mass(verdict for verdict, _ in verdicts)
    reasons: list[Reason] = [verdict.abstained for verdict, _ in verdicts if verdict.abstained]
    passing = next((reason for reason in reasons if reason in UNKEPT), None)
    if passing or len(reasons) == len(verdicts):
        return Part(None, weight, mass=mass, abstained=passing or reasons[0])
    read = [(verdict, first) for verdict, first in verdicts if not verdict.abstained]
    scores = [(verdict.score_a if first else verdict.score_b) or 0.0 for verdict, first in read]
    columns = [(verdict.distribution_a if first else verdict.distribution_b) or () for verdict, first in read]
    spread = stdev(scores) if len(scores) > 1 else msgspec.UNSET
    return Part(fmean(scores), weight, tuple(map(fmean, zip(*columns, strict=True))), mass, spread=spread)
