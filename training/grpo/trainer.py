"""The trainer of GRPO runs around TRL's: what it is told, and what is about it from the first step to the last."""

from __future__ import annotations

import contextlib
import importlib.util
import random
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed
from transformers import TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.reward import Reward
from adjudge.rewards.trainers.scoring import Scorer
from adjudge.rewards.trainers.trl import TrlReward
from adjudge.training.callbacks import Watch
from adjudge.training.grpo.guarding import Guarding
from adjudge.training.grpo.judges import Paying
from adjudge.training.grpo.preparing import Preparing, coming
from adjudge.training.grpo.recipe import Batch, GrpoRecipe
from adjudge.training.grpo.unrewarded import unrewarded
from adjudge.training.metrics import read_metrics, weighted_mean
from adjudge.training.policy import adapter_over, open_policy
from adjudge.training.prompts import Prompts, dataset, read_by_policy, shuffled, within
from adjudge.training.reward_log import Recorded, read_rewards, remember
from adjudge.training.run import Begun, Run, Status
from adjudge.training.run_folder import RunFolder
from adjudge.training.terminal import counted
from adjudge.training.trainer import arguments, calm, trained

HELD_OUT_BATCH = 16
"""Completions of held-out prompts that are written at once."""


def train(
    recipe: GrpoRecipe,
    paying: Paying,
    prompts: Prompts,
    batch: Batch,
    begun: Begun,
    status: Status,
    callbacks: Sequence[TrainerCallback],
) -> Run:
    """Train the policy of a recipe on its prompts, from where the run has begun; raises as `train_grpo` does."""
    folder, optimiser = begun.folder, recipe.optimiser
    with calm():
        held = None if begun.gpu and not paying.sleeps else paying.open(resume=begun.resume)
        if begun.checkpoint is not None and recipe.reward.length_free is not None:
            remember(paying.levelled, read_rewards(folder.rewards))
        watched = paying.watched
        guarding = [Guarding(watched, optimiser.iterations)] if isinstance(watched, Guarded) else []
        if begun.checkpoint is not None:
            for one in guarding:
                one.go_on(begun.checkpoint, begun.step)
        policy = open_policy(recipe.policy, folder.making, gpu=begun.gpu)
        words = Tokenizer(policy.tokenizer)
        prompts = within(prompts, recipe.data, words, thinks=recipe.reward.thinks)
        steps = optimiser.count(len(prompts.train))
        for line in _plan(recipe, prompts, batch, steps, begun):
            status(line)
        paying.lend(policy)
        # The prompts of every step are written out for the whole run: a resumed one finds its place by counting.
        rounds = -(-steps // optimiser.iterations)
        order = shuffled(prompts.train, rounds * optimiser.prompts_per_step, recipe.seed)
        asked = steps / optimiser.iterations * optimiser.prompts_per_step
        watch = Watch(folder, asked / len(prompts.train))
        ahead = coming(recipe, order, prompts.held_out, begun) if paying.own and recipe.reward.writes else []
        if ahead:
            status(f"references of {counted(len(ahead), 'prompt')} are written first, but for those that are kept")
        journal = folder.journal if recipe.reward.journal else None
        preparing = Preparing(paying.written, ahead, journal, paying.awake)
        trainer = _Trainer(
            model=policy.model,
            processing_class=policy.tokenizer,
            reward_funcs=[_reward_function(watched, recipe, folder)],
            args=_arguments(recipe, batch, steps, begun, len(prompts.held_out)),
            train_dataset=dataset(order, recipe.data),
            eval_dataset=dataset(prompts.held_out, recipe.data) if prompts.held_out else None,
            peft_config=adapter_over(policy.model, recipe.policy),
            callbacks=[preparing, watch, *guarding, *callbacks],
            words=words,
            thinks=recipe.reward.thinks,
        )
        if held is None:  # awake on a GPU they take most of what is free: what the policy leaves them
            held = paying.open(resume=begun.resume)
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
    at_once = max(HELD_OUT_BATCH, batch.micro)
    how["per_device_eval_batch_size"] = held_out_batch(held_out, generation.group, begun.state.num_processes, at_once)
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


def held_out_batch(prompts: int, group: int, processes: int, at_once: int) -> int:
    """Completions to held-out prompts that a process writes at once: about `at_once`, and all batches alike.

    Trainers take the mean over batches, and fill the last one up with completions to prompts that were answered before;
    with more processes than a group can be cut into, some prompts then still count twice.
    """
    fitting = [
        size
        for size in range(1, max(at_once, group) + 1)
        if size * processes % group == 0 and prompts * group % (size * processes) == 0
    ]
    return fitting[-1] if fitting else group


def _reward_function(reward: Reward, recipe: GrpoRecipe, folder: RunFolder) -> Any:
    how, system = recipe.reward, recipe.data.system
    function = TrlReward(Scorer(reward, how.deadline, how.on_failure), system=system)
    return Recorded(function, folder) if recipe.reward.journal else function


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
