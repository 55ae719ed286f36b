"""`JudgeReward`: the verdicts of any judge as rewards, all groups of a call at one go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, get_args

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.engines.specification import JudgeSpec
from adjudge.rewards.judge_rewards.judged import Judged
from adjudge.rewards.judge_rewards.references import Reference, StaticReference
from adjudge.rewards.judges.judge import Judge
from adjudge.rewards.judges.options import names_of
from adjudge.rewards.judges.rubric_judge import RubricJudge
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rubric import Rubric
from adjudge.rewards.records.verdict import Item, Pair, PairVerdict, RubricVerdict, Verdict
from adjudge.rewards.reward import GroupReward, ResponseReward, together
from adjudge.rewards.words import count_words

Scale = Literal["unit", "own", "decision"]

DECIDING = ("principle", "debate", "rubric", "pairwise", "pointwise of pairs", "personal of pairs")
"""The kinds of judges that decide between yes and no."""


class JudgeReward(Judged):
    """The verdict of a judge on each response: its score, or of a judge of pairs the preference over the reference.

    `judge` is open, or a specification: then it is opened at the first call, and the reward can be pickled. All groups
    of a call go into the judge at one go. What else a judge reads comes from the group's columns by the names that
    files have (`rubric` or `checklist`, `reviews`, `genre`, `task`), references from `reference` or the group.

    `scale` says what becomes of the judge's number:
    - "unit" (default): its share of the judge's `range`, in [0, 1] (beyond it for a tree with negative weights); what
      has no bounds, as a reward model's logit, stays as it is.
    - "own": as the judge gives it; of a rubric the weighted mean on its scale (Igniting: 1 to 3).
    - "decision": 1 or 0. P(1) > 0.5 as in Igniting; of a rubric whether the text is acceptable; of pairs whether the
      response is preferred. A group of which all are good, or none, teaches nothing then.

    The parts are those of the verdict; measures are the label mass ("mass"), the position bias of pairs ("bias"), the
    response's length ("words") and whether it was shortened ("truncated"). Raises AdjudgeError for what is no judge,
    for a range that is none, for "unit" where a judge of one's own declares none, and, naming prompt and column, for a
    group that lacks what the judge reads, before anything is asked.
    """

    def __init__(
        self,
        judge: Judge[Any, Any] | JudgeSpec,
        *,
        reference: Reference | None = None,
        scale: Scale = "unit",
        name: str | None = None,
    ) -> None:
        super().__init__(judge, reference, name)
        if reference is None and self.source.of_pairs:
            self.reference = StaticReference()
        self.reads_reference = self.source.of_pairs or self.source.kind in (None, "tree")
        self.scale = scale
        if scale not in get_args(Scale):
            raise AdjudgeError(f'scale is "{scale}": choose {", ".join(get_args(Scale))}')
        if scale == "decision" and self.source.kind not in DECIDING:
            raise AdjudgeError(f'scale "decision" is for judges that decide: choose {", ".join(DECIDING)}')
        known = None if self.source.of_pairs else self.source.known
        if known is not None and (scale == "unit" or known.range is not None):
            _range(known)

    @property
    def below_zero(self) -> bool:
        """Whether it can be negative: a logit can, and the score of a tree whose leaves do not all weigh the same."""
        if self.source.kind == "tree":
            spec: JudgeSpec | None = self.source.spec
            weights: Any = self.source.judge.weights if spec is None else spec.options.get("weights", "equal")  # type: ignore[attr-defined]
            return names_of(weights) != ["equal"]
        if (known := self.source.known) is None or self.source.of_pairs or self.scale == "decision":
            return self.source.kind == "scalar"
        lowest = (known.range or (0.0,))[0]
        return math.isinf(lowest) or (self.scale == "own" and lowest < 0)

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        return [together([self._rewarded(*one) for one in own]) for own in self.verdicts(groups)]

    def subjects(self, group: Group, number: int, reference: str | None) -> tuple[Item | Pair, ...]:
        """What is asked about a group, whose rubric has to say something on the scale."""
        subjects, judge = super().subjects(group, number, reference), self.source.judge
        if self.scale != "unit" and isinstance(judge, RubricJudge) and subjects:
            rubric = getattr(subjects[0], "rubric", None) or judge.rubric
            _check_rubric(rubric, judge.scheme, self.scale, group.place(number))
        return subjects

    def _rewarded(
        self, response: str, subject: Item | Pair | None, verdict: Verdict | PairVerdict | Reason
    ) -> ResponseReward:
        words = {"words": float(count_words(response))}
        if isinstance(verdict, str):
            return ResponseReward(None, verdict, measures=words)
        value = self._value(verdict)
        measures = {"mass": verdict.mass, "truncated": float(verdict.truncated), **words}
        if isinstance(verdict, PairVerdict):
            measures["bias"] = verdict.bias
        own = isinstance(self.source.judge, RubricJudge) and getattr(subject, "rubric", None) is not None
        parts = {} if own else scores_by_part(verdict)  # a row's own rubric would add columns to all other rows
        return ResponseReward(value, verdict.abstained or ("unsupported" if value is None else None), parts, measures)

    def _value(self, verdict: Verdict | PairVerdict) -> float | None:
        value = verdict.preference if isinstance(verdict, PairVerdict) else verdict.score
        if value is None:
            return None
        if self.scale == "own":
            return verdict.mean if isinstance(verdict, RubricVerdict) else value
        if self.scale == "decision":
            if isinstance(verdict, RubricVerdict):
                return None if verdict.acceptable is None else float(verdict.acceptable)
            return float(value > 0.5)
        if isinstance(verdict, PairVerdict):
            return value
        lowest, highest = _range(self.source.judge)
        return value if math.isinf(lowest - highest) else (value - lowest) / (highest - lowest)


def scores_by_part(verdict: Verdict | PairVerdict) -> dict[str, float | None]:
    """The parts of a verdict by name: scores, or of a pair each aspect's preference."""
    if isinstance(verdict, PairVerdict):
        return {name: aspect.preference for name, aspect in verdict.aspects.items()}
    return {name: part.score for name, part in verdict.breakdown.items()}


