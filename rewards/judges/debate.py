"""`DebateJudge`: is a text good? Agents argue both sides, one rules, one reviews (Igniting, 3.1; arXiv 2508.21476)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, Unpack

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.score import PASSING
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges.asking import SAMPLING, Answer, Question, checked_sampling
from adjudge.rewards.judges.judge import How, PromptedJudge
from adjudge.rewards.judges.principle import GOOD
from adjudge.rewards.judges.retrieval import EngineEmbedder, Index, Retrieved
from adjudge.rewards.judges.statements import Statement, Statements
from adjudge.rewards.records.verdict import Example, Item, Part, Verdict, abstention, weighted_mean

Agent = Literal["retrieval", "positive", "negative", "judge", "reflect"]

AGENTS: tuple[Agent, ...] = ("retrieval", "positive", "negative", "judge", "reflect")
SIDES: tuple[Agent, ...] = ("positive", "negative")

ROUNDS = 2
"""A debate, and one more where the first one's ruling is in doubt."""

_WRITTEN = re.compile(r"(?:(?!<answer>).)*<answer>[\s*]*([01])[\s*]*</answer>\W*", re.IGNORECASE | re.DOTALL)
"""An analysis that ends in its one ruling."""


class DebateJudge(PromptedJudge[Item, Verdict]):
    """Judges whether texts are good in a debate of agents; the score is P(1), the paper's 0 or 1 whether it is > 0.5.

    Retrieval finds the `k` of `examples` (an `Index`, or good texts to be embedded by the engine itself) with the
    nearest prompts. The positive agent writes merits, the negative one flaws. The judge rules: its P(1) is read at its
    own answer slot. The reflect agent reads everything and rules again: where it agrees, the judge's score stands;
    where it gives the other ruling at least probability `override`, its own counts; between, the debate is held once
    more, after which a doubt changes nothing. (k and `override` are ours.) `without` names agents to leave out.

    In the verdict's breakdown the parts `judge` and `reflect` (`judge again` and `reflect again` of a second debate)
    have the scores, weight 1 on the one that decided; `analysis` has each agent's texts. A part `retrieval` of weight 0
    notes a prompt that could not be embedded; an agent that abstains makes the verdict abstain. In the paper's layout
    judge and reflect do not see the examples.

    `how` is that of `PromptedJudge`, but that `sampling`, `attempts` and `seed` are the arguing agents' in either mode;
    in "reasoned" judge and reflect write their reasons before they rule. Raises AdjudgeError for options that make no
    sense, and for examples to be embedded by an engine that hands out no hidden states.
    """

    kind = "debate"
    range = (0.0, 1.0)
    verdict_type = Verdict

    def __init__(
        self,
        engine: EngineFace,
        examples: Index | Sequence[Example] | None = None,
        *,
        k: int = 3,
        without: Sequence[str] = (),
        override: float = 0.75,
        **how: Unpack[How],
    ) -> None:
        sampling = checked_sampling(how.get("sampling")) or SAMPLING
        if how.get("mode", "direct") == "direct":
            how["sampling"] = None  # nobody but the arguing agents writes
        super().__init__(engine, **how)
        self.statements = Statements(engine, sampling, attempts=how.get("attempts", 3), seed=how.get("seed", 0))
        self.agents = agents_without(without)
        if not (is_number(k, Integral) and k >= 1):
            raise AdjudgeError(f'k is {shown(k)}: give at least 1, or leave out "retrieval"')
        if not (is_number(override, Real) and 0.5 <= override <= 1):
            raise AdjudgeError(f"override is {shown(override)}: give a probability from 0.5 to 1")
        self.k, self.override = k, override
        if "retrieval" not in self.agents or not examples:
            self.index = None
        elif isinstance(examples, Index):
            self.index = examples
        else:
            self.index = Index(examples, EngineEmbedder(engine, self.language))

    def _content(self, item: Item) -> dict[str, Any]:
        return {
            "labels": GOOD,
            "agents": self.agents,
            "examples": None if self.index is None else (self.index.content, self.k),
            "statements": self.statements.content,
            "override": self.override,
            "prompt": item.prompt,
            "response": item.response,
        }

    def judge_iter(self, subjects: Iterable[Item], window: int = 32) -> Iterator[Verdict]:
        """The same, fewer at a time: no debate is over, and kept, before all of its window have been argued."""
        return super().judge_iter(subjects, window)

    def _judge(self, subjects: Mapping[str, Item]) -> Iterator[Verdict]:
        debates = self._open(subjects)
        steps = [(step, held) for held in range(ROUNDS) for step in (self._argue, self._rule, self._reflect)]
        for step, held in steps:
            for key in step(debates, held) if debates else ():
                yield debates.pop(key).verdict(self.engine.name, key)

    def _open(self, subjects: Mapping[str, Item]) -> dict[str, _Debate]:
        items = list(subjects.values())
        found: Sequence[Retrieved] = [Retrieved()] * len(items)
        if self.index is not None and items:
            found = self.index.nearest([item.prompt for item in items], [item.response for item in items], self.k)
        return {key: _Debate(item, one) for (key, item), one in zip(subjects.items(), found, strict=True)}

    def _argue(self, debates: Mapping[str, _Debate], held: int) -> Iterator[str]:
        """Both sides of every debate at once; yields those that end here, for want of a statement."""
        prompts: dict[tuple[str, Agent], Prompt] = {}
        sides = [side for side in SIDES if side in self.agents]
        for key, debate in debates.items():
            worded = [self._prompt(debate.shown, agent=side) for side in sides]
            fitted, shortened = self.engine.fit(worded, self.statements.reserve)
            prompts |= {(key, side): prompt for side, prompt in zip(sides, fitted, strict=True)}
            debate.truncated |= shortened
        said = dict(self.statements.write(prompts, sample=held))
        for key, side in prompts:  # in order, whichever was written first
            debates[key].hear(side, said[key, side])
        yield from [key for key, debate in debates.items() if abstention(debate.parts)]

    def _rule(self, debates: Mapping[str, _Debate], held: int) -> Iterator[str]:
        """The judge's ruling in every debate; the last word without a reflect agent."""
        if "judge" not in self.agents:
            return
        for key, answer in self._ask("judge", debates, held):
            part = self._part(answer, weight=0.0)
            if debates[key].rule("judge", held, part, answer, decides="reflect" not in self.agents):
                yield key

    def _reflect(self, debates: Mapping[str, _Debate], held: int) -> Iterator[str]:
        """The review of every ruling; yields the debates that it ends."""
        if "reflect" not in self.agents:
            return
        for key, answer in self._ask("reflect", debates, held):
            debate, part = debates[key], self._part(answer, weight=0.0)
            against = debate.against(part)
            overrides = against is None or against >= self.override
            if debate.rule("reflect", held, part, answer, decides=overrides):
                yield key
            elif against is not None and (against <= 0.5 or held == ROUNDS - 1):
                debate.ratify()
                yield key

    def _ask(self, agent: Agent, debates: Mapping[str, _Debate], held: int) -> Iterator[tuple[str, Answer]]:
        questions: dict[str, list[Question]] = {}
        for key, debate in debates.items():
            worded = self._prompt(debate.shown, agent=agent, initial=debate.initial, again=held > 0)
            fitted, shortened = self.engine.fit([worded], self.asking.reserve)
            questions[key] = [Question(agent, fitted[0], GOOD)]
            debate.truncated |= shortened
        for key, answers in self.asking.ask(questions):
            yield key, answers[agent]


