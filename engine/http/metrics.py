"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adjudge.engine.async_engine import AsyncFace

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

NOW = ("requests_running", "requests_waiting", "kv_blocks_free", "kv_blocks_used")
"""Counters of an engine that also fall."""


class Metrics:
    """Requests by route and status, how long they took, and the engine's own counters."""

    def __init__(self, engine: AsyncFace) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "adjudge_http_requests", "Answered requests.", ("route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "adjudge_http_request_seconds",
            "From the first byte in to the last byte out.",
            ("route",),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._registry.register(_EngineCounters(engine))

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineCounters(Collector):
    def __init__(self, engine: AsyncFace) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        for name, value in self._engine.counters().items():
            family = GaugeMetricFamily if name in NOW else CounterMetricFamily
            yield family(f"adjudge_{name}", name.replace("_", " "), value=value)
