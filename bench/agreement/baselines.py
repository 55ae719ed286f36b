"""What a judge must beat without any model: a text's length, and a regression on its words fitted on other prompts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from adjudge.bench.agreement.comparison import Scores, human_of
from adjudge.bench.agreement.dataset import OVERALL, DataSet
from adjudge.bench.agreement.preferring import Choice, Choices, Rater, choices_between

LENGTH, WORDS = "length only", "bag of words"

WORD = re.compile(r"[぀-ヿ㐀-䶿一-鿿豈-﫿]|\w+")
"""A Chinese or Japanese character, or a word."""

FOLDS = 10
RAREST = 2
"""A word must be in so many texts of those fitted on."""

PENALTIES = tuple(float(10**power) for power in range(-2, 4))

Array = NDArray[np.float64]


def length_only(dataset: DataSet, targets: Sequence[str] = ()) -> Rater:
    """The characters of each text, the same for every target, which are only ranked; of a pair the longer text."""
    return by_number(LENGTH, dataset, targets, lambda prompt, text: float(len(text)))


def by_number(name: str, dataset: DataSet, targets: Sequence[str], number: Callable[[str, str], float | None]) -> Rater:
    """A rater that gives each text, after its prompt, a number of no scale, and of a pair chooses the higher one."""
    if dataset.what == "pairs":
        sides = (side for row in dataset.rows for side in zip(row.pair.prompts, (row.pair.a, row.pair.b), strict=True))
        return choices_between(name, [number(prompt, text) for prompt, text in sides])
    column = [number(row.item.prompt, row.item.response) for row in dataset.rows]
    return Scores(name, dict.fromkeys((*targets, OVERALL), column))


def bag_of_words(dataset: DataSet, targets: Sequence[str] = (), seed: int = 0) -> Rater:
    """Ridge regression of people's scores on words, each text foretold by a fit on other prompts alone.

    All stand about one mean, that of the set: with the means of the other folds, which lie lower where the left-out
    texts lie higher, a regression that knows nothing would run against people. Of pairs on how much oftener a has each
    word than b, so that neither place counts for anything.
    """
    if dataset.what == "pairs":
        bags = [apart(row.pair.a, row.pair.b) for row in dataset.rows]
        preferred = [row.preferred - 0.5 for row in dataset.rows]
        foretold = _crosswise(bags, preferred, dataset.clusters, seed, centred=False, ends=(-0.5, 0.5))
        return Choices(WORDS, [Choice(None if value is None else value + 0.5) for value in foretold])
    bags = [words(row.item.response) for row in dataset.rows]
    by_target = {}
    for target in (*targets, OVERALL):
        human = [human_of(row, target) for row in dataset.rows]
        by_target[target] = _crosswise(bags, human, dataset.clusters, seed, centred=True, ends=dataset.scale)
    return Scores(WORDS, by_target, dataset.scale)


def words(text: str) -> dict[str, float]:
    """How often each word stands in a text, log(1 + count), in units of length 1."""
    counts = {word: float(np.log1p(count)) for word, count in Counter(WORD.findall(text.lower())).items()}
    size = float(np.sqrt(sum(value * value for value in counts.values()))) or 1.0
    return {word: value / size for word, value in counts.items()}


def apart(a: str, b: str) -> dict[str, float]:
    """How much oftener each word stands in one text than in another."""
    of_a, of_b = words(a), words(b)
    return {word: of_a.get(word, 0.0) - of_b.get(word, 0.0) for word in {**of_a, **of_b}}


def folds_of(clusters: Sequence[str], seed: int) -> NDArray[np.int64]:
    """The fold of each row, [N]: prompts are dealt out whole, in an order drawn from the seed."""
    prompts = list(dict.fromkeys(clusters))
    order = np.random.default_rng(seed % 2**63).permutation(len(prompts))
    fold = {prompt: int(place) % FOLDS for prompt, place in zip(prompts, order, strict=True)}
    return np.array([fold[prompt] for prompt in clusters], dtype=np.int64)


def _crosswise(
    bags: Sequence[dict[str, float]],
    human: Sequence[float | None],
    clusters: Sequence[str],
    seed: int,
    *,
    centred: bool,
    ends: tuple[float, float],
) -> list[float | None]:
    """What fits on the other folds foretell; None for rows without people's word, and where there is nothing to fit."""
    known = [place for place, value in enumerate(human) if value is not None]
    middle = fmean(human[place] or 0.0 for place in known) if centred and known else 0.0
    foretold: list[float | None] = [None] * len(human)
    fold_N = folds_of(clusters, seed)
    for fold in range(FOLDS):
        fitted = [place for place in known if fold_N[place] != fold]
        asked = [place for place in known if fold_N[place] == fold]
        if len(fitted) < 2 or not asked:
            continue
        y_M = np.array([human[place] for place in fitted], dtype=float)
        y_M -= y_M.mean() if centred else 0.0
        values = middle + ridge([bags[place] for place in fitted], y_M, [bags[place] for place in asked])
        for place, value in zip(asked, np.clip(values, *ends), strict=True):
            foretold[place] = float(value)
    return foretold


def ridge(fitted: Sequence[Mapping[str, float]], y_M: Array, asked: Sequence[Mapping[str, float]]) -> Array:
    """Ridge in its dual form; the penalty is the one with the least error when each row is left out in turn.

    Left out, row i misses by (y − ŷ)_i / (1 − H_ii), with H = K (K + λ)⁻¹ from one eigendecomposition.
    """
    frequency = Counter(word for bag in fitted for word in bag)
    column = {word: place for place, word in enumerate(word for word, times in frequency.items() if times >= RAREST)}
    x_MV, z_AV = (_matrix(bags, column) for bags in (fitted, asked))
    values_M, vectors_MM = np.linalg.eigh((x_MV @ x_MV.T).toarray())
    values_M = np.maximum(values_M, 0.0)
    rotated_M = vectors_MM.T @ y_M
    best, least = PENALTIES[-1], np.inf
    for penalty in PENALTIES:
        shrink_M = values_M / (values_M + penalty)
        hat_M = (vectors_MM**2) @ shrink_M
        missed_M = (y_M - vectors_MM @ (shrink_M * rotated_M)) / np.maximum(1 - hat_M, 1e-9)
        if (error := float(missed_M @ missed_M)) < least:
            best, least = penalty, error
    dual_M = vectors_MM @ (rotated_M / (values_M + best))
    foretold: Array = z_AV @ (x_MV.T @ dual_M)
    return foretold


def _matrix(bags: Sequence[Mapping[str, float]], column: dict[str, int]) -> csr_array:
    entries = [
        (row, column[word], value) for row, bag in enumerate(bags) for word, value in bag.items() if word in column
    ]
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return csr_array((values, (rows, columns)), shape=(len(bags), len(column)), dtype=float)
