"""The trainer of supervised runs around TRL's, and the texts that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import msgspec
from transformers import TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens
from adjudge.rewards.records.rows import Row
from adjudge.training.callbacks import Watch
from adjudge.training.metrics import weighted_mean
from adjudge.training.policy import adapter_over, open_policy, room
from adjudge.training.prompts import Prompts, asked, conversation, read_by_policy, shuffled, within
from adjudge.training.run import Begun, Run, Status
from adjudge.training.sft_recipe import SftRecipe
from adjudge.training.terminal import counted
from adjudge.training.trainer import arguments, calm, trained


def train(recipe: SftRecipe, rows: Prompts, begun: Begun, status: Status, callbacks: Sequence[TrainerCallback]) -> Run:
    """Train the policy of a recipe on its rows, from where the run has begun."""
    optimiser = recipe.optimiser
    with calm():
        policy = open_policy(recipe.policy, begun.folder.making, gpu=begun.gpu)
        words = Tokenizer(policy.tokenizer)
        kept = within(rows, recipe.data, words)
        train, held_out = _texts(recipe, kept, words, room(optimiser.max_tokens, policy.model))
        steps = optimiser.count(len(train))
        for line in kept.left_out:
            status(line)
        if left := len(kept.train) + len(kept.held_out) - len(train) - len(held_out):
            status(f"left out for their length: {counted(left, 'row')}")
        status(f"{counted(len(train), 'row')} to train on, {len(held_out)} held out")
        each = counted(optimiser.rows_per_step, "row")
        status(f"{counted(steps, 'step')} of {each}")
        for line in begun.where:
            status(line)
        watch = Watch(begun.folder)
        trainer = _Trainer(
            model=policy.model,
            processing_class=policy.tokenizer,
            args=_arguments(recipe, steps, begun, held_out=bool(held_out)),
            train_dataset=_dataset(shuffled(train, steps * optimiser.rows_per_step, recipe.seed)),
            eval_dataset=_dataset(held_out) if held_out else None,
            peft_config=adapter_over(policy.model, recipe.policy),
            callbacks=[watch, *callbacks],
            tokens=fmean(text.learnt for text in held_out) if held_out else 1.0,
        )
        return trained(trainer, watch, begun, recipe, metric="loss")


class _Trainer(SFTTrainer):
    """TRL's trainer, without the card it writes of a model, and with held-out means over all tokens.

    TRL's are over rows, of their own means: `tokens` is how many of a held-out row's count, in the mean.
    """

    def __init__(self, *args: Any, tokens: float, **options: Any) -> None:
        self.tokens = tokens
        self._counted: list[float] = []
        super().__init__(*args, **options)

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Write down what TRL measured."""
        if self.model is not None and not self.model.training:
            metrics = self._metrics["eval"]
            for name in ("entropy", "mean_token_accuracy"):
                if len(metrics[name]) == len(self._counted):
                    metrics[name] = [weighted_mean(metrics[name], self._counted)]
            self._counted.clear()
        super().log(logs, *args, **options)

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """The loss of rows, each by how many of its tokens count."""
        loss, logits, labels = super().prediction_step(model, inputs, *args, **options)
        counted = (inputs["labels"][:, 1:] != -100).sum()
        self._counted.append(float(self.accelerator.gather_for_metrics(counted).sum()))
        return loss * float(counted) / len(inputs["labels"]) / self.tokens, logits, labels

    def create_model_card(self, *args: Any, **options: Any) -> None:
        """Write none: recipe.json says what was done, and a card would only name a folder of this machine."""


def _arguments(recipe: SftRecipe, steps: int, begun: Begun, *, held_out: bool) -> Any:
    """The recipe in TRL's words; held-out rows go one by one, as what TRL says of them is a mean of batches' means."""
    optimiser, count = recipe.optimiser, begun.state.num_processes
    how = arguments(
        recipe, optimiser, optimiser.at_once(count), optimiser.parts(count), steps, begun, held_out=held_out
    )
    return SFTConfig(max_length=None, **{**how, "per_device_eval_batch_size": 1})


class _Text(msgspec.Struct, frozen=True):
    """A row as the policy reads and would write it: its tokens, and from which one on they are the policy's own."""

    tokens: Tokens
    begins: int

    @property
    def learnt(self) -> int:
        """How many tokens are foretold; the first of all is not."""
        return len(self.tokens) - max(self.begins, 1)


def _texts(recipe: SftRecipe, rows: Prompts, words: Tokenizer, limit: int) -> tuple[list[_Text], list[_Text]]:
    """The texts of no more tokens than `limit`, to train on and held out."""
    train, held_out = (
        [text for row in part if len((text := _text(recipe, row, words)).tokens) <= limit]
        for part in (rows.train, rows.held_out)
    )
    if not train:
        mend = "raise [optimiser] max_tokens"
        if limit < recipe.optimiser.max_tokens:
            mend = f"{recipe.policy.model} has no longer context: give shorter rows, or train another model"
        raise AdjudgeError(f"no row has {limit} tokens or fewer: {mend}")
    return train, held_out


def _text(recipe: SftRecipe, row: Row, tokenizer: Tokenizer) -> _Text:
    """Prompt and response are data: in neither does the name of a special token become one."""
    prompt, response = asked(row, recipe.data), recipe.response.of(row)
    before = read_by_policy(prompt, tokenizer)
    if isinstance(prompt, str):
        written = tokenizer.encode(response, False, after=before)
        return _Text((*before, *written, tokenizer.inner.eos_token_id), len(before))
    answer = Message("assistant", Prompt((Segment(response),)))
    tokens = tokenizer.prompt(tokenizer.transcript([*conversation(prompt), answer]))
    said = next((n for n in range(len(tokens), 0, -1) if tokenizer.decode([tokens[n - 1]]).strip()), len(tokens))
    if tokenizer.is_special(tokens[said - 1]):
        tokens = tokens[:said]  # what a template has after the sign that ends a turn, no policy writes
    else:
        tokens += (_end_of_turn(tokenizer),)
    differs = (place for place, (one, other) in enumerate(zip(before, tokens, strict=False)) if one != other)
    return _Text(tokens, next(differs, len(before)))


def _end_of_turn(tokenizer: Tokenizer) -> int:
    """What ends the policy's turn where its chat template leaves the last one open.

    That is the model's own sign that stands before the next user's turn, or else its end of texts.
    """
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    try:
        segments = tokenizer.transcript(conversation(turns)).segments
    except ModelUnsupported:  # a template of one answer alone
        return int(tokenizer.inner.eos_token_id)
    _, answer, question = (place for place, segment in enumerate(segments) if not segment.trusted)
    signs = (token for one in segments[answer:question] for token in tokenizer.segment(one))
    return int(next(filter(tokenizer.is_special, signs), tokenizer.inner.eos_token_id))


def _dataset(texts: Sequence[_Text]) -> Any:
    from datasets import Dataset

    labels = [[*[-100] * text.begins, *text.tokens[text.begins :]] for text in texts]
    return Dataset.from_dict({"input_ids": [list(text.tokens) for text in texts], "labels": labels})
