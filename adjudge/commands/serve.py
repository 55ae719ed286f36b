"""`adjudge serve`: a model behind HTTP until it is told to stop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adjudge import __version__
from adjudge.commands.options.models import DEFAULT_MODEL, Device, Dtype, Model, Replicas, model_option
from adjudge.commands.runs.collector import freeze
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import HOUSE, SMOLLM2
from adjudge.engine.remote.address import key_of_header
from adjudge.rewards.judges.aspects import parse_aspects

if TYPE_CHECKING:
    from adjudge.engine.async_engine import AsyncFace

KEY = "ADJUDGE_API_KEY"
OPEN_FILES = 1 << 16
"""More than connections will be; where no limit is known, some programs that are started close as many one by one."""
_limit = partial(typer.Option, rich_help_panel="Limits")
_engine_option = partial(typer.Option, rich_help_panel="Engine")


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
        _engine_option(help="GiB of the cache (default: up to 4 on a CPU, most of what is free on a GPU).", min=0.001),
    ] = None,
    max_batch_tokens: Annotated[
        int | None,
        _engine_option(
            help="Tokens of one step; with fewer, small requests wait less beside large ones (default: 2048 on a CPU,"
            " 8192 on a GPU).",
            min=1,
        ),
    ] = None,
    batch_invariant: Annotated[
        bool,
        _engine_option(
            "--batch-invariant", help="On a GPU: numbers that do not depend on what else is asked (slower)."
        ),
    ] = False,
    cuda_graphs: Annotated[
        bool, _engine_option("--cuda-graphs", help="On a GPU: record decode steps once for each size, and play them.")
    ] = False,
) -> None:
    """Serve a model over HTTP: OpenAI's chat and completions, SGLang's score, judge and rewards.

    SIGTERM or Ctrl-C ends it when the requests under way are answered; a second one at once. `/schema` describes the
    API, `/health` and `/metrics` are for those who watch over it.
    """
    chosen, key = parse_aspects(aspects), key_of(api_key)
    try:
        from adjudge.engine.http.app import create_app
        from adjudge.engine.http.limits import Limits
        from adjudge.engine.http.server import Server, address_of, listen
        from adjudge.rewards.http.routes import judging
    except ModuleNotFoundError as error:
        raise AdjudgeError(f"{error.name} is not installed: pip install 'adjudge[serve]'") from error
    limits = Limits(
        api_key=key,
        max_body=int(max_body_mb * 1e6),
        max_concurrency=max_concurrency,
        max_answers=max_queue,
        request_timeout=request_timeout,
        stall_timeout=stall_timeout,
        drain_timeout=drain_timeout,
    )
    raise_open_files()
    with listen(host, port) as listener:
        how = {
            "adapter": adapter,
            "device": device,
            "dtype": dtype,
            "max_queue": max_queue,
            "kv_cache_gb": kv_cache_gb,
            "max_batch_tokens": max_batch_tokens,
            "batch_invariant": batch_invariant,
            "cuda_graphs": cuda_graphs,
        }
        engine = _engine(model, replicas, how)
        gate = create_app(engine, limits, [judging(chosen)], __version__, served_model_name)
        where, bound = address_of(listener)
        url = f"http://[{where}]:{bound}" if ":" in where else f"http://{where}:{bound}"
        freeze()
        try:
            Server(gate, listener, lambda: print(greeting(model, adapter, url), flush=True)).run()
        finally:
            asyncio.run(engine.close(drain=False))


def raise_open_files() -> None:
    """Hold more files open: the usual 1,024 are used up by connections before requests are too many."""
    with suppress(ImportError, OSError, ValueError):  # Windows knows no such limit
        import resource

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= now < OPEN_FILES:  # no limit is -1
            resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES if most < 0 else min(most, OPEN_FILES), most))


def key_of(given: str | None) -> str | None:
    """The key that clients must have, None where none is set; what a file of secrets has at its ends is no part of it.

    Raises AdjudgeError for an empty one, which would shut nobody out, and for one that no client can send.
    """
    key = os.environ.get(KEY) if given is None else given
    if key is not None and not key.strip():
        where = "--api-key" if given is not None else f"the variable {KEY}"
        raise AdjudgeError(f"{where} is empty, and without a key anybody is answered: give one, or leave it out")
    return None if key is None else key_of_header(key, "the key of the server")


def greeting(model: str, adapter: str | None, url: str) -> str:
    """What a server says of itself when it listens, and what its model cannot do, where that is one of ours."""
    line = f"adjudge: serving {model} on {url} (API at /schema)"
    known = {
        SMOLLM2.name: f"writes, but judges at chance: to judge, serve --model {HOUSE.name}",
        HOUSE.name: f"judges, and what it writes makes no sense: for texts, serve --model {SMOLLM2.name}",
    }
    return line if adapter is not None or model not in known else f"{line}\nadjudge: {model} {known[model]}"


def _engine(model: str, replicas: int, how: dict[str, Any]) -> AsyncFace:
    if replicas == 1:
        from adjudge.engine.async_engine import AsyncEngine
        from adjudge.engine.engine import Engine

        return AsyncEngine(Engine(model, **how))
    from adjudge.engine.cluster.async_cluster import AsyncClusterEngine
    from adjudge.engine.cluster.cluster_engine import ClusterEngine

    return AsyncClusterEngine(ClusterEngine(model, replicas, **how))