class _Debate:
    """A debate about one item, as far as it has come."""

    def __init__(self, item: Item, found: Retrieved) -> None:
        self.truncated = False
        self.parts: dict[str, Part] = {}
        self.shown = {"prompt": item.prompt, "text": item.response}  # by the names of the prompt file
        self._analysis: dict[str, tuple[str, ...]] = {}
        self._judge = ""  # the name of the judge's latest part
        if found.reason is not None:
            weight = 1.0 if found.reason in PASSING else 0.0
            self.parts["retrieval"] = Part(None, weight, abstained=found.reason)
        if found.examples:
            numbered = (f"{number}. {one.prompt}\n{one.response}" for number, one in enumerate(found.examples, 1))
            listed = "\n\n".join(numbered)
            self._say("retrieval", "examples", listed, shown=listed)

    @property
    def initial(self) -> str | None:
        """The judge's ruling, where there is one: the more probable label, 0 where they are even."""
        return _ruling(self.parts[self._judge]) if self._judge else None

    def hear(self, side: Agent, statement: Statement) -> None:
        """An arguing agent's statement, or that it has none."""
        self._say(side, side, statement.text, shown=statement.shown)
        if statement.abstained:
            self.parts[side] = Part(None, abstained=statement.abstained)

    def rule(self, agent: Agent, held: int, part: Part, answer: Answer, *, decides: bool) -> bool:
        """A ruling of judge or reflect; returns whether it ends the debate, as it does where it abstains."""
        name = agent if held == 0 else f"{agent} again"
        ends = decides or part.abstained is not None
        self.parts[name] = msgspec.structs.replace(part, weight=1.0 if ends else 0.0)
        if answer.analyses:
            shown = _reasons(answer.analyses, _ruling(part))
            self._say(agent, "reasons" if agent == "judge" else "doubts", *answer.analyses, shown=shown)
        if agent == "judge":
            self._judge = name
        return ends

    def against(self, review: Part) -> float | None:
        """The probability a review gives to another ruling than the judge's; None where one of them has none."""
        if self.initial is None or review.score is None:
            return None
        return 1 - review.score if self.initial == "1" else review.score

    def ratify(self) -> None:
        """Let the judge's latest ruling decide."""
        self.parts[self._judge] = msgspec.structs.replace(self.parts[self._judge], weight=1.0)

    def verdict(self, model: str, key: str) -> Verdict:
        """What the debate has come to."""
        score, why = weighted_mean(self.parts), abstention(self.parts)
        return Verdict("", score, self.parts, why, self.truncated, model, key, self._analysis or None)

    def _say(self, agent: Agent, shown_as: str, *texts: str, shown: str) -> None:
        self._analysis[agent] = (*self._analysis.get(agent, ()), *texts)
        self.shown[shown_as] = shown


def _ruling(part: Part) -> str:
    """The more probable label, 0 where they are even."""
    return str(int((part.score or 0.0) > 0.5))


def _reasons(analyses: Sequence[str], ruling: str) -> str:
    """The first of several analyses that wrote that ruling: another one's reasons would speak for the other ruling."""
    written = ((text, _WRITTEN.fullmatch(text)) for text in analyses)
    return next((text for text, found in written if found and found[1] == ruling), analyses[0])


def agents_without(names: Sequence[str]) -> tuple[Agent, ...]:
    """The agents of a debate without those named; raises AdjudgeError for an unknown name, and if nobody would rule."""
    if unknown := [name for name in names if name not in AGENTS]:
        raise AdjudgeError(f'no agent "{unknown[0]}" to leave out: choose from {", ".join(AGENTS)}')
    agents = tuple(agent for agent in AGENTS if agent not in names)
    if "judge" not in agents and "reflect" not in agents:
        raise AdjudgeError("without judge and reflect nobody rules: leave out one of them")
    return agents
