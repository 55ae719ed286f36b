"""GRPO on a recipe, TRL underneath: a policy learns what a reward of adjudge's pays for."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import random
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from accelerate.utils import set_seed
from transformers import TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.imported import is_own, source_of
from adjudge.rewards.judges.kinds import FILES
from adjudge.rewards.records.rows import Row
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.scoring import Scorer
from adjudge.rewards.trainers.trl import TrlReward
from adjudge.training.arguments import arguments
from adjudge.training.callbacks import Watch
from adjudge.training.grpo.guarding import Guarding
from adjudge.training.grpo.judges import Paying
from adjudge.training.grpo.preparing import coming
from adjudge.training.grpo.recipe import Batch, GrpoRecipe, batch_of
from adjudge.training.grpo.unrewarded import unrewarded
from adjudge.training.metrics import read_metrics, weighted_mean
from adjudge.training.policy import lora_config, open_policy
from adjudge.training.prompts import Prompts, dataset, fingerprint, read_by_policy, read_prompts, shuffled, within
from adjudge.training.reward_log import Recorded, check_columns, read_rewards, remember
from adjudge.training.run import Begun, Run, Status, begin, calm, heard_once, processes, trained
from adjudge.training.run_folder import RunFolder
from adjudge.training.terminal import counted

HELD_OUT_BATCH = 16
"""Completions of held-out prompts that are written at once."""


def _record(recipe: GrpoRecipe, prompts: Prompts) -> dict[str, Any]:
    """What a resumed run must have in common with the one it continues, but for what `RunFolder.check` leaves free.

    That is all that decides a number, be it a last bit, as settings of memory and batches may; how long a judge is
    waited for, and what becomes of one that fails, are no part of it.
    """
    told: dict[str, Any] = msgspec.to_builtins(recipe)
    told["guards"].pop("stop_on")
    for name in ("sleep", "deadline", "on_failure"):
        told["reward"].pop(name)
    return {**told, "prompts": fingerprint(prompts), "files": _digests(told)}


def _digests(told: Any) -> list[str]:
    """Of the files that judges and guards are given or come from, in order: paths do not tell a change."""
    found: list[str] = []
    for name, value in told.items() if isinstance(told, dict) else ():
        if name in (*FILES, "canaries") and isinstance(value, str) and Path(value).is_file():
            found.append(hashlib.sha256(Path(value).read_bytes()).hexdigest())
        if name in ("judge", "function") and is_own(value) and (source := source_of(value)) is not None:
            found.append(hashlib.sha256(source.read_bytes()).hexdigest())
        found += _digests(value)
    return found


def train_grpo(
    recipe: GrpoRecipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    reward: Reward | None = None,
    status: Status = lambda line: None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Run:
    """Train the policy of a recipe, and leave it with its metrics and curves in the recipe's output folder.

    The same call in each process of `accelerate launch` trains one policy together. `reward` stands in for the
    recipe's own. A resumed run goes on as if it had never stopped, to the last bit on the same machine with the same
    number of processes: order of prompts, optimiser, schedule and random states are restored, and what was logged
    after the checkpoint is logged anew; guards go on from what they knew. A run that a guard is to stop is logged and
    saved before GuardTripped is raised. Raises AdjudgeError for what can be mended, before the policy is loaded where
    possible, and at the end of a run in which no completion got a reward (Unrewarded).
    """
    status = heard_once(status)
    folder, prompts = RunFolder(Path(recipe.output)), read_prompts(recipe.data)
    record = _record(recipe, prompts)
    if recipe.reward.journal:
        check_columns(prompts)
    _check_written((*prompts.train, *prompts.held_out))
    state = processes()
    paying = Paying(recipe, reward, prompts, folder, state)
    batch = batch_of(recipe, state.num_processes)
    _check_extras(recipe, gpu=state.device.type == "cuda")
    models = (recipe.policy.model, *paying.models)
    with begin(state, recipe, record, models, paying.adapters, resume=resume, overwrite=overwrite) as begun, calm():
        held = None if begun.gpu and not paying.sleeps else paying.open(resume=resume)
        if begun.resumed and recipe.reward.length_free is not None:
            remember(paying.levelled, read_rewards(folder.rewards))
        watched = paying.watched
        guarding = [Guarding(watched, recipe.optimiser.iterations)] if isinstance(watched, Guarded) else []
        if begun.checkpoint is not None:
            for one in guarding:
                one.go_on(begun.checkpoint, begun.step)
        policy = open_policy(recipe.policy, folder.making, gpu=begun.gpu)
        words = Tokenizer(policy.tokenizer)
        prompts = within(prompts, recipe.data, words, thinks=recipe.reward.thinks)
        steps = recipe.optimiser.count(len(prompts.train))
        for line in _plan(recipe, prompts, batch, steps, begun):
            status(line)
        paying.lend(policy)
        rounds = steps / recipe.optimiser.iterations
        watch = Watch(folder, rounds * recipe.optimiser.prompts_per_step / len(prompts.train))
        order = _order(recipe, prompts, steps)
        ahead = coming(recipe, order, prompts.held_out, begun) if paying.own and recipe.reward.writes else []
        if ahead:
            status(f"references of {counted(len(ahead), 'prompt')} are written first, but for those that are kept")
        trainer = _Trainer(
            model=policy.model,
            processing_class=policy.tokenizer,
            reward_funcs=[_reward_function(watched, recipe, folder)],
            args=_arguments(recipe, batch, steps, begun, len(prompts.held_out)),
            train_dataset=dataset(order, recipe.data),
            eval_dataset=dataset(prompts.held_out, recipe.data) if prompts.held_out else None,
            peft_config=lora_config(recipe.policy.lora, policy.model) if recipe.policy.method == "lora" else None,
            callbacks=[paying.preparing(ahead, folder), watch, *guarding, *callbacks],
            words=words,
            thinks=recipe.reward.thinks,
        )
        if held is None:  # awake on a GPU they take most of what is free: what the policy leaves them
            held = paying.open(resume=resume)
        run = trained(trainer, watch, begun, recipe, metric="reward")
        lines = read_metrics(folder.metrics) if run.main and folder.metrics.exists() else []
        if (told := unrewarded(lines, trainer.reward_func_names[0])) is not None:
            status(told)
        return run


class _Trainer(GRPOTrainer):
    """TRL's trainer, whose answers to held-out prompts are drawn alike each time, and whose means are over them all.

    Its policy is asked as engines ask (`words`), whatever TRL would make of the prompts, unless what follows its
    thoughts is judged (`thinks`).
    """

    def __init__(self, *args: Any, words: Tokenizer, thinks: bool, **options: Any) -> None:
        self._words, self._thinks = words, thinks
        super().__init__(*args, **options)

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """The tokens of the prompts of a batch, and no images or what goes with them."""
        return [list(read_by_policy(prompt, self._words, thinks=self._thinks)) for prompt in prompts], None, {}

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Write down what TRL measured."""
        if self.model is not None and not self.model.training:
            weigh(self._metrics["eval"], self.reward_func_names[0])
        super().log(logs, *args, **options)

    def evaluate(self, *args: Any, **options: Any) -> Any:
        """Answer the held-out prompts with the same random numbers whenever it is asked."""
        with _own_random_numbers(self.args.seed):
            return super().evaluate(*args, **options)

    def create_model_card(self, *args: Any, **options: Any) -> None:
        """Write none: recipe.json says what was done, and a card would only name a folder of this machine."""


