"""Does the filtering keep the better rationales? Asked of a judge from outside (EvolvR, B.4)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

import msgspec
from rich.table import Table

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.verdict import Item, Pair, PairVerdict, Verdict
from adjudge.training.evolve.filters import PIPELINE
from adjudge.training.evolve.judges import BetterJudge, QualityJudge
from adjudge.training.evolve.rationale import Rationale
from adjudge.training.stages import grouped
from adjudge.training.terminal import cell, plain_table

PUBLISHED = ((3.22, None), (3.45, 0.772), (None, None), (3.57, 0.715), (3.61, 0.751), (3.65, 0.756))
"""Table 10: quality, and win rate, of the first rationales and of what each stage of the paper's pipeline left."""

INITIAL = "initial"


class Stage(msgspec.Struct, frozen=True):
    """What a stage kept and dropped, each rationale worded as it was when the stage was over."""

    name: str
    kept: list[Rationale]
    dropped: list[Rationale]

    @property
    def matches(self) -> list[tuple[Rationale, Rationale]]:
        """Each kept rationale with each dropped one of the same question."""
        dropped = grouped(self.dropped, lambda one: one.pair)
        return [(one, other) for one in self.kept for other in dropped.get(one.pair, ())]


class Validated(msgspec.Struct, frozen=True):
    """What the judge said of a stage.

    `quality` is the mean, 1 to 5, of `rated` rationales that the stage left, `quality_error` its standard error;
    `win_rate` how often, of `compared` pairs, the kept one was called better than the dropped one (a tie is half).
    `unrated` and `uncompared` abstained, for `reasons`, which are counted. None where there was nothing to judge.
    """

    stage: str
    quality: float | None
    quality_error: float | None
    rated: int
    unrated: int
    win_rate: float | None
    compared: int
    uncompared: int
    reasons: dict[str, int] = {}


def stages_of(kept: Sequence[Rationale], dropped: Sequence[Rationale]) -> list[Stage]:
    """The stages that rationales went through, the first of which is the pool they came from.

    `dropped` were so by the stage after those they passed, as `Filters` leaves them. Raises AdjudgeError for rationales
    that did not come through one pipeline.
    """
    everything = [*kept, *dropped]
    longest = max((one.passed for one in everything), key=len, default=())
    if any(longest[: len(one.passed)] != one.passed for one in everything) or any(
        len(one.passed) != len(longest) for one in kept
    ):
        raise AdjudgeError(
            'the rationales have passed different stages (column "passed"): give the two files of one `evolve filter`'
        )
    names = _names(longest, dropped)
    if not names:
        raise AdjudgeError('the rationales have passed no stage (column "passed"): filter them first')
    stages = [Stage(INITIAL, [_worded(one, ()) for one in everything], [])]
    for number, name in enumerate(names, 1):
        through = tuple(names[:number])
        stages.append(
            Stage(
                name,
                [_worded(one, through) for one in everything if len(one.passed) >= number],
                [_worded(one, through[:-1]) for one in dropped if len(one.passed) == number - 1],
            )
        )
    return stages


def validate(
    stages: Sequence[Stage], quality: QualityJudge, better: BetterJudge, *, sample: int = 1000, seed: int = 0
) -> Iterator[Validated]:
    """What the judges say of up to `sample` rationales, and of as many pairs, of each stage, drawn by `seed`."""
    for number, stage in enumerate(stages):
        draw = random.Random(f"{seed} {number}")
        some = draw.sample(stage.kept, min(sample, len(stage.kept)))
        pairs = draw.sample(matches := stage.matches, min(sample, len(matches)))
        items = (Item(one.question[1], one.response) for one in some)
        ratings = list(quality.judge_iter(items))
        sides = (Pair(one.response, other.response, one.question[1]) for one, other in pairs)
        choices = list(better.compare_iter(sides))
        verdicts: list[Verdict | PairVerdict] = [*ratings, *choices]
        rated = [verdict.score for verdict in ratings if verdict.score is not None]
        preferred = [verdict.preference for verdict in choices if verdict.preference is not None]
        chosen = [1.0 if p > 0.5 else 0.5 if p == 0.5 else 0.0 for p in preferred]
        yield Validated(
            stage=stage.name,
            quality=fmean(rated) if rated else None,
            quality_error=stdev(rated) / len(rated) ** 0.5 if len(rated) > 1 else None,
            rated=len(rated),
            unrated=len(ratings) - len(rated),
            win_rate=fmean(chosen) if chosen else None,
            compared=len(chosen),
            uncompared=len(choices) - len(chosen),
            reasons=Counter(verdict.abstained for verdict in verdicts if verdict.abstained),
        )


def validation_table(rows: Sequence[Validated], judge: str) -> Table:
    """A line for each stage, beside the paper's where the stages are the paper's."""
    paper = tuple(row.stage for row in rows) == (INITIAL, *PIPELINE)
    table = plain_table(title=f"Rationales by stage, judged by {judge}")
    table.add_column("stage")
    names = ["quality", "rated", "abstained", "retained wins", "pairs", "abstained"]
    for name in [*names, *(["paper: quality", "wins"] if paper else [])]:
        table.add_column(name, justify="right")
    for row, published in zip(rows, PUBLISHED if paper else [(None, None)] * len(rows), strict=True):
        spread = f" ± {row.quality_error:.2f}" if row.quality_error is not None else ""
        table.add_row(
            row.stage,
            cell(row.quality, ".2f", "-") + spread,
            *map(str, (row.rated, row.unrated)),
            cell(row.win_rate, ".1%", "-"),
            *map(str, (row.compared, row.uncompared)),
            *([cell(published[0], ".2f", "-"), cell(published[1], ".1%", "-")] if paper else []),
        )
    return table


def _names(longest: tuple[str, ...], dropped: Sequence[Rationale]) -> list[str]:
    """The stages in order; the last one may have dropped all that came."""
    last = {one.dropped_by for one in dropped if len(one.passed) == len(longest)} - {""}
    return [*longest, *sorted(last)]


def _worded(rationale: Rationale, passed: Sequence[str]) -> Rationale:
    """The rationale as it was after those stages, each "refine" among which wrote it again."""
    wordings = (*rationale.drafts, rationale.response)
    return msgspec.structs.replace(rationale, response=wordings[min(passed.count("refine"), len(wordings) - 1)])
