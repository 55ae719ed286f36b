"""The Ray that a cluster runs on: one that is there, or one of this process alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from adjudge.engine.errors import AdjudgeError, reason

OBJECT_STORE_BYTES = 100 << 20
"""Nearly the least that Ray takes: only prompts on their way pass through, and what is too much goes to disk."""
RESTARTS = 10
"""How often Ray may start an actor again that was lost."""
MOST_CALLS = 1 << 16
"""Calls that a replica may have under way: beyond, Ray has all wait, even the question whether it is there."""


class RaySession:
    """A connection to the Ray at `address`, or to one that is started here and ends with this process.

    Where this process is connected already that connection serves. Raises AdjudgeError where Ray is not installed or
    not there.
    """

    def __init__(self, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise AdjudgeError("replicas run on Ray, which is not here: pip install 'adjudge[cluster]'") from error
        self._ray: Any = ray  # partly untyped
        self._actors: list[Any] = []
        self._ours = not ray.is_initialized()
        address = address or os.environ.get("RAY_ADDRESS")
        if not self._ours:
            return
        alone: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        try:
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else alone))
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            what = f"reach Ray at {address}: check the address" if address else "start Ray on this machine"
            raise AdjudgeError(f"cannot {what} ({reason(error)})") from error

    def start(self, kind: type, arguments: Sequence[Any], count: int, each: dict[str, float | None]) -> list[Any]:
        """Start `count` actors of a class, each with so many "CPU" and "GPU".

        None stands for its share of the CPUs, one at least, and for one GPU where there are any.
        Raises AdjudgeError where there is no room even with nothing else on the cluster: Ray would wait for ever.
        """
        there: dict[str, float] = self._ray.cluster_resources()
        cpus, gpus = each["CPU"], each["GPU"]
        if cpus is None:
            cpus = max(1.0, there.get("CPU", 0.0) // count)
        if gpus is None:
            gpus = min(1.0, there.get("GPU", 0.0))
        for name, needed in (("CPU", cpus), ("GPU", gpus)):
            if count * needed > there.get(name, 0.0) + 1e-6:
                raise AdjudgeError(
                    f"{count} replicas with {needed:g} {name} each need {count * needed:g} {name},"
                    f" and the cluster has {there.get(name, 0.0):g}: ask for fewer"
                )
        how = {"max_restarts": RESTARTS, "max_concurrency": MOST_CALLS}
        actor: Any = self._ray.remote(kind).options(num_cpus=cpus, num_gpus=gpus, **how)
        self._actors += [actor.remote(*arguments) for _ in range(count)]
        return list(self._actors)

    def close(self) -> None:
        """End the actors, and Ray where it was started here."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        if self._ours:
            self._ours = False
            self._ray.shutdown()
