"""`adjudge bench judges`: every judge over a stated sample of its data set, with what it cost and how far it agrees."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from rich.table import Column, Table
from scipy import stats

from adjudge.bench.agreement.formats import load
from adjudge.bench.agreement.statistics import accuracy, coefficients
from adjudge.bench.csv_table import write_rows
from adjudge.bench.machine import describe_machine
from adjudge.bench.words import by_reason
from adjudge.engine.devices import choose_device
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.judges.ensemble import ensemble
from adjudge.rewards.judges.kinds import prepare
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.judges.tournament import Tournament
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.verdict import Example, PairVerdict, Verdict, WritingTask
from adjudge.training.progress import watched
from adjudge.training.terminal import open_console, right, ruled_table, say

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace

WINDOW = 4
"""Subjects in the engine at a time: a run over its time ends after so many."""

AUTOJ, HANNA_STORIES = "autoj_pairs/pairs.jsonl", "hanna/stories.jsonl"
PERSE_RATED, PERSE_CHOSEN = "perse/PerMPST.k3.sample.jsonl", "perse/PerDOC.I.sample.jsonl"
PREFERENCES = "greetings/pairs.jsonl"
HOWTOBENCH = "howtobench/open.jsonl"
OPENMEVA, GREETINGS = "openmeva_roc/stories.jsonl", "greetings/labels.jsonl"

CREATIVE = frozenset({"creative_writing", "writing_song_lyrics", "writing_personal_essay", "roleplay", "chitchat"})
"""The scenarios of Auto-J that are about creative writing."""

Sample = list[tuple[Any, Any]]
"""Subjects of a judge, each with people's word on it: of a pair 1 or 0 where a or b is better and 0.5 for a tie, of an
item a number, of a group a number for each response; None where nobody said."""


class Trial(msgspec.Struct, frozen=True):
    """A judge and a sample: how the sample is read from the folder of data sets, and how it is judged.

    `of_rewards` is a trial of a judge that needs a reward model, which the others cannot use; of one `at_once` all
    verdicts come at the end, and none before.
    """

    judge: str
    data: str
    read: Callable[[Path], Sample]
    run: Callable[[EngineFace, list[Any]], Iterator[Any]]
    of_rewards: bool = False
    at_once: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """What came of a trial; `agreement` is with people, as `measure`, over the `compared` subjects they spoke about."""

    judge: str
    data: str
    sample: int
    verdicts: int
    abstained: dict[str, int]
    prompt_tokens: int
    tokens_computed: int
    seconds: float
    measure: str
    agreement: float | None
    compared: int


def bench_judges(
    folder: Path, *, only: Sequence[str], minutes: float, model: str, device: str, dtype: str, output: Path | None
) -> None:
    """Run the trials whose data are there, print a table, and write it as CSV."""
    chosen = [trial for trial in TRIALS if not only or trial.judge in only]
    if unknown := set(only) - {trial.judge for trial in TRIALS}:
        names = dict.fromkeys(trial.judge for trial in TRIALS)
        raise AdjudgeError(f"no trial of {', '.join(sorted(unknown))}: choose from {', '.join(names)}")
    absent = [trial for trial in chosen if not (folder / trial.data).exists()]
    here = [trial for trial in chosen if trial not in absent]
    if not here:
        raise AdjudgeError(f"{folder} has none of {', '.join(sorted({trial.data for trial in absent}))}: name another")
    for trial in absent:
        print(f"{trial.judge}: {trial.data} is not in {folder}; left out")
    machine = describe_machine(choose_device(device))
    outcomes: list[Outcome] = []
    for trial in here:
        gc.collect()  # of a GPU an engine takes what is free: the last one's memory must be
        outcomes += _tried(trial, folder, minutes, model, device, dtype)
        if output is not None and outcomes:
            write_outcomes(output, outcomes, model, machine)
    if not outcomes:
        raise AdjudgeError(f"no judge was run: name a --model that {', '.join(trial.judge for trial in here)} can ask")
    console = open_console(150)
    console.print(table_of(outcomes))
    console.print(machine, highlight=False)
    if output is not None:
        say(f"written: {output}")


def _tried(trial: Trial, folder: Path, minutes: float, model: str, device: str, dtype: str) -> Iterator[Outcome]:
    """What came of a trial, on an engine of its own; nothing, and a line that says so, for a model of another kind."""
    from adjudge.engine.engine import Engine

    engine = Engine(model, device=device, dtype=dtype)
    if trial.of_rewards == (engine.reward_head is not None):
        yield run_trial(trial, trial.read(folder), engine, minutes)
    else:
        which = "a reward model" if trial.of_rewards else "a model that writes"
        print(f"{trial.judge}: needs {which}, which {model} is not; left out")


def run_trial(trial: Trial, sample: Sample, engine: EngineFace, minutes: float) -> Outcome:
    """Judge the sample, for about `minutes` at most, but where all verdicts come at once."""
    verdicts: list[Any] = []
    started = time.perf_counter()
    for verdict in watched(trial.judge, trial.run(engine, [subject for subject, _ in sample]), len(sample)):
        verdicts.append(verdict)
        if time.perf_counter() - started > 60 * minutes and not trial.at_once:
            break
    seconds = time.perf_counter() - started
    measure, agreement, compared = agreement_of(verdicts, [said for _, said in sample[: len(verdicts)]])
    return Outcome(
        judge=trial.judge,
        data=trial.data,
        sample=len(sample),
        verdicts=len(verdicts),
        abstained=dict(Counter(verdict.abstained for verdict in verdicts if verdict.abstained)),
        prompt_tokens=engine.stats.prompt_tokens,
        tokens_computed=engine.stats.tokens_computed,
        seconds=seconds,
        measure=measure,
        agreement=agreement,
        compared=compared,
    )


def agreement_of(verdicts: Sequence[Any], truth: Sequence[Any]) -> tuple[str, float | None, int]:
    """How far verdicts agree with people: the measure's name, its value (None where there is none), of how many.

    Pairs: the share on which the judge prefers what people preferred, ties left out. Items: Spearman's correlation.
    Groups: the mean of Kendall's tau-b within each.
    """
    couples = [(v, t) for v, t in zip(verdicts, truth, strict=True) if t is not None and not v.abstained]
    if not couples:
        return "none", None, 0
    if isinstance(couples[0][0], PairVerdict):
        found = accuracy([v.preference for v, _ in couples], [t for _, t in couples], range(len(couples)))
        return "accuracy", found.value, found.rows
    if isinstance(couples[0][0], GroupVerdict):
        taus = [float(stats.kendalltau(v.strengths, t).statistic) for v, t in couples if None not in v.strengths]
        taus = [tau for tau in taus if tau == tau]  # people who rate all alike rank nothing
        return "mean Kendall", fmean(taus) if taus else None, len(taus)
    scores, said = [v.score for v, _ in couples], [t for _, t in couples]
    return "Spearman", coefficients(scores, said)[1], len(couples)


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """A line for each trial."""
    columns = [Column(name, overflow="fold") for name in ("judge", "data")]
    columns += right("verdicts", "abstained", "tokens asked", "computed", "1 in", "seconds", "agreement", "of")
    table = ruled_table(*columns)
    for one in outcomes:
        table.add_row(
            one.judge,
            one.data,
            f"{one.verdicts} of {one.sample}" if one.verdicts < one.sample else str(one.verdicts),
            by_reason(one.abstained) or "0",
            f"{one.prompt_tokens:,}",
            f"{one.tokens_computed:,}",
            f"{one.prompt_tokens / one.tokens_computed:.1f}" if one.tokens_computed else "–",
            f"{one.seconds:.0f}",
            f"{one.measure} –" if one.agreement is None else f"{one.measure} {one.agreement:z.3f}",
            str(one.compared),
        )
    return table


def write_outcomes(path: Path, outcomes: Sequence[Outcome], model: str, machine: str) -> None:
    """Write them as CSV, with the machine that they were measured on."""
    rows = []
    for one in outcomes:
        fields = msgspec.structs.asdict(one)
        fields["abstained"] = " ".join(f"{reason}={n}" for reason, n in sorted(one.abstained.items()))
        fields["seconds"] = f"{one.seconds:.1f}"
        fields["agreement"] = "" if one.agreement is None else f"{one.agreement:.4f}"
        rows.append([*fields.values(), model, machine])
    write_rows(path, [*Outcome.__struct_fields__, "model", "machine"], rows)


def drawn(data: str, count: int | None = None, groups: Collection[str] | None = None) -> Callable[[Path], Sample]:
    """Reading `count` rows of a file, drawn by its name alone, or all in their order; of these the ones of `groups`.

    It raises AdjudgeError for a file that cannot be read, and for one that is of no known data set.
    """

    def read(folder: Path) -> Sample:
        rows: Sequence[Any] = load([folder / data]).rows
        if count is not None:
            rows = random.Random(data).sample(rows, min(count, len(rows)))
        return [(row.subject, row.said) for row in rows if groups is None or row.group in groups]

    return read


def openmeva_groups(folder: Path, count: int) -> Sample:
    """The stories of `count` prompts of OpenMEVA, a group for each prompt."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for item, human in drawn(OPENMEVA, 1 << 30)(folder):
        groups.setdefault(item.prompt, []).append((item.response, human))
    return [
        (Group(prompt, tuple(story for story, _ in told)), tuple(human for _, human in told))
        for prompt, told in sorted(groups.items())[:count]
    ]


