"""A trained judge beside what it must beat, on rows of prompts that its training never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np

from adjudge.bench.agreement import statistics
from adjudge.bench.agreement.baselines import LENGTH, WORDS, apart, ridge, words
from adjudge.bench.agreement.comparison import POOLED, Line, Scores, listed_of
from adjudge.bench.agreement.dataset import DataSet, RatedText
from adjudge.bench.agreement.tables import agreement_table, reasons
from adjudge.bench.csv_table import write_rows
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.kinds import kind_of, prepare
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.records.verdict import Item, Pair
from adjudge.training.evaluator.preference import Preference, preferences_of
from adjudge.training.evaluator.questions import NUMBERS, Rated, rated_rows
from adjudge.training.evaluator.recipe import DirectRecipe, PreferenceRecipe
from adjudge.training.evaluator.split import Split, prompts_of, read_split
from adjudge.training.evaluator.targets import expected
from adjudge.training.run_folder import BESIDE, RunFolder
from adjudge.training.terminal import cell, open_console, say

UNTRAINED, TRAINED = "untrained model", "trained model"
MEAN = "mean of the aspect"

QUALITY = (Aspect("quality", "How well does the text do what it was asked for?"),)
"""What a model that nobody trained is asked about two responses."""

KINDS: dict[str, type[DirectRecipe] | type[PreferenceRecipe]] = {"direct": DirectRecipe, "preference": PreferenceRecipe}

Fit = Callable[[Sequence[str], Sequence[float], Sequence[str]], Sequence[float]]
"""Texts with their scores, and other texts; the scores that it foretells of these."""

ENDS = ("", "_low", "_high")
"""What a column's name ends in: of a figure, and of the ends of its interval."""

Open = Callable[[bool], EngineFace]
"""Opens the model of a run, trained or not."""


class Finished(msgspec.Struct, frozen=True):
    """A run that has come to its end."""

    folder: RunFolder
    recipe: DirectRecipe | PreferenceRecipe
    rows: Split


def finished_run(path: Path) -> Finished:
    """The run in a folder.

    Raises AdjudgeError for a folder without a trained judge, and where the file of rows is not what it was.
    """
    folder = RunFolder(path)
    told = folder.record()
    if (kind := told.get("kind")) not in KINDS:
        raise AdjudgeError(f"{path} is no run of train direct or train reward: name the output folder of one")
    if not folder.policy.is_dir():
        raise AdjudgeError(f"{path} has no trained judge yet: let the run come to its end, with --resume")
    recipe = msgspec.convert({name: value for name, value in told.items() if name not in BESIDE}, KINDS[kind])
    split = read_split(recipe.data, recipe.seed)
    if not split.held_out:
        raise AdjudgeError(f"the run in {path} held no rows out to measure it on: train with [data] held_out")
    if split.fingerprint != told.get("rows"):
        raise AdjudgeError(f"{recipe.data.train} is not what the run in {path} began with: put it back")
    return Finished(folder, recipe, split)


def bench_trained(folder: Path, *, device: str, dtype: str, pairs: int, output: Path | None) -> None:
    """Print, and write as CSV, how well the judge of a run agrees with people on its held-out rows, and its rivals."""
    run = finished_run(folder)

    def opened(trained: bool) -> EngineFace:
        from adjudge.engine.engine import Engine

        say(f"asking the {TRAINED if trained else UNTRAINED} ...", stderr=True)
        model, policy = run.recipe.policy.model, run.folder.policy
        if trained and run.recipe.policy.method == "full":  # its weights are all there is
            return Engine(str(policy), device=device, dtype=dtype)
        return Engine(model, adapter=policy if trained else None, device=device, dtype=dtype)

    lines = list(trained_lines(run, opened, pairs))
    kind = "preferences" if isinstance(run.recipe, PreferenceRecipe) else "scores"
    title = f"agreement with people's {kind}, held-out prompts, 95 % intervals over prompts"
    if output is not None:  # before anything is printed
        write_lines(output, lines)
    open_console(140).print(agreement_table(lines, title))
    say(*reasons(lines))
    if output is not None:
        say(f"table: {output}")


