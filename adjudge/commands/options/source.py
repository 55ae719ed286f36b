"""What a command asks: an engine in this process, several on Ray, or one behind a server; and as which judge."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.engines.engine_choice import EngineChoice

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


class Source(EngineChoice, frozen=True):
    """The engine that a command asks, or `replicas` of it; `model` may be None only of a server (`url`)."""

    replicas: int = 1

    def __post_init__(self) -> None:
        self.check_together(lambda name: "--" + name.replace("_", "-"))

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
        engine = self.open_anew()
        with engine if isinstance(engine, AbstractContextManager) else nullcontext(engine):
            yield engine

    def open_anew(self) -> EngineFace:
        """The engine, or an engine over its replicas."""
        if self.replicas == 1:
            return super().open_anew()
        from adjudge.engine.cluster.cluster_engine import ClusterEngine

        assert self.model is not None
        return ClusterEngine(self.model, **self.given)
