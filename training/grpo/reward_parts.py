"""The parts of a recipe's reward, each a table of its own: judges, and what can be checked without one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.engines.engine_choice import EngineChoice
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.imported import imported, is_own
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward, Scale
from adjudge.rewards.judge_rewards.judged import check_prompts
from adjudge.rewards.judge_rewards.references import DynamicReference, Reference, StaticReference
from adjudge.rewards.judge_rewards.story_formulas import ComponentWeights
from adjudge.rewards.judge_rewards.story_reward import Form, StoryReward
from adjudge.rewards.judge_rewards.tournament_reward import TournamentReward
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.judges.kinds import kind_of, of_pairs, prepare, usual
from adjudge.rewards.parts.accuracy_reward import AccuracyReward, peoples_score
from adjudge.rewards.parts.check_reward import Check, CheckReward
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.gates import (
    FormatReward,
    LanguageReward,
    LengthReward,
    LengthWindow,
    PatternReward,
    RepetitionReward,
)
from adjudge.rewards.parts.section_reward import SectionReward
from adjudge.rewards.records.rows import Row, empty
from adjudge.rewards.reward import Reward

ALWAYS = ("prompts", "completions", "completion_ids")
"""What a function can always take, whatever columns the data have."""
DYNAMIC = 'unless the part has reference = "dynamic", which the policy as it begins writes'
"""How a part that compares needs no reference of the data."""


class Engine(EngineChoice, frozen=True, forbid_unknown_fields=True):
    """The judge's model: as in `adjudge models`, or behind the server at `url`; see `EngineSpec`.

    `model` "policy" is the policy's own first weights, where it trains an adapter: they are in memory once.
    """

    def spec(self) -> EngineSpec:
        """The same, as rewards know it."""
        return EngineSpec(**msgspec.structs.asdict(self))


Tag = Annotated[str, Meta(min_length=1)]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", kw_only=True):
    """A part of the reward, and how much it counts (below 0: a penalty; 0: it is only watched).

    With `section` it sees that section of a completion alone, <answer>…</answer> for "answer"; with `after` what
    follows one, </think> for "think".
    """

    weight: float = 1.0
    section: Tag | None = None
    after: Tag | None = None
    breakdown: ClassVar[tuple[str, ...] | None] = ()
    """The names of what it is made of; None where that is for a judge to say."""
    most: ClassVar[float | None] = 1.0
    """The most that it can pay, before its weight; None where that is not known. Where it is, the least is 0."""

    @property
    def own(self) -> str | None:
        """What it calls of the user's own making, as "package.module:name"."""
        return None

    def open(self, surroundings: Surroundings) -> Reward:
        """The reward of this part; raises AdjudgeError for what cannot be, and opens no model."""
        reward = self._reward(surroundings)
        if self.section is None and self.after is None:
            return reward
        return SectionReward(reward, self.section, after=self.after)

    def check(self, rows: Sequence[Row], engine: Engine) -> None:
        """Raise AdjudgeError naming a row's place and the column where the data lack what this part reads of them.

        `engine` is that of parts which name none.
        """
        return

    def _reward(self, surroundings: Surroundings) -> Reward:
        raise NotImplementedError


class Surroundings(msgspec.Struct, frozen=True):
    """What a part may use besides its own table.

    The judges' model, the references that are `written`, and where verdicts are kept.
    """

    engine: Engine
    written: DynamicReference
    journal: str | None = None


