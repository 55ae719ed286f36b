"""The scores that rationales end in: read, compared with the human ones, and inverted (EvolvR, eq. 3 and 5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from adjudge.engine.completion import Completion
from adjudge.engine.face import EngineFace
from adjudge.engine.text.prompt import Prompt
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.text.written_scores import AnswerFormat, find_answers, written_answers
from adjudge.engine.tokens import Tokens
from adjudge.rewards.judges.asking import ANSWER
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.training.evolve.rationale import Rationale
from adjudge.training.stages import Texts, Unusable

Written = tuple[tuple[Tokens, str], ...]
"""For each score of a text: the tokens before it, and the score."""


def written_scores(engine: EngineFace, rationales: Iterable[Rationale]) -> Iterator[Written | None]:
    """The scores at the end of each rationale, found as the judge in reasoned mode finds them, one after the other.

    None where there are not as many as stories, or one cannot be read.
    """
    for one in rationales:
        forms = _forms(len(one.stories))
        made = Completion(0, 0, one.response, engine.tokenizer.encode(one.response, False), "stop")
        found = find_answers([made] * len(forms), SCALE.labels, forms, engine.byte_table())
        scores = tuple(score for score in found if score is not None)
        yield scores if len(scores) == len(forms) else None


def form_of(rationale: Rationale, tokenizer: Tokenizer, max_tokens: int) -> str:
    """A regular expression for texts that end in the scores of a rationale's stories, before their tokens run out.

    What comes before the scores has half of the characters that the stories have in as many tokens.
    """
    answers = [f"{ANSWER.openings[0]} {score} {ANSWER.closings[0]}" for score in rationale.scores]
    end = "\n\n" + " | ".join(answers)
    told = "".join(story.story for story in rationale.stories) + end
    characters_a_token = len(told) / len(tokenizer.encode(told, False))
    room = max(1, int((max_tokens - len(tokenizer.encode(end, False))) * characters_a_token / 2))
    any_score = re.sub(r"\d", f"[{''.join(SCALE.labels)}]", re.escape(end))
    return f"[^<]{{1,{room}}}{any_score}"


def rewritten(
    rationales: Sequence[Rationale], prompts: Sequence[Prompt], texts: Texts
) -> Iterator[tuple[int, Rationale | Unusable]]:
    """Each rationale with the text that its prompt leads to, as soon as it is there.

    A text that does not end in its scores is unusable.
    """

    def read(rationale: Rationale, text: str) -> Rationale:
        found = msgspec.structs.replace(rationale, response=text)
        if next(written_scores(texts.engine, [found])) is None:
            raise Unusable("unparsable")
        return found

    return texts.write(prompts, [partial(read, one) for one in rationales])


def inverted(rationale: Rationale) -> str:
    """The rationale with scores that contradict it in place of its own.

    A score s becomes 6 − s, which turns the order round and, of equal scores too, good into poor. Where that changes
    nothing (threes alone), a pair gets 1 and 5, a single story 1. A text without readable scores comes back as it is.
    """
    mirrored = [str(6 - int(score)) for score in rationale.scores]
    if mirrored == list(rationale.scores):
        mirrored = ["1", "5"][: len(mirrored)]
    text = rationale.response
    found = written_answers(text, SCALE.labels, _forms(len(mirrored))[-1]) or ()
    for answer, score in reversed(list(zip(found, mirrored, strict=False))):
        text = text[: answer.start] + score + text[answer.end :]
    return text


def _forms(stories: int) -> list[AnswerFormat]:
    return [msgspec.structs.replace(ANSWER, which=which, count=stories) for which in range(stories)]