def howtobench_outputs(folder: Path, count: int) -> Sample:
    """What two of the ten systems wrote for `count` open tasks of HoWToBench; people rated systems, not texts."""
    by_task: dict[str, dict[str | None, Any]] = {}
    for row in load([folder / HOWTOBENCH]).rows:
        by_task.setdefault(row.cluster, {})[row.system] = row.item
    chosen = random.Random(HOWTOBENCH).sample(list(by_task.values()), min(count, len(by_task)))
    systems = ("gpt-4o-2024-11-20", "Llama-3.3-70B-Instruct")
    return [(outputs[system], None) for outputs in chosen for system in systems if system in outputs]


def howtobench_systems(folder: Path) -> Sample:
    """What all ten systems wrote for the first instruction of each task, out of long texts 400 characters from the
    beginning and the end; people's word is the system's score for the task in the paper's Table 4.
    """
    rows = load([folder / "howtobench" / f"{task}.jsonl" for task in get_args(WritingTask)], characters=400).rows
    first = {row.item.task: row.cluster for row in reversed(rows)}
    return [(row.item, row.said) for row in rows if row.cluster == first[row.item.task]]


def greetings_beside_good_ones(folder: Path, count: int, among: int) -> Sample:
    """`count` Chinese greetings, each with the same examples: the good ones of `among` others of the set."""
    sample = drawn(GREETINGS, count + among)(folder)
    examples = tuple(Example(item.prompt, item.response) for item, label in sample[count:] if label == 1.0)
    return [((item, examples), label) for item, label in sample[:count]]


