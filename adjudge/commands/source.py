"""What a command asks: an engine in this process, several on Ray, or one behind a server; and as which judge."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.remote import OF_A_SERVER

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.judges.kinds import Options


def check_judge(judge: str | None, among: Sequence[str], what: Literal["pairs", "items"] | None = None) -> None:
    """Refuse a judge that is neither `among` these, nor one of the user's own which judges `what`.

    The module of the user's own is found in the folder where the command runs, too. Raises what importing it does.
    """
    from adjudge.rewards.imported import importable, is_own
    from adjudge.rewards.judges.kinds import kind_of

    if judge is None or judge in among:
        return
    if not is_own(judge):
        raise AdjudgeError(
            f'--judge is "{judge}": choose {", ".join(among)}, or write package.module:name for one of your own'
        )
    importable(Path())
    if what is not None and kind_of(judge).what != what:
        wrong = "judges single texts, and pairs are compared here: derive it from PairwiseJudge or PointwisePairJudge"
        if what == "items":
            wrong = "compares pairs, and single texts are judged here: derive it from OwnJudge"
        raise AdjudgeError(f"--judge {judge} {wrong}")


def check_fit(model: str | None, adapter: object, judge: str, options: Options) -> None:
    """Say what a model was not trained for; raises AdjudgeError where it cannot be that judge at all."""
    from adjudge.rewards.judges.kinds import misfit

    if adapter is None and (warning := misfit(model, judge, options)):
        print(f"adjudge: {warning}", file=sys.stderr)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where answers come from; `model` may be None only of a server (`url`), for the one it has.

    `tokenizer` names a server's, `max_context` is its context where it does not say, and `max_concurrency` limits the
    requests to it, each of which may take `timeout` seconds and is made again `retries` times. Raises AdjudgeError
    for what is a server's own matter, or a server's alone.
    """

    model: str | None
    adapter: Path | None
    url: str | None
    replicas: int
    device: str
    dtype: str
    tokenizer: str | None = None
    max_context: int | None = None
    max_concurrency: int | None = None
    timeout: float | None = None
    retries: int | None = None

    def __post_init__(self) -> None:
        for name, has in OF_A_SERVER.items():
            if self.url is None and getattr(self, name) is not None:
                option = "--" + name.replace("_", "-")
                raise AdjudgeError(f"{option} is for a server (--url): a model here {has}, leave it out")
        own = (self.adapter, self.replicas, self.device, self.dtype)
        if self.url is not None and own != (None, 1, "auto", "auto"):
            raise AdjudgeError(
                "--url asks a server: --adapter, --replicas, --device and --dtype are its own matter, leave them out"
            )

    def usual_judge(self, options: Options) -> Literal["pairwise", "pointwise"]:
        """Which judge compares stories where nobody has named one; a server is asked for its model if that decides."""
        from adjudge.rewards.judges.kinds import usual

        if self.model is not None or "orders" in options:
            return usual(self.model, options)
        with self.open() as engine:
            return usual(engine.name, options)

    @contextmanager
    def open(self) -> Iterator[EngineFace]:
        """The engine, until the block ends."""
        if self.url is not None:
            from adjudge.engine.remote.remote_engine import RemoteEngine

            key = os.environ.get("ADJUDGE_API_KEY")
            given = {name: value for name in OF_A_SERVER if (value := getattr(self, name)) is not None}
            with RemoteEngine(self.url, self.model, api_key=key, **given) as remote:
                yield remote
            return
        assert self.model is not None
        if self.replicas == 1:
            from adjudge.engine.engine import Engine

            yield Engine(self.model, adapter=self.adapter, device=self.device, dtype=self.dtype)
        else:
            from adjudge.engine.cluster.cluster_engine import ClusterEngine

            with ClusterEngine(
                self.model, self.replicas, adapter=self.adapter, device=self.device, dtype=self.dtype
            ) as cluster:
                yield cluster
