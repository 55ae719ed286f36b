"""`adjudge train direct`, `adjudge train reward`: judges of one's own, and how well they agree with people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.options import Device, Dtype, Overwrite
from adjudge.cli.train import RunOutput, Seed

Rows = Annotated[Path | None, typer.Option(help="JSONL or CSV of judged rows, in the place of the recipe's own.")]
Resumed = Annotated[bool, typer.Option("--resume", help="Go on after the last checkpoint of the output.")]


def train_direct(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with people's scores, and how to train.")],
    data: Rows = None,
    resume: Resumed = False,
    overwrite: Overwrite = False,
    seed: Seed = None,
    output: RunOutput = None,
) -> None:
    """Train a judge that scores without writing: its answer distribution becomes that of people's scores.

    A row has `prompt` and `response`, or two stories (`story_a`, `story_b`), and scores by aspect, a number or a list
    of raters; `[scores]` names their columns. Rows are split by prompt. The result is asked as any judge is:
    `adjudge judge items.jsonl --judge pointwise --model MODEL --adapter OUT/policy`.
    """
    from adjudge.commands.train_judges import train_direct_file

    train_direct_file(recipe, data=data, resume=resume, overwrite=overwrite, seed=seed, output=output)


def train_reward(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with chosen and rejected, and how to train.")],
    data: Rows = None,
    resume: Resumed = False,
    overwrite: Overwrite = False,
    seed: Seed = None,
    output: RunOutput = None,
) -> None:
    """Train a reward model (Bradley-Terry) on which of two responses people preferred.

    A row has `prompt`, `chosen` and `rejected`; rows are split by prompt. The preset "igniting-reward" is the paper's.
    The result is a judge: `adjudge judge items.jsonl --judge scalar --model MODEL --adapter OUT/policy`.
    """
    from adjudge.commands.train_judges import train_reward_file

    train_reward_file(recipe, data=data, resume=resume, overwrite=overwrite, seed=seed, output=output)


def train_house(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, licensed texts, how they are made worse and learnt.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the sources that are not where the recipe says.", file_okay=False)
    ] = None,
    resume: Resumed = False,
    overwrite: Overwrite = False,
    seed: Seed = None,
    output: RunOutput = None,
) -> None:
    """Train a judge of stories without people's scores: it learns how far a text was taken down from its author's.

    Texts of a stated licence are cut into excerpts and made worse in known steps (order, strange sentences, babble,
    repetition, forced endings, ...), set in several styles, and asked about as the pointwise and the pairwise judge
    ask. The result is `adjudge judge items.jsonl --judge pointwise --model MODEL --adapter OUT/policy`.
    """
    from adjudge.commands.train_judges import train_house_file

    train_house_file(recipe, data=data, resume=resume, overwrite=overwrite, seed=seed, output=output)


def train_agreement(
    folder: Annotated[Path, typer.Argument(help="The output folder of train direct or train reward.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the table as CSV.")] = None,
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
    from adjudge.bench.trained import bench_trained

    bench_trained(folder, device=device, dtype=dtype, pairs=pairs, output=output)
