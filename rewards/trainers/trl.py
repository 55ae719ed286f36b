"""Rewards for TRL's GRPO trainers (written against trl 1.16; https://huggingface.co/docs/trl/grpo_trainer).

What TRL does there. It calls `f(prompts=, completions=, completion_ids=, <columns>=, trainer_state=, log_extra=,
log_metric=)` in every process, with that process's slice of the batch. What it returns, None as NaN, is put together
over all processes, and `num_generations` completions in a row are a group, which slices may cut. The mean and the
standard deviation of a group leave NaN out, and where every reward function returned None the advantage is exactly 0:
an abstention moves nothing, and the group's mean is that of the others. With several reward functions, though, NaN is
left out of a sum: a lone None counts as 0, which is a reward like any other. Metrics are averaged over the processes.
AsyncGRPOTrainer calls it in a process of its own that sees no GPU (so give it a judge on a server), one group after the
other, without the last three arguments; it awaits the asynchronous form and runs the other one in a thread. An error
ends the run. Its rows without a reward have an advantage of exactly 0, too. Metrics it takes none: of those abstentions
go into the log.
RLOOTrainer calls as GRPOTrainer does. SDPOTrainer and OnlineDPOTrainer leave the last two arguments out, and take an
abstention for a 0; A2POTrainer, which wants rewards of 0 or 1, ends with a TypeError at one: they are no place for
rewards that abstain. OnlineDPOTrainer has its prompts come twice over (p, q, p, q): the two answers to each are a group
all the same, where `num_generations` is left out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, get_args

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.layer import layers_of, learning
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.grouping import Sample, Turns, cut, group_of, pieces, samples_of, side_by_side
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.measures import logged, parts_beside
from adjudge.rewards.trainers.processes import Result, attempt, place_among_processes, share, values_of
from adjudge.rewards.trainers.scoring import OnFailure, Scored, Scorer

NO_COLUMNS = ("image", "images", "environments")
"""What TRL passes like columns, but is not text: not sent between processes unless it is asked for."""

LogMetric = Callable[[str, float], None]
LogExtra = Callable[[str, list[Any]], None]

_log = logging.getLogger("adjudge")


def for_trl(
    reward: Reward | Function,
    num_generations: int | None = None,
    deadline: float | None = None,
    *,
    columns: Sequence[str] | None = None,
    reference: str = "reference",
    system: str | None = None,
    turns: Turns = "all",
    on_failure: OnFailure = "stop",
    asynchronous: bool = False,
) -> TrlReward | AsyncTrlReward:
    """The reward as a reward function of GRPOTrainer: `GRPOTrainer(reward_funcs=[for_trl(reward)], …)`.

    The group size is the trainer's own; where that cannot be seen (AsyncGRPOTrainer, calls by hand) it is
    `num_generations`, or groups are the runs of equal prompts: see `cut`. (AsyncGRPOTrainer's are not equal where an
    environment adds to them: give `num_generations` and the asynchronous form.) `columns` names what the reward reads
    of the data set besides its id and its reference (default: everything, and what environments and rollouts add),
    `reference` the column with the text that completions are held against. Columns in which the completions of a group
    differ are for functions (`FunctionReward`), and so is `completion_ids` where one takes it (`trainer_state` and
    what to log with reach none). `system` is a system's turn that is put before the data's prompts (how to write, not
    what): judges do not see it. `turns` says what of a completion of several turns is judged: see `samples_of`; with
    "own" or "last" what tools say is none of it. `deadline` (seconds) and `on_failure` are those of `Scorer`: give a
    deadline below the process group's timeout, so that a judge that does not answer costs a step's rewards and not the
    run. `asynchronous` gives the form that TRL awaits: see `AsyncTrlReward`. Guards and length trends see nothing of an
    evaluation, where the trainer can be seen.
    """
    kind = AsyncTrlReward if asynchronous else TrlReward
    return kind(Scorer(reward, deadline, on_failure), num_generations, columns, reference, system, turns)


class _Trl:
    """What both forms share; pickles as long as its reward does."""

    def __init__(
        self,
        scorer: Scorer,
        num_generations: int | None = None,
        columns: Sequence[str] | None = None,
        reference: str = "reference",
        system: str | None = None,
        turns: Turns = "all",
    ) -> None:
        if turns not in get_args(Turns):
            raise AdjudgeError(f"turns is {shown(turns)}: choose {', '.join(get_args(Turns))}")
        if num_generations is not None and not (is_number(num_generations, Integral) and num_generations >= 1):
            raise AdjudgeError(f"num_generations is {shown(num_generations)}: give the trainer's own, or None")
        if isinstance(columns, str) or not isinstance(columns, Sequence | None):
            raise AdjudgeError(f"columns is {shown(columns)}: give a list of names, or None for all")
        self.scorer = scorer
        self.num_generations = num_generations
        self.columns = columns if columns is None else tuple(dict.fromkeys(columns))
        self.reference, self.system, self.turns = reference, system, turns
        self.__name__ = scorer.name  # how TRL's logs call it
        self.measures: dict[str, float] = {}
        self._columns: tuple[str, ...] = ("abstained",)
        self._rows = 0
        self._warned = False
        self._scored = 0
        self._abstained: Counter[str] = Counter()

    def _samples(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Any, columns: dict[str, Any]
    ) -> list[Sample]:
        columns, wanted = self.with_ids(columns, completion_ids), None
        if self.columns is None:
            columns = {name: values for name, values in columns.items() if name not in NO_COLUMNS}
        else:
            always = [name for name in (self.reference, "id", "completion_ids") if columns.get(name) is not None]
            wanted = list(dict.fromkeys((*self.columns, *always)))
        return samples_of(prompts, completions, columns, wanted, self.system, self.turns)

    def with_ids(self, columns: dict[str, Any], completion_ids: Any) -> dict[str, Any]:
        """The columns, with the tokens of the completions where the reward takes them."""
        taken = completion_ids is not None and self.scorer.reward.takes_ids
        return {**columns, "completion_ids": completion_ids} if taken else columns

    def _size(self, log_metric: LogMetric | None) -> int | None:
        """How many completions a group has: as the trainer says, if it can be seen, or as it was told."""
        training, size = _trainers_size(log_metric)
        if training and size is not None and self.num_generations not in (None, size):
            raise AdjudgeError(
                f"num_generations is {self.num_generations} here and {size} in the trainer: make them equal, or leave"
                " it out here"
            )
        return self.num_generations if size is None else size

    def _report(
        self,
        groups: Sequence[Group],
        scored: Scored,
        local: Sequence[int],
        log_metric: LogMetric | None,
        log_extra: LogExtra | None,
    ) -> list[float | None]:
        """Log what is worth watching, and return the rewards of this process's completions, at the places `local`."""
        name = self.scorer.name
        tokens = {"tokens_computed": float(scored.tokens_computed), "tokens_saved": float(scored.tokens_saved)}
        self.measures = logged(groups, scored.rewards) | {"seconds": scored.seconds} | tokens
        self.measures |= {measure: value for measure, value in scored.metrics.items() if math.isfinite(value)}
        if log_metric is None:
            _log.info("reward %s: %s", name, self.measures)
            self._warn_of_abstentions(scored.rewards)
        else:
            self._warn_unless_alone(log_metric)
            for measure, value in self.measures.items():
                log_metric(f"{name}/{measure}", value)
        if log_extra is not None:
            for column, values in self._breakdown(scored.rewards, local).items():
                log_extra(f"{name}/{column}", values)
        values = [value for reward in scored.rewards for value in reward.settled]
        return [values[place] for place in local]

    def _breakdown(self, rewards: Sequence[GroupReward], local: Sequence[int]) -> dict[str, list[Any]]:
        """Parts and reason of this process's completions, for the table of completions: the same columns in every step.

        The reason's is "abstained", and that of a part which has this name "part/abstained". A column that stays away
        for a step leaves the table with rows of an earlier one. One that was not there before (nothing but abstentions
        has no parts) begins with a None for every completion before, in the first process.
        """
        before, rows = self._columns, self._rows if place_among_processes()[0] == 0 else 0
        named = [(parts_beside(("abstained",), reward), len(reward.rewards)) for reward in rewards]
        self._columns = tuple(dict.fromkeys((*before, *(name for parts, _ in named for name in parts))))
        self._rows += sum(len(reward.rewards) for reward in rewards)
        reasons = [why for reward in rewards for why in reward.abstained]
        table: dict[str, list[Any]] = {"abstained": [reasons[place] for place in local]}
        for name in self._columns[1:]:
            values = [value for parts, count in named for value in parts.get(name, (None,) * count)]
            table[name] = [*([] if name in before else [None] * rows), *(values[place] for place in local)]
        return table

    def _warn_of_abstentions(self, rewards: Sequence[GroupReward]) -> None:
        """What a trainer that takes no metrics would not show: said at the first, and again at twice as many."""
        before = self._abstained.total()
        for reward in rewards:
            self._scored += len(reward.rewards)
            alone = zip(reward.settled, reward.abstained, strict=True)
            self._abstained.update(why or "too_few" for value, why in alone if value is None)
        if self._abstained.total().bit_length() > before.bit_length():
            _log.warning(
                'reward "%s": %d of the %d completions so far abstained (%s)',
                self.scorer.name,
                self._abstained.total(),
                self._scored,
                ", ".join(f"{why} {count}" for why, count in sorted(self._abstained.items())),
            )

    def _warn_unless_alone(self, log_metric: LogMetric) -> None:
        functions = getattr(getattr(log_metric, "__self__", None), "reward_funcs", ())
        if len(functions) > 1 and not self._warned:
            self._warned = True
            warnings.warn(
                f'reward "{self.scorer.name}" is one of {len(functions)} reward functions: TRL counts an abstention as'
                " 0 then, which is a reward like any other; compose the parts inside one reward",
                stacklevel=2,
            )


