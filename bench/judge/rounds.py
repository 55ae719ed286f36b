"""Peers in turn: each answers all questions in every round, in rotating order."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.progress import Progress

from adjudge.bench.judge.peers import Answer, Peer
from adjudge.engine.errors import reason


@dataclass
class Runs:
    """What was measured of one peer: seconds and answers by round, or why there are none."""

    name: str
    seconds: list[float] = field(default_factory=list)
    answers: list[Sequence[Answer]] = field(default_factory=list)
    tokens: int | None = None
    """Prompt tokens computed in a round."""
    failure: str = ""

    @property
    def median(self) -> float:
        """Median seconds of a round."""
        return statistics.median(self.seconds)


def run_rounds(peers: Sequence[Peer], repeats: int, progress: Progress) -> tuple[Sequence[Answer], list[Runs]]:
    """The reference's answers, and what was measured of each peer.

    A peer that raises is left out from there on; the first, which all are compared with, and the reference may not.
    """
    runs = [Runs(peer.name) for peer in peers]
    reference = next(peer for peer in peers if peer.is_reference)
    task = progress.add_task("warming up", total=1 + len(peers) * repeats)
    expected, _ = reference.run()
    progress.advance(task)
    for repeat in range(repeats):
        for place in range(len(peers)):
            turn = (place + repeat) % len(peers)
            progress.update(task, description=runs[turn].name)
            if not runs[turn].failure:
                try:
                    _run(peers[turn], runs[turn])
                except Exception as error:
                    if turn == 0 or peers[turn].is_reference:
                        raise
                    runs[turn] = Runs(peers[turn].name, failure=reason(error))
            progress.advance(task)
    return expected, runs


def _run(peer: Peer, runs: Runs) -> None:
    gc.collect()
    started = time.perf_counter()
    answers, runs.tokens = peer.run()
    runs.seconds.append(time.perf_counter() - started)
    runs.answers.append(answers)
