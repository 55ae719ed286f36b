"""`adjudge bench`: measure on this machine."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.agreement import bench_agreement
from adjudge.cli.groups import Asked, with_groups
from adjudge.cli.options import (
    DEFAULT_JUDGE,
    DEFAULT_MODEL,
    Adapter,
    Device,
    Dtype,
    Form,
    JudgeAspects,
    JudgeModelHere,
    Language,
    Layout,
    Model,
    Principles,
    Rubric,
    Scheme,
    Without,
    judge_options,
    usual_model,
)
from adjudge.engine.errors import AdjudgeError

bench = typer.Typer(
    help="Measure speed (judge, grpo, kernels, ...), and how good a judge is (agreement, disturbances, ...).",
    no_args_is_help=True,
)
bench.command("agreement")(bench_agreement)

PROBED = ("pointwise", "rubric", "tree", "principle", "debate", "scalar")
"""The judges that probes are put to, besides those of one's own."""
EXAMPLE_PAIRS = Path("examples/pairs.jsonl")
EXAMPLE_PROMPTS = Path("examples/recipes/prompts.jsonl")


def _check_example(path: Path, example: Path) -> None:
    """Refuse a default that stands in adjudge's repository alone, where the command runs somewhere else."""
    if path == example and not path.exists():
        raise AdjudgeError(f"{path} is not in this folder: run this in adjudge's repository, or name a file of yours")


def _check_output(output: Path | None, *read: Path) -> None:
    """Find before hours of work that a table could not be written, or is one of what is `read`; raises AdjudgeError."""
    from adjudge.commands.output import check_apart, check_writable

    if output is not None:
        check_apart(output, *read)
        check_writable(output)


@bench.command("judge")
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

    _check_output(output, pairs)
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


