"""`adjudge bench judge`, `grpo`, `kernels`, `compile` and `confidence`: how fast this machine is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.commands.options.files import Table
from adjudge.commands.options.models import DEFAULT_MODEL, Device, Dtype, Model
from adjudge.commands.runs.output import check_lines, check_table
from adjudge.commands.runs.training_run import need_extras
from adjudge.engine.errors import AdjudgeError

EXAMPLE_PAIRS = Path("examples/pairs.jsonl")
EXAMPLE_PROMPTS = Path("examples/recipes/prompts.jsonl")


def _check_example(path: Path, example: Path) -> None:
    """Refuse a default that stands in adjudge's repository alone, where the command runs somewhere else."""
    if path == example and not path.exists():
        raise AdjudgeError(f"{path} is not in this folder: run this in adjudge's repository, or name a file of yours")


def bench_judge(
    pairs: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of pairs.")] = EXAMPLE_PAIRS,
    model: Model = DEFAULT_MODEL,
    mode: Annotated[
        Literal["score", "generate"],
        typer.Option(help="score: read label distributions; generate: write an analysis and a score of each story."),
    ] = "score",
    load: Annotated[
        bool, typer.Option("--load", help="Send single questions at random times, and measure how long each waits.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(help="Pairs to measure (default: 4; 1 to write; under load as needed).", min=1)
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Runs of each variant; the median counts (not --load; default: 3).", min=1)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens of each text to write (--mode generate; default: 16).", min=1)
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            help="Requests a second under load, after commas (default: 0.3, 0.6, 0.9 of what adjudge can do)."
        ),
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Requests at each rate (--load; default: 24).", min=1)] = None,
    also: Annotated[
        str | None,
        typer.Option(help="Measure adjudge with these too, one at a time: batch-invariant, cuda-graphs, compiled."),
    ] = None,
    kv_cache_gb: Annotated[
        float | None,
        typer.Option(help="GiB of adjudge's cache, of each where there are several (default: as served).", min=0.001),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the table as CSV, and of a load a plot beside it.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Time the same pairs through adjudge and through its peers, and compare their answers.

    Under load the requests of a rate are due at random times (a Poisson process, the same in every run), and a
    latency counts from when its request was due, also where it could only be sent later.
    """
    from adjudge.bench.judge.judge import bench_judge as run

    check_table(output, pairs)
    _check_example(pairs, EXAMPLE_PAIRS)
    run(
        pairs,
        model=model,
        mode=mode,
        load=load,
        limit=limit,
        repeats=repeats,
        max_tokens=max_tokens,
        rates=rates,
        requests=requests,
        also=also,
        kv_cache_gb=kv_cache_gb,
        output=output,
        device=device,
        dtype=dtype,
    )


def bench_grpo(
    data: Annotated[
        Path, typer.Argument(metavar="PROMPTS", help="JSONL, JSON, CSV or Parquet of prompts for the policy.")
    ] = EXAMPLE_PROMPTS,
    model: Model = DEFAULT_MODEL,
    judge_model: Annotated[str, typer.Option(help="The judge's model, as in --model.")] = DEFAULT_MODEL,
    aspects: Annotated[str, typer.Option(help="What it scores, as in adjudge judge --judge pointwise.")] = "coherence",
    group: Annotated[int, typer.Option(help="Completions of each prompt.", min=2)] = 8,
    prompts: Annotated[int, typer.Option(help="Prompts of a step.", min=1)] = 2,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a completion at most.", min=1)] = 32,
    reply_tokens: Annotated[int, typer.Option(help="Tokens of a judge's reply at most, where it replies.", min=1)] = 8,
    steps: Annotated[int, typer.Option(help="Steps of a run; the first warms up and is not counted.", min=2)] = 3,
    rounds: Annotated[int, typer.Option(help="Runs of each variant, in turns.", min=1)] = 2,
    kv_cache_gb: Annotated[
        float | None,
        typer.Option(help="GiB of the judge's cache (default: as served; on a GPU most of what is free).", min=0.001),
    ] = None,
    output: Table = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Time GRPO steps by phase (generate, reward, update) for each way to have completions judged.

    adjudge in the trainer's process, the same asleep between calls, and `adjudge serve` as a process of its own: asked
    with a whole step at once, and, as plain reward functions do, for a reply about one completion after the other. The
    policy stays the same, so that all judge the same texts. --device and --dtype are the judge's.
    """
    _check_example(data, EXAMPLE_PROMPTS)
    check_table(output, data)
    need_extras()
    from adjudge.bench.grpo.grpo import bench_grpo as run

    run(
        data,
        model=model,
        judge_model=judge_model,
        aspects=aspects,
        group=group,
        prompts=prompts,
        max_tokens=max_tokens,
        reply_tokens=reply_tokens,
        steps=steps,
        rounds=rounds,
        kv_cache_gb=kv_cache_gb,
        output=output,
        device=device,
        dtype=dtype,
    )


def bench_kernels(
    kernels: Annotated[Literal["all", "head", "attention"], typer.Option(help="What to measure.")] = "all",
    sizes: Annotated[
        Literal["auto", "small", "full"], typer.Option(help="auto: small on CPU (two minutes), full on GPU.")
    ] = "auto",
    only: Annotated[
        str | None, typer.Option(help='Cases whose name and shape have all these words: "set D=576 K=5", "decode".')
    ] = None,
    rounds: Annotated[int, typer.Option(help="Batches of calls of each variant; the median counts.", min=5)] = 9,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Also time torch.compile.")] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write CSV here, and a plot beside it.")
    ] = None,
    predict: Annotated[
        Literal["h100", "h200"] | None, typer.Option(help="Measure nothing: what bytes and FLOPs say for this GPU.")
    ] = None,
    earlier: Annotated[
        Path | None, typer.Option("--from", help="Measure nothing: print and plot this CSV of an earlier run.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Check the kernels against float64, then time them beside their peers and the limits of this machine."""
    from adjudge.bench.kernels.kernels import bench_kernels as run

    check_table(output, *([] if earlier is None else [earlier]))
    run(
        kernels=kernels,
        sizes=sizes,
        only=only,
        device=device,
        dtype=dtype,
        rounds=rounds,
        compiled=compiled,
        output=output,
        predict=predict,
        earlier=earlier,
    )


def bench_compile() -> None:
    """Compile every Triton kernel for GPUs that are not here: registers, spilled bytes, shared memory."""
    if importlib.util.find_spec("triton") is None:
        raise AdjudgeError("compiling kernels needs triton: pip install triton")
    from adjudge.bench.kernels.compile import bench_compile as run

    run()


def bench_confidence(
    rationales: Annotated[
        Path,
        typer.Argument(
            help="JSONL of rationales, as `adjudge evolve synthesize` writes them; or of stories: prompt, story and"
            " scores (or ratings), an object from aspects to people's numbers."
        ),
    ],
    limit: Annotated[int, typer.Option(help="Rationales to measure.", min=1)] = 1000,
    keep: Annotated[
        Path | None, typer.Option(help="Also write the rationales, for `adjudge evolve filter --stages confidence`.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the figures as CSV.")] = None,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Time EvolvR's confidence filter beside scoring by generation: one token, and the 20 likeliest in its place.

    For stories, rationales are made up of quotations: they cost what real ones do, and mean nothing. Each way begins
    with an empty cache. Peak memory is that of tensors beyond the weights and the cache.
    """
    from adjudge.bench.confidence import bench_confidence as run

    check_table(output, rationales)
    check_table(keep, rationales, *([] if output is None else [output]))
    if keep is not None:
        check_lines(keep)
    run(rationales, model=model, limit=limit, device=device, dtype=dtype, output=output, keep=keep)
