"""Judges of the user's own: written from questions in their own words, and opened by the name in their module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from inspect import isabstract, signature
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.rewards.imported import calling, imported
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.judge import ItemJudge, Judge
from adjudge.rewards.judges.kinds import KINDS, Kind, Open, Options, kind_name
from adjudge.rewards.judges.normalising import normalised
from adjudge.rewards.judges.options import ASKING, REASONING, as_taken, how_of
from adjudge.rewards.judges.template import Template
from adjudge.rewards.records.verdict import Item, PairVerdict, Part, Verdict, abstention, weighted_mean

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.journal import Journal


ITS_OWN = ("id", "prompt", "response", "reference")
"""Columns that an item has whoever judges it."""


class Worded(msgspec.Struct, frozen=True):
    """A question in words of one's own, before an engine's chat template is laid around it; see `OwnJudge.question`."""

    name: str
    words: Prompt
    labels: Labels
    answer: str


class OwnJudge(ItemJudge):
    """A judge of one's own: `questions` says what is asked about an item, `score_of` what its parts come to.

    The rest is that of all judges: direct or reasoned, journal, shortening, abstention, options (`PromptedJudge`).
    `range` is the lowest and the highest score (infinite where there is none), of which `JudgeReward` gives the share;
    without one it gives `scale="own"` alone. A journal tells verdicts apart by the questions and by `content`: what
    else decides a score, an option that `score_of` reads, or a number to raise when that changes. With mode "reasoned"
    the words have to ask for an analysis that ends in <ANSWER>label</ANSWER>. A score that is not finite abstains
    ("non_finite"). `reads` are the columns that it looks at besides: `rubric` (or `checklist`), `reviews`, `genre`,
    `task`, which items have under their names, and any others, which stand in `item.columns`. Raises AdjudgeError, when
    it is asked, for questions that are none, for a score that is no number, and for what the author's code raises, with
    its place.
    """

    content: Any = None
    reads: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        if "kind" not in vars(cls):
            cls.kind = cls.__qualname__
        if isinstance(cls.reads, str) or not all(isinstance(one, str) for one in cls.reads):
            raise AdjudgeError(f"{cls.kind}.reads is {shown(cls.reads)}: give a tuple of columns")
        if had := [one for one in cls.reads if one in ITS_OWN]:
            raise AdjudgeError(f'{cls.kind}.reads has "{had[0]}", which an item has in any case: leave it out')

    @abstractmethod
    def questions(self, item: Item) -> Sequence[Worded]:
        """What is asked about an item: `question`s, each of which becomes a part of the verdict by its name.

        It has its row's `reference`, of `rubric`, `reviews`, `genre` and `task` those that `reads` names, and in
        `columns` what else that names.
        """

    def score_of(self, parts: Mapping[str, Part]) -> float | None:
        """The score from the parts, none of which has abstained: the mean of their labels' expected values.

        None is no score. Raises AdjudgeError for labels that are no numbers.
        """
        if (name := _unnumbered(parts)) is not None:
            raise AdjudgeError(
                f"the labels of {self.kind}'s question {name} are no numbers: give Labels(labels, values=…), or write"
                " score_of"
            )
        return weighted_mean(parts)

    def question(
        self, name: str, words: str, labels: Labels | Sequence[str], answer: str = "", /, **texts: str
    ) -> Worded:
        """A question for `questions`: a user's turn, after which the model's own begins with `answer`.

        `words` are the judge's own, each `{field}` in them is one of the `texts`, which are data. Raises as
        `Prompt.template` and `Labels.of` do.
        """
        data = {field: str(normalised(text)) if self.reads_normalised else text for field, text in texts.items()}
        segments = [
            one if one.trusted else msgspec.structs.replace(one, cut=self.cut)
            for one in Prompt.template(words, **data).segments
        ]
        return Worded(name, Prompt(tuple(segments)), Labels.of(labels), answer)

    def _load(self, language: str) -> Template:
        return Template("")

    def _worded(self, item: Item) -> list[Worded]:
        """The questions; raises AdjudgeError for none, for what is no question, and for a name that comes twice."""
        with calling(self.questions, f"{self.kind}.questions"):
            given: Any = self.questions(item)
            asked = list(given) if isinstance(given, Iterable) else [given]
        if wrong := [one for one in asked if not isinstance(one, Worded)]:
            raise AdjudgeError(f"{self.kind}.questions has {shown(wrong[0])}: make each with self.question(…)")
        names = [one.name for one in asked]
        if not names or len(set(names)) < len(names):
            raise AdjudgeError(f"{self.kind}.questions has the names {names}: ask one or more, each by its own name")
        return asked

    def _content(self, item: Item) -> dict[str, Any]:
        return {"questions": self._worded(item), "content": self.content}

    def _questions(self, item: Item) -> list[Question]:
        direct = self.asking.mode == "direct"
        return [
            Question(one.name, self.engine.chat([Message("user", one.words)], one.answer if direct else ""), one.labels)
            for one in self._worded(item)
        ]

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        parts = {name: self._part(answer) for name, answer in answers.items()}
        if abstention(parts):
            return self._verdict(None, parts, answers, key, truncated)
        try:
            with calling(self.score_of, f"{self.kind}.score_of"):
                score: Any = self.score_of(parts)
        except AdjudgeError as error:
            if (name := _unnumbered(parts)) is not None and type(self).score_of is not OwnJudge.score_of:
                error.args = (f"{error} (the labels of its question {name} are no numbers: Labels(…, values=…) says)",)
            raise
        if score is None or is_number(score, Real):
            return self._verdict(None if score is None else float(score), parts, answers, key, truncated)
        if isinstance(score, bool) or not isinstance(score, Real):
            raise AdjudgeError(f"{self.kind}.score_of gave {shown(score)}: give a number, or None")
        verdict = self._verdict(None, parts, answers, key, truncated)
        return msgspec.structs.replace(verdict, abstained="non_finite")


def _unnumbered(parts: Mapping[str, Part]) -> str | None:
    """The first question whose labels stand for no numbers."""
    return next((name for name, part in parts.items() if part.score is None), None)


def own_class(name: str) -> type[Judge[Any, Any]]:
    """The user's own judge of that name, "package.module:name"; raises AdjudgeError for what is none."""
    made = imported(name, "the judge")
    if not (isinstance(made, type) and issubclass(made, Judge)) or isabstract(made):
        raise AdjudgeError(f'the judge is "{name}", which is {shown(made)}: name a class derived from OwnJudge')
    return made


