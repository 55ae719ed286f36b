"""`StoryReward`: EvolvR's reward for generating stories, from a judge of pairs (arXiv 2508.06046, 3.3 and C.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, get_args

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.engines.specification import JudgeSource, JudgeSpec
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judge_rewards.judged import Judged
from adjudge.rewards.judge_rewards.references import Reference, StaticReference
from adjudge.rewards.judge_rewards.story_formulas import (
    PAPER_WEIGHTS,
    RELEASED_ASPECTS,
    RELEASED_WEIGHTS,
    STORY_ASPECTS,
    ComponentWeights,
    mended_parts,
    published_parts,
    released_parts,
)
from adjudge.rewards.judges.aspects import Aspect, aspects_of, checked_aspects
from adjudge.rewards.judges.judge import Judge
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.parts.combining import WeightedSum
from adjudge.rewards.parts.gates import LengthReward, LengthWindow, checked_window
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.verdict import Pair, PairVerdict
from adjudge.rewards.reward import GroupReward, ResponseReward, together
from adjudge.rewards.words import count_words

Form = Literal["fixed", "parity", "released"]
JUDGES = ("pairwise", "pointwise of pairs")
"""The kinds of judges that score both stories of a pair by aspects."""
Parts = Callable[[Mapping[str, float], Mapping[str, float], Sequence[Aspect]], tuple[float, float]]

FORMS: dict[Form, tuple[Parts, tuple[Aspect, ...], ComponentWeights]] = {
    "fixed": (mended_parts, STORY_ASPECTS, PAPER_WEIGHTS),
    "parity": (published_parts, STORY_ASPECTS, PAPER_WEIGHTS),
    "released": (released_parts, RELEASED_ASPECTS, RELEASED_WEIGHTS),
}
"""How each form makes the two parts that rest on scores, and its own aspects and weights."""


class StoryReward(Judged):
    """R = w₁ advantage + w₂ absolute + w₃ length: of a story's scores beside the reference's, and its length in words.

    The judge compares every story with the group's reference, in both orders (unless it was told otherwise), and the
    scores of both are averaged over the orders. `reference` says where references come from: `StaticReference` (the
    default: a human's story, `Group.reference`) or `DynamicReference` (the untrained base model's, better in the
    paper's Table 16). `aspects` say what counts and how much, the judge must score all of them; a `JudgeSpec` that
    names none gets these. `window` is how many words a story should have. `form`:
    - "fixed" (default): all parts in [0, 1] (`mended_parts`).
    - "parity": equations 7 to 10 as published (`published_parts`).
    - "released": the authors' code, its own aspects and weights (`released_parts`). Its flaws: see `released_relative`.
      What we do not follow: it shows the story first only (`orders="ab"` of the judge does that), and pays a failed
      verdict as a tie.

    The parts are "advantage", "absolute" and "length", unweighted, and "aspect/…" with the story's scores. A story of
    which an aspect with weight has no score abstains, and so do all of a group whose reference could not be written.
    Raises AdjudgeError for a judge of another kind, an aspect that it does not score, and, naming the prompt, for a
    missing reference.
    """

    def __init__(
        self,
        judge: Judge[Pair, PairVerdict] | JudgeSpec,
        reference: Reference | None = None,
        *,
        aspects: Sequence[Aspect] | None = None,
        weights: ComponentWeights | None = None,
        window: LengthWindow | None = None,
        form: Form = "fixed",
        name: str = "story",
    ) -> None:
        if form not in get_args(Form):
            raise AdjudgeError(f'form is "{form}": choose {", ".join(get_args(Form))}')
        self.form = form
        self.parts, own_aspects, own_weights = FORMS[form]
        chosen = checked_aspects(own_aspects if aspects is None else aspects)
        self.aspects = tuple(aspect for aspect in chosen if aspect.weight > 0)
        if isinstance(judge, JudgeSpec):
            judge = judge.of_pairs
        if isinstance(judge, JudgeSpec) and JudgeSource(judge).kind in JUDGES and "aspects" not in judge.options:
            judge = msgspec.structs.replace(judge, options={**judge.options, "aspects": self.aspects})
        _check_judge(judge, self.aspects)
        super().__init__(judge, StaticReference() if reference is None else reference, name)
        if not isinstance(weights, ComponentWeights | None):
            raise AdjudgeError(f"weights are {weights!r:.40}: give ComponentWeights(advantage, absolute, length)")
        self.weights = weights or own_weights
        self.window = checked_window(window)

    @property
    def below_zero(self) -> bool:
        """Whether it can be negative: the published advantage may have either sign, and so may weights."""
        return self.form == "parity" or any(weight < 0 for weight in msgspec.structs.astuple(self.weights))

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        return [together([self._rewarded(*one) for one in own]) for own in self.verdicts(groups)]

    def _rewarded(self, response: str, _: object, verdict: PairVerdict | Reason) -> ResponseReward:
        words = count_words(response)
        length = self.window.reward(words)
        if isinstance(verdict, str):
            return ResponseReward(None, verdict, {"length": length}, {"words": float(words)})
        parts: dict[str, float | None] = {"advantage": None, "absolute": None, "length": length}
        parts |= {f"aspect/{name}": aspect.score_a for name, aspect in verdict.aspects.items()}
        measures = {
            "mass": verdict.mass,
            "bias": verdict.bias,
            "truncated": float(verdict.truncated),
            "words": float(words),
        }
        own = {aspect.name: verdict.aspects[aspect.name] for aspect in self.aspects}
        mine = {name: aspect.score_a for name, aspect in own.items() if aspect.score_a is not None}
        theirs = {name: aspect.score_b for name, aspect in own.items() if aspect.score_b is not None}
        if len(mine) < len(own) or len(theirs) < len(own):
            reason = next((aspect.abstained for aspect in own.values() if aspect.abstained), None)
            return ResponseReward(None, reason or "unsupported", parts, measures)
        advantage, absolute = self.parts(mine, theirs, self.aspects)
        parts |= {"advantage": advantage, "absolute": absolute}
        return ResponseReward(self.weights.sum(advantage, absolute, length), None, parts, measures)


def pointwise_story_reward(
    judge: PointwiseJudge | JudgeSpec, *, window: LengthWindow | None = None, length: float = 0.1
) -> WeightedSum:
    """EvolvR's baseline (C.2.2): the score of a judge of single stories, and how its length fits the window.

    (1 − `length`) · (score − 1)/4 + `length` · f(words), in [0, 1]; the paper gives no weights. Raises AdjudgeError for
    a `length` outside [0, 1].
    """
    if not (is_number(length, Real) and 0 <= length <= 1):
        raise AdjudgeError(f"length is {shown(length)}: give its share of the reward, from 0 to 1")
    parts: dict[str, Any] = {"judge": JudgeReward(judge), "length": LengthReward(window)}
    return WeightedSum(parts, {"judge": 1.0 - length, "length": length}, name="pointwise story")


def _check_judge(judge: Judge[Any, Any] | JudgeSpec, aspects: Sequence[Aspect]) -> None:
    """Raises AdjudgeError for a judge that does not give the scores that the reward is made of."""
    if (kind := JudgeSource(judge).kind) not in JUDGES:
        name = judge.judge if isinstance(judge, JudgeSpec) else kind or type(judge).__name__
        raise AdjudgeError(
            f'a story reward needs the judge "pairwise", or "pointwise" of both stories, not "{name}": name one of'
            " these, or one derived from PairwiseJudge or PointwisePairJudge"
        )
    scored = aspects_of(judge.options["aspects"]) if isinstance(judge, JudgeSpec) else getattr(judge, "aspects", ())
    names = [aspect.name for aspect in scored]
    if missing := [aspect.name for aspect in aspects if aspect.name not in names]:
        raise AdjudgeError(
            f'the judge does not score "{missing[0]}", which the reward weighs: open it with the reward\'s aspects'
            " (STORY_ASPECTS), or give the reward the judge's"
        )
