"""`PairwiseJudge`: two stories, several aspects, both orders (EvolvR; arXiv 2508.06046), read without generating."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.labels import Labels
from adjudge.engine.prompt import Cut, Prompt
from adjudge.engine.score import Score
from adjudge.engine.tokenizer import well_formed
from adjudge.rewards import template
from adjudge.rewards.aspects import HANNA, Aspect, checked
from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.preference import debiased, log_odds, sigmoid
from adjudge.rewards.verdict import AspectVerdict, Pair, PairVerdict

Orders = Literal["both", "ab"]

SCALE = Labels(("1", "2", "3", "4", "5"), terminator=" </ANSWER>")
"""EvolvR's scale and the mark that ends an answer."""


class Question(msgspec.Struct, frozen=True):
    """One answer slot: the score of the story in place `asked` (0 or 1), shown in `order`, on one aspect."""

    aspect: str
    order: str
    asked: int


class PairwiseJudge:
    """Compares stories aspect by aspect.

    For each aspect and order two sibling questions end at an answer slot, one for each story; neither sees the
    other's answer. `orders` "both" cancels position bias, "ab" shows a first only. A question whose label mass is
    below `min_mass` makes its aspect abstain, and an aspect of weight above 0 that abstains makes the pair abstain.
    Texts too long for the model are shortened alike in all of a pair's questions (`cut`: "middle", "head", "tail"),
    or abstain ("never"). With a `journal`, what was judged before under the same conditions is not judged again.
    """

    def __init__(
        self,
        engine: EngineFace,
        aspects: Sequence[Aspect] = HANNA,
        *,
        orders: Orders = "both",
        min_mass: float = 0.01,
        cut: Cut = "middle",
        journal: Journal | None = None,
    ) -> None:
        if orders not in ("both", "ab"):
            raise AdjudgeError(f'orders is "{orders}": choose both or ab')
        self.engine = engine
        self.aspects = checked(aspects)
        self.orders: tuple[str, ...] = ("ab", "ba") if orders == "both" else ("ab",)
        self.min_mass = min_mass
        self.cut = cut
        self.journal = journal
        self.template = template.load("pairwise")
        self.questions = tuple(
            Question(aspect.name, order, asked) for order, aspect, asked in product(self.orders, self.aspects, (0, 1))
        )

    def compare(self, pairs: Iterable[Pair]) -> list[PairVerdict]:
        """A verdict for every pair, in order."""
        return list(self.compare_iter(pairs))

    def compare_iter(self, pairs: Iterable[Pair], window: int = 16) -> Iterator[PairVerdict]:
        """Verdicts in order as they come, each journaled first; `window` pairs are in the engine at a time."""
        remaining = map(_clean, pairs)
        while chunk := list(islice(remaining, window)):
            keys = [self.key(pair) for pair in chunk]
            known = self._remembered(keys)
            fresh = {key: pair for key, pair in zip(keys, chunk, strict=True) if key not in known}
            judged = self._judge(fresh)
            for key, pair in zip(keys, chunk, strict=True):
                while key not in known:
                    verdict = next(judged)
                    known[verdict.key] = verdict
                yield msgspec.structs.replace(known[key], id=pair.id)
            next(judged, None)  # let the engine's call come to its end

    def key(self, pair: Pair) -> str:
        """The journal's key: everything that decides the verdict."""
        pair = _clean(pair)
        return content_key(
            judge="pairwise",
            model=self.engine.fingerprint,
            adapter=self.engine.adapter,
            dtype=self.engine.dtype,
            template=self.template.hash,
            labels=SCALE,
            aspects=self.aspects,
            orders=self.orders,
            min_mass=self.min_mass,
            truncation=(self.cut, self.engine.max_prompt_tokens),
            sampling=None,
            reference=None,
            prompts=pair.prompts,
            texts=(pair.a, pair.b),
        )

    def prompts(self, pair: Pair) -> tuple[list[Prompt], bool]:
        """The prompt of each of `self.questions`, and whether texts had to be shortened."""
        return self.engine.fit([self._prompt(pair, question) for question in self.questions])

    def _prompt(self, pair: Pair, question: Question) -> Prompt:
        a_first = question.order == "ab"
        first, second = (pair.a, pair.b) if a_first else (pair.b, pair.a)
        prompt_first, prompt_second = pair.prompts if a_first else pair.prompts[::-1]
        same = prompt_first == prompt_second
        aspect = next(aspect for aspect in self.aspects if aspect.name == question.aspect)
        data = {"prompt_1": prompt_first, "story_1": first, "story_2": second}
        if not same:
            data["prompt_2"] = prompt_second
        messages, answer = self.template.render(
            data=data,
            cut=self.cut,
            same_prompt=same,
            aspect=aspect.name,
            definition=aspect.definition,
            asked=question.asked + 1,
        )
        return self.engine.chat(messages, answer)

    def _remembered(self, keys: Sequence[str]) -> dict[str, PairVerdict]:
        if self.journal is None:
            return {}
        return {key: msgspec.json.decode(raw, type=PairVerdict) for key, raw in self.journal.get(keys).items()}

    def _judge(self, pairs: dict[str, Pair]) -> Iterator[PairVerdict]:
        """Verdicts by key, in the order in which the engine completes them."""
        keys = list(pairs)
        prompts: list[Prompt] = []
        truncated: list[bool] = []
        for pair in pairs.values():
            asked, shortened = self.prompts(pair)
            prompts += asked
            truncated.append(shortened)
        scores: dict[int, Score] = {}
        per_pair = len(self.questions)
        for index, score in self.engine.score_iter(prompts, SCALE):
            scores[index] = score
            place = index // per_pair
            indices = range(place * per_pair, (place + 1) * per_pair)
            if all(index in scores for index in indices):
                verdict = self.verdict([scores.pop(index) for index in indices], keys[place], truncated[place])
                if self.journal is not None:
                    self.journal.put(verdict.key, msgspec.json.encode(verdict))
                yield verdict

    def verdict(self, scores: Sequence[Score], key: str = "", truncated: bool = False) -> PairVerdict:
        """The verdict from the scores of `self.questions`, in their order."""
        by_question = dict(zip(self.questions, scores, strict=True))
        aspects: dict[str, AspectVerdict] = {}
        total = weights = 0.0
        abstained = None
        for aspect in self.aspects:
            aspects[aspect.name], preference = self._aspect(aspect.name, by_question)
            if aspect.weight > 0:
                abstained = abstained or aspects[aspect.name].abstained
                total += aspect.weight * preference
                weights += aspect.weight
        return PairVerdict(
            id="",
            preference=None if abstained else sigmoid(total / weights),
            aspects=aspects,
            abstained=abstained,
            truncated=truncated,
            model=self.engine.name,
            key=key,
        )

    def _aspect(self, name: str, scores: dict[Question, Score]) -> tuple[AspectVerdict, float]:
        """One aspect's verdict, and the log-odds that a is better (0 where it abstains)."""
        asked = [scores[Question(name, order, place)] for order in self.orders for place in (0, 1)]
        masses = [score.mass for score in asked if score.mass is not None]
        mass = min(masses, default=None)
        reason = next((score.reason for score in asked if score.reason), None)
        if reason is None and mass is not None and mass < self.min_mass:
            reason = "low_mass"
        if reason:
            return AspectVerdict(None, None, None, None, mass, abstained=reason), 0.0
        distributions = [score.probabilities or () for score in asked]
        values = SCALE.numbers
        assert values is not None
        if len(self.orders) == 2:
            first_ab, second_ab, first_ba, second_ba = distributions
            better, bias = debiased(log_odds(first_ab, second_ab, values), log_odds(first_ba, second_ba, values))
            a, b = _mean(first_ab, second_ba), _mean(second_ab, first_ba)
        else:
            a, b = distributions
            better, bias = log_odds(a, b, values), None
        score_a, score_b = (sum(p * v for p, v in zip(story, values, strict=True)) for story in (a, b))
        return AspectVerdict(score_a, score_b, sigmoid(better), bias, mass, a, b), better


def _mean(left: Sequence[float], right: Sequence[float]) -> tuple[float, ...]:
    return tuple((x + y) / 2 for x, y in zip(left, right, strict=True))


def _clean(pair: Pair) -> Pair:
    """The pair with its texts made encodable; policies write lone surrogates too."""
    texts = {name: well_formed(text) for name, text in msgspec.structs.asdict(pair).items() if text is not None}
    return msgspec.structs.replace(pair, **texts)
