"""Two processes that call a reward as GRPOTrainer does, each with its slice of the batch."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import torch.distributed
import torch.multiprocessing
from torch.multiprocessing.spawn import ProcessExitedException

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.canary import CanaryGuard
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.length import LengthGuard
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.parts.combining import WeightedSum
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.layer import layers_of
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.trl import TrlReward, for_trl
from tests.rewards.guards.made_reward import CANARIES
from tests.rewards.trainers.rewards import Judged, Relative, Short, Told, Trips, fails_on_second

PROMPTS = ["Tell one.", "Tell one.", "Tell two.", "Tell two.", "Tell three.", "Tell three."]
STORIES = ["A", "A A", "A A A", "A B", "A", "A A A A A"]
NOTES = ["one", "one", "two", "two", "three", "three"]
TOKENS = [[[1], [1, 2], [1, 2, 3]], [[4], [4, 5], [4, 5, 6]]]
TURNS = [[10, 20, 30], [40, 50, 60]]


def scenarios(rank: int) -> dict[str, tuple[TrlReward, dict[str, Any]]]:
    """What both processes go through, in order: a reward function, and what is not as usual in its arguments."""
    level, watched = levelled(), for_trl(Guarded(Relative(), [LengthGuard(), CanaryGuard(CANARIES)]), 2)
    found: dict[str, tuple[Any, dict[str, Any]]] = {
        "relative": (for_trl(Relative(), 2), {}),
        "inferred": (for_trl(Relative()), {}),
        "judged": (for_trl(Judged()), {}),
        "no whole groups": (for_trl(Relative(), 4), {}),
        "unequal groups": (for_trl(Relative()), {"prompts": ["Tell one."] * 3} if rank == 0 else {}),
        "no column here": (for_trl(Relative(), 2, columns=("rubric",)), {"rubric": NOTES[:3]} if rank == 0 else {}),
        "not to be sent": (for_trl(Relative(), 2), {"notes": [lambda: 0] * 3} if rank == 1 else {}),
        "short": (for_trl(Short(len), 2), {}),
        "fails in one": (for_trl(Told(fails_on_second), 2), {}),
        "tripped": (for_trl(Trips(len), 2), {}),
        "abstains in one": (for_trl(Told(fails_on_second), 2, on_failure="abstain"), {}),
        "after all that": (for_trl(Relative(), 2), {}),
        "levelled": (level, {}),
        "levelled again": (level, {}),
        "watched": (watched, {}),
        "late in one": (late(rank), {}),
        "no time for one": (for_trl(no_time_for("Tell three."), 2), {}),
        "no time at all": (for_trl(no_time_for(*PROMPTS), 2), {}),
        "functions": (for_trl(functions(), 2), {"completion_ids": TOKENS[rank], "turns": TURNS[rank]}),
        "tokens stay here": (for_trl(Relative(), 2), {"completion_ids": [lambda: 0] * 3}),
    }
    return found


def functions() -> WeightedSum:
    """What functions say of each completion's tokens, and of what its environment adds."""
    long: Any = lambda completion_ids, **_: [float(len(ids)) for ids in completion_ids]  # noqa: E731
    return WeightedSum({"long": long, "turns": lambda turns: turns})


def no_time_for(*asked: str) -> FunctionReward:
    """Lengths, but for these prompts; "Tell three." is all of the first process's share."""
    late: Any = lambda prompts, completions: [  # noqa: E731
        (None, "timeout") if prompt in asked else float(len(text))
        for prompt, text in zip(prompts, completions, strict=True)
    ]
    return FunctionReward(late)


def levelled() -> TrlReward:
    """A reward without its length trend from the second call on."""
    function = for_trl(LengthFree(Relative(), warmup=0), 2)
    assert isinstance(function, TrlReward)
    return function


class Never(Relative):
    """Does not come back."""

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        Event().wait()
        raise AssertionError("nobody sets it")


def late(rank: int) -> TrlReward:
    """A watched reward whose deadline passes in the first process."""
    inside = Never() if rank == 0 else Relative()
    function = for_trl(Guarded(inside, [LengthGuard()]), 2, deadline=0.5 if rank == 0 else 60)
    assert isinstance(function, TrlReward)
    return function


def call(rank: int, folder: str) -> None:
    """Go through the scenarios, and write down what came of each."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    torch.distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=100)
    )
    local = slice(3 * rank, 3 * rank + 3)
    came: dict[str, Any] = {}
    for name, (function, unusual) in scenarios(rank).items():
        metrics: list[tuple[str, float]] = []
        extra: dict[str, list[Any]] = {}
        arguments: dict[str, Any] = {
            "prompts": PROMPTS[local],
            "completions": STORIES[local],
            "completion_ids": [[0]] * 3,
            "notes": NOTES[local],
            "log_metric": lambda name, value, to=metrics: to.append((name, value)),
            "log_extra": extra.__setitem__,
        }
        try:
            rewards = function(**(arguments | unusual))
            asked = [group.prompt for group in getattr(layers_of(function.scorer.reward)[0], "asked", ())]
            came[name] = {"rewards": rewards, "metrics": metrics, "extra": extra, "asked": asked}
        except AdjudgeError as error:
            came[name] = (type(error).__name__, str(error), getattr(error, "__notes__", []))
    Path(folder, f"came-{rank}").write_bytes(pickle.dumps(came))
    torch.distributed.destroy_process_group()


def in_two_processes(folder: Path) -> list[dict[str, Any]]:
    """What came of every scenario in each of two processes.

    Gloo can abort a process as it connects or as it ends (pytorch/gloo#514, pytorch#179291), with none of our
    code on the stack; such a pair is begun again. What a scenario raises is another error, and is not.
    """
    for attempt in range(3):
        place = folder / str(attempt)
        place.mkdir()
        try:
            torch.multiprocessing.spawn(call, (str(place),), nprocs=2)
        except ProcessExitedException as error:
            if error.signal_name != "SIGABRT" or attempt == 2:
                raise
        else:
            return [pickle.loads((place / f"came-{rank}").read_bytes()) for rank in range(2)]
    raise AssertionError("the last attempt returns or raises")
