"""`adjudge serve`: a model over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from adjudge.cli.options import DEFAULT_MODEL, Device, Dtype, Model, Replicas, model_option

_limit = partial(typer.Option, rich_help_panel="Limits")
_engine = partial(typer.Option, rich_help_panel="Engine")


def serve(
    model: Model = DEFAULT_MODEL,
    adapter: Annotated[str | None, model_option(help="A PEFT folder of a LoRA adapter for the model.")] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="What clients call the model (default: as in --model).")
    ] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in: give an API key then.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free one.", min=0, max=65535)] = 8000,
    api_key: Annotated[
        str | None, typer.Option(help="What clients must send (default: $ADJUDGE_API_KEY; without either, nothing).")
    ] = None,
    aspects: Annotated[
        str, typer.Option(help="What is judged where a request to /v1/judge or /v1/rewards does not say; as in judge.")
    ] = "hanna",
    max_queue: Annotated[
        int,
        _limit(help="Prompts that may wait; beyond it 429, or 400 for a single larger request.", min=1),
    ] = 10_000,
    max_concurrency: Annotated[int, _limit(help="Requests at once; above it, 429.", min=1)] = 1024,
    max_body_mb: Annotated[float, _limit(help="Megabytes of one request; above it, 413.", min=0.001, max=1e6)] = 10.0,
    request_timeout: Annotated[
        float, _limit(help="Seconds a request may take; what is not done then says so.", min=0.001)
    ] = 600.0,
    stall_timeout: Annotated[
        float, _limit(help="Seconds after which a client that neither sends nor reads is dropped.", min=0.001)
    ] = 60.0,
    drain_timeout: Annotated[
        float,
        _limit(
            help="Seconds that requests under way have left after SIGTERM; it ends some 7 s later at most.", min=0.0
        ),
    ] = 30.0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    replicas: Replicas = 1,
    kv_cache_gb: Annotated[
        float | None,
        _engine(help="GiB of the cache (default: up to 4 on a CPU, most of what is free on a GPU).", min=0.001),
    ] = None,
    max_batch_tokens: Annotated[
        int | None,
        _engine(
            help="Tokens of one step; with fewer, small requests wait less beside large ones (default: 2048 on a CPU,"
            " 8192 on a GPU).",
            min=1,
        ),
    ] = None,
    batch_invariant: Annotated[
        bool,
        _engine("--batch-invariant", help="On a GPU: numbers that do not depend on what else is asked (slower)."),
    ] = False,
    cuda_graphs: Annotated[
        bool, _engine("--cuda-graphs", help="On a GPU: record decode steps once for each size, and play them.")
    ] = False,
) -> None:
    """Serve a model over HTTP: OpenAI's chat and completions, SGLang's score, judge and rewards.

    SIGTERM or Ctrl-C ends it when the requests under way are answered; a second one at once. `/schema` describes the
    API, `/health` and `/metrics` are for those who watch over it.
    """
    from adjudge.commands.serve import serve as run

    run(
        model=model,
        adapter=adapter,
        served_model_name=served_model_name,
        host=host,
        port=port,
        api_key=api_key,
        aspects=aspects,
        max_queue=max_queue,
        max_concurrency=max_concurrency,
        max_body_mb=max_body_mb,
        request_timeout=request_timeout,
        stall_timeout=stall_timeout,
        drain_timeout=drain_timeout,
        device=device,
        dtype=dtype,
        replicas=replicas,
        kv_cache_gb=kv_cache_gb,
        max_batch_tokens=max_batch_tokens,
        batch_invariant=batch_invariant,
        cuda_graphs=cuda_graphs,
    )