@bench.command("judges")
def bench_judges(
    data: Annotated[Path, typer.Argument(help="The folder of data sets: autoj_pairs, hanna, openmeva_roc, ...")],
    only: Annotated[str | None, typer.Option(help="Judges after commas (default: all).")] = None,
    minutes: Annotated[float, typer.Option(help="A judge's run ends after about so long.", min=0.01)] = 10.0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the table as CSV.")] = None,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Run every judge over a sample of its public data set: verdicts, abstentions, tokens, agreement with people."""
    from adjudge.bench.judges import bench_judges as run
    from adjudge.rewards.judges.options import names_of

    _check_output(output)
    run(data, only=names_of(only), minutes=minutes, model=model, device=device, dtype=dtype, output=output)


@bench.command("probe")
def bench_probe(
    judge: Annotated[
        str,
        typer.Option(
            help=f"Whose rewards: {', '.join(PROBED)}, or package.module:name for one of your own.", metavar="JUDGE"
        ),
    ] = "pointwise",
    aspects: JudgeAspects = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    language: Language = None,
    model: JudgeModelHere = None,
    adapter: Adapter = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Try to fool a judge: empty, repeated, copied and padded texts, and instructions to the judge inside texts.

    Each probe is held against the plain text it was made from; the shipped canaries, of known order, come first.
    """
    from adjudge.bench.probes import bench_probe as run
    from adjudge.commands.source import check_fit, check_judge
    from adjudge.rewards.engines.specification import EngineSpec

    options = judge_options(locals())
    check_judge(judge, PROBED, "items")
    model = model or usual_model(DEFAULT_JUDGE, adapter)
    check_fit(model, adapter, judge, options)
    engine = EngineSpec(model, adapter=None if adapter is None else str(adapter), device=device, dtype=dtype)
    run(judge, options, engine)


@bench.command("tree")
@with_groups
def bench_tree(
    path: Annotated[
        Path,
        typer.Argument(metavar="VERDICTS", help="What adjudge judge --judge tree wrote, its journal, or texts."),
    ],
    trials: Annotated[
        int | None,
        typer.Option(help="Have weights written so often for each instruction (default: 5 of plain texts, else 0)."),
    ] = None,
    run: Annotated[int | None, typer.Option(help="Which run of the journal (default: the latest).", min=1)] = None,
    form: Form = None,
    without: Without = None,
    language: Language = None,
    layout: Layout = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write all numbers as CSV.")] = None,
    *,
    source: Asked,
) -> None:
    """Analyse a tree judge as Tree of Writing does, beside the paper's own figures.

    From the journal of a run, without a model: how scores go with the lengths of prompts and texts, and how far each
    disturbance lowers them (rows of `adjudge writing disturb`). With --trials, or of plain texts, the model writes the
    weights of each instruction several times: how far do they differ? Nothing is asked twice. How the parts of the
    tree rank systems, `adjudge bench agreement --protocol tree` tells.
    """
    _check_output(output)
    options = judge_options(locals())
    from adjudge.commands.bench_tree import bench_tree as analyse

    analyse(path, trials=trials, options=options, source=source, run=run, output=output)


@bench.command("grpo")
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
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the table as CSV.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Time GRPO steps by phase (generate, reward, update) for each way to have completions judged.

    adjudge in the trainer's process, the same asleep between calls, and `adjudge serve` as a process of its own: asked
    with a whole step at once, and, as plain reward functions do, for a reply about one completion after the other. The
    policy stays the same, so that all judge the same texts. --device and --dtype are the judge's.
    """
    from adjudge.commands.train import need_extras

    _check_example(data, EXAMPLE_PROMPTS)
    _check_output(output, data)
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


@bench.command("kernels")
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

    _check_output(output, *([] if earlier is None else [earlier]))
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


@bench.command("compile")
def bench_compile() -> None:
    """Compile every Triton kernel for GPUs that are not here: registers, spilled bytes, shared memory."""
    if importlib.util.find_spec("triton") is None:
        raise AdjudgeError("compiling kernels needs triton: pip install triton")
    from adjudge.bench.kernels.compile import bench_compile as run

    run()


@bench.command("confidence")
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
    from adjudge.commands.output import check_lines

    _check_output(output, rationales)
    _check_output(keep, rationales, *([] if output is None else [output]))
    if keep is not None:
        check_lines(keep)
    run(rationales, model=model, limit=limit, device=device, dtype=dtype, output=output, keep=keep)


@bench.command("disturbances")
def bench_disturbances(
    stories: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of stories, or a folder of .txt and .md files.")
    ],
    text: Annotated[str, typer.Option(help="Column of the stories.")] = "story",
    aspects: Annotated[str, typer.Option(help="As in `adjudge judge --aspects`.")] = "hanna",
    kinds: Annotated[
        str | None, typer.Option(help="Changes to make, after commas, such as drift,order,praise (default: all).")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Stories to judge (default: all).", min=2)] = None,
    steps: Annotated[int, typer.Option(help="How many times each change is made.", min=1)] = 2,
    sentences: Annotated[int, typer.Option(help="Judge the first so many of a story.", min=3)] = 12,
    seed: Annotated[int, typer.Option(help="Another seed draws other stories and changes.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the table as CSV.")] = None,
    model: JudgeModelHere = None,
    adapter: Adapter = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Tell whether a judge scores stories lower for being made worse, and texts that only try to buy a score.

    With -o its verdicts are kept beside the table, in a journal; a run that was stopped goes on from there.

    Each story is disturbed in some twenty ways (order, strange sentences, babble, forced endings, ...) and the two of
    Tree of Writing that need no model, given a verdict beside it, and replaced by texts a policy may try: praise, the
    prompt again, templates, other languages. Counted is how often the result scores below the story as it was.
    """
    from adjudge.bench.disturbances import bench_disturbances as run
    from adjudge.bench.disturbances import journal_of
    from adjudge.commands.resumable import alone, keeping
    from adjudge.commands.source import check_fit

    _check_output(output, stories)
    model = model or usual_model(DEFAULT_JUDGE, adapter)
    check_fit(model, adapter, "pointwise", {"aspects": aspects})
    with ExitStack() as held:
        if output is not None:
            book = journal_of(output)
            held.enter_context(alone(book, mend="name another output with -o"))
            held.enter_context(keeping(book, lambda: f"what was judged is in {book}", "run it again to go on"))
        run(
            stories,
            model=model,
            adapter=adapter,
            aspects=aspects,
            text=text,
            kinds=kinds,
            limit=limit,
            steps=steps,
            sentences=sentences,
            seed=seed,
            device=device,
            dtype=dtype,
            output=output,
        )
