"""`adjudge bench confidence`: the confidence filter beside scoring by generation, on the same rationales."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from adjudge.bench.csv_table import write_rows
from adjudge.bench.kernels.memory import peak_bytes
from adjudge.bench.machine import describe_machine
from adjudge.engine.completion import Completion
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import MAX_ALTERNATIVES, Sampling
from adjudge.engine.text.labels import LabelSet
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.judges.judge import WINDOW
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.training.evolve.filters import questions_of_scores
from adjudge.training.evolve.personas import PERSONAS
from adjudge.training.evolve.rationale import Rationale, read_rationales
from adjudge.training.evolve.seeds import read_stories, sample_questions
from adjudge.training.progress import bar
from adjudge.training.stages import read_stage, write_stage
from adjudge.training.terminal import open_console, plain_table, right, say

ONE = Sampling(max_tokens=1, temperature=0.0, logprobs=MAX_ALTERNATIVES)
"""Scoring by generation: one token, and the most probable ones there as far as servers tell them."""

STORIES = "stories: prompt, story and scores, an object from aspects to numbers"
RATIONALES = "rationales, as `adjudge evolve synthesize` writes them"
"""What a file may hold."""

SENTENCES = 6
"""That a made-up rationale quotes."""

HEADER = (
    *("variant", "rationales", "scores", "seconds", "prompt_tokens", "tokens_computed", "peak_bytes"),
    *("kept", "equal", "other", "equal_lacking", "other_lacking", "undecided", "machine"),
)


class Decision(msgspec.Struct, frozen=True):
    """The best label at a score's place, None where there is none; `lacks` says that a label was not seen there."""

    best: str | None
    lacks: bool = False


@dataclass(frozen=True)
class Measured:
    """One way to score: its decisions, and what they cost."""

    name: str
    decisions: list[Decision]
    seconds: float
    prompt_tokens: int
    tokens_computed: int
    peak: int


class Compared(msgspec.Struct, frozen=True):
    """How the decisions of both ways go together, by score: those that saw every label, and apart those that did not.

    `undecided` saw no label at all; `kept` and `kept_generating` are rationales that pass the filter.
    """

    equal: int
    other: int
    equal_lacking: int
    other_lacking: int
    undecided: int
    kept: int
    kept_generating: int


def bench_confidence(
    path: Path,
    *,
    model: str,
    limit: int,
    device: str = "auto",
    dtype: str = "auto",
    output: Path | None = None,
    keep: Path | None = None,
) -> None:
    """Measure both ways on up to `limit` rationales of `path`, and print and save what they cost."""
    rationales = load_rationales(path, limit)
    if keep is not None:
        write_stage(keep, rationales)
        say(f"rationales: {keep}")
    engine = Engine(model, device=device, dtype=dtype)
    wanted, places = questions_of_scores(engine, rationales)
    if not wanted:
        raise AdjudgeError(f"no rationale of {path} ends in scores that can be read: there is nothing to score")
    compiled = [labels for _, labels in engine.compiled(wanted, SCALE)]
    if any(len(labels.reads) > 1 for labels in compiled):
        raise AdjudgeError(
            "a score is more than one token of this model: one generated token cannot hold it, name another --model"
        )
    engine.score(wanted[:1], SCALE), engine.generate(wanted[:1], ONE)  # the first of anything takes longer

    def scored(part: slice) -> list[Decision]:
        return [Decision(score.best) for score in engine.score(wanted[part], SCALE)]

    def generated(part: slice) -> list[Decision]:
        texts = engine.generate(wanted[part], ONE)
        return [decision_of(text, labels) for text, labels in zip(texts, compiled[part], strict=True)]

    with bar() as progress:
        task = progress.add_task("", total=4 * len(wanted))
        measured = []
        for name, decide in (("restricted head", scored), ("generation", generated)):
            progress.update(task, description=name)
            advance = partial(progress.advance, task)
            measured.append(_measured(name, engine, decide, len(wanted), advance))
    ours, other = measured
    compared = compare(rationales, places, ours.decisions, other.decisions)
    if output is not None:  # before anything is printed
        *decided, kept, kept_generating = msgspec.structs.astuple(compared)
        about, machine = (len(rationales), len(wanted)), describe_machine(engine.runner.device)
        rows = []
        for one, passed in ((ours, kept), (other, kept_generating)):
            spent = (f"{one.seconds:.3f}", one.prompt_tokens, one.tokens_computed, one.peak)
            rows.append((one.name, *about, *spent, passed, *decided, machine))
        write_rows(output, HEADER, rows)
    _show(rationales, measured, compared)


