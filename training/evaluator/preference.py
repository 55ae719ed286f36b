"""Training a reward model: one number a response, the chosen one's above the rejected one's (Bradley & Terry, 1952).

As in Igniting (arXiv 2508.21476), 3.1: a linear head on the backbone, loss −log σ(R(x, y+) − R(x, y−)).
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.nn.functional import logsigmoid

from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.models.reward_head import NAMES, RewardHead
from adjudge.engine.models.sources import OpenModel
from adjudge.engine.tokens import Tokens
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item
from adjudge.training.evaluator.fitting import Batch, Task, fit
from adjudge.training.evaluator.packing import packed, padded
from adjudge.training.evaluator.questions import WordingEngine
from adjudge.training.evaluator.recipe import PreferenceRecipe
from adjudge.training.evaluator.split import read_split
from adjudge.training.policy import room
from adjudge.training.run import Run, Status, heard_once
from adjudge.training.terminal import counted

if TYPE_CHECKING:
    from transformers import TrainerCallback

NEEDED_BY = "a reward model"


class Preference(msgspec.Struct, frozen=True):
    """Two responses to one prompt, the better one first."""

    prompt: str
    chosen: str
    rejected: str


class Example(msgspec.Struct, frozen=True):
    """The tokens up to the one at which each reward is read."""

    chosen: Tokens
    rejected: Tokens


def train_reward(
    recipe: PreferenceRecipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    status: Status = lambda line: None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Run:
    """Train the model of a recipe, with a new head that begins at 0, to reward chosen responses above rejected ones.

    Folder, processes and resuming are those of `train_sft`; the policy is then a model, or an adapter, of
    `ScalarJudge`. A model that is a reward model already keeps its head. Raises AdjudgeError for what can be mended,
    before the model is loaded where possible.
    """
    status, rows = heard_once(status), read_split(recipe.data, recipe.seed)
    train, held_out = preferences_of(rows.train), preferences_of(rows.held_out)
    if not train:
        raise AdjudgeError("all rows to train on have a chosen response equal to the rejected one: nothing to learn")
    for line in rows.told:
        status(line)
    if alike := len(rows.train) + len(rows.held_out) - len(train) - len(held_out):
        status(f"{counted(alike, 'row')} left out: chosen and rejected are the same text")

    def open_task(opened: OpenModel) -> PairTask:
        task = PairTask(recipe, opened, train, held_out)
        if task.alike:
            status(
                f"{counted(task.alike, 'row')} left out: chosen and rejected are the same text once they are shortened"
            )
        return task

    how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "status": status, "callbacks": callbacks}
    return fit(recipe, rows.fingerprint, open_task, measure="accuracy", **how)


def preferences_of(rows: Iterable[Row]) -> list[Preference]:
    """What people preferred, without rows whose two responses are one; raises AdjudgeError naming row and column."""
    read = [Preference(*(row.text(name, NEEDED_BY) for name in ("prompt", "chosen", "rejected"))) for row in rows]
    return [preference for preference in read if preference.chosen != preference.rejected]


class PairTask(Task[Example]):
    """Rewards of pairs, each read where `ScalarJudge` reads it; the `alike` are left out, which shortening made so."""

    adapter_task = "SEQ_CLS"

    def __init__(
        self,
        recipe: PreferenceRecipe,
        opened: OpenModel,
        train: Sequence[Preference],
        held_out: Sequence[Preference],
    ) -> None:
        self.model = reward_model(opened.model)
        config = self.model.config.get_text_config()
        head = RewardHead.of(self.model)
        engine = WordingEngine(
            recipe.policy.model, opened.tokenizer, room(recipe.optimiser.max_tokens, self.model), head
        )
        judge, self.shortened = ScalarJudge(engine), 0

        def tokens(prompt: str, response: str) -> Tokens:
            worded, shortened = judge.prompt(Item(prompt=prompt, response=response))
            self.shortened += shortened
            assert head is not None
            read = head.read_part(engine.tokenizer.prompt(worded))
            if len(read) > engine.limit:
                raise AdjudgeError(
                    f"a prompt and its response have {len(read)} tokens, though they were shortened as far as they may"
                    f" be, and [optimiser] max_tokens or the model allow {engine.limit}: raise max_tokens"
                )
            return read

        examples = [
            [Example(tokens(one.prompt, one.chosen), tokens(one.prompt, one.rejected)) for one in side]
            for side in (train, held_out)
        ]
        self.train, self.held_out = ([one for one in side if one.chosen != one.rejected] for side in examples)
        self.alike = sum(map(len, examples)) - len(self.train) - len(self.held_out)
        if not self.train:
            raise AdjudgeError(
                f"chosen and rejected are the same in all rows once they are shortened to {engine.limit} tokens: raise"
                " [optimiser] max_tokens"
            )
        self.config, self.own_pad = config, config.pad_token_id
        last = {tokens[-1] for one in (*self.train, *self.held_out) for tokens in (one.chosen, one.rejected)}
        if self.own_pad is None:  # transformers reads at the last token that is not this one
            config.pad_token_id = next(token for token in range(len(last) + 1) if token not in last)
        self.pad = config.pad_token_id

    def length(self, example: Example) -> int:
        """The tokens of the longer one."""
        return max(len(example.chosen), len(example.rejected))

    def batch(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The chosen ones and the rejected ones [B, L], each padded by themselves: people like longer ones."""
        sides = {
            "chosen": [example.chosen for example in examples],
            "rejected": [example.rejected for example in examples],
        }
        return {name: padded([packed([one]) for one in texts], self.pad)["input_ids"] for name, texts in sides.items()}

    def loss(self, model: Any, batch: Batch) -> torch.Tensor:
        """−log σ(R(chosen) − R(rejected)), the mean over pairs."""
        chosen_B, rejected_B = _rewards(model, batch)
        return -logsigmoid(chosen_B - rejected_B).mean()

    def answers(self, model: Any, batch: Batch) -> list[tuple[float, float]]:
        """The rewards of each pair."""
        chosen_B, rejected_B = _rewards(model, batch)
        return list(zip(chosen_B.tolist(), rejected_B.tolist(), strict=True))

    def measures(self, examples: Sequence[Example], answers: Sequence[tuple[float, float]]) -> dict[str, float | None]:
        """Loss, the share of pairs in people's order (a tie is half a pair), and how far apart the rewards are."""
        margins = [chosen - rejected for chosen, rejected in answers]
        return {
            "loss": fmean(max(-margin, 0.0) + math.log1p(math.exp(-abs(margin))) for margin in margins),
            "accuracy": fmean(1.0 if margin > 0 else 0.5 if margin == 0 else 0.0 for margin in margins),
            "margin": fmean(margins),
            "reward_chosen": fmean(chosen for chosen, _ in answers),
            "reward_rejected": fmean(rejected for _, rejected in answers),
        }

    @contextlib.contextmanager
    def as_saved(self) -> Iterator[None]:
        """With the padding token as it was: where the engine reads a reward depends on it."""
        self.config.pad_token_id = self.own_pad
        try:
            yield
        finally:
            self.config.pad_token_id = self.pad


def reward_model(model: Any) -> Any:
    """The backbone of a language model under a new head for one reward, which begins at 0; a reward model as it is.

    Raises ModelUnsupported for an architecture without a sequence classifier.
    """
    from transformers import AutoModelForSequenceClassification

    if RewardHead.of(model) is not None:
        return model
    config = copy.deepcopy(model.config)
    config.num_labels = 1
    auto: Any = AutoModelForSequenceClassification
    try:
        with torch.device("meta"):
            classifier = auto.from_config(config)
    except ValueError as error:
        raise ModelUnsupported(
            f"transformers has no sequence classifier of the kind {config.model_type}: choose another model"
        ) from error
    setattr(classifier, classifier.base_model_prefix, model.base_model)
    name, head = next((name, module) for name, module in classifier.named_children() if name in NAMES)
    made = torch.nn.Linear(head.in_features, 1, bias=head.bias is not None, dtype=model.dtype)
    for parameter in made.parameters():
        torch.nn.init.zeros_(parameter)
    setattr(classifier, name, made)
    return classifier.train()


def _rewards(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    chosen_B, rejected_B = (
        model(input_ids=batch[name], use_cache=False).logits[:, 0].float() for name in ("chosen", "rejected")
    )
    return chosen_B, rejected_B
