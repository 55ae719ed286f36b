"""The agents that sharpen principles: one writes bad texts, one finds out why a judgement was wrong, one revises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Prompt
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges import template
from adjudge.rewards.judges.principle import checked_principles
from adjudge.rewards.judges.template import Data
from adjudge.training.stages import Read, Texts, Unusable, json_of, object_schema, text_schema

Form = TypeVar("Form")

PROMPTS = Path(__file__).parent / "prompts"

_BRACKETS = frozenset("<>[]")
"""What special tokens and markers are written in."""

WRITING = Sampling(max_tokens=1024, temperature=0.8)
"""How the agents write (the paper does not say)."""

TEXT_LENGTH, SENTENCE_LENGTH = 2000, 300
"""The most characters of a bad text, and of a principle, a strategy's part or a piece of advice."""

FIRST_STRATEGY = {
    "en": (
        "Write something fluent, polite and kind that could be sent to anybody: use well-worn phrases, name nothing"
        " that belongs to this reader or occasion, and let the feeling be recited rather than meant."
    ),
    "zh": (
        "写得通顺、有礼、友善，但换谁都能收：多用套话，不提只属于这位读者或这个场合的任何事，"
        "情感像是背诵出来的，而不是真心的。"
    ),
}
"""What the writer of bad texts begins with, by language."""


class _Bad(msgspec.Struct, frozen=True):
    text: str
    flaw: str


class _Advice(msgspec.Struct, frozen=True):
    cause: str
    advice: str


class _Strategy(msgspec.Struct, frozen=True):
    strategy: str


class _Principles(msgspec.Struct, frozen=True):
    principles: list[str]


class Case(msgspec.Struct, frozen=True):
    """A text that was judged, rightly or not, in words for an agent.

    `why` is the flaw it was given, or advice; `reasons` what the judge wrote ("" where it wrote nothing).
    """

    prompt: str
    text: str
    said: bool
    truth: bool
    why: str = ""
    reasons: str = ""


