"""Judges of the user's own: written from questions in their own words, and opened by the name in their module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from inspect import isabstract
from numbers import Real
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.rewards.imported import imported
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.judge import ItemJudge, Judge
from adjudge.rewards.judges.kinds import ASKING, KINDS, Kind, Open, Options, how_of, kind_name
from adjudge.rewards.judges.template import Template, flowing
from adjudge.rewards.verdict import Item, PairVerdict, Part, Verdict, abstention, weighted_mean

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.journal import Journal


class Worded(msgspec.Struct, frozen=True):
    """A question in words of one's own, before an engine's chat template is laid around it; see `OwnJudge.question`."""

    name: str
    words: Prompt
    labels: Labels
    answer: str


class OwnJudge(ItemJudge):
    """A judge of one's own: `questions` says what is asked about a text, `score_of` what its parts come to.

    The rest is that of all judges: direct or reasoned, journal, shortening, abstention, options (`PromptedJudge`).
    `range` is the lowest and the highest score (infinite where there is none), of which `JudgeReward` gives the share;
    without one it gives `scale="own"` alone. A journal tells verdicts apart by the questions and by `content`: what
    else decides a score, an option that `score_of` reads, or a number to raise when that changes. With mode "reasoned"
    the words have to ask for an analysis that ends in <ANSWER>label</ANSWER>. Raises AdjudgeError, when it is asked,
    for questions that are none and for a score that is no finite number.
    """

    content: Any = None

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        if "kind" not in vars(cls):
            cls.kind = cls.__qualname__

    @abstractmethod
    def questions(self, item: Item) -> Sequence[Worded]:
        """What is asked about a text: `question`s, each of which becomes a part of the verdict by its name."""

    def score_of(self, parts: Mapping[str, Part]) -> float | None:
        """The score from the parts, none of which has abstained: the mean of their labels' expected values.

        None is no score. Raises AdjudgeError for labels that are no numbers.
        """
        if name := next((name for name, part in parts.items() if part.score is None), None):
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
        data = {field: str(flowing(text)) if self.flowing else text for field, text in texts.items()}
        segments = [
            one if one.trusted else msgspec.structs.replace(one, cut=self.cut)
            for one in Prompt.template(words, **data).segments
        ]
        return Worded(name, Prompt(tuple(segments)), Labels.of(labels), answer)

    def _load(self, language: str) -> Template:
        return Template("")

    def _worded(self, item: Item) -> list[Worded]:
        """The questions; raises AdjudgeError for none, for what is no question, and for a name that comes twice."""
        asked = list(self.questions(item))
        if wrong := next((one for one in asked if not isinstance(one, Worded)), None):
            raise AdjudgeError(f"{self.kind}.questions has {shown(wrong)}: make each with self.question(…)")
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
        score = None if abstention(parts) else self.score_of(parts)
        if score is not None and not is_number(score, Real):
            raise AdjudgeError(f"{self.kind}.score_of gave {shown(score)}: give a finite number")
        return self._verdict(score, parts, answers, key, truncated)


def own_class(name: str) -> type[Judge[Any, Any]]:
    """The user's own judge of that name, "package.module:name"; raises AdjudgeError for what is none."""
    made = imported(name, "the judge")
    if not (isinstance(made, type) and issubclass(made, Judge)) or isabstract(made):
        raise AdjudgeError(f'the judge is "{name}", which is {shown(made)}: name a class derived from OwnJudge')
    return made


def own_kind(name: str) -> Kind:
    """The entry that such a judge would have in KINDS.

    It reads the rows that the judge which it is derived from does, and takes the options that its class does.
    """
    made: Any = own_class(name)
    base = KINDS.get(kind_name(made) or "")

    def prepare(options: Options) -> Open:
        writes = options.get("mode") == "reasoned"  # else what is called as those of writing may be the judge's own
        given = {option: value for option, value in options.items() if not (writes and option in ASKING)}
        how = how_of(options) if writes else {}

        def opened(engine: EngineFace, journal: Journal | None) -> Judge[Any, Any]:
            try:
                judge: Judge[Any, Any] = made(engine, journal=journal, **how, **given)
            except TypeError as error:
                raise AdjudgeError(f"the judge {name} cannot be opened: {reason(error)}") from error
            return judge

        return opened

    pairs = issubclass(made.verdict_type, PairVerdict)
    return Kind(
        "pairs" if pairs else "items", prepare, (), base.read if base else None, labels=bool(base and base.labels)
    )
