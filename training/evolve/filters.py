"""The stages that rationales go through: rule, refine, attack, confidence (EvolvR, 3.3 and Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges import template
from adjudge.rewards.judges.asking import SAMPLING, Mode
from adjudge.rewards.judges.judge import WINDOW
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.records.verdict import Item
from adjudge.training.evolve.judges import FOLDER, ContradictionJudge
from adjudge.training.evolve.rationale import Rationale
from adjudge.training.evolve.rule import inverted, rewritten, written_scores
from adjudge.training.kept_engine import KeptEngine, keeping_analyses
from adjudge.training.stages import Passed, Texts, Unusable, passed

Result = tuple[int, Rationale | Unusable]

PIPELINE = ("rule", "refine", "rule", "attack", "confidence")
"""Algorithm 1."""

PUBLISHED = (0.9295, None, 0.8578, 0.7540, 0.6702)
"""Table 9: the share of its 800,000 rationales that the paper had left after each stage of that pipeline."""


class Filters:
    """The stages by name, on one engine; `texts` is how it writes.

    Attacks are answered at once in `mode` "direct", after an analysis in "reasoned" (`sampling`, `attempts`, `seed`).
    With a `journal` nothing is asked twice.
    """

    def __init__(
        self,
        engine: EngineFace,
        journal: Journal | None = None,
        *,
        mode: Mode = "direct",
        sampling: Sampling = SAMPLING,
        attempts: int = 3,
        seed: int = 0,
    ) -> None:
        self.engine = engine
        self.texts = Texts(engine, sampling, journal, attempts=attempts, seed=seed)
        self.kept = KeptEngine(engine, journal)
        own = sampling if mode == "reasoned" else None
        asked = keeping_analyses(engine, journal, mode)
        self.judge = ContradictionJudge(asked, mode=mode, journal=journal, sampling=own, attempts=attempts, seed=seed)
        self.stages: dict[str, Callable[[Sequence[Rationale]], Iterator[Result]]] = {
            "rule": self.rule,
            "refine": self.refine,
            "attack": self.attack,
            "confidence": self.confidence,
        }

    def evolve(self, rationales: Sequence[Rationale], stages: Sequence[str] = PIPELINE) -> Iterator[Passed[Rationale]]:
        """What each stage makes of what those before it have left, in turn.

        Raises AdjudgeError for an aspect in whose words the model would see more than words: they are not data.
        """
        self._check_aspects(rationales)
        remaining = list(rationales)
        for stage in stages:
            done = passed(stage, remaining, self.stages[stage](remaining))
            remaining = [msgspec.structs.replace(one, passed=(*one.passed, stage)) for one in done.kept]
            yield Passed(stage, remaining, done.dropped)

    def rule(self, rationales: Sequence[Rationale]) -> Iterator[Result]:
        """Keep those whose own scores are the human ones (eq. 3)."""
        for place, (one, written) in enumerate(zip(rationales, written_scores(self.engine, rationales), strict=True)):
            if written is None:
                yield place, Unusable("unparsable")
            elif tuple(score for _, score in written) != one.scores:
                yield place, Unusable("other_scores")
            else:
                yield place, one

    def refine(self, rationales: Sequence[Rationale]) -> Iterator[Result]:
        """Have each written again, better argued, with the same scores (eq. 4); what it was becomes a draft.

        How sure the model was of the scores after that is forgotten with it.
        """
        for place, result in rewritten(rationales, [self._refining(one) for one in rationales], self.texts):
            if isinstance(result, Rationale):
                before = rationales[place]
                drafts = (*before.drafts, before.response)
                result = msgspec.structs.replace(result, drafts=drafts, confidence=None)
            yield place, result

    def attack(self, rationales: Sequence[Rationale]) -> Iterator[Result]:
        """Keep those whose reasoning is found to contradict inverted scores (eq. 5)."""
        attacked: dict[int, Item] = {}
        for place, (one, written) in enumerate(zip(rationales, written_scores(self.engine, rationales), strict=True)):
            if written is None:
                yield place, Unusable("unparsable")
            else:
                attacked[place] = Item(one.question[1], inverted(one))
        for place, verdict in zip(attacked, self.judge.judge_iter(attacked.values()), strict=True):
            if verdict.score is None:
                yield place, Unusable(verdict.abstained or "unparsable")
            else:
                yield place, rationales[place] if verdict.score > 0.5 else Unusable("not_detected")

    def confidence(self, rationales: Sequence[Rationale]) -> Iterator[Result]:
        """Keep those at whose scores' own places the human score is the most probable of "1" to "5" (eq. 6, 13).

        Nothing is generated: the distributions over these labels alone are read, all of a window in one call.
        """
        for start in range(0, len(rationales), WINDOW):
            part = rationales[start : start + WINDOW]
            yield from enumerate(self._confident(part), start)

    def _confident(self, rationales: Sequence[Rationale]) -> list[Rationale | Unusable]:
        wanted, places = questions_of_scores(self.engine, rationales)
        read = dict(self.kept.score_iter(wanted, SCALE))
        results: list[Rationale | Unusable] = []
        for one, own in zip(rationales, places, strict=True):
            scores = [read[place] for place in own]
            reason = next((score.reason for score in scores if score.reason), None)
            if reason or not scores:
                results.append(Unusable(reason or "unparsable"))
            elif any(score.best != human for score, human in zip(scores, one.scores, strict=True)):
                results.append(Unusable("not_confident"))
            else:
                chances = [dict(zip(SCALE.labels, score.probabilities or (), strict=True)) for score in scores]
                sure = tuple(chance[human] for chance, human in zip(chances, one.scores, strict=True))
                results.append(msgspec.structs.replace(one, confidence=sure))
        return results

    def _check_aspects(self, rationales: Sequence[Rationale]) -> None:
        encode = self.engine.tokenizer.encode
        for aspect in {one.aspect for one in rationales}:
            if any(encode(text, True) != encode(text, False) for text in (aspect.name, aspect.definition)):
                raise AdjudgeError(
                    f'the aspect "{aspect.name[:40]}" or its definition holds a special token of {self.engine.name},'
                    " and would stand in the judge's own words: mend the rationales' columns"
                )

    def _refining(self, rationale: Rationale) -> Prompt:
        messages, answer = template.load("refine", folder=FOLDER).render(
            data={"question": rationale.question[1], "response": rationale.response}, scores=rationale.scores
        )
        return self.texts.prompt(messages, answer)


def questions_of_scores(
    engine: EngineFace, rationales: Sequence[Rationale]
) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """The tokens before each written score, question and rationale, and which of them are each rationale's.

    Stories that leave the rationale no room are shortened as the judge would; a rationale without readable scores has
    none.
    """
    wanted: list[tuple[int, ...]] = []
    places: list[list[int]] = []
    for one, written in zip(rationales, written_scores(engine, rationales), strict=True):
        places.append([])
        if written is not None:
            longest = len(written[-1][0])
            [prompt], _ = engine.fit([engine.chat(one.messages)], longest + 16)
            question = engine.tokenizer.prompt(prompt)
            for before, _ in written:
                places[-1].append(len(wanted))
                wanted.append(question + before)
    return wanted, places
