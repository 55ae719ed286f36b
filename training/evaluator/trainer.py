"""The trainer of judges around transformers', and the model that it is given."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.adapters import Adapter, attach
from adjudge.engine.models.sources import OpenModel
from adjudge.training.callbacks import Watch
from adjudge.training.evaluator.fitting import Batch, Example, Task
from adjudge.training.evaluator.recipe import JudgeOptimiser, JudgeRecipe
from adjudge.training.policy import adapter_over, open_policy
from adjudge.training.prompts import shuffled
from adjudge.training.run import Begun, Run, Status
from adjudge.training.terminal import counted
from adjudge.training.trainer import arguments, calm, trained


def train(
    recipe: JudgeRecipe,
    open_task: Callable[[OpenModel], Task[Any]],
    start: Adapter | None,
    begun: Begun,
    status: Status,
    callbacks: Sequence[TrainerCallback],
    *,
    metric: str,
    begins: Callable[[], None],
    finish: Callable[[Path, Run], None],
) -> Run:
    """Train the model of a recipe, or the adapter `start` where there is one; the rest is as `trained` has it."""
    optimiser, count = recipe.optimiser, begun.state.num_processes
    with calm(), _unplanned_attention():
        policy = open_policy(recipe.policy, begun.folder.making, gpu=begun.gpu)
        policy.tokenizer.padding_side = "right"
        task = open_task(policy)
        steps = optimiser.count(len(task.train))
        for line in _plan(task, steps, optimiser.rows_per_step, begun):
            status(line)
        model = _adapted(recipe, task, start)
        micro = optimiser.at_once(count)
        how = TrainingArguments(
            remove_unused_columns=False,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            **arguments(recipe, optimiser, micro, optimiser.parts(count), steps, begun, held_out=bool(task.held_out)),
        )
        how._n_gpu = min(how.n_gpu, 1)  # a batch is no stack of rows that one process could deal out to its GPUs
        if how.bf16:
            _uncast(model)
        with torch.autocast(how.device.type, torch.bfloat16, enabled=how.bf16):  # as it is trained
            task.begin(model, how.device, micro * (4 if begun.gpu else 1))  # which keeps nothing
        watch = Watch(begun.folder)
        trainer = _Trainer(  # without the tokenizer, to whose special tokens it would change the model's configuration
            task=task,
            model=model,
            args=how,
            train_dataset=_in_order(task, optimiser, steps, recipe.seed),
            eval_dataset=list(task.held_out) or None,
            data_collator=task.batch,
            callbacks=[watch, *callbacks],
        )

        def complete(made: Path, run: Run) -> None:
            policy.tokenizer.save_pretrained(made)
            finish(made, run)

        return trained(trainer, watch, begun, recipe, metric=metric, begins=begins, finish=complete)


def _plan(task: Task[Any], steps: int, each: int, begun: Begun) -> Iterator[str]:
    """What is about to happen; where rows are learnt together, a step takes groups of them."""
    groups = [len(task.train), len(task.held_out)]
    together = task.rows != tuple(groups)
    train, held_out = (f" in {counted(count, 'group')}" if together and count else "" for count in groups)
    rows = f"{counted(task.rows[0], 'row')}{train} to train on, {task.rows[1]}{held_out} held out"
    yield f"{rows}, {task.shortened} shortened"
    taken = counted(each, "group" if together else "row")
    yield f"{counted(steps, 'step')} of {taken}"
    yield from begun.where


class _Trainer(Trainer):
    """Transformers' trainer, with the loss and the measures of a task."""

    loss_is_scaled_for_ga = False  # a batch's loss is a mean

    def __init__(self, task: Task[Any], **options: Any) -> None:
        super().__init__(**options)
        self.task = task

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The model as it is to be saved."""
        with self.task.as_saved():
            super().save_model(output_dir, _internal_call)

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The task's loss."""
        loss = self.task.loss(model, inputs)
        return (loss, {}) if return_outputs else loss

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """The task's measures on the held-out rows; every process looks at all of them."""
        task, size = self.task, self.args.per_device_eval_batch_size
        examples = sorted(task.held_out, key=task.length, reverse=True)  # what the longest take serves the others
        answers: list[Any] = []
        model: Any = self.model
        model.eval()
        with torch.no_grad(), self.compute_loss_context_manager():
            for start in range(0, len(examples), size):
                batch = self._prepare_inputs(task.batch(examples[start : start + size]))
                answers += task.answers(model, batch)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in task.measures(examples, answers).items()}
        self.log(metrics)  # type: ignore[arg-type]
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics  # type: ignore[return-value]


def _adapted(recipe: JudgeRecipe, task: Task[Any], start: Adapter | None) -> Any:
    """The model itself, or with an adapter over it: `start`, or a new one; in float32 what is trained of it."""
    from peft import get_peft_model, set_peft_model_state_dict

    form = adapter_over(task.model, recipe.policy, task.adapter_task)
    if form is None:
        return task.model
    if start is not None:
        model = attach(task.model, start).train()
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights.data = weights.data.float()  # as a new one is, and as resuming makes it
                weights.requires_grad_(_layer(name) >= recipe.policy.first_layer)
        set_peft_model_state_dict(model, start.weights)  # which the model's own precision has rounded
        if not any(weights.requires_grad for weights in model.parameters()):
            raise AdjudgeError(f"the adapter has no layer {recipe.policy.first_layer}: lower [policy] first_layer")
        return model
    set_seed(recipe.seed)  # the adapter's first weights, whatever was drawn before
    model = get_peft_model(task.model, form)
    for weights in model.parameters():
        if weights.requires_grad:  # a reward model's head among them, which small steps would leave where it is
            weights.data = weights.data.float()
    return model


@contextlib.contextmanager
def _unplanned_attention() -> Iterator[None]:
    """Within the block attention on a GPU is not cuDNN's, which is planned anew for every length that a batch has."""
    kernels: Any = torch.backends.cuda
    enabled = kernels.cudnn_sdp_enabled()
    kernels.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        kernels.enable_cudnn_sdp(enabled)


def _uncast(model: Any) -> None:
    """Leave an adapter's inputs in bfloat16, to which autocast would take them back: the same bits in less time."""
    for module in model.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            module.cast_input_dtype_enabled = False


def _layer(name: str) -> int:
    """The number of the layer that a weight is of; that of none is beyond them all."""
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    return numbers[0] if numbers else sys.maxsize


def _in_order(task: Task[Example], optimiser: JudgeOptimiser, steps: int, seed: int) -> list[Example]:
    """The examples of every step, in random order; within a step, whose gradient is one sum, by their length."""
    size = optimiser.rows_per_step
    order = shuffled(task.train, steps * size, seed)
    return [
        example
        for start in range(0, len(order), size)
        for example in sorted(order[start : start + size], key=task.length)
    ]
