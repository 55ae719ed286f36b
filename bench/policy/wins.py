"""What an evaluation of policies comes to: win rates with their intervals, scores by aspect, lengths, abstentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev

import msgspec

from adjudge.bench.agreement.preferring import side
from adjudge.bench.agreement.resampling import Bootstrap
from adjudge.bench.agreement.statistics import share
from adjudge.bench.policy.bouts import Against, Bout, Scores
from adjudge.bench.policy.texts import Text
from adjudge.bench.reports.length import LengthEffect, length_of_pairs
from adjudge.bench.reports.pair_summary import by_order
from adjudge.engine.score import Reason
from adjudge.rewards.words import count_words

RESAMPLES = 2000

HUMAN = "human texts"
"""The row of the texts that the prompts' rows have as `reference`."""


class Spread(msgspec.Struct, frozen=True):
    """Mean and standard deviation (of a sample) of `count` values; the deviation is None of fewer than two."""

    mean: float
    deviation: float | None
    count: int


class Wins(msgspec.Struct, frozen=True):
    """What came of the matches against one opponent; `rate` counts a tie as half a win and leaves abstentions out.

    `interval` is the 95 % interval of the rate over prompts, whose texts rise and fall together (see
    `statistics.share`); None with too few prompts.
    """

    won: int
    tied: int
    lost: int
    abstained: dict[Reason, int]
    prompts: int
    rate: float | None
    interval: tuple[float, float] | None

    @property
    def counted(self) -> int:
        """The matches that were decided or tied."""
        return self.won + self.tied + self.lost


class PolicyResult(msgspec.Struct, frozen=True):
    """A row of the evaluation.

    `wins` by opponent; `aspects` and `overall` are of the scores that the matches with the base gave its texts, the
    latter of each text's one score, with a judge of pairs the mean of its aspects'. `bias` is the mean position bias in
    log-odds for the first place, of `biased` matches; `turned` of `both_orders` decided matches have a winner that
    depends on the order. `whole` of `texts` ended by themselves.
    """

    name: str
    wins: dict[Against, Wins]
    aspects: dict[str, Spread]
    overall: Spread | None
    words: Spread | None
    texts: int
    whole: int
    bias: float | None = None
    biased: int = 0
    turned: int = 0
    both_orders: int = 0
    length: LengthEffect | None = None

    @property
    def mean_of_aspects(self) -> Spread | None:
        """The mean of the aspects' means, and the mean of their deviations; None without aspects.

        That is the "Overall" of EvolvR's Table 14, to all its digits. It is not how far texts differ: the deviation of
        their scores, in `overall`, is smaller unless all aspects rise and fall together. `count` is of the aspect with
        the fewest texts.
        """
        if not self.aspects:
            return None
        means, deviations, counts = zip(*map(msgspec.structs.astuple, self.aspects.values()), strict=True)
        return Spread(fmean(means), None if None in deviations else fmean(deviations), min(counts))


def result_of(name: str, texts: Sequence[Text], bouts: Sequence[Bout], seed: int = 0) -> PolicyResult:
    """The row of a policy, from its texts (of rows that share a prompt, the first's) and its bouts."""
    against_base = [bout for bout in bouts if bout.match.against == "base"]
    orders = [both for bout in bouts if (both := by_order(bout.preference, bout.bias)) is not None]
    biases = [bout.bias for bout in bouts if bout.bias is not None]
    return PolicyResult(
        name=name,
        wins={
            against: wins_of([bout for bout in bouts if bout.match.against == against], seed)
            for against in dict.fromkeys(bout.match.against for bout in bouts)
        },
        aspects=_by_aspect(against_base, lambda bout: bout.scores),
        overall=spread_of(bout.overall for bout in against_base),
        words=spread_of(count_words(text.text) for text in texts if text.text is not None),
        texts=len(texts),
        whole=sum(text.ended == "stop" for text in texts),
        bias=fmean(biases) if biases else None,
        biased=len(biases),
        turned=sum((first > 0.5) != (second > 0.5) for first, second in orders),
        both_orders=len(orders),
        length=_length(against_base),
    )


def human_result(bouts: Sequence[Bout]) -> PolicyResult | None:
    """The row of people's texts, scored beside the base model's own; None where there are none.

    Each counts once, by the first bout in which it was judged.
    """
    human = [bout for bout in reversed(bouts) if bout.match.against == "human"]
    met = {bout.match.place: bout for bout in sorted(human, key=lambda bout: bool(bout.rival_scores))}
    if not met:
        return None
    return PolicyResult(
        name=HUMAN,
        wins={},
        aspects=_by_aspect(list(met.values()), lambda bout: bout.rival_scores),
        overall=spread_of(bout.rival_overall for bout in met.values()),
        words=spread_of(count_words(bout.match.rival or "") for bout in met.values()),
        texts=len(met),
        whole=len(met),
    )


def wins_of(bouts: Sequence[Bout], seed: int = 0) -> Wins:
    """What came of these bouts."""
    flat = [side(bout.preference) for bout in bouts if bout.preference is not None]
    prompts = [bout.match.prompt for bout in bouts if bout.preference is not None]
    rate = share(flat, prompts, Bootstrap(RESAMPLES, seed))
    return Wins(
        won=flat.count(1.0),
        tied=flat.count(0.5),
        lost=flat.count(0.0),
        abstained=dict(Counter(bout.abstained or "unsupported" for bout in bouts if bout.preference is None)),
        prompts=rate.clusters,
        rate=rate.value,
        interval=rate.interval,
    )


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """The spread of the values that there are; None without any."""
    known = [value for value in values if value is not None]
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known)) if known else None


def _by_aspect(bouts: Sequence[Bout], scores: Callable[[Bout], Scores]) -> dict[str, Spread]:
    names = dict.fromkeys(name for bout in bouts for name in scores(bout))
    spreads = {name: spread_of(scores(bout).get(name) for bout in bouts) for name in names}
    return {name: spread for name, spread in spreads.items() if spread is not None}


def _length(bouts: Sequence[Bout]) -> LengthEffect | None:
    """How preferences go with length; None of a judge of single texts, which has no degrees of preference."""
    if all(bout.bias is None for bout in bouts):
        return None
    pairs = [(bout.match.text or "", bout.match.rival or "", bout.preference) for bout in bouts]
    return length_of_pairs(pairs, len({bout.match.prompt for bout in bouts if bout.preference is not None}))