def weigh(metrics: MutableMapping[str, list[float]], reward: str) -> None:
    """Make means over all rewards of those over the rewards of a batch, of which TRL would take the mean.

    Batches are of one size, and more completions abstain in some than in others; a part has no mean where all do.
    """
    counts = [1.0 - share for share in metrics.get(f"{reward}/abstained", ())]
    for name, values in list(metrics.items()):
        if name == "reward" or name.startswith((f"rewards/{reward}/mean", f"{reward}/mean/")):
            weights = counts if len(values) == len(counts) else [count for count in counts if count]
            if len(values) == len(weights):
                metrics[name] = [weighted_mean(values, weights)]


def _arguments(recipe: GrpoRecipe, batch: Batch, steps: int, begun: Begun, held_out: int) -> Any:
    """The recipe in TRL's words."""
    generation, optimiser = recipe.generation, recipe.optimiser
    how = arguments(recipe, optimiser, batch.micro, batch.accumulate, steps, begun, held_out=bool(held_out))
    how["per_device_eval_batch_size"] = held_out_batch(held_out, generation.group, begun.state.num_processes)
    return GRPOConfig(
        **how,
        shuffle_dataset=False,
        remove_unused_columns=False,
        # How it writes.
        num_generations=generation.group,
        max_completion_length=generation.max_tokens,
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        use_vllm=generation.engine == "vllm",
        vllm_mode="colocate",
        vllm_enable_sleep_mode=generation.engine == "vllm",
        vllm_gpu_memory_utilization=generation.vllm_memory,
        # How it is trained.
        num_iterations=optimiser.iterations,
        beta=optimiser.beta,
        epsilon=optimiser.epsilon,
        epsilon_high=optimiser.epsilon_high,
        entropy_coef=optimiser.entropy,
        scale_rewards="group" if optimiser.advantage == "group_std" else "none",
        loss_type=optimiser.loss,
        disable_dropout=recipe.policy.method == "full",
        use_liger_kernel=_uses_liger(recipe, gpu=begun.gpu),
        # What is written down.
        log_completions=recipe.logging.completions,
        num_completions_to_print=0,  # what a policy writes is for files: a terminal would do what it says
    )


