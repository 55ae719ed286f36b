"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adjudge.engine.async_engine import AsyncFace
from adjudge.engine.http.service import Service

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

ABOUT = {
    "prompts": "Prompts taken, one for each text that was asked for.",
    "prompt_tokens": "Their tokens, and those of labels behind them; of several texts of one prompt each counts them.",
    "tokens_waiting": "Tokens to compute for what replicas were sent and have not answered.",
}
"""What counters of an engine count, where the name does not say it all."""

NOW = ("requests_running", "requests_waiting", "kv_blocks_free", "kv_blocks_used", "replicas", "tokens_waiting")
"""Counters of an engine that also fall."""


class Metrics:
    """Requests by route and status, those under way, how long they took, and the engine's own counters."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "adjudge_http_requests", "Answered requests.", ("route", "status"), registry=self._registry
        )
        self._seconds = self._histogram("request_seconds", "From the first byte in to the last byte out.")
        self._first = self._histogram(
            "first_byte_seconds", "From the first byte in to the first byte out: to the first token of a stream."
        )
        active = Gauge("adjudge_http_requests_active", "Requests under way, this one too.", registry=self._registry)
        active.set_function(lambda: service.active)
        self._registry.register(_EngineCounters(service.engine))

    def observe(self, route: str, status: int, first: float | None, seconds: float) -> None:
        """Count a request that has ended after `seconds`; its answer, if it had one, began after `first`."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if first is not None:
            self._first.labels(route).observe(first)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, about: str) -> Histogram:
        return Histogram(f"adjudge_http_{name}", about, ("route",), buckets=SECONDS, registry=self._registry)


class _EngineCounters(Collector):
    def __init__(self, engine: AsyncFace) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        for name, value in self._engine.counters().items():
            family = GaugeMetricFamily if name in NOW else CounterMetricFamily
            yield family(f"adjudge_{name}", ABOUT.get(name, name.replace("_", " ")), value=value)
