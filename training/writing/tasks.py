"""The three tasks of a writing benchmark, made of a text and what is told about it (Tree of Writing, 4.4 and 4.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, get_args

from adjudge.rewards.records.verdict import WritingTask
from adjudge.rewards.words import count_words
from adjudge.training.chosen import chosen
from adjudge.training.stages import Passed, Unusable, passed
from adjudge.training.writing.building import Candidate
from adjudge.training.writing.passages import Language, paragraphs

TASKS: tuple[WritingTask, ...] = get_args(WritingTask)
GAP = "[fill in the blank]"
"""What stands where paragraphs are missing, as in HoWToBench."""
MOST = 10
"""Paragraphs that are left out at most, as published."""
ROUND = 50
"""Lengths that are asked for are multiples of it."""

COMPLETE: dict[Language, str] = {
    "en": (
        "A part of this text ({genre}) is missing where it says {gap}. Write the missing part, so that it fits what"
        " comes before and after it. Give the missing part alone."
    ),
    "zh": "下面这篇{genre}有一部分缺失，缺失处标有 {gap}。请写出缺失的部分，使它与上下文衔接。只需写出缺失的部分。",
}
WRITE: dict[Language, str] = {
    "en": "Write a text ({genre}) about {theme}. {summary} Aim for about {length} words.",
    "zh": "请写一篇{genre}，主题是“{theme}”。{summary}篇幅约 {length} 字。",
}


def parse_tasks(text: str | None) -> tuple[WritingTask, ...]:
    """Names after commas, in the order of the tasks, all for None; raises AdjudgeError as `chosen` does."""
    names = chosen(text, TASKS, "task")
    return tuple(task for task in TASKS if task in names)


def completions(candidates: Sequence[Candidate], seed: int = 0) -> Passed[dict[str, Any]]:
    """Each text with a gap of paragraphs in a row, the first and the last one kept; its prompt asks to fill the gap.

    The gap is drawn from `seed` and the text: 1 to a third of the paragraphs, `MOST` at most. Texts of less than three
    paragraphs are dropped ("too_short").
    """
    return passed("completion", candidates, _completed(candidates, seed))


def guided(candidate: Candidate) -> dict[str, Any]:
    """The row of a text to be written from its outline: an instruction, and requirements trait by trait."""
    assert candidate.construction is not None
    colon = "：" if candidate.language == "zh" else ": "
    told = zip(candidate.traits, candidate.construction.requirements, strict=True)
    information = "\n".join(f"{trait}{colon}{' '.join(requirement.split())}" for trait, requirement in told)
    return _row(candidate, "guide", _instruction(candidate), information, candidate.text)


def opened(candidate: Candidate) -> dict[str, Any]:
    """The row of a text to be written from the instruction alone."""
    return _row(candidate, "open", _instruction(candidate), "", candidate.text)


def _completed(candidates: Sequence[Candidate], seed: int) -> Iterator[tuple[int, dict[str, Any] | Unusable]]:
    for place, one in enumerate(candidates):
        found = paragraphs(one.text)
        count = len(found.parts)
        if count < 3:
            yield place, Unusable("too_short")
            continue
        random = Random(f"{seed} {one.text}")
        length = random.randint(1, min(MOST, count // 3))
        start = random.randint(1, count - 1 - length)
        gap = range(start, start + length)
        before, after = found.text(range(start)), found.text(range(start + length, count))
        joint = found.gaps[start]
        information = f"{before}{joint}{GAP}{joint}{after}"
        instruction = COMPLETE[one.language].format(genre=one.genre, gap=GAP)
        yield place, _row(one, "completion", instruction, information, found.text(gap))


def _instruction(candidate: Candidate) -> str:
    told = candidate.construction
    assert told is not None
    length = max(ROUND, round(count_words(candidate.text) / ROUND) * ROUND)
    theme, summary = (" ".join(part.split()) for part in (told.theme, told.summary))
    if summary[-1] not in ".!?。！？":
        summary += "。" if candidate.language == "zh" else "."
    return WRITE[candidate.language].format(genre=candidate.genre, theme=theme, summary=summary, length=length)


def _row(candidate: Candidate, task: WritingTask, instruction: str, information: str, reference: str) -> dict[str, Any]:
    """As a tree judge reads it, once a response is there, and as HoWToBench names it."""
    return {
        **candidate.source.others,
        **candidate.findings,
        "id": f"{candidate.source.id}/{task}",
        "source": candidate.source.id,
        "task": task,
        "prompt": instruction + (f"\n\n{information}" if information else ""),
        "instruction": instruction,
        "information": information,
        "reference": reference,
    }
