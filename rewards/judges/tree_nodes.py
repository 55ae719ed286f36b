"""The tree of Tree of Writing: its nodes and leaves, which of them apply, and how scores go up to the root."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from numbers import Real
from typing import Literal, get_args

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.labels import Labels
from adjudge.rewards.records.verdict import WritingTask

Form = Literal["fixed", "parity"]
Edges = Mapping[str, float]
"""The weight of each leaf's edge to its node, by the leaf's path."""

CONTENT = ("opening & ending", "language & rhetoric", "instances", "argument & logic", "emotion")
FORMAT = ("plots & structure", "formatting", "paragraphing")
TREE: dict[str, tuple[str, ...]] = {
    "content": tuple(f"content/{leaf}" for leaf in CONTENT),
    "format": tuple(f"format/{leaf}" for leaf in FORMAT),
    "impression": ("impression",),
}
"""The leaves of each node below the root, by their paths; impression is a leaf itself."""

BY_RULE = "format/formatting"
"""The leaf that no model is asked about."""
IMPUTED = "content/instances"
"""The leaf that the authors' weight prompt does not name."""
MISSING = 5.0
"""What the authors take for a score that is missing."""
LEAST_SUM = 0.1
"""What weights must sum to at least, as a share of the sum of their sizes: below it the score would be noise."""

SCALE = Labels(tuple(map(str, range(1, 11))))
"""1 to 10. "1" counts where no "0" follows: to ask for the closing marks after it, and it alone, would make "1" rarer
by the chance that the model leaves them out."""
PARAGRAPHING = Labels(("1", "2", "3"), values=(0.0, 5.0, 10.0))
"""y = 5(x - 1)."""

FICTION = ("fiction", "story", "novel", "小说", "故事", "童话")
POETRY = ("poetry", "poem", "诗", "诗歌", "现代诗", "古诗", "散文诗")
NOT_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(FICTION, ("content/instances",)),
    **dict.fromkeys(POETRY, ("content/instances", "format/formatting")),
}
"""Leaves that make no sense for a genre (ours; the paper publishes none): instances are evidence from the real world,
which invented worlds and poems do not argue from, and a poem's lines are neither headings nor lists."""


def labels_of(leaf: str) -> Labels:
    """What a leaf may be scored."""
    return PARAGRAPHING if leaf == "format/paragraphing" else SCALE


def leaf_name(path: str) -> str:
    """A leaf's own name."""
    return path.rpartition("/")[2]


def checked_without(without: Iterable[str]) -> frozenset[str]:
    """The paths of the leaves to leave out, given by node, name or path; raises AdjudgeError."""
    if isinstance(without, str):
        raise AdjudgeError(f'without is the string "{without}": give a list of names')
    everything = [path for paths in TREE.values() for path in paths]
    gone: set[str] = set()
    for name in without:
        found = TREE.get(name) or [path for path in everything if name in (path, leaf_name(path))]
        if not found:
            known = ", ".join(dict.fromkeys([*TREE, *map(leaf_name, everything)]))
            raise AdjudgeError(f'the tree has no "{name}" to leave out: choose from {known}')
        gone.update(found)
    if gone == set(everything):
        raise AdjudgeError("nothing of the tree is left: leave out less of it")
    return frozenset(gone)


def applying(
    task: str | None, genre: str | None, without: frozenset[str] = frozenset(), form: Form = "fixed"
) -> dict[str, tuple[str, ...]]:
    """The nodes that apply, each with its leaves that do: a completion has no format, and in "fixed" see `NOT_FOR`."""
    if task is not None and task not in get_args(WritingTask):
        raise AdjudgeError(f'the task of a text is "{task[:40]}": choose {", ".join(get_args(WritingTask))}, or None')
    gone = set(without) | (set(TREE["format"]) if task == "completion" else set())
    if form == "fixed":
        gone |= set(NOT_FOR.get(_plain(genre), ()))
    left = {node: tuple(path for path in paths if path not in gone) for node, paths in TREE.items()}
    return {node: paths for node, paths in left.items() if paths}


def is_fiction(genre: str | None) -> bool:
    """Whether texts of that genre tell what was invented."""
    return _plain(genre) in FICTION


def _plain(genre: str | None) -> str:
    return (genre or "").strip().casefold()