class Judged(Part, frozen=True, kw_only=True):
    """What parts with a judge have: its `options` are those of `adjudge judge`, by name; `engine` its own model.

    `reference` is what responses are held against: "static", the data's column of that name; "dynamic", a text that the
    policy's first weights write once for each prompt, as [generation] has the policy write.
    """

    options: dict[str, Any] = {}
    engine: Engine | None = None
    reference: Literal["static", "dynamic"] | None = None
    judge: str | None = None
    breakdown: ClassVar[tuple[str, ...] | None] = None
    most: ClassVar[float | None] = None

    @property
    def own(self) -> str | None:
        """What it calls of the user's own making: its judge."""
        return self.judge if is_own(self.judge) else None

    def check(self, rows: Sequence[Row], engine: Engine) -> None:
        """The reference, where the data have it, and the judge's columns."""
        kind = self._kind(engine)
        from_data = self.reference == "static" or (self.reference is None and self._compares(kind))
        for row in rows if from_data else ():
            if not row.text("reference", f"a part that compares with it, {DYNAMIC}"):
                raise AdjudgeError(f'{row.place}: "reference" is blank: give a text to compare with, {DYNAMIC}')
        check_prompts(kind, rows, self.options)

    def opened(self, engine: Engine) -> EngineFace | None:
        """The engine of its judge, open; None for the policy's own weights. `engine` is that of parts which name none.

        Raises what opening it does, and what the judge refuses of it.
        """
        own = self.engine or engine
        if own.of_policy:
            return None
        opened = own.spec().open()
        prepare(self._kind(engine), self.options)(opened, None)
        return opened

    def _named(self, engine: Engine) -> str:
        """The judge; where the part names none, the usual one that compares texts, on its own model or `engine`."""
        return usual((self.engine or engine).spec().model, self.options) if self.judge is None else self.judge

    def _kind(self, engine: Engine) -> str:
        """Which of KINDS reads the data."""
        return self._named(engine)

    def _spec(self, surroundings: Surroundings) -> JudgeSpec:
        """The judge, on the part's own model or the model of all."""
        engine = self.engine or surroundings.engine
        return JudgeSpec(self._named(surroundings.engine), self.options, engine.spec(), surroundings.journal)

    def _held_against(self, surroundings: Surroundings) -> Reference | None:
        """What responses are held against: the data's column, or what the policy's first weights write once."""
        if self.reference is None:
            return None
        return StaticReference() if self.reference == "static" else surroundings.written

    def _compares(self, kind: str) -> bool:
        """Whether there must be a reference."""
        return kind_of(kind).what == "pairs"


class JudgePart(Judged, frozen=True, tag="judge", kw_only=True):
    """The verdict of a judge (see `JudgeReward`): `judge` is its name, `scale` what becomes of its number."""

    judge: str
    scale: Scale = "unit"

    @property
    def most(self) -> float | None:  # type: ignore[override]
        """The most that it can pay, before its weight; None where that is not known."""
        if self.scale == "own" or is_own(self.judge):
            return None
        return None if self.judge in ("scalar", "tree") else 1.0  # leaves of a tree may weigh less than 0

    def _reward(self, surroundings: Surroundings) -> Reward:
        return JudgeReward(self._spec(surroundings), reference=self._held_against(surroundings), scale=self.scale)


class TournamentPart(Judged, frozen=True, tag="tournament", kw_only=True):
    """How a completion does against its group's others (see `TournamentReward`)."""

    over: Literal["group", "reference"] = "group"
    pairing: Literal["all", "circular", "uncertain"] = "all"
    k: Annotated[int, Meta(ge=1)] = 4

    def _kind(self, engine: Engine) -> str:
        return of_pairs(self._named(engine))

    def _compares(self, kind: str) -> bool:
        return self.over == "reference"

    def _reward(self, surroundings: Surroundings) -> Reward:
        return TournamentReward(
            self._spec(surroundings),
            over=self.over,
            reference=self._held_against(surroundings),
            pairing=self.pairing,
            k=self.k,
        )


class StoryPart(Judged, frozen=True, tag="story", kw_only=True):
    """EvolvR's reward for stories (see `StoryReward`), from the judge "pairwise", "pointwise" or one made from these.

    `aspects` with their weights as `adjudge judge` writes them ("coherence*3,surprise"; without: the paper's),
    `components` the weights of its three parts, `words` how many words a story should have.
    """

    form: Form = "fixed"
    aspects: str | None = None
    components: ComponentWeights | None = None
    words: tuple[int, int] = (LengthWindow().least, LengthWindow().most)

    def _compares(self, kind: str) -> bool:
        return True

    def _reward(self, surroundings: Surroundings) -> Reward:
        return StoryReward(
            self._spec(surroundings),
            self._held_against(surroundings),
            aspects=None if self.aspects is None else parse_aspects(self.aspects),
            weights=self.components,
            window=LengthWindow(*self.words),
            form=self.form,
        )


