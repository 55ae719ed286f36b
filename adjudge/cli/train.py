"""`adjudge train`: train a policy on what judges pay for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.groups import EarlierRun, with_groups

train = typer.Typer(
    help="Train policies (grpo, sft) and judges (direct, reward, house), and compare them.", no_args_is_help=True
)


Seed = Annotated[int | None, typer.Option(help="In the place of the recipe's own.", min=0, max=2**31 - 1)]
RunOutput = Annotated[
    Path | None, typer.Option("-o", "--output", help="The run's folder, in the place of the recipe's own.")
]


@train.command("grpo")
@with_groups
def train_grpo(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, prompts, reward, and how to train.")],
    seed: Seed = None,
    output: RunOutput = None,
    stop_on: Annotated[
        str | None, typer.Option(help="Guards that end it, by commas: length, canary, degenerate, injection, collapse.")
    ] = None,
    *,
    earlier: EarlierRun,
) -> None:
    """Train a policy with GRPO on a reward of judges and checks.

    A recipe names the `policy`, the `data`, the parts of the `reward`, how the policy writes (`generation`) and how it
    is trained (`optimiser`); examples/recipes/checkable.toml is one that learns in minutes on a CPU. With
    `preset = "qurl"` it is laid over the recipe of a paper (see `adjudge train presets`). The output folder gets
    metrics.jsonl, curves.png, checkpoints and the policy.

    Guards watch the reward and warn when it is being fooled; those named by --stop-on end the run.

    Several processes train together with `accelerate launch -m adjudge train grpo recipe.toml`. A run that was stopped
    goes on with --resume as if it had not been.
    """
    from adjudge.commands.train import train_grpo_file

    train_grpo_file(recipe, earlier=earlier, stop_on=stop_on, seed=seed, output=output)


@train.command("sft")
@with_groups
def train_sft(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with prompt and response, and how to train.")],
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierRun,
) -> None:
    """Train a policy on the responses of a file: a cold start before GRPO, or the baseline beside it.

    The presets are "qurl-cold-start" (rows with think and answer, which become QuRL's tags), "evolvr-generator-sft"
    (stories rated above 3.5), "evolvr-evaluator-sft" (rationales of `adjudge evolve`) and "perse" (rows of `adjudge
    readers instruct`). A row's own column `system` comes before the recipe's. Output, processes and --resume are those
    of `adjudge train grpo`.
    """
    from adjudge.commands.train import train_sft_file

    train_sft_file(recipe, earlier=earlier, seed=seed, output=output)


@train.command("curves")
def train_curves(
    folders: Annotated[list[Path], typer.Argument(help="Output folders of runs, finished or under way.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .png, .svg or .pdf (curves.png).")] = None,
) -> None:
    """Draw reward, KL, length and abstention of a run over its steps; of several runs, their mean too.

    What the reward and each of its parts came to on held-out prompts, before the first step and after the last, is
    printed; of several runs (the same recipe with other seeds) with the mean's interval.
    """
    from adjudge.commands.train import draw_runs

    draw_runs(folders, output)


@train.command("fields")
def train_fields(
    command: Annotated[str, typer.Argument(metavar="KIND", help="grpo, sft, direct, reward or house.")],
) -> None:
    """Show what a recipe can say: every table and field, what may stand in it, and what holds where it is left out.

    It is printed as TOML, of which each line can be copied; what has no default is commented out.
    """
    from adjudge.commands.recipe_fields import print_fields

    print_fields(command)


@train.command("presets")
def train_presets(
    name: Annotated[str | None, typer.Argument(help="Show the file of this one.")] = None,
) -> None:
    """List the recipes of the papers: what a paper does not give is ours, and marked so."""
    from adjudge.commands.train import print_presets

    print_presets(name)