def trained_lines(run: Finished, opened: Open, pairs: int) -> Iterator[Line]:
    """The lines of a run; at most `pairs` pairs are put to an untrained model before a reward model."""
    if isinstance(run.recipe, DirectRecipe):
        yield from _direct_lines(run, run.recipe, opened)
    else:
        yield from _preference_lines(run, opened, pairs)


def _direct_lines(run: Finished, recipe: DirectRecipe, opened: Open) -> Iterator[Line]:
    train, held_out = (rated_rows(side, recipe.judge, recipe.scores) for side in (run.rows.train, run.rows.held_out))
    known, asked = _rated_texts(train), _rated_texts(held_out)
    aspects = list(dict.fromkeys(aspect for row in asked.rows for aspect in row.scores))
    raters = [
        Scores(UNTRAINED, _judged(held_out, aspects, recipe, opened(False))),
        *(Scores(name, {aspect: _foretold(known, asked, aspect, fit) for aspect in aspects}) for name, fit in FITS),
        Scores(TRAINED, _judged(held_out, aspects, recipe, opened(True))),
    ]
    for targets in ([aspects] if len(aspects) > 1 else []) + [[aspect] for aspect in aspects]:
        for scores in raters:
            listed = listed_of(asked, scores, targets)
            missed = [abs(score - human) for score, human in zip(listed.judge, listed.human, strict=True)]
            figures = statistics.correlations(listed.judge, listed.human, listed.clusters)
            figures["error"] = statistics.mean(missed, listed.clusters)
            count = sum(target in row.scores for row in asked.rows for target in targets)
            name = targets[0] if len(targets) == 1 else POOLED
            yield Line(name, scores.name, len(listed.judge), figures, asked=count)


def _rated_texts(rated: Sequence[Rated]) -> DataSet:
    """Each text of each row, both of a pair, with people's mean scores; those of a row have the prompts of both."""
    texts = []
    for one in rated:
        prompts = repr(prompts_of(one.row))
        for side in _sides(one):
            text = str(one.row.columns[f"story{side}" if side else "response"])
            scores = {aspect: (expected(said, NUMBERS),) for (aspect, of), said in one.targets.items() if of == side}
            texts.append(RatedText(Item(prompt="", response=text), scores, prompts, one.row.place))
    return DataSet("held out", "items", tuple(texts))


def _sides(one: Rated) -> list[str]:
    """Those that people have scored: "" of a single text, "_a" and "_b" of a pair."""
    return list(dict.fromkeys(side for _, side in one.targets))


def _judged(
    rated: Sequence[Rated], aspects: Sequence[str], recipe: DirectRecipe, engine: EngineFace
) -> dict[str, list[float | None]]:
    """What the judge of a recipe says of every text; None where it abstains, or people said nothing."""
    judge = prepare(recipe.judge.name, recipe.judge.options)(engine, None)
    kind = kind_of(recipe.judge.name)
    verdicts = judge.judge([kind.subject(one.row, number) for number, one in enumerate(rated, 1)])
    texts = [
        (one, side, verdict.aspects if side else verdict.breakdown)
        for one, verdict in zip(rated, verdicts, strict=True)
        for side in _sides(one)
    ]
    return {
        aspect: [
            getattr(parts[aspect], f"score{side}") if (aspect, side) in one.targets else None
            for one, side, parts in texts
        ]
        for aspect in aspects
    }