class AccuracyPart(Part, frozen=True, tag="accuracy", kw_only=True):
    """How near the scores that a completion writes come to people's, in `columns` of the data: see `AccuracyReward`."""

    columns: tuple[str, ...] = ("score_a", "score_b")
    rate: Annotated[float, Meta(gt=0)] = 0.5

    @property
    def breakdown(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of what it is made of."""
        return ("error", *(f"score/{column}" for column in self.columns))

    def check(self, rows: Sequence[Row], engine: Engine) -> None:
        """People's scores."""
        for row, column in product(rows, self.columns):
            peoples_score(row.columns.get(column), f'{row.place}: "{column}"')

    def _reward(self, surroundings: Surroundings) -> Reward:
        return AccuracyReward(self.columns, rate=self.rate)


class CheckPart(Part, frozen=True, tag="check", kw_only=True):
    """Things that can be checked without a model: see `Check`."""

    ends_with: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    sentences: tuple[int, int] | None = None

    def _reward(self, surroundings: Surroundings) -> Reward:
        return CheckReward(Check(self.ends_with, self.mentions, self.avoids, self.sentences))


class LengthPart(Part, frozen=True, tag="length", kw_only=True):
    """1 inside a window of words, falling linearly outside it: see `LengthWindow`."""

    words: tuple[int, int]

    def _reward(self, surroundings: Surroundings) -> Reward:
        return LengthReward(LengthWindow(*self.words))


class FormatPart(Part, frozen=True, tag="format", kw_only=True):
    """1 for a completion made of these sections and nothing else, or 0: see `FormatReward`.

    With `begun` the prompt has opened the first section already.
    """

    tags: tuple[str, ...] = ("think", "answer")
    begun: bool = False

    def _reward(self, surroundings: Surroundings) -> Reward:
        return FormatReward(self.tags, begun=self.begun)


class PatternPart(Part, frozen=True, tag="pattern", kw_only=True):
    """1 for a completion that is of the form of a regular expression as a whole, or 0: see `PatternReward`."""

    pattern: str

    def _reward(self, surroundings: Surroundings) -> Reward:
        return PatternReward(self.pattern)


class LanguagePart(Part, frozen=True, tag="language", kw_only=True):
    """The share of letters that are of a language's scripts: see `LanguageReward`."""

    language: str = "en"

    def _reward(self, surroundings: Surroundings) -> Reward:
        return LanguageReward(self.language)


class RepetitionPart(Part, frozen=True, tag="repetition", kw_only=True):
    """The share of different ones among a completion's runs of `n` words: see `RepetitionReward`."""

    n: Annotated[int, Meta(ge=1)] = 4

    def _reward(self, surroundings: Surroundings) -> Reward:
        return RepetitionReward(self.n)


class FunctionPart(Part, frozen=True, tag="function", kw_only=True):
    """A function of one's own, `function` "module:name", also of a module beside the recipe: see `FunctionReward`.

    With `messages` it is given messages, as TRL's own functions are.
    """

    function: str
    messages: bool = False
    most = None

    @property
    def own(self) -> str:
        """What it calls of the user's own making."""
        return self.function

    def check(self, rows: Sequence[Row], engine: Engine) -> None:
        """What the function must have; what is null is there, but for an id and a reference, which a group may lack."""
        made = self._made()
        for row in rows:
            lacking = {name for name in ("id", "reference") if empty(row.columns.get(name))}
            try:
                made.check({*ALWAYS, *row.columns} - {"prompt", *lacking})
            except AdjudgeError as error:
                raise AdjudgeError(f"{row.place}: {error}") from error

    def _reward(self, surroundings: Surroundings) -> Reward:
        return self._made()

    def _made(self) -> FunctionReward:
        function = imported(self.function, "the function")
        if not callable(function) or isinstance(function, type):
            raise AdjudgeError(f'the function is "{self.function}", which is {shown(function)}: name a function')
        return FunctionReward(function, messages=self.messages)


AnyPart = (
    JudgePart
    | TournamentPart
    | StoryPart
    | AccuracyPart
    | CheckPart
    | LengthPart
    | FormatPart
    | PatternPart
    | LanguagePart
    | RepetitionPart
    | FunctionPart
)
