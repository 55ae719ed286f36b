"""One way to train judges of every kind: a task packs rows and measures itself, transformers' trainer does the rest."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec
import torch

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.adapters import Adapter, Base, check_base, read_adapter
from adjudge.engine.models.sources import OpenModel, resolve
from adjudge.training.evaluator.recipe import JudgeRecipe, TrainedPolicy
from adjudge.training.run import Run, Status, begin, processes

if TYPE_CHECKING:
    from transformers import TrainerCallback

Example = TypeVar("Example")
Batch = Mapping[str, torch.Tensor]


class Task(ABC, Generic[Example]):
    """What is learnt: the `model`, examples to `train` on and those `held_out`, and how they are read.

    `shortened` is how many rows were too long; `adapter_task` is what peft calls the task.
    """

    adapter_task: ClassVar[str]
    model: Any
    train: Sequence[Example]
    held_out: Sequence[Example]
    shortened: int

    @property
    def rows(self) -> tuple[int, int]:
        """How many rows the examples of both sides are: more than these where rows are learnt together."""
        return len(self.train), len(self.held_out)

    @abstractmethod
    def length(self, example: Example) -> int:
        """Its tokens: examples of about one length go through the model together."""

    @abstractmethod
    def batch(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """Examples as tensors."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> torch.Tensor:
        """The mean loss of the batch's examples."""

    @abstractmethod
    def answers(self, model: Any, batch: Batch) -> list[Any]:
        """What the model says of each example."""

    @abstractmethod
    def measures(self, examples: Sequence[Example], answers: Sequence[Any]) -> dict[str, float | None]:
        """Answers held against what people said, `loss` among them."""

    def begin(self, model: Any, device: torch.device, at_once: int) -> None:
        """Look at the model that training begins from, the adapter that a recipe goes on from over it.

        `device` is where it is to be trained, and may be moved to; `at_once` is how many examples it takes together.
        """

    @contextlib.contextmanager
    def as_saved(self) -> Iterator[None]:
        """Within the block the model is as it is to be saved, without what was done to it for training alone."""
        yield


def fit(
    recipe: JudgeRecipe,
    rows: str,
    open_task: Callable[[OpenModel], Task[Any]],
    *,
    measure: str,
    resume: bool,
    overwrite: bool,
    status: Status,
    callbacks: Sequence[TrainerCallback] = (),
    begins: Callable[[], None] = lambda: None,
    finish: Callable[[Path, Run], None] = lambda folder, run: None,
) -> Run:
    """Train the model of a recipe on a task; folder, processes and resuming are those of `train_sft`.

    `rows` is the rows' fingerprint, `measure` what the run is summed up by; `begins` and `finish` are those of
    `trained`.
    """
    kind = type(recipe).__name__.removesuffix("Recipe").lower()
    record = {"kind": kind, **msgspec.to_builtins(recipe), "rows": rows}
    state = processes()
    recipe.optimiser.parts(state.num_processes)  # raises
    start = _start(recipe.policy)
    if start is not None:
        record["start"] = start.fingerprint
    with begin(state, recipe, record, [recipe.policy.model], resume=resume, overwrite=overwrite) as begun:
        from adjudge.training.evaluator.trainer import train  # transformers takes seconds, for which no mistake waits

        return train(recipe, open_task, start, begun, status, callbacks, metric=measure, begins=begins, finish=finish)


def _start(policy: TrainedPolicy) -> Adapter | None:
    """The adapter that a recipe goes on from, if there is one; raises AdjudgeError where it cannot."""
    if policy.adapter is None:
        return None
    adapter = read_adapter(policy.adapter)
    if adapter.reward_weight is not None:
        raise AdjudgeError(
            f"the adapter in {policy.adapter} is a reward model's, which no judge goes on from: leave it out"
        )
    check_base(policy.adapter, Base(policy.model, resolve(policy.model).fingerprint))
    return adapter