def _named(judge: str, window: int = WINDOW, **options: Any) -> Callable[[EngineFace, list[Any]], Iterator[Any]]:
    """Judging as `adjudge judge` does with these options."""
    return lambda engine, subjects: prepare(judge, options)(engine, None).judge_iter(subjects, window)


def _ensemble(engine: EngineFace, items: list[Any]) -> Iterator[Any]:
    """Each story beside two others in both orders; OpenMEVA's one score of a story is the mean over its aspects."""
    named = [msgspec.structs.replace(item, id=str(place)) for place, item in enumerate(items)]
    for found in ensemble(PairwiseJudge(engine, orders="ab"), named, partners=2, window=WINDOW):
        reasons = [reason for aspect in found.aspects.values() for reason in aspect.abstained if reason]
        abstained = reasons[0] if found.holistic is None else None
        yield Verdict(found.id, found.holistic, {}, abstained, False, engine.name, "")


def _debate(engine: EngineFace, subjects: list[Any]) -> Iterator[Any]:
    items, (examples, *_) = zip(*subjects, strict=True)
    sampling = Sampling(max_tokens=64, temperature=0.7)
    return DebateJudge(engine, examples, language="zh", sampling=sampling).judge_iter(items, WINDOW)


def _scalar(engine: EngineFace, pairs: list[Any]) -> Iterator[Any]:
    return ScalarJudge(engine).compare_iter(pairs, WINDOW)


def _tournament(engine: EngineFace, groups: list[Any]) -> Iterator[Any]:
    return Tournament(PairwiseJudge(engine, HANNA[1:2]), pairing="circular", k=2).rank_iter(groups)


TRIALS: tuple[Trial, ...] = (
    Trial("pairwise", AUTOJ, drawn(AUTOJ, 300, CREATIVE), _named("pairwise")),
    Trial("pointwise", HANNA_STORIES, drawn(HANNA_STORIES, 64), _named("pointwise")),
    Trial("ensemble", OPENMEVA, drawn(OPENMEVA, 24), _ensemble, at_once=True),
    Trial("rubric", HOWTOBENCH, lambda folder: howtobench_outputs(folder, 8), _named("rubric", rubric="six")),
    Trial("tree", "howtobench", howtobench_systems, _named("tree", 10)),
    Trial("principle", GREETINGS, drawn(GREETINGS, 100), _named("principle", language="zh")),
    Trial("debate", GREETINGS, lambda folder: greetings_beside_good_ones(folder, 10, 48), _debate),
    Trial("personal", PERSE_RATED, drawn(PERSE_RATED), _named("personal")),
    Trial("personal", PERSE_CHOSEN, drawn(PERSE_CHOSEN), _named("personal of pairs", 1, aspects="interestingness")),
    Trial("tournament", OPENMEVA, lambda folder: openmeva_groups(folder, 40), _tournament),
    Trial("scalar", PREFERENCES, drawn(PREFERENCES, 200), _scalar, True),
)
"""What `adjudge bench judges` runs."""
