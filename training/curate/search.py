"""Principles sharpened against a writer of bad texts, with reflection on labelled ones (Igniting, 3.2 and A.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from adjudge.engine.checking import at_least
from adjudge.rewards.judges.principle import PrincipleJudge
from adjudge.rewards.records.verdict import Item, Verdict
from adjudge.training.chosen import chosen
from adjudge.training.curate.agents import Agents, Case
from adjudge.training.curate.label_agreement import LabelAgreement, compare_labels
from adjudge.training.curate.labelled import Division
from adjudge.training.stages import Drop, Unusable, passed

OpenJudge = Callable[[Sequence[str]], PrincipleJudge]
"""The judge that goes by some principles."""


class Plan(msgspec.Struct, frozen=True):
    """How long is searched (all numbers are ours; the paper gives none).

    In each of `rounds` rounds `written` bad texts are written and, with `reflect`, `looked_at` labelled texts judged.
    Raises AdjudgeError for numbers below 1.
    """

    rounds: int = 10
    written: int = 8
    looked_at: int = 32
    reflect: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(1, rounds=self.rounds, written=self.written, looked_at=self.looked_at)


class Round(msgspec.Struct, frozen=True):
    """A round as it was left: the writer's strategy for the next one, the principles, and what happened.

    Of the `written` bad texts `caught` were judged not good and `missed` good; of the `looked_at` labelled texts
    `wrong` were judged otherwise than labelled. `held_out` is how the principles do on the texts held out; round 0 is
    the state before the first. `dropped` counts what agents wrote to no use and judgements that abstained, by stage and
    reason.
    """

    number: int
    strategy: str
    principles: tuple[str, ...]
    held_out: LabelAgreement
    written: int = 0
    caught: int = 0
    missed: int = 0
    looked_at: int = 0
    wrong: int = 0
    dropped: dict[str, int] = {}

    @property
    def hits(self) -> float:
        """The share of the texts held out that are judged as labelled; an abstention is no hit."""
        agreement = self.held_out
        return (agreement.true_good + agreement.true_bad) / (agreement.judged + agreement.abstained)

    @property
    def record(self) -> dict[str, Any]:
        """As it is written, with the measures by their names."""
        names = ("accuracy", "precision", "recall", "f1")
        measures = {name: getattr(self.held_out, name) for name in names}
        return {**msgspec.to_builtins(self), **measures, "hits": self.hits}


def checked_reflection(without: str | None) -> bool:
    """Whether there is reflection, from the agents to leave out; raises AdjudgeError for any other name."""
    return not chosen(without or "", ("reflect",), "agent to leave out of the search", least=0)


def best(rounds: Sequence[Round]) -> Round:
    """The round whose principles hit most of the texts held out; of equal ones the first."""
    return max(rounds, key=lambda one: one.hits)


class Search:
    """A search for principles by `open_judge`, with the `agents`, on divided labelled texts.

    A round: the writer, by its strategy, writes bad texts; the judge, by its principles, judges them. From those it
    misses the principles are revised, the flaws that the writer gave them being its feedback; from those it catches the
    writer's strategy is. Then (`plan.reflect`) labelled texts are judged by the new principles: what is wrong is
    reflected on one by one, and the principles are revised again by the advice. The paper does this text by text, here
    a round takes several at once. A revision that is unusable leaves things as they are.

    The held-out figures choose among the rounds, so that the chosen one's flatters it: measure on other texts. The
    written texts count as bad because they were meant to be; that one of them is good after all only reflection can
    tell. Given equal answers of the engine, equal seeds give equal rounds. `dropped` lists what came to no use.
    """

    def __init__(self, open_judge: OpenJudge, agents: Agents, division: Division, plan: Plan) -> None:
        self.open_judge, self.agents, self.division, self.plan = open_judge, agents, division, plan
        self.dropped: list[Drop] = []

    def rounds(self, principles: Sequence[str], strategy: str) -> Iterator[Round]:
        """Round 0, the state before, and then round after round."""
        state = Round(0, strategy, tuple(principles), self._held_out(principles), dropped=self._dropped(0))
        yield state
        for number in range(1, self.plan.rounds + 1):
            state = self._round(number, state)
            yield state

    def _round(self, number: int, before: Round) -> Round:
        done = len(self.dropped)
        principles, strategy = before.principles, before.strategy
        bad = self._judged(f"round {number}: bad texts", self._write(number, strategy), principles)
        caught, missed = _parted(bad)
        if missed:
            principles = self._kept("revise", self.agents.revise(principles, missed), principles, number)
        if caught:
            strategy = self._kept("outwit", self.agents.outwit(strategy, caught), strategy, number)
        real: list[Case] = []
        wrong: list[Case] = []
        if self.plan.reflect:
            texts = self.division.some_texts(self.plan.looked_at, self.plan.seed, number)
            cases = [Case(one.item.prompt, one.item.response, said=one.good, truth=one.good) for one in texts]
            real = self._judged(f"round {number}: labelled texts", cases, principles)
            wrong = _parted(real)[1]
            reflected = passed("reflect", wrong, self.agents.reflect(principles, wrong))
            self.dropped += reflected.dropped
            if reflected.kept:
                revised = self.agents.revise(principles, reflected.kept)
                principles = self._kept("revise", revised, principles, number)
        return Round(
            number,
            strategy,
            principles,
            self._held_out(principles),
            written=len(bad),
            caught=len(caught),
            missed=len(missed),
            looked_at=len(real),
            wrong=len(wrong),
            dropped=self._dropped(done),
        )

    def _dropped(self, before: int) -> dict[str, int]:
        """What was dropped since there were so many."""
        return dict(Counter(f"{drop.stage}: {drop.reason}" for drop in self.dropped[before:]))

    def _write(self, number: int, strategy: str) -> list[Case]:
        """Bad texts to some prompts."""
        prompts = self.division.some_prompts(self.plan.written, self.plan.seed, number)
        rows = [{"round": number, "prompt": prompt} for prompt in prompts]
        written = passed("write", rows, self.agents.write(prompts, strategy, number))
        self.dropped += written.dropped
        return written.kept

    def _judged(self, stage: str, cases: Sequence[Case], principles: Sequence[str]) -> list[Case]:
        """The cases with what the judge said of them."""
        verdicts = self.open_judge(principles).judge_iter(Item(case.prompt, case.text) for case in cases)
        judged = passed(stage, cases, enumerate(map(_said, cases, verdicts)))
        self.dropped += [Drop("judge", drop.reason, drop.row) for drop in judged.dropped]
        return judged.kept

    def _held_out(self, principles: Sequence[str]) -> LabelAgreement:
        texts = self.division.held_out
        verdicts = self.open_judge(principles).judge(one.item for one in texts)
        self.dropped += [
            Drop("held out", verdict.abstained, {"prompt": one.item.prompt, "response": one.item.response})
            for one, verdict in zip(texts, verdicts, strict=True)
            if verdict.abstained is not None
        ]
        return compare_labels(verdicts, [one.good for one in texts])

    def _kept(self, stage: str, found: Any, before: Any, number: int) -> Any:
        """What an agent came to, or what was there before."""
        if isinstance(found, Unusable):
            self.dropped.append(Drop(stage, found.reason, {"round": number}))
            return before
        return found


def _said(case: Case, verdict: Verdict) -> Case | Unusable:
    if verdict.score is None:
        return Unusable(verdict.abstained or "unparsable")
    reasons = (verdict.analysis or {}).get("judge", ("",))[0]
    return msgspec.structs.replace(case, said=verdict.score > 0.5, reasons=reasons)


def _parted(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Those judged rightly, and those that were not."""
    return [case for case in cases if case.said == case.truth], [case for case in cases if case.said != case.truth]