def held_out_batch(prompts: int, group: int, processes: int) -> int:
    """Completions to held-out prompts that a process writes at once: about `HELD_OUT_BATCH`, and all batches alike.

    Trainers take the mean over batches, and fill the last one up with completions to prompts that were answered before;
    with more processes than a group can be cut into, some prompts then still count twice.
    """
    fitting = [
        size
        for size in range(1, max(HELD_OUT_BATCH, group) + 1)
        if size * processes % group == 0 and prompts * group % (size * processes) == 0
    ]
    return fitting[-1] if fitting else group


def _reward_function(reward: Reward, recipe: GrpoRecipe, folder: RunFolder) -> Any:
    how, system = recipe.reward, recipe.data.system
    function = TrlReward(Scorer(reward, how.deadline, how.on_failure), system=system)
    return Recorded(function, folder) if recipe.reward.journal else function


def _order(recipe: GrpoRecipe, prompts: Prompts, steps: int) -> list[Row]:
    """The prompts of every step, written out for the whole run, so that a resumed run finds its place by counting."""
    rounds = -(-steps // recipe.optimiser.iterations)
    return shuffled(prompts.train, rounds * recipe.optimiser.prompts_per_step, recipe.seed)


def _check_written(rows: Sequence[Row]) -> None:
    for row in rows:
        prompt = row.columns["prompt"]
        if not (prompt if isinstance(prompt, str) else prompt[-1]["content"]):
            raise AdjudgeError(f"{row.place}: the prompt is empty: write one, or leave the row out")
        for name, value in row.columns.items():
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise AdjudgeError(f'{row.place}: "{name}" is {value}, of more than 64 bits: write it as a text')


def _check_extras(recipe: GrpoRecipe, *, gpu: bool) -> None:
    if recipe.generation.engine == "vllm" and importlib.util.find_spec("vllm") is None:
        raise AdjudgeError('[generation] engine is "vllm", which is not installed: install it, or write "transformers"')
    if recipe.optimiser.liger is True and not gpu:
        raise AdjudgeError(
            '[optimiser] liger is true, and its kernels need a GPU, of which torch sees none: write "auto"'
        )
    if recipe.optimiser.liger is True and importlib.util.find_spec("liger_kernel") is None:
        raise AdjudgeError('[optimiser] liger is true: pip install liger-kernel, or write liger = "auto"')


def _uses_liger(recipe: GrpoRecipe, *, gpu: bool) -> bool:
    chosen = recipe.optimiser.liger
    return chosen if chosen != "auto" else gpu and importlib.util.find_spec("liger_kernel") is not None


def _plan(recipe: GrpoRecipe, prompts: Prompts, batch: Batch, steps: int, begun: Begun) -> Iterator[str]:
    """What is about to happen, in a few lines."""
    yield from prompts.left_out
    yield f"{counted(len(prompts.train), 'prompt')} to train on, {len(prompts.held_out)} held out"
    count = recipe.optimiser.prompts_per_step
    step = f"{counted(count, 'prompt')} × {recipe.generation.group} completions"
    processes = "1 process" if batch.processes == 1 else f"{batch.processes} processes"
    times = f", {batch.accumulate} times" if batch.accumulate > 1 else ""
    yield f"{counted(steps, 'step')} of {step}: {batch.micro} at once{times}, in {processes}"
    yield from begun.where


@contextlib.contextmanager
def _own_random_numbers(seed: int) -> Iterator[None]:
    """Within the block random numbers begin anew from the seed, others on each process; afterwards they go on."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        set_seed(seed, device_specific=True)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
