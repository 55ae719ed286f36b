"""The project's own stories, as the house judge's pipeline reads them."""

from __future__ import annotations

from pathlib import Path

from adjudge.training.house.recipe import TextFile
from adjudge.training.house.texts import Story, stories_of

OWN = Path(__file__).parents[3] / "examples" / "house"


def own_stories() -> tuple[Story, ...]:
    """All of them, each once: continued.jsonl has the same stories beside other continuations."""
    return stories_of(
        [TextFile(str(OWN / f"{name}.jsonl")) for name in ("everyday", "retold", "stories", "ordinary", "pages")]
    ).texts