def _range(judge: Judge[Any, Any] | type[Judge[Any, Any]]) -> tuple[float, float]:
    """The lowest and the highest score that a judge declares; raises AdjudgeError for none, and what is no range."""
    made = judge if isinstance(judge, type) else type(judge)
    if judge.range is None:
        raise AdjudgeError(
            f'{made.__name__} declares no range, of which scale "unit" gives the share: write range = (lowest, highest)'
            ' in its class, or choose scale="own"'
        )
    ends: Any = judge.range
    is_pair = isinstance(ends, tuple | list) and len(ends) == 2
    if not (is_pair and all(isinstance(end, Real) and not isinstance(end, bool) for end in ends) and ends[0] < ends[1]):
        raise AdjudgeError(
            f"the range of {made.__name__} is {shown(ends)}: write range = (lowest, highest), two numbers of which the"
            " first is less (infinite where there is no bound)"
        )
    return ends[0], ends[1]


def _check_rubric(rubric: Rubric | None, scheme: str | None, scale: Scale, place: str) -> None:
    """Raises AdjudgeError for a rubric that says nothing on this scale."""
    if scale == "decision" and (rubric is None or rubric.threshold is None):
        raise AdjudgeError(f'{place}: scale "decision" needs a threshold: give the rubric one')
    scales = set() if rubric is None else {(v[0], v[-1]) for v in map(rubric.values, rubric.criteria) if v}
    if scale == "own" and len(scales) > 1:
        raise AdjudgeError(f'{place}: the criteria have scales of their own, and so no mean: choose scale "unit"')
    if scheme == "binary":
        raise AdjudgeError(f'scale "{scale}" needs criteria with a scale, not scheme binary: choose scale "unit"')
