"""What the tests of trees share: writings to judge, and an engine that writes reviews and weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from adjudge.engine.completion import FinishReason
from adjudge.engine.sampling import Sampling
from adjudge.rewards.judges.tree_nodes import CONTENT, FORMAT, TREE
from adjudge.rewards.records.verdict import Item, Verdict

TINY = "dummy:tiny-llama"
SHORT = Sampling(max_tokens=6, temperature=1.0)
TITLED = "# April\n\nIt rained all day."
ITEM = Item(prompt="Write about April.", response=TITLED, reference="A lamp.", id="1")
ITEMS = [msgspec.structs.replace(ITEM, response=f"{TITLED} {n}", id=str(n)) for n in range(5)]
PATHS = [path for paths in TREE.values() for path in paths]
WEIGHED = dict(zip(CONTENT, (0.1, 0.3, 0.1, 0.4, 0.1), strict=True))
FORMATTED = dict(zip(FORMAT, (0.5, 0.2, 0.3), strict=True))

Written = str | tuple[str, FinishReason]


def weights_text(shown: str) -> str:
    """The weights that the prompt asks for, as JSON."""
    known = WEIGHED | FORMATTED
    return json.dumps({name: known[name] for name in known if f'"{name}"' in shown})


def writer(leaf: Callable[[str], Written], weights: Callable[[str], Written] = weights_text) -> Any:
    return lambda shown, before: weights(shown) if "JSON object" in shown else leaf(shown)


def review(shown: str) -> str:
    return "Not bad. Score: [[2]]"


def scores_of(verdict: Verdict) -> dict[str, float]:
    return {path: verdict.breakdown[path].score or 0.0 for path in PATHS if path in verdict.breakdown}
