"""`LengthFree`: a reward without its within-group length trend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import msgspec
import numpy as np

from adjudge.engine.checking import at_least, is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.length import PER, judged_rewards, judged_words, length_points
from adjudge.rewards.guards.length_trend import Points, centred
from adjudge.rewards.parts.combining import LENGTH, TREND, WITH_TREND
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.layer import Layer
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward


class LengthState(msgspec.Struct, frozen=True):
    """Past groups summed up for a regression of reward on words; older groups weigh exponentially less.

    `xx` and `xy` are the sums of products of words and rewards, each counted from its group's mean; `groups` how many
    had two rewards or more.
    """

    xx: float = 0.0
    xy: float = 0.0
    groups: int = 0

    @property
    def slope(self) -> float:
        """Reward per word; 0 where nothing differed in length."""
        return self.xy / self.xx if self.xx > 0 else 0.0

    def after(self, points: Points, decay: float) -> LengthState:
        """The state once another group was seen; the same where that has fewer than two rewards."""
        if len(points) < 2:
            return self
        x_N, y_N = centred([points]).T
        with np.errstate(over="ignore", invalid="ignore"):
            products = float(x_N @ x_N), float(x_N @ y_N)
        xx, xy = decay * self.xx + products[0], decay * self.xy + products[1]
        return LengthState(xx, xy, self.groups + 1) if math.isfinite(xx) and math.isfinite(xy) else self


class LengthFree(Layer):
    """Takes the within-group length trend out of a reward: r − b·(words − mean words of the group's rewarded members).

    b is the slope over past groups, by a regression in which a group's weight halves every `half_life` groups; it is 0
    for the first `warmup` groups. A group's mean reward stays what it was, and so do abstentions and a group of one.
    What a gate around the whole reward has shut out (`Gated`) is neither counted nor levelled: it is paid for the gate,
    not for its length. (Gates inside a sum, and sections, are parts like any other.)

    **Rewards then depend on history**: the same text may be paid otherwise at another step, and replaying a step needs
    the `state` before it, which is a plain Struct: keep it with the checkpoint and set it again. Hence this is nowhere
    on by default. It takes out what length earns by merit, too: where longer answers are better, they lose that. The
    slope of a call is that of the calls before it, so the order of groups within a call decides no reward of that call.
    Each reward's part `length_trend` is what was added to the part `with_length_trend`, for the `length_words` that
    were judged (of a section alone, where the judge sees no more); `metrics` has the slope per 100
    words as `length_free/slope` and how many groups it rests on as `length_free/groups`. Wrap the reward inside a
    `Guarded` to watch what is trained on, or the `Guarded` itself to watch the judge. While `learning` is False groups
    are levelled and not counted, as those of held-out prompts where a trainer's adapter can tell.
    """

    def __init__(
        self, reward: Reward | Function, *, half_life: float = 64.0, warmup: int = 16, state: LengthState | None = None
    ) -> None:
        at_least(0, warmup=warmup)
        if not (is_number(half_life, Real) and half_life > 0):
            raise AdjudgeError(f"half_life is {shown(half_life)} groups: give a finite number above 0")
        super().__init__(reward)
        self.decay = 0.5 ** (1.0 / half_life)
        self.warmup = warmup
        self.state = LengthState() if state is None else state

    @property
    def below_zero(self) -> bool:
        """What is taken out may be more than was paid."""
        return True

    @property
    def metrics(self) -> Mapping[str, float]:  # type: ignore[override]
        """The slope as it stands, beside what the reward inside keeps of itself."""
        return {
            **self.reward.metrics,
            "length_free/slope": PER * self.state.slope,
            "length_free/groups": float(self.state.groups),
        }

    def after(self, groups: Sequence[Group], rewards: list[GroupReward]) -> list[GroupReward]:
        """The rewards without their length trend."""
        slope = self.state.slope if self.state.groups >= self.warmup else 0.0
        for group, reward in zip(groups, rewards, strict=True) if self.learning else ():
            self.remember(judged_words(group, reward), judged_rewards(reward))
        return [_levelled(group, reward, slope) for group, reward in zip(groups, rewards, strict=True)]

    def remember(self, words: Sequence[float], rewards: Sequence[float | None]) -> None:
        """Have the state count a past group: its responses' words, and their rewards with the trend in them."""
        self.state = self.state.after(length_points(words, rewards), self.decay)


def _levelled(group: Group, reward: GroupReward, slope: float) -> GroupReward:
    counted = judged_rewards(reward)
    counts = judged_words(group, reward)
    known = [count for count, value in zip(counts, counted, strict=True) if value is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    added = tuple(
        None if value is None else -slope * (count - mean) for count, value in zip(counts, counted, strict=True)
    )
    return msgspec.structs.replace(
        reward,
        rewards=tuple(
            value if value is None or extra is None else value + extra
            for value, extra in zip(reward.rewards, added, strict=True)
        ),
        parts={**reward.parts, WITH_TREND: counted, TREND: added, LENGTH: tuple(counts)},
    )