def _foretold(known: DataSet, asked: DataSet, aspect: str, fit: Fit) -> Sequence[float | None]:
    """What a fit on the training rows foretells where people have spoken; nothing where none of them has the aspect."""
    rows = [row for row in known.rows if aspect in row.scores]
    if not rows:
        return ()
    texts, scores = [row.item.response for row in rows], [row.scores[aspect][0] for row in rows]
    values = fit(texts, scores, [row.item.response for row in asked.rows])
    return [value if aspect in row.scores else None for row, value in zip(asked.rows, values, strict=True)]


def _mean(texts: Sequence[str], scores: Sequence[float], asked: Sequence[str]) -> list[float]:
    return [fmean(scores)] * len(asked)


def _by_length(texts: Sequence[str], scores: Sequence[float], asked: Sequence[str]) -> list[float]:
    """A line through the logarithms of the lengths."""
    lengths, wanted = ([math.log1p(len(text)) for text in some] for some in (texts, asked))
    if len(set(lengths)) < 2:
        return _mean(texts, scores, asked)
    slope, start = np.polyfit(lengths, scores, 1)
    return [float(start + slope * length) for length in wanted]


def _by_words(texts: Sequence[str], scores: Sequence[float], asked: Sequence[str]) -> list[float]:
    middle = fmean(scores)
    values = middle + ridge([words(text) for text in texts], np.array(scores) - middle, [words(text) for text in asked])
    return [float(value) for value in np.clip(values, NUMBERS[0], NUMBERS[-1])]


FITS: tuple[tuple[str, Fit], ...] = ((MEAN, _mean), (LENGTH, _by_length), (WORDS, _by_words))


def _preference_lines(run: Finished, opened: Open, pairs: int) -> Iterator[Line]:
    train, held_out = preferences_of(run.rows.train), preferences_of(run.rows.held_out)
    untrained = PairwiseJudge(opened(False), QUALITY).compare(map(_pair, held_out[:pairs]))
    yield _pair_line(UNTRAINED, [verdict.preference for verdict in untrained], held_out, pairs)
    longer = fmean(0.5 + np.sign(len(one.chosen) - len(one.rejected)) / 2 for one in train)
    sides = [np.sign(len(one.chosen) - len(one.rejected)) * np.sign(longer - 0.5) for one in held_out]
    yield _pair_line(LENGTH, [0.5 + float(side) / 2 for side in sides], held_out)
    fitted, asked = ([apart(one.chosen, one.rejected) for one in some] for some in (train, held_out))
    values = ridge(fitted, np.full(len(train), 0.5), asked)
    yield _pair_line(WORDS, [0.5 + float(np.sign(value)) / 2 for value in values], held_out)
    judge = ScalarJudge(opened(True))
    yield _pair_line(TRAINED, [verdict.preference for verdict in judge.compare(map(_pair, held_out))], held_out)


def _pair(one: Preference) -> Pair:
    return Pair(prompt=one.prompt, a=one.chosen, b=one.rejected)


def _pair_line(
    judge: str, preferences: Sequence[float | None], held_out: Sequence[Preference], asked: int | None = None
) -> Line:
    """The share of pairs on which a judge prefers the chosen response; a tie is half a pair."""
    kept = [(p, one.prompt) for p, one in zip(preferences, held_out, strict=False) if p is not None]
    found = statistics.accuracy([p for p, _ in kept], [1.0] * len(kept), [prompt for _, prompt in kept])
    return Line("pairs", judge, len(kept), {"accuracy": found}, asked=min(len(held_out), asked or len(held_out)))


def write_lines(path: Path, lines: Sequence[Line]) -> None:
    """The lines as CSV, each figure with the ends of its interval."""
    names = list(lines[0].figures)
    header = ["target", "judge", "rows", "asked", "prompts", *(f"{name}{end}" for name in names for end in ENDS)]
    rows = []
    for line in lines:
        cells = [cell(number, ".4f") for name in names for number in line.figures[name].numbers]
        rows.append([line.target, line.judge, line.rows, line.asked, line.figures[names[0]].clusters, *cells])
    write_rows(path, header, rows)
