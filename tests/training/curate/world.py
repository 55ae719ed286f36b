"""A world of texts whose flaws stand in them, a judge who sees those it has a principle for, and agents who learn."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from adjudge.engine.completion import Completion
from adjudge.engine.engine import Engine
from adjudge.engine.face import AnyPrompt
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.principle import PrincipleJudge
from adjudge.rewards.records.verdict import Item
from adjudge.training.curate.agents import Agents
from adjudge.training.curate.labelled import Division, Labelled, divide
from adjudge.training.curate.search import Plan, Search
from tests.rewards.debating import score_of
from tests.rewards.scripted import Script, ScriptedEngine

SHORT = Sampling(max_tokens=64, temperature=1.0)
START, STRATEGY = ("Be kind.",), "Write plain texts."

TASKS = {
    "write": "Write a text that answers a request",
    "outwit": "This strategy has been followed",
    "reflect": "Find the cause",
    "revise": "Change the list so that",
}
FLAWS = ("plain", "sly", "dull")


def agent_of(shown: str) -> str:
    """Which agent a prompt is for; "judge" for none of them."""
    found = [agent for agent, task in TASKS.items() if task in shown]
    return found[0] if found else "judge"


def act(shown: str, before: int) -> str:
    """Each agent at its best: the writer goes from plain to sly, the reviser has a principle against every flaw."""
    agent = agent_of(shown)
    if agent == "write":
        [flaw] = re.findall(r"Write (plain|sly) texts", shown)
        [name] = re.findall(r"prompt-\d+", shown)
        return json.dumps({"text": f"a {flaw} text to {name}", "flaw": f"it is {flaw}"})
    if agent == "outwit":
        return json.dumps({"strategy": "Write sly texts."})
    if agent == "reflect":
        return json.dumps({"cause": "No principle asks.", "advice": "See dullness."})
    known = re.findall(r"^\d+\. ([^\[\n]*)$", shown.split("[Principles end]")[0], re.MULTILINE)
    new = [f"No {flaw} texts." for flaw in FLAWS if f"a {flaw} text" in shown]
    return json.dumps({"principles": [*known, *(one for one in new if one not in known)]})


def judge(shown: str, _: Labels) -> Score:
    """A text is bad where a principle names its flaw."""
    seen = any(f"a {flaw} text" in shown and f"No {flaw} texts" in shown for flaw in FLAWS)
    return score_of(None if "a dumb text" in shown else 0.1 if seen else 0.9)


class World(ScriptedEngine):
    """`done` counts the agents' texts."""

    def __init__(self, engine: Engine, script: Script = act) -> None:
        super().__init__(engine, script, judge)

    @property
    def done(self) -> dict[str, int]:
        return dict(Counter(map(agent_of, self.asked)))

    def generate_iter(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        seeds: Sequence[int] | None = None,
        **how: Any,
    ) -> Iterator[tuple[int, Completion]]:
        """One text at a time: what went out before a kill has been kept."""
        for place, (prompt, seed) in enumerate(zip(prompts, seeds or (), strict=True)):
            yield from ((place, text) for _, text in super().generate_iter([prompt], sampling, seeds=[seed], **how))


def labelled(count: int = 20, flaw: str = "dull") -> list[Labelled]:
    """Texts to as many prompts, every second one good."""
    return [
        Labelled(Item(f"prompt-{n}", f"a {'fine' if n % 2 else flaw} text, number {n}", id=str(n)), n % 2 == 1)
        for n in range(count)
    ]


def division() -> Division:
    return divide(labelled(), 0.4, 0)


def search_of(engine: World, journal: Journal | None = None, attempts: int = 2, **plan: Any) -> Search:
    agents = Agents(engine, journal, sampling=SHORT, attempts=attempts, shown=3, most=4)
    return Search(
        lambda principles: PrincipleJudge(engine, principles, min_mass=0.0, journal=journal),
        agents,
        division(),
        Plan(**{"rounds": 3, "written": 4, "looked_at": 6, **plan}),
    )
