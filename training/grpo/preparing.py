"""What a run's first steps would wait for, made before them: the references of its prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from adjudge.rewards.journal import AS_IT_WAS, Journal
from adjudge.rewards.judge_rewards.references import DynamicReference, Referenced
from adjudge.rewards.records.messages import Text
from adjudge.rewards.records.rows import Row
from adjudge.rewards.trainers.processes import attempt, place_among_processes, share, values_of
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.progress import bar
from adjudge.training.prompts import asked
from adjudge.training.run import Begun

WINDOW = 64
"""References that each process writes before it tells the others: none of them waits long."""


class Preparing(TrainerCallback):
    """Has the references of `prompts` written when training begins; each process writes its share, and knows all.

    Those of a run that is resumed are in its `journal`, or else written again. `around` is what they are written in: as
    in a call of the reward.
    """

    def __init__(
        self,
        reference: DynamicReference,
        prompts: Sequence[Text],
        journal: Path | None,
        around: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.reference, self.prompts, self.journal, self.around = reference, prompts, journal, around

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have them written."""
        rank, count = place_among_processes()
        at_once = WINDOW * count
        if not self.prompts:
            return
        with ExitStack() as stack:
            stack.enter_context(self.around())
            journal = None if self.journal is None else stack.enter_context(Journal(self.journal, mend=AS_IT_WAS))
            progress = stack.enter_context(bar(shown=rank == 0))
            task = progress.add_task("references", total=len(self.prompts))
            for start in range(0, len(self.prompts), at_once):
                own = self.prompts[start + rank : start + at_once : count]
                work = partial(self._written, own, journal, partial(progress.advance, task, count))
                for texts in values_of(share(attempt(work))):
                    self.reference.known |= texts
                progress.update(task, completed=min(start + at_once, len(self.prompts)))

    def _written(
        self, prompts: Sequence[Text], journal: Journal | None, each: Callable[[], object]
    ) -> dict[str, Referenced]:
        """What is known now and was not before."""
        before = set(self.reference.known)
        self.reference.prepare(prompts, journal, each=each)
        return {key: one for key, one in self.reference.known.items() if key not in before}


def coming(recipe: GrpoRecipe, order: Sequence[Row], held_out: Sequence[Row], begun: Begun) -> list[Any]:
    """The prompts that a run of the `order` still comes to, each row once, as the trainer takes them."""
    step, optimiser = begun.step, recipe.optimiser
    left = order[step // optimiser.iterations * optimiser.prompts_per_step :]
    rows = [*left, *(held_out if left or begun.answered != step else ())]
    return [asked(row, recipe.data) for row in {id(row): row for row in rows}.values()]
