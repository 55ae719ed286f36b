"""The reward of a recipe: its parts put together, and the gates before them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.engines.lending import POLICY
from adjudge.rewards.engines.specification import EngineSpec
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.judge_rewards.references import DynamicReference
from adjudge.rewards.parts.combining import LENGTH, TREND, WITH_TREND, Product, WeightedSum
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.records.rows import Row
from adjudge.rewards.reward import Reward
from adjudge.training.grpo.reward_parts import (
    AccuracyPart,
    AnyPart,
    Engine,
    FormatPart,
    Judged,
    JudgePart,
    Part,
    PatternPart,
    Surroundings,
    TournamentPart,
)

ASK_FOR_SECTION = 'give a gate of the kind "format" with that tag (of "pattern" for what comes after it), and shut'
"""The mend where a completion without its section is to be told from a bad one."""


class LengthFreeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the rewards' length trend is taken out of them: see `LengthFree`."""

    half_life: Annotated[float, Meta(gt=0)] = 64.0
    warmup: Annotated[int, Meta(ge=0)] = 16


class RewardRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the policy is paid for: the weighted sum of its `parts`, or with `combine` "product" their product.

    No part of a product may pay less than 0, which would turn the sign of the others. `gates` are parts too: where one
    gives less than 0.5, the reward is `shut` (0) and nothing else is asked. That must be less than the parts can come
    to, or a policy is paid for shutting the gate: beside a tournament, a reward model or a negative weight, whose
    rewards go below 0, it has to be given. `engine` is the model of all judges that name none. Judges are
    opened before the policy. One that does not answer within `deadline` seconds abstains; one that fails stops the run,
    or abstains with `on_failure` "abstain"; so do functions. `journal` keeps every verdict and every reward in the
    output folder, for `adjudge replay`. `length_free`, a table that may be empty, takes out of the rewards what went
    with length within the groups so far, which the journal knows; a part that sees a section alone then wants a gate
    that asks for it. With `sleep` the judges' engines give their memory back between the calls: "auto" where they are
    on a GPU that the policy trains on.
    """

    parts: dict[str, AnyPart]
    combine: Literal["sum", "product"] = "sum"
    gates: dict[str, AnyPart] = {}
    shut: float | None = None
    engine: Engine = Engine()
    deadline: Annotated[float, Meta(gt=0)] | None = None
    on_failure: Literal["stop", "abstain"] = "stop"
    journal: bool = False
    length_free: LengthFreeOptions | None = None
    sleep: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.length_free is not None and not self.journal:
            raise AdjudgeError(
                "[reward] length_free rests on the rewards of earlier steps: set journal = true, which keeps them"
            )
        for name, gate in self.gates.items():
            if gate.weight != 1:
                raise AdjudgeError(
                    f"[reward.gates.{name}] weight is {gate.weight:g}, but a gate counts by nothing but opening: leave"
                    f" weight out, or make it [reward.parts.{name}]"
                )
            if isinstance(gate, JudgePart) and gate.scale == "own":
                raise AdjudgeError(
                    f'[reward.gates.{name}] scale is "own", but a gate opens at 0.5 of a scale from 0 to 1: leave scale'
                    " out"
                )

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The models of its judges."""
        return tuple(part.engine or self.engine for part in self.judged)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of those that are opened here, each once."""
        here = [one.spec().model for one in self.engines if one.url is None and not one.of_policy]
        return tuple(dict.fromkeys(name for name in here if name is not None))

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters that are laid over them, each once."""
        return tuple(dict.fromkeys(one.adapter for one in self.engines if one.url is None and one.adapter is not None))

    @property
    def judged(self) -> tuple[Judged, ...]:
        """The parts and gates that have a judge."""
        return tuple(part for part in (*self.parts.values(), *self.gates.values()) if isinstance(part, Judged))

    @property
    def own(self) -> tuple[str, ...]:
        """What the parts and gates call of the user's own making, each once."""
        calls = (part.own for part in (*self.parts.values(), *self.gates.values()))
        return tuple(dict.fromkeys(name for name in calls if name is not None))

    @property
    def on_policy(self) -> bool:
        """Whether a judge is the policy's first weights."""
        return any(engine.of_policy for engine in self.engines)

    @property
    def score_columns(self) -> dict[str, str]:
        """The columns of people's scores, by the names of the parts that are what an evaluator wrote for them."""
        return {
            f"{self._before}{name}/score/{column}": column
            for name, part in self.parts.items()
            if isinstance(part, AccuracyPart)
            for column in part.columns
        }

    @property
    def _before(self) -> str:
        """What comes before the names of parts in the reward's breakdown: see `Gated`."""
        return "reward/" if self.gates else ""

    def named(self, name: str) -> str:
        """A part as the reward calls it in its breakdown; `name` may lack the "reward/" of gates, or have it for none.

        Raises AdjudgeError for one that is not there; what a judge says of itself is not known before it is asked.
        """
        known: dict[str, AnyPart] = {**{self._before + own: part for own, part in self.parts.items()}, **self.gates}
        further = ("reward",) * bool(self.gates) + (WITH_TREND, TREND, LENGTH) * (self.length_free is not None)
        for tried in (name, self._before + name.removeprefix("reward/")):
            if tried in further or any(_is_of(tried, own, part) for own, part in known.items()):
                return tried
        inside = [f"{own}/{one}" for own, part in known.items() for one in part.breakdown or ()]
        raise AdjudgeError(f'the reward has no part "{name}": choose from {", ".join([*known, *inside, *further])}')

    def idle(self, own: Mapping[str, Any]) -> Iterator[str]:
        """Settings of the table without effect, each with its fix; `own` is what it says itself, without a preset."""
        if "shut" in own and not self.gates:
            yield "[reward] shut is what a shut gate pays, and no gate is there: add [reward.gates.NAME], or drop it"
        for name in ("engine", "sleep"):
            if name in own and not self.judged:
                yield f"[reward] {name} is for judges, and no part has one: leave it out, or add a part with a judge"
        for name in ("deadline", "on_failure"):
            if name in own and not self.judged and not self.own:
                yield (
                    f"[reward] {name} is for judges and functions, and no part has one: leave it out, or add such a"
                    " part"
                )
        for name, part in own.get("parts", {}).items():
            made = self.parts[name]
            if "k" in part and isinstance(made, TournamentPart) and made.pairing == "all":
                yield (
                    f'[reward.parts.{name}] k is for pairings that leave some out, and pairing is "all": set pairing ='
                    ' "circular" or "uncertain", or leave k out'
                )

    def check(self, rows: Sequence[Row]) -> None:
        """Raise AdjudgeError naming the first row without what a part reads of the data, and the column."""
        for part in (*self.parts.values(), *self.gates.values()):
            part.check(rows, self.engine)

    def sleeps(self, gpus: int) -> bool:
        """Whether engines sleep between calls, where the policy trains on so many GPUs of this machine (0: on CPU)."""
        if self.sleep != "auto":
            return self.sleep
        shared = {"auto", "cuda", *(f"cuda:{number}" for number in range(gpus))} if gpus else set()
        return bool(shared) and (self.writes or any(one.url is None and one.device in shared for one in self.engines))

    def open(self, written: DynamicReference, journal: str) -> Reward:
        """The reward, with no model opened yet; `journal` is a file for verdicts.

        `written` is what the policy's first weights write, for parts with such references (`GrpoRecipe.written`).
        """
        surroundings = Surroundings(self.engine, written, journal if self.journal else None)
        parts = {name: _opened("parts", name, part, surroundings) for name, part in self.parts.items()}
        gates = {name: _opened("gates", name, gate, surroundings) for name, gate in self.gates.items()}
        try:
            self._check_pay(parts)
            weights = {name: part.weight for name, part in self.parts.items()}
            product = self.combine == "product"
            whole = Product(parts, "reward") if product else WeightedSum(parts, weights, "reward")
            return Gated(whole, gates, shut=self.shut, name="reward") if gates else whole
        except AdjudgeError as error:
            raise AdjudgeError(f"[reward] {error}") from error

    def openers(self, written: DynamicReference) -> Iterator[Callable[[], EngineFace | None]]:
        """What opens the engines of the judges and of who writes references (`written`), one each.

        A reward finds them open for as long as they are held. The policy's own weights are not among them: None.
        Each raises what opening does, and what its judge refuses of the engine.
        """
        for part in self.judged:
            yield partial(part.opened, self.engine)
        if self.writes and not (written.spec is not None and written.spec.of_policy):
            yield lambda: written.engine

    @property
    def thinks(self) -> bool:
        """Whether the policy is to think first, as what follows its thoughts is judged."""
        return any(part.after is not None for part in (*self.parts.values(), *self.gates.values()))

    @property
    def writes(self) -> bool:
        """Whether the policy's first weights write references."""
        return any(part.reference == "dynamic" for part in self.judged)

    def first(self, base: str) -> EngineSpec:
        """The policy's first weights, of the model `base`: one engine with a judge on them, where they agree."""
        like = next((engine for engine in self.engines if engine.of_policy), self.engine)
        name = POLICY if like.of_policy else base
        return EngineSpec(name, max_batch_tokens=like.max_batch_tokens, kv_cache_gb=like.kv_cache_gb)

    def levelled(self, reward: Reward) -> Reward:
        """The reward without its length trend, where the recipe says so: the outermost of what the recipe adds."""
        how = self.length_free
        return reward if how is None else LengthFree(reward, half_life=how.half_life, warmup=how.warmup)

    def _check_pay(self, parts: Mapping[str, Reward]) -> None:
        """Raise AdjudgeError where a completion without its section, or before a shut gate, could be paid more."""
        weights = {name: part.weight for name, part in self.parts.items()}
        below = [name for name, weight in weights.items() if weight < 0 or (weight > 0 and parts[name].below_zero)]
        if self.combine == "product" and any(weight != 1 for weight in weights.values()):
            raise AdjudgeError('a product has no weights: leave them out, or set combine = "sum"')
        if self.gates and self.shut is None and self.length_free is not None:
            raise AdjudgeError("length_free can take a reward below 0, what a shut gate pays: give shut, below that")
        if self.gates and self.shut is None and below:
            raise AdjudgeError(
                f'the part "{below[0]}" can pay less than 0, what a shut gate pays: give shut, below that'
            )
        most = self._most
        if self.gates and self.shut is not None and most is not None and self.shut >= most:
            raise AdjudgeError(
                f"shut is {self.shut:g}, and the parts come to {most:g} at most: a policy would be paid for shutting"
                " the gate, give less"
            )
        counting = [name for name, weight in weights.items() if weight]
        if self.length_free is not None and (name := self._unguarded(counting)):
            raise AdjudgeError(
                f'the part "{name}" pays 0 for a completion without its section, and length_free would pay that by its'
                f" length: {ASK_FOR_SECTION}"
            )
        if name := self._unguarded(below):
            raise AdjudgeError(
                f'the part "{name}" can pay less than 0, what a completion without its section is paid:'
                f" {ASK_FOR_SECTION}"
            )

    @property
    def _most(self) -> float | None:
        """The most that the parts can come to together; None where that is not known."""
        counting = [(part.weight, part.most) for part in self.parts.values() if part.weight]
        bounds = [max(weight, 0.0) * most for weight, most in counting if most is not None]
        if len(bounds) < len(counting):
            return None
        return math.prod(bounds) if self.combine == "product" else math.fsum(bounds)

    def _unguarded(self, below: Sequence[str]) -> str | None:
        """The first of these parts that sees a section which no gate asks for."""
        gates = self.gates.values()
        asked = {tag for gate in gates if isinstance(gate, FormatPart) for tag in gate.tags}
        told = any(isinstance(gate, PatternPart) for gate in gates)
        parts = ((name, self.parts[name]) for name in below)
        return next(
            (name for name, part in parts if part.section not in (None, *asked) or not (part.after is None or told)),
            None,
        )


def _is_of(name: str, own: str, part: Part) -> bool:
    """Whether a part of that `own` name, or something that it is made of, is called `name`."""
    inside = name.removeprefix(f"{own}/")
    return name == own or (inside != name and (part.breakdown is None or inside in part.breakdown))


def _opened(table: str, name: str, part: AnyPart, surroundings: Surroundings) -> Reward:
    try:
        return part.open(surroundings)
    except AdjudgeError as error:
        raise AdjudgeError(f"[reward.{table}.{name}] {error}") from error
