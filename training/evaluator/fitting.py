"""One way to train judges of every kind: transformers' trainer on rows that a task packs and measures itself."""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.adapters import Adapter, Base, attach, check_base, read_adapter
from adjudge.engine.models.sources import OpenModel, resolve
from adjudge.training.arguments import arguments, parts
from adjudge.training.callbacks import Watch
from adjudge.training.evaluator.recipe import JudgeOptimiser, JudgeRecipe, TrainedPolicy
from adjudge.training.policy import lora_config, open_policy
from adjudge.training.prompts import shuffled
from adjudge.training.run import Begun, Run, Status, begin, calm, processes, trained
from adjudge.training.run_folder import RunFolder
from adjudge.training.terminal import counted

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
    callbacks: Sequence[TrainerCallback],
    finish: Callable[[Path, Run], None] = lambda folder, run: None,
) -> Run:
    """Train the model of a recipe on a task; folder, processes and resuming are those of `train_sft`.

    `rows` is the rows' fingerprint, `measure` what the run is summed up by; `finish` completes the policy's folder.
    """
    folder, optimiser = RunFolder(Path(recipe.output)), recipe.optimiser
    kind = type(recipe).__name__.removesuffix("Recipe").lower()
    record = {"kind": kind, **msgspec.to_builtins(recipe), "rows": rows}
    state = processes()
    local = parts(optimiser, state.num_processes)
    start = _start(recipe.policy)
    if start is not None:
        record["start"] = start.fingerprint
    models = [recipe.policy.model]
    with (
        begin(state, recipe, record, models, resume=resume, overwrite=overwrite) as begun,
        calm(),
        _unplanned_attention(),
    ):
        policy = open_policy(recipe.policy, folder.making, gpu=begun.gpu)
        policy.tokenizer.padding_side = "right"
        task = open_task(policy)
        steps = optimiser.count(len(task.train))
        for line in _plan(task, steps, optimiser.rows_per_step, begun):
            status(line)
        model = _adapted(recipe, task, start)
        how = _arguments(recipe, local, steps, begun, held_out=bool(task.held_out))
        if how.bf16:
            _uncast(model)
        with torch.autocast(how.device.type, torch.bfloat16, enabled=how.bf16):  # as it is trained
            task.begin(
                model, how.device, optimiser.at_once(state.num_processes) * (4 if begun.gpu else 1)
            )  # which keeps nothing
        watch = Watch(folder)
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

        return trained(trainer, watch, begun, recipe, metric=measure, finish=complete)


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
        examples = sorted(task.held_out, key=task.length)
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


def _adapted(recipe: JudgeRecipe, task: Task[Any], start: Adapter | None) -> Any:
    """The model itself, or with an adapter over it: `start`, or a new one; in float32 what is trained of it."""
    from peft import get_peft_model, set_peft_model_state_dict

    if recipe.policy.method == "full":
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
    model = get_peft_model(task.model, lora_config(recipe.policy.lora, task.model, task.adapter_task))
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


def _arguments(recipe: JudgeRecipe, accumulate: int, steps: int, begun: Begun, *, held_out: bool) -> Any:
    optimiser = recipe.optimiser
    micro = optimiser.at_once(begun.state.num_processes)
    how = arguments(recipe, optimiser, micro, accumulate, steps, begun, held_out=held_out)
    words = TrainingArguments(
        remove_unused_columns=False, gradient_checkpointing_kwargs={"use_reentrant": False}, **how
    )
    words._n_gpu = min(words.n_gpu, 1)  # a batch is no stack of rows that one process could deal out to its GPUs
    return words


def _in_order(task: Task[Example], optimiser: JudgeOptimiser, steps: int, seed: int) -> list[Example]:
    """The examples of every step, in random order; within a step, whose gradient is one sum, by their length."""
    size = optimiser.rows_per_step
    order = shuffled(task.train, steps * size, seed)
    return [
        example
        for start in range(0, len(order), size)
        for example in sorted(order[start : start + size], key=task.length)
    ]