def own_kind(name: str) -> Kind:
    """The entry that such a judge would have in KINDS.

    It reads the rows that the judge which it is derived from does, one derived from OwnJudge what its `reads` names,
    and takes the options that its class does, those of the other judge as that takes them (a rubric, not its file).
    """
    made: Any = own_class(name)
    kind = kind_name(made)
    base = None if kind is None else KINDS[kind]

    def opening(options: Options) -> Open:
        writes = options.get("mode") == "reasoned"  # else what is called as those of writing may be the judge's own
        given = {option: value for option, value in options.items() if not (writes and option in ASKING)}
        given = given if kind is None else as_taken(kind, given)
        how = how_of(options) if writes else {}
        _check_taken(name, made, how | given)

        def opened(engine: EngineFace, journal: Journal | None) -> Judge[Any, Any]:
            with calling(made.__init__, f"opening the judge {name}"):
                judge: Judge[Any, Any] = made(engine, journal=journal, **how | given)
            return judge

        return opened

    if base is not None:
        return msgspec.structs.replace(base, opening=opening, options=(), gather=None)
    pairs = issubclass(made.verdict_type, PairVerdict)
    reads = tuple(made.reads) if issubclass(made, OwnJudge) else ()
    return Kind("pairs" if pairs else "items", "", (), reads, opening=opening)


def _check_taken(name: str, made: type[Judge[Any, Any]], options: Mapping[str, Any]) -> None:
    """Raise AdjudgeError unless the class takes an engine, a journal and these options.

    Where its __init__ has **others, they are for those that it is derived from, and one of these has to name them.
    """
    taken = signature(made)
    parameters = list(taken.parameters.values())
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        inits: list[Any] = [vars(one)["__init__"] for one in made.__mro__[:-1] if "__init__" in vars(one)]
        parameters = [one for init in inits for one in list(signature(init).parameters.values())[1:]]
    names = dict.fromkeys(one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
    if other := next((option for option in options if option not in names), None):
        known = ", ".join(one for one in names if one not in ("engine", "journal"))
        mend = f"choose from {known or 'none'}, or name it in __init__"
        if other in REASONING:
            mend = 'it is for judges that write, add mode "reasoned"'
        raise AdjudgeError(f'the judge {name} takes no option "{other}": {mend}')
    try:
        taken.bind(None, journal=None, **options)
    except TypeError as error:
        raise AdjudgeError(
            f"the judge {name} cannot be opened ({reason(error)}): it has to take an engine, journal=… and its options"
        ) from error