def counts(tree: Mapping[str, Sequence[str]], form: Form) -> dict[str, float]:
    """How much each node counts at the root: by its leaves, which in "parity" are always 5, 3 and 1; their sum is 1."""
    numbers = {node: len(paths) for node, paths in (TREE if form == "parity" else tree).items()}
    return {node: numbers[node] / sum(numbers[other] for other in tree) for node in tree}


def equal_edges(paths: Sequence[str]) -> dict[str, float]:
    """The same weight for each leaf of a node."""
    return {path: 1 / len(paths) for path in paths}


def rescaled(weights: Edges, paths: Sequence[str]) -> dict[str, float] | None:
    """The weights of those leaves made to sum to 1; None where their sum is too near 0, or below it."""
    total = math.fsum(weights[path] for path in paths)
    if not total >= LEAST_SUM * math.fsum(abs(weights[path]) for path in paths) or not total:
        return None
    return {path: weights[path] / total for path in paths}


def imputed(weights: Edges) -> dict[str, float]:
    """Four content weights and the fifth that the authors' prompt does not name: 1 minus their sum."""
    return {path: 1 - math.fsum(weights.values()) if path == IMPUTED else weights[path] for path in TREE["content"]}


def checked_weights(weights: Mapping[str, float], without: frozenset[str]) -> dict[str, float]:
    """A user's weights by path, for leaves given by name or path.

    Of each node all leaves are to be given, or none (those weigh the same). Raises AdjudgeError for a leaf that is not
    there, missing or doubled, for what is no number, and for weights that sum to nothing, also among the leaves that
    are left for a genre: see `LEAST_SUM`.
    """
    if not isinstance(weights, Mapping):
        raise AdjudgeError(f"weights is {shown(weights)}: choose equal or generated, or give a number for each leaf")
    paths = {name: path for paths in TREE.values() for path in paths for name in (path, leaf_name(path))}
    known: dict[str, float] = {}
    for name, weight in weights.items():
        if name not in paths or paths[name] == "impression":
            names = ", ".join((*CONTENT, *FORMAT))
            raise AdjudgeError(f'weights name "{name}", which is no leaf: choose from {names}')
        if not is_number(weight, Real):
            raise AdjudgeError(f'the weight of "{name}" is {shown(weight)}: give a number')
        if paths[name] in known:
            raise AdjudgeError(f'weights give "{name}" twice: leave one out')
        known[paths[name]] = float(weight)
    for node, leaves in TREE.items():
        wanted = [path for path in leaves if path not in without]
        if any(path in known for path in wanted) and (absent := [path for path in wanted if path not in known]):
            raise AdjudgeError(f'the weights of {node} lack "{leaf_name(absent[0])}": give all of its leaves, or none')
    for genre, form in product(("", *NOT_FOR), ("fixed", "parity")):
        for node, some in applying(None, genre, without, form).items():  # type: ignore[arg-type]
            if some[0] in known and rescaled(known, some) is None:
                names = ", ".join(f"{leaf_name(path)} {known[path]:g}" for path in some)
                raise AdjudgeError(
                    f"the weights of {node} sum to nothing, or nearly ({names}): give some whose sum is at least"
                    f" {LEAST_SUM} of the sum of their sizes"
                )
    return known


def parse_weights(text: str, without: frozenset[str] = frozenset()) -> Literal["equal", "generated"] | dict[str, float]:
    """Weights from the command line: a word, or `leaf=number` after commas; raises AdjudgeError."""
    if text in ("equal", "generated"):
        return text  # type: ignore[return-value]
    given: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = map(str.strip, part.rpartition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not name or not math.isfinite(weight):
            raise AdjudgeError(f'weights hold "{part[:60]}": write equal, generated, or leaf=number after commas')
        if name in given:
            raise AdjudgeError(f'weights give "{name}" twice: leave one out')
        given[name] = weight
    if not given:
        raise AdjudgeError("weights are empty: write equal, generated, or leaf=number after commas")
    return checked_weights(given, without)


def node_score(paths: Sequence[str], scores: Mapping[str, float], edges: Edges) -> float:
    """Score(V), the sum of its leaves' scores by their weights; outside 1..10 only where some weigh less than 0."""
    return math.fsum(edges[path] * scores[path] for path in paths)


def root_score(nodes: Mapping[str, float], shares: Mapping[str, float]) -> float:
    """Score(R), the mean of the nodes' by `counts`."""
    return math.fsum(shares[node] * score for node, score in nodes.items())
