"""Every option of `adjudge serve` lands where it is meant to."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import typer
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.http import server
from adjudge.engine.http.limits import Limits
from adjudge.rewards.judges.aspects import parse_aspects
from tests.cli.driving import loaded

WIT = "wit=Is it funny?"
GIVEN = {
    "--model": "a/model",
    "--adapter": "lora",
    "--served-model-name": "mine",
    "--host": "there",
    "--port": "4321",
    "--api-key": "sesame",
    "--aspects": WIT,
    "--max-queue": "11",
    "--max-concurrency": "12",
    "--max-body-mb": "13",
    "--request-timeout": "14",
    "--stall-timeout": "15",
    "--drain-timeout": "16",
    "--device": "cuda:1",
    "--dtype": "float16",
    "--kv-cache-gb": "17",
    "--max-batch-tokens": "18",
}
SWITCHES = ["--batch-invariant", "--cuda-graphs"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the parts of a server are told, by their names; none of them starts."""
    told: dict[str, Any] = {}
    listen, tiny = server.listen, Engine("dummy:tiny-llama", kv_cache_gb=0.05)

    def opened(*args: Any, **how: Any) -> Engine:
        told["engine"] = args, how
        return tiny

    monkeypatch.setattr("adjudge.engine.engine.Engine", opened)
    monkeypatch.setattr("adjudge.engine.cluster.cluster_engine.ClusterEngine", opened)
    monkeypatch.setattr("adjudge.engine.cluster.async_cluster.AsyncClusterEngine", AsyncEngine)
    monkeypatch.setattr("adjudge.engine.http.app.create_app", lambda *args: told.update(app=args))
    monkeypatch.setattr("adjudge.rewards.http.routes.judging", lambda aspects: aspects)
    monkeypatch.setattr(server, "listen", lambda *where: told.update(where=where) or listen("127.0.0.1", 0))
    monkeypatch.setattr(server, "Server", Mock())
    yield told
    gc.unfreeze()


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_option_of_a_server_lands_where_it_is_meant_to(replicas: int, told: dict[str, Any]) -> None:
    options = [part for option in GIVEN.items() for part in option]
    result = CliRunner().invoke(
        app, ["serve", *options, *SWITCHES, "--replicas", str(replicas)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    model = ("a/model",) if replicas == 1 else ("a/model", 3)
    assert told["engine"] == (
        model,
        {
            "adapter": "lora",
            "device": "cuda:1",
            "dtype": "float16",
            "max_queue": 11,
            "kv_cache_gb": 17,
            "max_batch_tokens": 18,
            "batch_invariant": True,
            "cuda_graphs": True,
        },
    )
    _, limits, routes, _, name = told["app"]
    assert limits == Limits(
        api_key="sesame",
        max_answers=11,
        max_concurrency=12,
        max_body=13_000_000,
        request_timeout=14,
        stall_timeout=15,
        drain_timeout=16,
    )
    assert (routes, name, told["where"]) == ([parse_aspects(WIT)], "mine", ("there", 4321))


def test_no_option_of_a_server_is_forgotten_here() -> None:
    root: Any = typer.main.get_command(app)
    there = {option for parameter in loaded(root.commands["serve"]).params for option in parameter.opts}
    assert there == {*GIVEN, *SWITCHES, "--replicas"}
