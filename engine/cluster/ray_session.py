"""The Ray that a cluster runs on: one that is there, or one of this process alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, ClassVar

from adjudge.engine.errors import AdjudgeError, reason

OBJECT_STORE_BYTES = 100 << 20
"""Nearly the least that Ray takes: only prompts on their way pass through, and what is too much goes to disk."""
RESTARTS = 100
"""How often Ray may start an actor again that was lost."""
MOST_CALLS = 1 << 16
"""Calls that a replica may have under way: beyond, Ray has all wait, even the question whether it is there."""


class RaySession:
    """A connection to the Ray at `address`, or to one that is started here and ends with this process.

    Where this process is connected already that connection serves; one that was made here ends with the last session
    of the process. Raises AdjudgeError where Ray is not installed or not there.
    """

    _begun: ClassVar[bool] = False  # whether Ray was connected to here
    _sessions: ClassVar[int] = 0
    _taken: ClassVar[dict[str, float]] = {"CPU": 0.0, "GPU": 0.0}  # by the sessions of this process

    def __init__(self, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's is 15: beside busy processes replicas stand still
        try:
            import ray
        except ImportError as error:
            raise AdjudgeError("replicas run on Ray, which is not here: pip install 'adjudge[cluster]'") from error
        self._ray: Any = ray  # partly untyped
        self._actors: list[Any] = []
        self._own: dict[str, float] = {}
        self._open = True
        address = address or os.environ.get("RAY_ADDRESS")
        if ray.is_initialized():
            RaySession._sessions += 1
            return
        alone: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        try:
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else alone))
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            what = f"reach Ray at {address}: check the address" if address else "start Ray on this machine"
            raise AdjudgeError(f"cannot {what} ({reason(error)})") from error
        RaySession._begun, RaySession._sessions = True, RaySession._sessions + 1

    def start(self, kind: type, arguments: Sequence[Any], count: int, each: dict[str, float | None]) -> list[Any]:
        """Start `count` actors of a class, each with so many "CPU" and "GPU".

        None stands for its share of the CPUs, one at least, and for one GPU where there are any.
        Raises AdjudgeError where there is no room even with nothing else on the cluster but what this process has
        there: Ray would wait for ever.
        """
        there: dict[str, float] = self._ray.cluster_resources()
        left = {name: there.get(name, 0.0) - taken for name, taken in self._taken.items()}
        cpus, gpus = each["CPU"], each["GPU"]
        if cpus is None:
            cpus = max(1.0, left["CPU"] // count)
        if gpus is None:
            gpus = min(1.0, there.get("GPU", 0.0))
        for name, needed in (("CPU", cpus), ("GPU", gpus)):
            if count * needed > left[name] + 1e-6:
                raise AdjudgeError(
                    f"{count} replicas with {needed:g} {name} each need {count * needed:g} {name},"
                    f" and the cluster has {left[name]:g} left: ask for fewer"
                )
        for name, taken in (("CPU", count * cpus), ("GPU", count * gpus)):
            self._own[name] = self._own.get(name, 0.0) + taken
            self._taken[name] += taken
        how = {"max_restarts": RESTARTS, "max_concurrency": MOST_CALLS}
        actor: Any = self._ray.remote(kind).options(num_cpus=cpus, num_gpus=gpus, **how)
        self._actors += [actor.remote(*arguments) for _ in range(count)]
        return list(self._actors)

    def close(self) -> None:
        """End the actors, and with the last session Ray, where it was connected to here."""
        if not self._open:
            return
        self._open = False
        for actor in self._actors:
            self._ray.kill(actor)
        for name, taken in self._own.items():
            self._taken[name] -= taken
        RaySession._sessions -= 1
        if self._begun and not self._sessions:
            RaySession._begun = False
            self._ray.shutdown()
