"""The rewards of a run once more, from its journal alone: are they what the trainer was given, bit for bit?"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.score import PASSING, Reason
from adjudge.rewards.engines.specification import EngineSpec, without_models
from adjudge.rewards.parts.combining import WITH_TREND
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.trl import TrlReward, for_trl
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.grpo.reward_recipe import RewardRecipe
from adjudge.training.reward_log import Opened, Rewarded, read_engines, read_rewards, remember
from adjudge.training.run_folder import BESIDE, RunFolder
from adjudge.training.stages import grouped
from adjudge.training.unanswered import UnansweredEngine

Found = tuple[float | None, Reason | None, float | None]
"""A reward or why there is none, and the reward with its length trend."""

Bench = tuple[Reward, Mapping[EngineSpec, UnansweredEngine]]
"""A reward, and what stands in for its judges' models."""

log = logging.getLogger("adjudge")


class Replayed(msgspec.Struct, frozen=True):
    """A completion as it was `rewarded`, and its `reward` now, from the verdicts that the journal has.

    None of both where a judge abstained. `with_trend` is the reward now before its length trend was taken out, where
    that is done. With `lost` there is nothing to compare, and the reward is None: "time", it
    was never judged, for there was no time or no server, or in a group that has been judged since; "verdict", it rests
    on one that the journal does not hold.
    """

    rewarded: Rewarded
    reward: float | None
    with_trend: float | None = None
    lost: Literal["time", "verdict"] | None = None

    @property
    def kept(self) -> bool:
        """Whether the journal has what it rests on."""
        return self.lost is None

    @property
    def equal(self) -> bool:
        """Whether it is the same, to the last bit."""
        return self.kept and self.reward == self.rewarded.reward


def replay_rewards(folder: Path, rewards: RewardRecipe | None = None, *, step: int | None = None) -> Iterator[Replayed]:
    """Every reward of the run in `folder` again, or of one `step`, with no model: texts alone are read.

    `rewards` stands in for the run's own [reward]: other weights, parts, gates, of the same judges. Raises AdjudgeError
    for a run without a journal or that step, for one whose rewards.journal or engines.json is gone, for one with code
    of its author's own where no `rewards` are given, for a judge whose model the run did not use, and for another
    reward with `length_free`: what was paid before says nothing of its trend.
    """
    if rewards is not None and rewards.length_free is not None:
        raise AdjudgeError("the trend of another reward is not known: leave [reward.length_free] out of the recipe")
    run = RunFolder(folder)
    recipe = read_run(run)
    if rewards is None and recipe.reward.own:  # the folder may be a stranger's, and name anything
        raise AdjudgeError(
            f"the rewards of this run call {recipe.reward.own[0]}, and a replay imports nothing that a folder names:"
            " give its recipe, --recipe recipe.toml"
        )
    rewarded = _whole(read_rewards(run.rewards))
    if not _never_judged(rewarded):
        _check_kept(run)
    paid = msgspec.structs.replace(rewards or recipe.reward, journal=True)
    benches: list[Bench] = [
        (paid.levelled(paid.open(msgspec.structs.replace(recipe, reward=paid).written(), str(run.journal))), engines)
        for engines in _stand_ins(read_engines(run.engines))
    ]
    if step is not None:
        if not any(one.step == step for one in rewarded):
            raise AdjudgeError(f"the run in {folder} has rewarded nothing in step {step}: --list names its steps")
        first = 0 if paid.length_free is not None else step  # a trend is of all steps before
        rewarded = [one for one in rewarded if first <= one.step <= step]
    for _, lines in groupby(rewarded, key=lambda one: (one.step, one.split, one.call)):
        replayed = list(_call(benches, list(lines), recipe.data.system, own=rewards is None))
        yield from (one for one in replayed if step in (None, one.rewarded.step))
        for reward, _ in benches:
            remember(reward, [_now(one) for one in replayed])


def read_run(run: RunFolder) -> GrpoRecipe:
    """The recipe of a GRPO run; raises AdjudgeError where there is none, or it is of another kind."""
    record = run.record()
    try:
        return msgspec.convert({name: value for name, value in record.items() if name not in BESIDE}, GrpoRecipe)
    except ValueError as error:
        raise AdjudgeError(f"{run.recipe} is not of a GRPO run ({reason(error)}): name the folder of one") from error


def _check_kept(run: RunFolder) -> None:
    """Raise AdjudgeError where a run has one of the files that its judges have left, and not the other."""
    there = {path: path.is_file() and path.stat().st_size > 0 for path in (run.journal, run.engines)}
    for path, kept in there.items():
        if not kept and any(there.values()):
            raise AdjudgeError(f"there is no {path}, or nothing in it: put it back as the run wrote it")


