"""Rubrics of the papers, by name: QuRL's six dimensions, Igniting's five weighted ones, and one for any writing."""

from __future__ import annotations

from pathlib import Path

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rubric import Criterion, Rubric, read_rubric

SIX = Rubric(
    scale=(0, 2),
    criteria=(
        Criterion("Relevance", "2: all of it serves what was asked. 0: it answers something else."),
        Criterion("Accuracy", "2: no error of fact, nothing that misleads. 0: errors throughout, or badly misleading."),
        Criterion("Coherence", "2: clearly built, each part leads to the next. 0: no order, parts do not connect."),
        Criterion("Clarity", "2: plain to follow and rich in detail. 0: confusing, hardly a detail."),
        Criterion(
            "Breadth and Depth", "2: covers the matter widely and goes below its surface. 0: narrow, shallow, thin."
        ),
        Criterion("Reading Experience", "2: a pleasure, holds the reader without effort. 0: dull or a struggle."),
    ),
)
"""The case-independent baseline of QuRL (Fig. 7), in words of our own: six dimensions, each 0 to 2."""

IGNITING = Rubric(
    scale=(1, 3),
    threshold=2,
    criteria=(
        Criterion("Language Quality", "Is the language fluent and exact, in a fitting style?", weight=0.30),
        Criterion("Creativity", "Are there images or points of view of its own that one remembers?", weight=0.30),
        Criterion("Emotional Resonance", "Does it move the reader, and speak to somebody in particular?", weight=0.15),
        Criterion(
            "Cultural Appropriateness", "Does it fit the occasion, its customs and what it forbids?", weight=0.15
        ),
        Criterion("Content Richness", "Does it say much that matters, in few words?", weight=0.10),
    ),
)
"""The rubric for creative writing of "Igniting Creative Writing" (section 4.3), in words of our own.

Each dimension is scored 1 to 3; a weighted mean of 2 or more is acceptable.
"""

WRITING = Rubric(
    scale=(1, 10),
    criteria=(
        Criterion("Opening and Ending", "Does it catch the reader at once, and end so that the whole stays in mind?"),
        Criterion("Language", "Are words exact and varied, descriptions alive, figures of speech natural?"),
        Criterion("Substance", "Are examples, facts and details true, concrete and to the point?"),
        Criterion("Logic", "Does each step follow from the one before, with reasons, and without contradiction?"),
        Criterion("Emotion", "Do feelings suit the subject and its readers, shown rather than told?"),
        Criterion("Structure", "Is there a plan with order, pace and a point, in sensible paragraphs?"),
        Criterion("Task", "Does the text do everything the instruction asks for, in the form it asks for?"),
    ),
)
"""One elaborated rubric for writing of every kind, the rival of Tree of Writing (Table 3), in words of our own."""

RUBRICS: dict[str, Rubric] = {"six": SIX, "igniting": IGNITING, "writing": WRITING}


def open_rubric(name: Rubric | str | Path) -> Rubric:
    """A rubric as it is, a published one by its name, or that of a file; raises as `read_rubric` does."""
    if isinstance(name, Rubric):
        return name
    if not isinstance(name, str | Path):
        raise AdjudgeError(f"rubric is {shown(name)}: give a Rubric, the name of a published one, or a file")
    if not (path := Path(name)).suffix and str(name) not in RUBRICS:
        raise AdjudgeError(f'no rubric is called "{name}": choose {", ".join(RUBRICS)}, or name a .toml or .json file')
    return RUBRICS.get(str(name)) or read_rubric(path)