class TrlReward(_Trl):
    """A reward function that scores every group once, in one process, and gives each process its completions' rewards.

    All processes must call it, as GRPOTrainer does: it gathers the texts and columns and gives each process an equal
    share of the groups; layers around the reward (`LengthFree`, `Guarded`) are the first process's, which has all of
    them. The rewards are the same to the last bit for any number of processes if the judge's are so in any company, as
    the engine's are. An error of one process is raised in all. Every process logs the same metrics, of all groups;
    `measures` keeps those of the last call.
    """

    def __call__(
        self,
        /,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        *,
        trainer_state: Any = None,
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The rewards of this process's completions, None for an abstention."""
        gathered = share(attempt(lambda: self._samples(prompts, completions, completion_ids, columns)))
        arranged = attempt(lambda: self._arranged(values_of(gathered), self._size(log_metric)))
        with learning(_trainers_size(log_metric)[0]):
            done = values_of(share(attempt(lambda: self._share_of_work(arranged))))
            [(groups, local)] = values_of([arranged])
            placed = dict(pair for places, scored in done for pair in zip(places, scored.rewards, strict=True))
            rewards = [placed[place] for place in range(len(groups))]
            self.scorer.mute(rewards)
            scored = _together([scored for _, scored in done], rewards)
            if layers_of(self.scorer.reward)[1]:
                rank, _ = place_among_processes()
                outcome = attempt(lambda: self.scorer.layered(groups, scored) if rank == 0 else None)
                scored = values_of(share(outcome))[0] or scored
            return self._report(groups, scored, local, log_metric, log_extra)

    def _arranged(self, slices: Sequence[list[Sample]], size: int | None) -> tuple[list[Group], list[int]]:
        """The groups of all processes, and where this one's completions stand in them."""
        orders = [side_by_side(slice_, size, self.reference) for slice_ in slices]
        samples = [slice_[place] for slice_, order in zip(slices, orders, strict=True) for place in order]
        groups = [group_of(one, self.reference) for one in cut(samples, size, self.reference)]
        rank, _ = place_among_processes()
        return groups, _places(orders[rank], sum(map(len, slices[:rank])))

    def _share_of_work(self, arranged: Result[tuple[list[Group], list[int]]]) -> tuple[tuple[int, ...], Scored]:
        """The places of this process's groups among all, and what came of them."""
        [(groups, _)] = values_of([arranged])
        rank, count = place_among_processes()
        places = shares(groups, count)[rank]
        return places, self.scorer.score_inside([groups[place] for place in places], probe=rank == 0)


class AsyncTrlReward(_Trl):
    """The form that TRL awaits: it scores the slice it is given, in a thread, while the event loop goes on.

    It asks nothing of other processes, and tells them of no error. With AsyncGRPOTrainer, which gives whole groups,
    the judge works while the next ones are generated. With GRPOTrainer it runs beside other asynchronous reward
    functions; a group that is cut by the slices is scored in two parts, each by itself: use `TrlReward` there for
    rewards that compare members. On several GPUs name the device of the judge's engine: the thread does not know which
    one is this process's.
    """

    async def __call__(
        self,
        /,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        *,
        trainer_state: Any = None,
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The rewards of the completions, None for an abstention."""
        asked = time.monotonic()
        given, size = self._samples(prompts, completions, completion_ids, columns), self._size(log_metric)
        order = side_by_side(given, size, self.reference)
        rank, _ = place_among_processes()
        cuts = pieces([given[place] for place in order], size, rank * len(given), self.reference)
        groups = [group_of(one, self.reference) for one in cuts]
        with learning(_trainers_size(log_metric)[0]):
            scored = await asyncio.to_thread(self.scorer.score, groups, asked, whole=False)
        return self._report(groups, scored, _places(order), log_metric, log_extra)


def _places(order: Sequence[int], first: int = 0) -> list[int]:
    """Where each completion stands when they are put in that order, after the `first` ones of other processes."""
    return [first + place for place in sorted(range(len(order)), key=order.__getitem__)]


def shares(groups: Sequence[Group], count: int) -> list[tuple[int, ...]]:
    """The places of the groups that each of `count` processes scores: about as much text for each.

    The longest group left goes to the least loaded process each time; every process comes to the same shares.
    """
    lengths = [len(group.prompt) + sum(map(len, group.responses)) for group in groups]
    loads = [0] * count
    chosen: list[list[int]] = [[] for _ in range(count)]
    for place in sorted(range(len(groups)), key=lambda place: -lengths[place]):
        lightest = loads.index(min(loads))
        chosen[lightest].append(place)
        loads[lightest] += lengths[place] + 1
    return [tuple(sorted(places)) for places in chosen]


def _together(parts: Sequence[Scored], rewards: list[GroupReward]) -> Scored:
    """What all processes did: tokens summed, the seconds of the slowest, means of the reward's own metrics."""
    metrics: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.metrics.items():
            metrics.setdefault(name, []).extend([value] if math.isfinite(value) else [])
    return Scored(
        rewards,
        seconds=max(part.seconds for part in parts),
        tokens_computed=sum(part.tokens_computed for part in parts),
        tokens_saved=sum(part.tokens_saved for part in parts),
        metrics={name: math.fsum(values) / len(values) for name, values in metrics.items() if values},
    )


def _trainers_size(log_metric: LogMetric | None) -> tuple[bool, int | None]:
    """Whether the trainer is training, and its group size; TRL tells neither, but `log_metric` is a method of it."""
    trainer = getattr(log_metric, "__self__", None)
    training = bool(getattr(getattr(trainer, "model", None), "training", True))
    size = getattr(trainer, "num_generations" if training else "num_generations_eval", None)
    return training, size if isinstance(size, int) else None
