"""`adjudge bench disturbances` and `probe`: how easily a judge is fooled."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from adjudge.commands.options.files import Table
from adjudge.commands.options.judges import of_judge
from adjudge.commands.options.models import DEFAULT_JUDGE, Adapter, Device, Dtype, JudgeModelHere, usual_model
from adjudge.commands.options.source import check_fit, check_judge
from adjudge.commands.runs.output import check_table
from adjudge.commands.runs.resumable import alone, keeping
from adjudge.rewards.engines.specification import EngineSpec
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.judges.kinds import Options
from adjudge.training.terminal import counted, open_console, say

PROBED = ("pointwise", "rubric", "tree", "principle", "debate", "scalar")
"""The judges that probes are put to, besides those of one's own."""


def bench_probe(
    judge: Annotated[
        str,
        typer.Option(
            help=f"Whose rewards: {', '.join(PROBED)}, or package.module:name for one of your own.", metavar="NAME"
        ),
    ] = "pointwise",
    *,
    options: Annotated[Options, of_judge("aspects", "rubric", "scheme", "principles", "language")],
    model: JudgeModelHere = None,
    adapter: Adapter = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Try to fool a judge: empty, repeated, copied and padded texts, and instructions to the judge inside texts.

    Each probe is held against the plain text it was made from; the shipped canaries, of known order, come first.
    """
    from adjudge.bench.probes import bench_probe as run

    check_judge(judge, PROBED, "items")
    model = model or usual_model(DEFAULT_JUDGE, adapter)
    check_fit(model, adapter, judge, options)
    engine = EngineSpec(model, adapter=None if adapter is None else str(adapter), device=device, dtype=dtype)
    run(judge, options, engine)


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
    output: Table = None,
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
    from adjudge.bench.disturbances import KINDS, changes, drawn_stories, judged, outcome_table, write_outcomes
    from adjudge.bench.machine import describe_machine
    from adjudge.engine.engine import Engine
    from adjudge.rewards.judges.pointwise import PointwiseJudge
    from adjudge.training.writing.disturbances import parse_kinds

    check_table(output, stories)
    model = model or usual_model(DEFAULT_JUDGE, adapter)
    check_fit(model, adapter, "pointwise", {"aspects": aspects})
    chosen, asked = parse_kinds(kinds, KINDS), parse_aspects(aspects)
    drawn, short = drawn_stories(stories, text, limit, sentences, seed)
    changed = list(changes(drawn, steps, seed, chosen))
    with ExitStack() as held:
        book = None
        if output is not None:
            kept = output.with_name(output.name + ".journal")
            book = held.enter_context(alone(kept, mend="name another output with -o"))
            held.enter_context(keeping(kept, lambda: f"what was judged is in {kept}", "run it again to go on"))
        engine = Engine(model, adapter=adapter, device=device, dtype=dtype)
        outcomes = judged(PointwiseJudge(engine, aspects=asked, journal=book), drawn, changed)
        machine = describe_machine(engine.runner.device)
        if output is not None:  # before anything is printed
            write_outcomes(output, outcomes, (model, adapter or "", aspects, steps, sentences, seed, machine))
    title = f"{stories.name}, {len(drawn)} stories, {counted(steps, 'step')}, {model}"
    open_console(150).print(outcome_table(outcomes, title))
    print("[low, high]: 95 % of draws of stories; scores are from 1 to 5, the mean of the aspects; of texts with both")
    for line in short:
        print(line)
    done = Counter(one.kind for one in changed)
    if idle := [f"{kind} in {len(drawn) - done[kind]} stories" for kind in chosen if done[kind] < len(drawn)]:
        print(f"found nothing to do: {', '.join(idle)}")
    print(machine)
    if output is not None:
        say(f"table: {output}")