def load_rationales(path: Path, limit: int) -> list[Rationale]:
    """The first rationales of a file; of a file of stories, ones made up of quotations, to measure with.

    These end in the human scores, and each question has one of every persona, as synthesis leaves them.
    """
    single = "response" not in read_stage(path)[0].columns
    form = STORIES if single else RATIONALES
    try:
        if not single:
            return read_rationales(path)[:limit]
        stories = read_stories(path)
    except AdjudgeError as error:
        raise AdjudgeError(f"{error}; {'without' if single else 'with'} a response, rows are read as {form}") from error
    aspects = [aspect for aspect in HANNA if len({one.score for story in stories for one in story.on(aspect)}) > 1]
    if not aspects:
        names = ", ".join(aspect.name for aspect in HANNA)
        raise AdjudgeError(f"{path.name}: no two stories differ in their scores on {names}: give some that do")
    needed, each = -(-limit // len(PERSONAS)), 1
    questions, _ = sample_questions(stories, aspects, each=each)
    while len(questions) < needed and each < limit:
        each *= 2
        questions, _ = sample_questions(stories, aspects, each=each)
    drawn = random.Random(0).sample(questions, min(needed, len(questions)))
    made = [
        msgspec.structs.replace(one, id=f"{one.id}/{persona}", persona=persona, response=_quoting(one, persona))
        for one in drawn
        for persona in PERSONAS
    ]
    return made[:limit]


def compare(
    rationales: Sequence[Rationale],
    places: Sequence[Sequence[int]],
    ours: Sequence[Decision],
    other: Sequence[Decision],
) -> Compared:
    """Count equal and other decisions, and the rationales that each way keeps."""

    def kept(decisions: Sequence[Decision]) -> int:
        return sum(
            bool(own) and all(decisions[place].best == human for place, human in zip(own, one.scores, strict=True))
            for one, own in zip(rationales, places, strict=True)
        )

    counts = dict.fromkeys(("equal", "other", "equal_lacking", "other_lacking", "undecided"), 0)
    for mine, theirs in zip(ours, other, strict=True):
        name = f"{'equal' if mine.best == theirs.best else 'other'}{'_lacking' if theirs.lacks else ''}"
        counts["undecided" if theirs.best is None else name] += 1
    return Compared(**counts, kept=kept(ours), kept_generating=kept(other))


def decision_of(completion: Completion, labels: LabelSet) -> Decision:
    """The best label among the alternatives that were reported; a label's tokens count together."""
    top = dict(completion.logprobs[0].top) if completion.logprobs else {}
    ids = labels.reads[0].token_ids
    found: dict[str, list[float]] = {}
    for spelling in labels.spellings:
        [(_, place)] = spelling.steps
        if ids[place] in top:
            found.setdefault(labels.labels[spelling.label], []).append(top[ids[place]])
    chances = {label: sum(map(math.exp, found[label])) for label in labels.labels if label in found}
    return Decision(max(chances, key=lambda label: chances[label], default=None), len(chances) < len(labels.labels))


def _measured(
    name: str, engine: Engine, decide: Callable[[slice], list[Decision]], count: int, advance: Callable[[int], None]
) -> Measured:
    """Run from a cold cache, once for the time and once more for the memory, which takes some of it to follow.

    Memory is that of tensors beyond the weights and the cache.
    """

    def run() -> list[Decision]:
        decisions: list[Decision] = []
        for start in range(0, count, 2 * WINDOW):
            decisions += decide(slice(start, start + 2 * WINDOW))
            advance(len(decisions) - start)
        return decisions

    engine.cache.clear()
    before = msgspec.structs.replace(engine.stats)
    started = time.perf_counter()
    decisions = run()
    seconds = time.perf_counter() - started
    stats = msgspec.structs.replace(engine.stats)
    engine.cache.clear()
    peak = peak_bytes(run, engine.runner.device)
    tokens = stats.prompt_tokens - before.prompt_tokens, stats.tokens_computed - before.tokens_computed
    return Measured(name, decisions, seconds, *tokens, peak)


def _show(rationales: Sequence[Rationale], measured: Sequence[Measured], compared: Compared) -> None:
    title = f"{len(rationales)} rationales, {len(measured[0].decisions)} scores"
    heads = right("seconds", "tokens/s", "of these computed/s", "peak MiB", "kept")
    table = plain_table("scored by", *heads, title=title)
    for one, kept in zip(measured, (compared.kept, compared.kept_generating), strict=True):
        rates = (one.prompt_tokens / one.seconds, one.tokens_computed / one.seconds)
        table.add_row(
            one.name, f"{one.seconds:.1f}", *(f"{rate:,.0f}" for rate in rates), f"{one.peak / 2**20:.1f}", str(kept)
        )
    console = open_console(120, highlight=False)
    console.print(table)
    console.print(
        f"decisions: {compared.equal} equal, {compared.other} other; where generation did not report every label:"
        f" {compared.equal_lacking} equal, {compared.other_lacking} other, {compared.undecided} undecided"
    )


def _quoting(rationale: Rationale, persona: str) -> str:
    """A text of about the length of a rationale that says nothing: sentences of the stories, then the scores."""
    draw = random.Random(f"{rationale.id} {persona}")
    said = []
    for number, story in enumerate(rationale.stories, 1):
        sentences = [part for part in re.split(r"(?<=[.!?])\s+", story.story) if part.strip()] or [story.story]
        quotes = draw.sample(sentences, min(SENTENCES, len(sentences)))
        said.append(f"Story {number} on {rationale.aspect.name}: " + " ".join(f'"{quote}"' for quote in quotes))
    return "\n\n".join([*said, " | ".join(f"<ANSWER> {score} </ANSWER>" for score in rationale.scores)])
