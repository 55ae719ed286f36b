"""The analyses of Tree of Writing on a tree judge's verdicts: lengths, disturbances, weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from adjudge.bench.tree.figures import FLUCTUATION, NODES, TABLE_6, TABLE_7
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.tree_nodes import Form
from adjudge.rewards.judges.tree_weights import Weights, Wish
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Verdict

PARTS = ("overall", *NODES)


class Cell(msgspec.Struct, frozen=True):
    """A number of a table, over how many (texts, systems, instructions), and the published one.

    `mark` stands behind the number: what it means is the table's.
    """

    table: str
    row: str
    column: str
    value: float | None
    count: int
    published: float | None = None
    mark: str = ""


class Judged(msgspec.Struct, frozen=True):
    """A row and what the tree judge concluded about its text."""

    row: Row
    verdict: Verdict

    @property
    def task(self) -> str:
        """What the text was written from; "any" where the row does not say."""
        return self.row.columns.get("task") or "any"

    @property
    def lengths(self) -> tuple[int, int]:
        """Characters of the prompt and of the text."""
        return len(self.row.columns["prompt"]), len(self.row.columns["response"])

    @property
    def disturbance(self) -> tuple[str, str] | None:
        """Of which row this text was made, and in which way; raises AdjudgeError where the column cannot be read."""
        if (about := self.row.columns.get("disturbance")) in (None, ""):
            return None
        try:
            return str(about["of"]), str(about["kind"])
        except (KeyError, TypeError) as error:
            raise AdjudgeError(
                f'{self.row.place}: "disturbance" lacks "of" or "kind": write it with adjudge writing disturb'
            ) from error

    def score(self, part: str) -> float | None:
        """The score of the whole ("overall") or of a node; None where it abstained or does not apply."""
        if part == "overall":
            return self.verdict.score
        return None if part not in self.verdict.breakdown else self.verdict.breakdown[part].score


def by_task(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The texts of each task, and all of them where there are several."""
    tasks: dict[str, list[Judged]] = {}
    for one in judged:
        tasks.setdefault(one.task, []).append(one)
    return tasks if len(tasks) == 1 else {**tasks, "all": list(judged)}


def length_cells(judged: Sequence[Judged]) -> list[Cell]:
    """Pearson correlations of the lengths of prompts (input) and texts (output), in characters, and of scores.

    `mark` is ** for p < 0.05, * for p < 0.1; there is no value under three texts or without variation. Source: Tree of
    Writing, Table 6.
    """
    from scipy.stats import pearsonr

    cells = []
    for task, texts in by_task(judged).items():
        for which, other in [("input", "output"), *((end, part) for end in ("input", "output") for part in PARTS[:3])]:
            points = [
                (one.lengths[which == "output"], one.lengths[1] if other == "output" else one.score(other))
                for one in texts
            ]
            known = [(a, b) for a, b in points if b is not None]
            value, mark = None, ""
            if len(known) > 2 and all(len(set(side)) > 1 for side in zip(*known, strict=True)):
                found = pearsonr(*zip(*known, strict=True))
                value = float(found.statistic)
                mark = "**" if found.pvalue < 0.05 else "*" if found.pvalue < 0.1 else ""
            name = f"{which} - {other}"
            cells.append(Cell("lengths", name, task, value, len(known), TABLE_6.get((name, task)), mark))
    return cells


def disturbance_cells(judged: Sequence[Judged]) -> list[Cell]:
    """Mean scores of undisturbed texts, and by how much each kind of disturbance changes them, text by text.

    A pair counts where both texts have the score. `mark` is ! where a disturbance does not lower it: there the judge
    can be fooled. Raises AdjudgeError for a disturbed text whose original is not among them. Source: Tree of Writing,
    Table 7.
    """
    made = [(*about, one) for one in judged if (about := one.disturbance) is not None]
    originals = {of: one for of, kind, one in made if kind == "none"}
    kinds = dict.fromkeys(kind for _, kind, _ in made if kind != "none")
    for of, _, one in made:
        if of not in originals:
            raise AdjudgeError(f'{one.row.place}: the text "{of[:40]}" that it was made of is not there: judge it too')
    cells = []
    for part in PARTS if made else ():
        first = [score for one in originals.values() if (score := one.score(part)) is not None]
        initial = fmean(first) if first else None
        cells.append(Cell("disturbances", part, "initial", initial, len(first), TABLE_7[part, "initial"]))
        for kind in kinds:
            pairs = [(originals[of].score(part), one.score(part)) for of, other, one in made if other == kind]
            changes = [after - before for before, after in pairs if before is not None and after is not None]
            value = fmean(changes) if changes else None
            mark = "!" if value is not None and value >= 0 else ""
            cells.append(Cell("disturbances", part, kind, value, len(changes), TABLE_7.get((part, kind)), mark))
    return cells


def fluctuation(trials: Sequence[float], form: Form = "fixed") -> tuple[float, float]:
    """(delta, sigma) of one share over trials: sum of |l(t) - l(1)|, and the spread of l(t) about its mean.

    A share is a weight that was written, or in a judge that weighs by itself a sub-score over the total. Source: Tree
    of Writing, 5.3, of five trials. In "parity" sigma is as printed, √Σ(l - mean)², in "fixed" it is √(Σ(l - mean)²/N)
    for N trials. The flaw: by Cauchy and Schwarz a delta of five trials is at most √20 = 4.47 times the printed sigma,
    so their means are, too; the paper's are 4.63 (.273/.059) and 4.71 (.080/.017), and rounding takes neither below
    4.54. What it reports was hence divided, by N as we read it, or by N - 1 (which would be 1.12 times ours of five).
    Raises AdjudgeError for no trials.
    """
    if not trials:
        raise AdjudgeError("fluctuation needs at least one trial")
    mean = math.fsum(trials) / len(trials)
    delta = math.fsum(abs(share - trials[0]) for share in trials[1:])
    squares = math.fsum((share - mean) ** 2 for share in trials)
    return delta, math.sqrt(squares if form == "parity" else squares / len(trials))


def fluctuation_cells(trials: Sequence[Mapping[Wish, Weights]]) -> list[Cell]:
    """How far weights that are written several times for the same instructions differ: mean delta and both sigmas.

    By leaf and over all weights; an instruction whose weights could not be read in a trial is left out. The published
    figures stand beside delta and the sigma that they can be of. Source: Tree of Writing, 5.3; see `fluctuation`.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for wish in trials[0]:
        values = [trial[wish].values for trial in trials]
        known = [value for value in values if value is not None]
        if len(known) == len(trials):
            for name in wish[1]:
                shares = [value[name] for value in known]
                found.setdefault(name, []).append((*fluctuation(shares), fluctuation(shares, "parity")[1]))
    found["all weights"] = [figures for of_leaf in found.values() for figures in of_leaf]
    cells = []
    for name, figures in found.items():
        theirs = FLUCTUATION["tree"] if name == "all weights" else (None, None)
        columns = zip(("delta", "sigma", "sigma as printed"), (*theirs, None), strict=True)
        for place, (measure, published) in enumerate(columns):
            value = fmean(one[place] for one in figures) if figures else None
            cells.append(Cell("fluctuation", name, measure, value, len(figures), published))
    return cells
