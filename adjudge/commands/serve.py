"""`adjudge serve`: a model behind HTTP until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import TYPE_CHECKING, Any

from adjudge import __version__
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import HOUSE, SMOLLM2
from adjudge.engine.remote.address import key_of_header
from adjudge.rewards.judges.aspects import parse_aspects

if TYPE_CHECKING:
    from adjudge.engine.async_engine import AsyncFace

KEY = "ADJUDGE_API_KEY"


def serve(
    *,
    model: str,
    adapter: str | None,
    served_model_name: str | None,
    host: str,
    port: int,
    api_key: str | None,
    aspects: str,
    max_queue: int,
    max_concurrency: int,
    max_body_mb: float,
    request_timeout: float,
    stall_timeout: float,
    drain_timeout: float,
    device: str,
    dtype: str,
    replicas: int,
    kv_cache_gb: float | None,
    max_batch_tokens: int | None,
    batch_invariant: bool,
    cuda_graphs: bool,
) -> None:
    """Serve until SIGTERM or Ctrl-C; mistakes in the options are found before the model is loaded."""
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
        gc.freeze()  # the collector, which stops everything, need not look through libraries and model again
        try:
            Server(gate, listener, lambda: print(greeting(model, adapter, url), flush=True)).run()
        finally:
            asyncio.run(engine.close(drain=False))


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
