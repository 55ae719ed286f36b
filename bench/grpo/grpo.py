"""`adjudge bench grpo`: the seconds of a GRPO step by phase, with its judge in the process, asleep, and on a server."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console

from adjudge.bench.csv_table import write_rows
from adjudge.bench.grpo.phases import Phases, StepTimes
from adjudge.bench.grpo.report import COLUMNS, Need, Setting, result_lines, result_rows, result_table
from adjudge.bench.grpo.variants import VARIANTS, Judging, Variant, chats
from adjudge.bench.machine import describe_machine
from adjudge.engine import trie
from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.devices import choose_device
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.models.sources import tokenizer_named
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.verdict import Item
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.grpo.unrewarded import Unrewarded
from adjudge.training.prompts import conversation
from adjudge.training.recipe import recipe_of
from adjudge.training.terminal import open_console, say

STILL = 1e-12
"""A learning rate that no float32 weight feels: the policy stays what it was, and all variants judge the same texts."""


@dataclass
class Measured:
    """What was measured of a variant: the steps of all rounds, but for the first of each; or why there are none."""

    variant: Variant
    steps: list[StepTimes] = field(default_factory=list)
    failure: str = ""


def bench_grpo(
    path: Path,
    *,
    model: str,
    judge_model: str,
    aspects: str,
    group: int,
    prompts: int,
    max_tokens: int,
    reply_tokens: int,
    steps: int,
    rounds: int,
    output: Path | None,
    device: str,
    dtype: str,
    kv_cache_gb: float | None = None,
) -> None:
    """Measure every variant in every round, print the table, and write it as CSV; see the command's help."""
    rows = read_rows(path)
    asked = [row.text("prompt", "a policy") for row in rows][: prompts * steps]
    if len(asked) < prompts:
        raise AdjudgeError(f"{path} has {len(asked)} of the {prompts} prompts that a step takes: give fewer --prompts")
    setting = Setting(model, judge_model, aspects, prompts, group, max_tokens, reply_tokens)
    judging = Judging(judge_model, parse_aspects(aspects), device, dtype, reply_tokens, kv_cache_gb)
    machine = describe_machine(choose_device(device))
    chatting = [one.name for one in VARIANTS if one.chats]
    for measured in measure(asked, setting, judging, steps=steps, rounds=rounds):
        need = needed([step.groups for step in measured[0].steps], judging)
        found = {one.variant.name: one.steps or one.failure for one in measured}
        if output is not None:  # after every round: a run may be cut short
            write_rows(output, COLUMNS, result_rows(found, setting, need, chatting, machine))
    open_console(150).print(result_table(found, need, chatting))
    for line in result_lines(found, setting, need):
        print(line)
    print(machine)
    if output is not None:
        say(f"written: {output}")


def measure(
    prompts: Sequence[str],
    setting: Setting,
    judging: Judging,
    *,
    steps: int,
    rounds: int,
    variants: Sequence[Variant] = VARIANTS,
) -> Iterator[list[Measured]]:
    """Train for `steps` steps with each variant in turn, `rounds` times, each time from the same start.

    After each round there is what was measured so far. The order is another in each round. The first variant may not
    fail; another that does is left out from there on.
    """
    console = Console(stderr=True, highlight=False)
    measured = [Measured(variant) for variant in variants]
    for turn in range(rounds):
        for place in range(len(variants)):
            one = measured[(turn + place) % len(variants)]
            if one.failure:
                continue
            console.print(f"round {turn + 1} of {rounds}: {one.variant.name}", markup=False)
            try:
                one.steps += _trained(prompts, setting, judging, steps, one.variant)[1:]
            except Exception as error:
                if one is measured[0]:
                    raise
                one.steps, one.failure = [], reason(error)
            gc.collect()
        yield measured


def needed(steps: Sequence[Sequence[Group]], judging: Judging) -> Need:
    """What the judge's model must compute at least for a step, in the mean: its prompts' tokens, shared parts once."""
    engine = AbsentEngine(Card(judging.model), Tokenizer(tokenizer_named(judging.model)))
    judge, tokenizer = judging.judge(engine), engine.tokenizer
    asked = least = replies = 0
    for groups in steps:
        answers = [(group.prompt, text) for group in groups for text in group.responses]
        questions = [one for prompt, text in answers for one in judge.ask(Item(prompt, text))[0]]
        read = [tokenizer.prompt(question.prompt) for question in questions]
        asked, least = asked + sum(map(len, read)), least + trie.size(list(set(read)))
        talks = [engine.chat(conversation(talk)) for prompt, text in answers for talk in chats(judging, prompt, text)]
        replies += trie.size(list({tokenizer.prompt(talk) for talk in talks}))
    return Need(asked / len(steps), least / len(steps), replies / len(steps))


def _trained(
    prompts: Sequence[str], setting: Setting, judging: Judging, steps: int, variant: Variant
) -> list[StepTimes]:
    """The steps of one run, which begins with nothing that an earlier one has computed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # where TRL trains
    with tempfile.TemporaryDirectory() as folder, variant.open(judging) as opened:
        phases = Phases(opened, device)
        with suppress(Unrewarded):  # replies of which none has a digit take their time all the same
            train_grpo(_recipe(prompts, setting, steps, Path(folder)), reward=phases.reward, callbacks=[phases])
    return phases.steps


def _recipe(prompts: Sequence[str], setting: Setting, steps: int, folder: Path) -> GrpoRecipe:
    record = {
        "output": "run",
        "policy": {"model": setting.policy},
        "data": {"prompts": list(prompts)},
        "reward": {"parts": {"judge": {"kind": "judge", "judge": "pointwise"}}},  # ours stands in for it
        "guards": {"use": []},
        "generation": {"group": setting.group, "max_tokens": setting.max_tokens},
        "optimiser": {"lr": STILL, "prompts_per_step": setting.prompts, "steps": steps},
    }
    return recipe_of(record, GrpoRecipe, folder)