def _whole(rewarded: Sequence[Rewarded]) -> list[Rewarded]:
    """The rewards of whole groups; the log tells of those that a crash has cut."""
    counts = Counter(map(_group_of, rewarded))
    whole = [one for one in rewarded if counts[_group_of(one)] == one.group]
    if left := len(rewarded) - len(whole):
        log.warning("left out, as a crash has cut their groups: %d rewards", left)
    return whole


def _group_of(line: Rewarded) -> tuple[int, str, int, int]:
    return line.step, line.split, line.call, line.place // line.group


def _stand_ins(opened: Sequence[Opened]) -> list[dict[EngineSpec, UnansweredEngine]]:
    """What stands in for the models, the last ones first: a run that was resumed may have had others before.

    A smaller KV cache is another one where it bounds the prompt.
    """
    by_spec = grouped(reversed(opened), lambda one: one.spec)
    ages = max(map(len, by_spec.values()), default=1)
    return [
        {spec: UnansweredEngine(some[min(age, len(some) - 1)].card) for spec, some in by_spec.items()}
        for age in range(ages)
    ]


def _now(replayed: Replayed) -> Rewarded:
    """What a layer is to remember: what the reward is now, and what was stored only where that is not known."""
    line = replayed.rewarded
    if not replayed.kept:
        return line
    return msgspec.structs.replace(line, parts={**line.parts, WITH_TREND: replayed.with_trend})


def _call(benches: Sequence[Bench], lines: Sequence[Rewarded], system: str | None, *, own: bool) -> Iterator[Replayed]:
    """The completions of one call of the trainer, rewarded all at once, and group by group where a verdict is wanting.

    A group may rest on fewer verdicts than it asks for, as a tournament does: then it is right if it is as it was.
    """
    size = lines[0].group
    groups = [lines[start : start + size] for start in range(0, len(lines), size)]
    judged = [line for group in groups if not _never_judged(group) for line in group]
    found, whole = _found(benches, judged, system)
    for group in groups:
        if _never_judged(group):
            yield from (Replayed(line, None, lost="time") for line in group)
        elif whole:
            now, found = found[:size], found[size:]
            yield from _compared(group, now, whole=True, own=own)
        else:
            now, held = _found(benches, group, system)
            yield from _compared(group, now, whole=held, own=own)


def _found(benches: Sequence[Bench], lines: Sequence[Rewarded], system: str | None) -> tuple[list[Found], bool]:
    """What becomes of some groups, and whether the journal held every verdict asked for: of the best of the benches."""
    if not lines:
        return [], True
    tried = []
    for bench in benches:
        found, whole = _on(bench, lines, system)
        if whole:
            return found, True
        tried.append(found)
    return max(tried, key=lambda found: sum(value is not None for value, *_ in found)), False


def _on(bench: Bench, lines: Sequence[Rewarded], system: str | None) -> tuple[list[Found], bool]:
    """The same of one bench."""
    reward, engines = bench
    names = dict.fromkeys(name for line in lines for name in line.columns)
    columns: dict[str, Any] = {name: [line.columns.get(name) for line in lines] for name in names}
    passing = copy.copy(reward)  # what a layer remembers stays as it was before the call
    function = for_trl(passing, lines[0].group, system=system)
    assert isinstance(function, TrlReward)
    before, told = _asked(engines), dict[str, list[Any]]()
    texts = [one.prompt for one in lines], [one.completion for one in lines]
    with without_models(engines):
        try:
            values = function(*texts, log_extra=told.__setitem__, **columns)
        except AdjudgeError:
            if _asked(engines) == before:
                raise
            return [(None, "timeout", None)] * len(lines), False  # some judges cannot even begin without an answer
    name = function.__name__
    trends = told.get(f"{name}/{WITH_TREND}", values)
    return list(zip(values, told[f"{name}/abstained"], trends, strict=True)), _asked(engines) == before


def _asked(engines: Mapping[EngineSpec, UnansweredEngine]) -> int:
    return sum(engine.asked for engine in engines.values())


def _compared(group: Sequence[Rewarded], now: Sequence[Found], *, whole: bool, own: bool) -> Iterator[Replayed]:
    """A group's completions beside what they come to now; with its `own` reward an equal one needs no more proof."""
    since = any(_passed(line) and value is not None for line, (value, *_) in zip(group, now, strict=True))
    for line, (value, why, trend) in zip(group, now, strict=True):
        same = own and value == line.reward and why not in PASSING
        if _passed(line):
            yield Replayed(line, None, lost="time")
        elif same or (whole and not since):
            yield Replayed(line, value, trend)
        else:
            yield Replayed(line, None, lost="time" if whole else "verdict")


def _never_judged(group: Sequence[Rewarded]) -> bool:
    return all(map(_passed, group))


def _passed(line: Rewarded) -> bool:
    """Whether it abstained for a reason that lay in the moment."""
    return line.abstained in PASSING
