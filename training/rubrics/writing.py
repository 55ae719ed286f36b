"""The stages in which a model writes: passages of pages, rubric sets, answers, and one rubric out of several sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from adjudge.rewards.judges import template
from adjudge.training.rubrics.drafts import CONTENT, WRITING, described, read_rubric_text
from adjudge.training.rubrics.filtering import RubricSet
from adjudge.training.rubrics.questions import Question
from adjudge.training.stages import Passed, Texts, Unusable, json_of, passed

PROMPTS = Path(__file__).parent / "prompts"

MOST_PASSAGES = 5
"""Of a page; the paper asks for three to five."""

PASSAGES = {
    "type": "array",
    "items": {"type": "string", "maxLength": 800},
    "minItems": 1,  # small models close an array that may be empty at once; one empty text says that there is none
    "maxItems": MOST_PASSAGES,
}

_texts_of = json_of(list[str])


class FoundPage(msgspec.Struct, frozen=True):
    """A page that a search found for a question."""

    question: str
    prompt: str
    source: str
    text: str


class Described(msgspec.Struct, frozen=True):
    """What of a page bears on a question: the paper's meta-descriptions."""

    question: str
    source: str
    passages: tuple[str, ...]


class Answered(msgspec.Struct, frozen=True):
    """An answer to a question, and whose it is: a model's, or one that was given."""

    question: str
    by: str
    text: str


class _Wanted(msgspec.Struct, frozen=True):
    """A text that is to be written for a question, by number."""

    question: str
    number: int


def describe(texts: Texts, pages: Sequence[FoundPage], language: str) -> Passed[Described]:
    """The passages of each page; a page without any is dropped ("no_passage")."""
    form = template.load("describe", language, PROMPTS)
    prompts = [texts.prompt(*form.render(data={"prompt": page.prompt, "page": page.text})) for page in pages]

    def results() -> Iterator[tuple[int, Described | Unusable]]:
        for place, found in texts.write(prompts, read_passages):
            if not found:  # a page may well say nothing about a question: that is an answer, not to be asked again
                yield place, Unusable("no_passage")
            elif isinstance(found, Unusable):
                yield place, found
            else:
                yield place, Described(pages[place].question, pages[place].source, found)

    return passed("passages", pages, results())


def read_passages(text: str) -> tuple[str, ...]:
    """The different passages in a model's text; raises Unusable ("unparsable")."""
    stripped = (passage.strip() for passage in _texts_of(text))
    return tuple(dict.fromkeys(passage for passage in stripped if passage))[:MOST_PASSAGES]


def write_sets(
    texts: Texts, questions: Sequence[Question], passages: Mapping[str, Sequence[str]], count: int, language: str
) -> Passed[RubricSet]:
    """`count` rubric sets for each question, from the passages of its pages."""
    form = template.load("write", language, PROMPTS)
    prompts = {
        question.id: texts.prompt(
            *form.render(
                data={"prompt": question.prompt, "passages": list(passages.get(question.id, ()))},
                content=CONTENT,
                writing=WRITING,
            )
        )
        for question in questions
    }
    wanted = [_Wanted(question.id, number) for question in questions for number in range(1, count + 1)]
    reads = [partial(_set, one.question, one.number) for one in wanted]
    results = texts.write([prompts[one.question] for one in wanted], reads, samples=[one.number for one in wanted])
    return passed("sets", wanted, results)


def answer(texts: Texts, questions: Sequence[Question], count: int, language: str) -> Passed[Answered]:
    """`count` answers to each question."""
    form = template.load("answer", language, PROMPTS)
    prompts = {question.id: texts.prompt(*form.render(data={"prompt": question.prompt})) for question in questions}
    wanted = [_Wanted(question.id, number) for question in questions for number in range(1, count + 1)]

    def read(question: str, text: str) -> Answered:
        return Answered(question, texts.engine.name, text.strip())

    reads = [partial(read, one.question) for one in wanted]
    results = texts.write([prompts[one.question] for one in wanted], reads, samples=[one.number for one in wanted])
    return passed("answers", wanted, results)


def consolidate(
    texts: Texts, questions: Sequence[Question], sets: Mapping[str, Sequence[RubricSet]], language: str
) -> Passed[RubricSet]:
    """One rubric of each question's sets; a single set is its own consensus and nothing is asked."""
    form = template.load("consolidate", language, PROMPTS)
    alone = {
        place: msgspec.structs.replace(sets[question.id][0], number=0)
        for place, question in enumerate(questions)
        if len(sets[question.id]) == 1
    }
    places = [place for place in range(len(questions)) if place not in alone]
    prompts = [
        texts.prompt(
            *form.render(
                data={
                    "prompt": questions[place].prompt,
                    "schemes": [described(one.rubric) for one in sets[questions[place].id]],
                },
                content=CONTENT,
                writing=WRITING,
            )
        )
        for place in places
    ]
    results = texts.write(prompts, [partial(_set, questions[place].id, 0) for place in places])
    consensus = ((places[index], found) for index, found in results)
    return passed("consolidate", questions, chain(alone.items(), consensus))


def _set(question: str, number: int, text: str) -> RubricSet:
    found = read_rubric_text(text)
    return RubricSet(question, number, found.rubric, found.mended)
