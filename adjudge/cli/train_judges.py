"""`adjudge train direct`, `reward`, `house`: judges of one's own, what teaches them, and how they agree with people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.groups import EarlierRun, RunToJudge, with_groups, written
from adjudge.cli.options import DEFAULT_MODEL, Device, Dtype, beside, output_beside
from adjudge.cli.train import RunOutput, Seed
from adjudge.commands.writing_options import Writing
from adjudge.engine.errors import AdjudgeError

WRITTEN = Writing(max_tokens=160, temperature=0.8, attempts=3, seed=0)
"""How the writer of `train teacher` writes, where nothing else is said."""
Rows = Annotated[
    Path | None, typer.Option(help="JSONL, JSON, CSV or Parquet of judged rows, in the place of the recipe's own.")
]


@with_groups
def train_direct(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with people's scores, and how to train.")],
    data: Rows = None,
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierRun,
) -> None:
    """Train a judge that scores without writing: its answer distribution becomes that of people's scores.

    A row has `prompt` and `response`, or two stories (`story_a`, `story_b`), and scores by aspect, a number or a list
    of raters; `[scores]` names their columns. Rows are split by prompt. The result is asked as any judge is:
    `adjudge judge items.jsonl --judge pointwise --model MODEL --adapter OUT/policy`.
    """
    from adjudge.commands.train_judges import train_direct_file

    train_direct_file(recipe, data=data, earlier=earlier, seed=seed, output=output)


@with_groups
def train_reward(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with chosen and rejected, and how to train.")],
    data: Rows = None,
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierRun,
) -> None:
    """Train a reward model (Bradley-Terry) on which of two responses people preferred.

    A row has `prompt`, `chosen` and `rejected`; rows are split by prompt. The preset "igniting-reward" is the paper's.
    The result is a judge: `adjudge judge items.jsonl --judge scalar --model MODEL --adapter OUT/policy`.
    """
    from adjudge.commands.train_judges import train_reward_file

    train_reward_file(recipe, data=data, earlier=earlier, seed=seed, output=output)


@with_groups
def train_house(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, licensed texts, how they are made worse and learnt.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the sources that are not where the recipe says.", file_okay=False)
    ] = None,
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierRun,
) -> None:
    """Train a judge of stories without people's scores: it learns how far a text was taken down from its author's.

    Texts of a stated licence are cut into excerpts and made worse in known steps (order, strange sentences, babble,
    repetition, forced endings, ...), set in several styles, and asked about as the pointwise and the pairwise judge
    ask. The result is `adjudge judge items.jsonl --judge pointwise --model MODEL --adapter OUT/policy`.
    """
    from adjudge.commands.train_judges import train_house_file

    train_house_file(recipe, data=data, earlier=earlier, seed=seed, output=output)


@with_groups
def train_teacher(
    stories: Annotated[
        Path,
        typer.Argument(
            help="A file of rows with prompt (a first sentence) and text; without --writer JSONL, with scored."
        ),
    ],
    output: Annotated[Path | None, output_beside("The same with `scored`, JSONL", ".scored.jsonl")] = None,
    writer: Annotated[
        str | None,
        typer.Option(
            help="The model that goes on from first sentences (examples/recipes/everyday.toml trains one), with the"
            " noise, tokens, temperature, attempts and seed below."
        ),
    ] = None,
    noise: Annotated[
        list[float] | None,
        typer.Option(help="Noise on the writer's weights, in their standard deviations: each its own (0, 0.1, 0.17)."),
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Another judge beside --model, whose scores count as much.")
    ] = None,
    aspects: Annotated[str, typer.Option(help="What the judge is asked.")] = "coherence",
    bare: Annotated[
        list[str] | None,
        typer.Option(help=f"A model whose likelihoods tell what the context gains ({DEFAULT_MODEL}); may be repeated."),
    ] = None,
    gain: Annotated[
        float, typer.Option(help="Weight of that gain beside the judge's score; 0: the judge alone.", min=0.0)
    ] = 1.3,
    *,
    writing: Annotated[Writing, written(WRITTEN.max_tokens, WRITTEN.temperature)],
    run_options: RunToJudge,
) -> None:
    """Have a small model go on from the first sentences of stories, well and badly, and a teacher score what it wrote.

    The more noise on its weights, the less its sentences know of each other. The texts on one sentence are cut to as
    many sentences as the shortest has. The teacher is no person: its score is that of a judge (--model; the mean of
    several with --also), standardised, and --gain times the share of the sentences' surprise that their context takes
    away from a bare model (or several), standardised as well. A large model at --url may teach alone, with --gain 0.
    `adjudge train house` learns such texts as far as its recipe says (`scored` under `[excerpts]`). What a row has in
    `scored` already is left out; without --writer, it is those texts that are scored anew, uncut.
    """
    if writer is None and writing != WRITTEN:
        raise AdjudgeError("how texts are written is the writer's matter: name one with --writer, or leave it out")
    from adjudge.commands.teacher import teacher_file

    teacher_file(
        stories,
        output or beside(stories, ".scored.jsonl"),
        writer=writer,
        also=also or (),
        noise=noise or (),
        aspects=aspects,
        bare=bare or (DEFAULT_MODEL,),
        gain=gain,
        writing=writing,
        run_options=run_options,
    )


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
    from adjudge.bench.train_agreement import bench_trained
    from adjudge.commands.output import check_writable

    if output is not None:
        check_writable(output)
    bench_trained(folder, device=device, dtype=dtype, pairs=pairs, output=output)
