"""Rationales for human scores: the model is told the scores and writes as one of five readers (EvolvR, eq. 2)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges import template
from adjudge.rewards.judges.template import Data
from adjudge.training.evolve.judges import FOLDER
from adjudge.training.evolve.personas import PERSONAS
from adjudge.training.evolve.rationale import Rationale
from adjudge.training.evolve.rule import rewritten
from adjudge.training.stages import Passed, Texts, passed


def synthesize(
    questions: Sequence[Rationale],
    texts: Texts,
    personas: Sequence[str] = tuple(PERSONAS),
    *,
    examples: Sequence[Rationale] = (),
    shots: int = 1,
    seed: int = 0,
) -> Passed[Rationale]:
    """A rationale of each question by each persona; those of a question stand together.

    Up to `shots` of the `examples` (those of the same aspect, where there are such) are shown before each question. A
    text must end in as many scores as there are stories, or it is written again and in the end dropped; whether they
    are the right ones is the rule's matter.
    """
    wanted = [
        msgspec.structs.replace(question, id=f"{question.id}/{persona}", persona=persona)
        for question in questions
        for persona in personas
    ]
    prompts = [_prompt(texts, one, _chosen(one, examples, shots, seed)) for one in wanted]
    return passed("synthesize", wanted, rewritten(wanted, prompts, texts))


def _chosen(rationale: Rationale, examples: Sequence[Rationale], shots: int, seed: int) -> list[Rationale]:
    """The examples shown before a question, none of them on a story of its own: the same whatever else is asked."""
    asked = {story.story for story in rationale.stories}
    others = [one for one in examples if asked.isdisjoint(story.story for story in one.stories)]
    alike = [one for one in others if one.aspect.name == rationale.aspect.name] or others
    return random.Random(f"{seed} {rationale.id}").sample(alike, min(shots, len(alike)))


def _prompt(texts: Texts, rationale: Rationale, examples: Sequence[Rationale]) -> Prompt:
    data: dict[str, Data] = {
        "prompts": [story.prompt for story in rationale.stories],
        "stories": [story.story for story in rationale.stories],
        "example_stories": [[story.story for story in one.stories] for one in examples],
        "example_responses": [one.response for one in examples],
        "example_aspects": [one.aspect.name for one in examples],
    }
    messages, answer = template.load("synthesize", folder=FOLDER).render(
        data=data,
        voice=PERSONAS[rationale.persona],
        single=len(rationale.stories) == 1,
        aspect=rationale.aspect.name,
        definition=rationale.aspect.definition,
        scores=rationale.scores,
    )
    return texts.prompt(messages, answer)
