"""`ScalarJudge`: a reward model with a Bradley–Terry head, trained on which of two responses people preferred."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import tee
from typing import ClassVar

from adjudge.engine.face import EngineFace, checked_engine
from adjudge.engine.text.prompt import Cut, Message, Prompt, Segment, checked_cut
from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.judges.judge import WINDOW, Judge, clean
from adjudge.rewards.judges.preference import sigmoid
from adjudge.rewards.records.verdict import AspectVerdict, Item, Pair, PairVerdict, Part, Verdict, each_of

PART = "reward"
"""The one part of a verdict."""


class ScalarJudge(Judge[Item, Verdict]):
    """Scores a response by the reward that the engine's model was trained to give it: a logit, without bounds.

    The model reads the prompt as the user's turn and the response as the assistant's, in its own chat template; the
    reward is its head's value on the hidden state of the last token, as transformers' sequence classifiers compute it.
    Only differences of rewards on one prompt have a meaning (Bradley & Terry, 1952). Nothing is asked, so there is no
    label mass. The head may be here or on a server, which reads its own last token. Texts too long for the model are
    shortened alike (`cut`: "middle", "head", "tail"), or abstain ("never"). With a `journal`, what was judged before
    under the same conditions is not judged again. Raises AdjudgeError for an engine whose model is no reward model or
    has no chat template.
    """

    kind: ClassVar[str] = "scalar"
    verdict_type = Verdict
    range = (-math.inf, math.inf)

    def __init__(self, engine: EngineFace, *, cut: Cut = "middle", journal: Journal | None = None) -> None:
        super().__init__(journal)
        self.engine = checked_engine(engine)
        self.cut = checked_cut(cut)
        engine.require_rewards()
        self.prompt(Item(prompt="", response=""))  # a template that does not serve is refused here, not in a run

    def key(self, item: Item) -> str:
        """The journal's key: everything that decides the verdict. The model's fingerprint covers its head."""
        item = clean(item)
        return content_key(
            judge="scalar",
            **self.engine.content,
            truncation=(self.cut, self.engine.max_prompt_tokens),
            prompt=item.prompt,
            response=item.response,
        )

    def prompt(self, item: Item) -> tuple[Prompt, bool]:
        """What the model reads, shortened to fit, and whether it had to be."""
        turns = [
            Message("user", Prompt((Segment(item.prompt, cut=self.cut),))),
            Message("assistant", Prompt((Segment(item.response, cut=self.cut),))),
        ]
        [prompt], shortened = self.engine.fit([self.engine.transcript(turns)], reserve=0)
        return prompt, shortened

    def compare(self, pairs: Iterable[Pair]) -> list[PairVerdict]:
        """A verdict for every pair, in order."""
        return list(self.compare_iter(pairs))

    def compare_iter(self, pairs: Iterable[Pair], window: int = WINDOW) -> Iterator[PairVerdict]:
        """Verdicts in order as they come: a is better with probability σ(reward of a − reward of b).

        A response is judged without its rival, so there is no position bias to report. The journal holds responses, not
        pairs: one that was compared before is not judged again.
        """
        pairs, again = tee(each_of(pairs, Pair))
        texts = ((prompt, text) for pair in pairs for prompt, text in zip(pair.prompts, (pair.a, pair.b), strict=True))
        verdicts = self.judge_iter((Item(prompt, text) for prompt, text in texts), 2 * window)
        for pair in again:
            yield _compared(pair, next(verdicts), next(verdicts))

    def _judge(self, subjects: Mapping[str, Item]) -> Iterator[Verdict]:
        keys = list(subjects)
        read = [self.prompt(item) for item in subjects.values()]
        for place, reward in self.engine.reward_iter([prompt for prompt, _ in read]):
            part = Part(reward.value, abstained=reward.reason)
            yield Verdict(
                id="",
                score=part.score,
                breakdown={PART: part},
                abstained=part.abstained,
                truncated=read[place][1],
                model=self.engine.name,
                key=keys[place],
            )


def _compared(pair: Pair, a: Verdict, b: Verdict) -> PairVerdict:
    reason = a.abstained or b.abstained
    preference = None if a.score is None or b.score is None else sigmoid(a.score - b.score)
    scores = (a.score, b.score) if preference is not None else (None, None)
    return PairVerdict(
        id=pair.id,
        preference=preference,
        aspects={PART: AspectVerdict(*scores, preference, bias=None, mass=None, abstained=reason)},
        abstained=reason,
        truncated=a.truncated or b.truncated,
        model=a.model,
        key=content_key(judge="scalar", a=a.key, b=b.key),
        adapter=a.adapter,
    )
