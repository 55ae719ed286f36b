"""The `adjudge` command: judge pairs, score prompts, list models, measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from adjudge.engine.errors import AdjudgeError

app = typer.Typer(
    help="LLM judges as rewards. Start with: adjudge judge pairs.jsonl -o verdicts.jsonl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
bench = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")

DEFAULT_MODEL = "smollm2-135m"

Model = Annotated[
    str,
    typer.Option(help="An alias (see `adjudge models`), a folder, a hub id, a .gguf file, or dummy:<config>."),
]
Adapter = Annotated[Path | None, typer.Option(help="A PEFT folder: a LoRA adapter to lay over the model.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Dtype = Annotated[str, typer.Option(help="auto (float32 on CPU, bfloat16 on GPU), float32, bfloat16, float16.")]


@app.command("judge")
def judge_command(
    texts: Annotated[Path, typer.Argument(help="JSONL or CSV of pairs, or of single texts.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Verdicts, JSONL in input order.")] = None,
    judge: Annotated[
        Literal["pairwise", "pointwise"], typer.Option(help="pairwise compares two stories; pointwise scores one.")
    ] = "pairwise",
    model: Model = DEFAULT_MODEL,
    adapter: Adapter = None,
    aspects: Annotated[
        str, typer.Option(help="hanna, storyer, or names after commas; your own as name=what it means.")
    ] = "hanna",
    orders: Annotated[
        Literal["both", "ab"], typer.Option(help="Both orders cancel position bias; ab shows story_a first only.")
    ] = "both",
    cut: Annotated[
        Literal["middle", "head", "tail", "never"],
        typer.Option(help="What goes of texts too long for the model; never: abstain instead."),
    ] = "middle",
    mode: Annotated[
        Literal["direct", "reasoned"], typer.Option(help="reasoned: the model writes an analysis before it scores.")
    ] = "direct",
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of an analysis at most (512).", min=1)] = None,
    temperature: Annotated[float | None, typer.Option(help="How freely it is written (0.7).", min=0.0)] = None,
    samples: Annotated[int | None, typer.Option(help="Analyses of each question, averaged (1).", min=1)] = None,
    attempts: Annotated[
        int | None, typer.Option(help="How often a text without readable scores is written in all (3).", min=1)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other analyses (0).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an earlier run of the same output.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Forget an earlier run of the same output.")] = False,
    report: Annotated[Path | None, typer.Option(help="Also write a self-contained HTML report here.")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Where finished verdicts are kept (default: beside the output).")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Compare pairs of stories, aspect by aspect, in both orders; or score single ones.

    Each row has `story_a`, `story_b` and `prompt` (or `prompt_a` and `prompt_b`), optionally `id`; further columns pass
    through. A column `expected` (a, b or tie) is compared with the verdicts. Each line of the output has
    `preference`, the probability that story_a is better (null when the judge abstains, with the reason in
    `abstained`), and per-aspect scores. With `--judge pointwise` a row has `prompt` and `response`, a line `score` and
    `breakdown`.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is lost or judged twice.
    """
    from adjudge.commands.judge import judge_file

    judge_file(
        texts,
        output or texts.with_suffix(".verdicts.jsonl"),
        judge=judge,
        model=model,
        adapter=adapter,
        aspects=aspects,
        orders=orders,
        cut=cut,
        mode=mode,
        max_tokens=max_tokens,
        temperature=temperature,
        samples=samples,
        attempts=attempts,
        seed=seed,
        earlier="resume" if resume else "overwrite" if overwrite else "refuse",
        report=report,
        journal=journal,
        device=device,
        dtype=dtype,
    )


@app.command()
def score(
    prompts: Annotated[
        Path | None, typer.Argument(help="JSONL or CSV with a column `prompt`, optionally `labels`.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="Labels after commas, where rows have none of their own.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Score this one prompt instead of a file.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSONL (default: standard output).")] = None,
    model: Model = DEFAULT_MODEL,
    adapter: Adapter = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Read the distribution over labels at the end of each prompt, without generating.

    Example: `adjudge score --prompt "The capital of France is" --labels " Paris, Rome"`. Each line of the output has
    `logprobs` by label (summing to one over the labels), `expected` where all labels are numbers, `best`, and `mass`,
    the labels' share of the whole vocabulary's probability. Special-token strings inside a prompt are plain text.
    """
    from adjudge.commands.score import score_file

    score_file(prompts, prompt, labels, output, chat=chat, model=model, adapter=adapter, device=device, dtype=dtype)


@app.command()
def models() -> None:
    """List the models that can be named, and where they are kept."""
    from adjudge.commands.models import print_models

    print_models()


@bench.command("judge")
def bench_judge(
    pairs: Annotated[Path, typer.Argument(help="JSONL or CSV of pairs.")] = Path("examples/pairs.jsonl"),
    model: Model = DEFAULT_MODEL,
    limit: Annotated[int, typer.Option(help="Pairs to measure.", min=1)] = 4,
    repeats: Annotated[int, typer.Option(help="Runs of each variant; the median counts.", min=1)] = 3,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the table as CSV.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Time the same pairs through adjudge and through its peers, and compare their scores."""
    from adjudge.bench.judge import bench_judge as run

    run(pairs, model=model, limit=limit, repeats=repeats, output=output, device=device, dtype=dtype)


@bench.command("kernels")
def bench_kernels(
    kernels: Annotated[Literal["all", "head", "attention"], typer.Option(help="What to measure.")] = "all",
    sizes: Annotated[
        Literal["auto", "small", "full"], typer.Option(help="auto: small on CPU (two minutes), full on GPU.")
    ] = "auto",
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
    from adjudge.bench.kernels import bench_kernels as run

    run(
        kernels=kernels,
        sizes=sizes,
        device=device,
        dtype=dtype,
        rounds=rounds,
        compiled=compiled,
        output=output,
        predict=predict,
        earlier=earlier,
    )


@bench.command("compile")
def bench_compile() -> None:
    """Compile every Triton kernel for GPUs that are not here: registers, spilled bytes, shared memory."""
    from adjudge.bench.compile import bench_compile as run

    run()


def main() -> NoReturn:
    """Run the command line: mistakes the user can mend are one sentence on stderr and exit code 2."""
    try:
        app()
    except AdjudgeError as error:
        print(f"adjudge: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    sys.exit(0)
