"""`adjudge train direct`, `reward` and `house`: recipes in, trained judges out; `agreement`: what they are worth."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adjudge.commands.options.files import Table
from adjudge.commands.options.models import Device, Dtype
from adjudge.commands.options.runs import EarlierTraining, RunOutput, Seed
from adjudge.commands.runs.output import check_writable
from adjudge.commands.runs.training_run import carry_out, need_extras
from adjudge.training.evaluator.recipe import DirectRecipe, JudgeRecipe, PreferenceRecipe, read_judge_recipe
from adjudge.training.house.recipe import read_house_recipe

if TYPE_CHECKING:
    from adjudge.training.run import Run


Rows = Annotated[
    Path | None, typer.Option(help="JSONL, JSON, CSV or Parquet of judged rows, in the place of the recipe's own.")
]


def train_direct(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with people's scores, and how to train.")],
    data: Rows = None,
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierTraining,
) -> None:
    """Train a judge that scores without writing: its answer distribution becomes that of people's scores.

    A row has `prompt` and `response`, or two stories (`story_a`, `story_b`), and scores by aspect, a number or a list
    of raters; `[scores]` names their columns. Rows are split by prompt. The result is asked as any judge is:
    `adjudge judge items.jsonl --judge pointwise --model MODEL --adapter OUT/policy`.
    """
    said = read_judge_recipe(recipe, DirectRecipe, data=data).changed(seed, output)
    need_extras()
    from adjudge.training.evaluator.direct import train_direct as train

    run = carry_out(train, said, "loss on held-out rows", earlier, file=recipe)
    if run.main:
        options = {"judge": said.judge.name, **said.judge.options}
        _show_use(said, run, [text for name, value in options.items() for text in (_option(name), str(value))])


def train_reward(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with chosen and rejected, and how to train.")],
    data: Rows = None,
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierTraining,
) -> None:
    """Train a reward model (Bradley-Terry) on which of two responses people preferred.

    A row has `prompt`, `chosen` and `rejected`; rows are split by prompt. The preset "igniting-reward" is the paper's.
    The result is a judge: `adjudge judge items.jsonl --judge scalar --model MODEL --adapter OUT/policy`.
    """
    said = read_judge_recipe(recipe, PreferenceRecipe, data=data).changed(seed, output)
    need_extras()
    from adjudge.training.evaluator.preference import train_reward as train

    run = carry_out(train, said, "share of held-out pairs in people's order", earlier, file=recipe)
    if run.main:
        _show_use(said, run, ["--judge", "scalar"])


def train_house(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, licensed texts, how they are made worse and learnt.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the sources that are not where the recipe says.", file_okay=False)
    ] = None,
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierTraining,
) -> None:
    """Train a judge of stories without people's scores: it learns how far a text was taken down from its author's.

    Texts of a stated licence are cut into excerpts and made worse in known steps (order, strange sentences, babble,
    repetition, forced endings, ...), set in several styles, and asked about as the pointwise and the pairwise judge
    ask. The result is `adjudge judge items.jsonl --judge pointwise --model MODEL --adapter OUT/policy`, or where all
    weights were trained (method = "full") `--model OUT/policy`.
    """
    said = read_house_recipe(recipe, data=data).changed(seed, output)
    need_extras()
    from adjudge.training.house.house import train_house as train

    run = carry_out(train, said, "rank correlation on held-out texts", earlier, file=recipe)
    if run.main:
        _show_model(said, run, ["--judge", "pointwise"])


def train_agreement(
    folder: Annotated[Path, typer.Argument(help="The output folder of train direct or train reward.")],
    output: Table = None,
    pairs: Annotated[
        int, typer.Option(help="Pairs put to the untrained model, where a reward model was trained.", min=1)
    ] = 150,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Tell how well a trained judge agrees with people on its held-out rows, beside what it must beat.

    Its rivals: the same model before training, the mean score of each aspect, length alone, and a ridge regression on
    words, the last three fitted on the rows that the judge was trained on. Intervals are bootstrapped over prompts.
    """
    from adjudge.bench.train_agreement import bench_trained

    if output is not None:
        check_writable(output)
    bench_trained(folder, device=device, dtype=dtype, pairs=pairs, output=output)


def _show_use(recipe: DirectRecipe | PreferenceRecipe, run: Run, options: Sequence[str]) -> None:
    """Print how the judge is asked, and how it is held against people."""
    _show_model(recipe, run, options)
    if run.before is not None:
        print(f"beside people: {shlex.join(['adjudge', 'train', 'agreement', str(run.folder.path)])}")


def _show_model(recipe: JudgeRecipe, run: Run, options: Sequence[str]) -> None:
    policy = str(run.folder.policy)
    whole = recipe.policy.method == "full"
    model = ["--model", policy] if whole else ["--model", recipe.policy.model, "--adapter", policy]
    print(f"judge with it: {shlex.join(['adjudge', 'judge', 'items.jsonl', *options, *model])}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
