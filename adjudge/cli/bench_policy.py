"""`adjudge bench policy`: how often policies beat their base model and people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from adjudge.cli.groups import EarlierRun, with_groups
from adjudge.cli.options import (
    DEFAULT_JUDGE,
    Device,
    Dtype,
    JudgeAspects,
    Language,
    MaxConcurrency,
    MaxContext,
    MinMass,
    Mode,
    Principles,
    Retries,
    Rubric,
    Scheme,
    Timeout,
    TokenizerName,
    judge_options,
    usual_model,
)


@with_groups
def bench_policy(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT...", help="Output folders of `adjudge train`, PEFT folders, or models as in --base."
        ),
    ],
    prompts: Annotated[
        Path,
        typer.Option(
            help="JSONL, JSON, CSV or Parquet of held-out prompts: prompt, and reference where there is a human text."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for texts, verdicts, table and plot.")],
    base: Annotated[
        str | None,
        typer.Option(
            help="What all are compared with: a model by name or folder (default: what they were trained from)."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Texts of each policy to each prompt.", min=1)] = 4,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.", min=1)] = 256,
    temperature: Annotated[float, typer.Option(help="How freely texts are written.", min=0.0)] = 1.0,
    top_p: Annotated[float, typer.Option(help="Share of the likeliest tokens to draw from.", min=0.0, max=1.0)] = 1.0,
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--no-chat", help="Ask in the chat template (default: as in training, or yes)."),
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="A system message (default: as in training, or the row's `system`, or none).")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first prompts.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other texts.")] = 0,
    judge: Annotated[
        str | None,
        typer.Option(
            help="pairwise compares both texts, in both orders; pointwise, rubric, tree, principle, debate and scalar"
            " the scores they give each; package.module:name, one of your own, either way (default: pointwise for"
            f" {DEFAULT_JUDGE}, else pairwise).",
            metavar="JUDGE",
        ),
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option(help=f"As in `adjudge judge --model` (default: {DEFAULT_JUDGE}).")
    ] = None,
    judge_adapter: Annotated[Path | None, typer.Option(help="A PEFT folder: a LoRA adapter over the judge.")] = None,
    url: Annotated[
        str | None, typer.Option(help="The judge is on the server there; its key is $ADJUDGE_API_KEY.")
    ] = None,
    tokenizer: TokenizerName = None,
    max_context: MaxContext = None,
    max_concurrency: MaxConcurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    aspects: JudgeAspects = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    mode: Mode = None,
    language: Language = None,
    min_mass: MinMass = None,
    *,
    earlier: EarlierRun,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Have policies write to held-out prompts, and judge how often they beat their base model and people.

    Every policy writes the same number of texts to every prompt; each is compared with a text of the base model and,
    where a row has `reference`, with that. The base's own row is the control: other texts of the same model, which
    should win half. Intervals are of a bootstrap over prompts. Nothing is written or judged twice: with --resume a run
    goes on, also with further checkpoints.
    """
    from adjudge.commands.bench_policy import evaluate_policies
    from adjudge.engine.sampling import Sampling
    from adjudge.rewards.engines.specification import EngineSpec

    given = {"aspects": aspects, "rubric": rubric, "scheme": scheme, "principles": principles, "mode": mode}
    options = judge_options({**given, "language": language, "min_mass": min_mass})
    model = judge_model or (usual_model(DEFAULT_JUDGE, judge_adapter) if url is None else None)
    adapter = None if judge_adapter is None else str(judge_adapter)
    # With a server --device and --dtype are those of the policies alone.
    where: dict[str, Any] = {"device": device, "dtype": dtype} if url is None else {"url": url}
    where |= {"tokenizer": tokenizer, "max_context": max_context}
    where |= {"max_concurrency": max_concurrency, "timeout": timeout, "retries": retries}
    evaluate_policies(
        checkpoints,
        prompts,
        output,
        base=base,
        judge=judge,
        options=options,
        spec=EngineSpec(model, adapter=adapter, **where),
        samples=samples,
        sampling=Sampling(max_tokens=max_tokens, temperature=temperature, top_p=top_p),
        chat=chat,
        system=system,
        limit=limit,
        seed=seed,
        earlier=earlier,
        device=device,
        dtype=dtype,
    )