class Agents:
    """Asks the agents, in their words in `language`; what they write is of a form, or unusable with a reason.

    `sampling`, `attempts`, `seed` and `journal` are those of `Texts`; `shown` is how many cases an agent is shown at
    once, `most` how many principles there may be. Raises AdjudgeError for settings that make no sense, and PromptError
    for a language without prompts.
    """

    def __init__(
        self,
        engine: EngineFace,
        journal: Journal | None = None,
        *,
        language: str = "en",
        sampling: Sampling = WRITING,
        attempts: int = 3,
        seed: int = 0,
        shown: int = 8,
        most: int = 12,
    ) -> None:
        if shown < 1 or most < 1:
            raise AdjudgeError(f"{shown} cases shown, {most} principles: give at least 1 of each")
        self.engine, self.shown, self.most = engine, shown, most
        how: dict[str, Any] = {"attempts": attempts, "seed": seed}
        forms = _forms(most)
        self._prompts = {name: template.load(name, language, PROMPTS) for name in forms}
        self._texts = {name: Texts(engine, sampling, journal, schema=form, **how) for name, form in forms.items()}

    @property
    def counts(self) -> Counter[str]:
        """What all agents together have written, counted as `Texts` does."""
        return sum((texts.counts for texts in self._texts.values()), Counter())

    def write(self, prompts: Sequence[str], strategy: str, number: int) -> Iterator[tuple[int, Case | Unusable]]:
        """Bad texts to the prompts, by the strategy, judged rightly until a judge sees them; every round has others."""
        wanted = [self._prompt("write", {"prompt": prompt, "strategy": strategy}) for prompt in prompts]
        return self._texts["write"].write(
            wanted, [partial(_bad, prompt) for prompt in prompts], samples=[number] * len(wanted)
        )

    def outwit(self, strategy: str, caught: Sequence[Case]) -> str | Unusable:
        """Another strategy for the writer, some of whose texts were caught."""
        cases = caught[: self.shown]
        data = {**_columns(cases), "strategy": strategy, "flaws": [case.why for case in cases]}
        return self._one("outwit", data, _strategy)

    def reflect(self, principles: Sequence[str], wrong: Sequence[Case]) -> Iterator[tuple[int, Case | Unusable]]:
        """Each wrong judgement with advice."""
        wanted = [
            self._prompt(
                "reflect",
                {
                    "prompt": case.prompt,
                    "text": case.text,
                    "principles": list(principles),
                    "reasons": case.reasons or [],
                },
                said=int(case.said),
                truth=int(case.truth),
            )
            for case in wrong
        ]
        return self._texts["reflect"].write(wanted, [partial(_advised, case) for case in wrong])

    def revise(self, principles: Sequence[str], wrong: Sequence[Case]) -> tuple[str, ...] | Unusable:
        """The principles, changed in the light of wrong judgements."""
        cases = wrong[: self.shown]
        data = {**_columns(cases), "principles": list(principles), "why": [case.why for case in cases]}
        said, truth = [int(case.said) for case in cases], [int(case.truth) for case in cases]
        read = partial(self._list, trusted=frozenset(principles))
        return self._one("revise", data, read, said=said, truth=truth, most=self.most)

    def _one(self, name: str, data: Mapping[str, Data], read: Read[Form], **trusted: Any) -> Form | Unusable:
        [(_, found)] = self._texts[name].write([self._prompt(name, data, **trusted)], read)
        return found

    def _prompt(self, name: str, data: Mapping[str, Data], **trusted: Any) -> Prompt:
        return self._texts[name].prompt(*self._prompts[name].render(data={"reasons": [], **data}, **trusted))

    def _list(self, text: str, trusted: Collection[str]) -> tuple[str, ...]:
        """The principles in a text, the new ones fit to be trusted: later on they are part of a judge's own prompt."""
        principles = [_line(principle) for principle in json_of(_Principles)(text).principles]
        if len(principles) > self.most:
            raise Unusable("too_many")
        if any(self._has_power(principle) for principle in principles if principle not in trusted):
            raise Unusable("special_token")
        try:
            return checked_principles(principles)
        except AdjudgeError as error:  # none, a blank one, one twice
            raise Unusable("unusable_list") from error

    def _has_power(self, text: str) -> bool:
        """Whether a text could be more than words in some model's template, or forge the markers of a judge's."""
        encode = self.engine.tokenizer.encode
        return not text.isprintable() or not _BRACKETS.isdisjoint(text) or encode(text, True) != encode(text, False)


def _forms(most: int) -> dict[str, dict[str, Any]]:
    """The form of what each agent writes, as JSON schemas."""
    sentence = text_schema(SENTENCE_LENGTH)
    return {
        "write": object_schema(text=text_schema(TEXT_LENGTH), flaw=sentence),
        "outwit": object_schema(strategy=text_schema(4 * SENTENCE_LENGTH)),
        "reflect": object_schema(cause=sentence, advice=sentence),
        "revise": object_schema(principles={"type": "array", "items": sentence, "minItems": 1, "maxItems": most}),
    }


def _bad(prompt: str, text: str) -> Case:
    bad = json_of(_Bad)(text)
    written, flaw = _not_blank(well_formed(bad.text).strip()), _not_blank(_line(bad.flaw))
    return Case(prompt, written, said=False, truth=False, why=flaw)


def _advised(case: Case, text: str) -> Case:
    found = json_of(_Advice)(text)
    cause, advice = _not_blank(_line(found.cause)), _not_blank(_line(found.advice))
    return msgspec.structs.replace(case, why=f"{cause} {advice}")


def _strategy(text: str) -> str:
    return _not_blank(_line(json_of(_Strategy)(text).strategy))


def _line(text: str) -> str:
    """A text on one line."""
    return " ".join(well_formed(text).split())


def _not_blank(text: str) -> str:
    if not text:
        raise Unusable("empty")
    return text


def _columns(cases: Sequence[Case]) -> dict[str, Data]:
    """What a prompt file loops over; reasons only where all cases have them."""
    reasons = [case.reasons for case in cases]
    return {
        "prompts": [case.prompt for case in cases],
        "texts": [case.text for case in cases],
        "reasons": reasons if all(reasons) else [],
    }
