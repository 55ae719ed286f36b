"""`adjudge bench judge`: the same pairs through adjudge and through its peers, in one run."""

from __future__ import annotations

import csv
import gc
import statistics
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from adjudge.bench.machine import describe_machine
from adjudge.bench.peers import Peer, Questions, available_peers
from adjudge.engine.engine import Engine
from adjudge.rewards.pairwise import SCALE, PairwiseJudge
from adjudge.rewards.wire import pair_of, read_rows

AGREEMENT = 1e-3
"""How far a variant's log-probabilities may be from one prompt at a time in float32."""


class Variant(msgspec.Struct):
    """One way to answer the questions, and what was measured of it."""

    name: str
    seconds: list[float] = []
    tokens: int = 0
    error: float = 0.0  # largest difference of a label's log-probability from one prompt at a time

    @property
    def median(self) -> float:
        """Median seconds of a run."""
        return statistics.median(self.seconds)


class Ours(Peer):
    """adjudge, its cache emptied before each run."""

    name = "adjudge"

    def __init__(self, engine: Engine, questions: Questions) -> None:
        self.engine, self.questions = engine, questions

    def run(self) -> tuple[list[list[float]], int]:
        """Score all prompts from a cold cache."""
        self.engine.cache.clear()
        before = self.engine.stats.tokens_computed
        scores = self.engine.score(self.questions.prompts, SCALE)
        rows = [list(score.full_logprobs or ()) for score in scores]
        return rows, self.engine.stats.tokens_computed - before


def bench_judge(
    path: Path, *, model: str, limit: int, repeats: int, output: Path | None, device: str, dtype: str
) -> None:
    """Time every variant `repeats` times in rotating order, and print and save the table."""
    pairs = [pair_of(row, number) for number, row in enumerate(read_rows(path)[:limit], 1)]
    engine = Engine(model, device=device, dtype=dtype)
    judge = PairwiseJudge(engine)
    prompts = [engine.tokenizer.prompt(prompt) for pair in pairs for prompt in judge.prompts(pair)[0]]
    label_ids = engine.label_ids(judge.prompts(pairs[0])[0][0], SCALE)
    questions = Questions(prompts, label_ids, len(judge.questions), model, engine.dtype, str(engine.runner.device))
    peers: list[Peer] = [Ours(engine, questions), *available_peers(questions)]
    variants = [Variant(peer.name) for peer in peers]
    reference = next(peer for peer in peers if peer.is_reference)
    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("warming up", total=1 + len(peers) * repeats)
        expected, _ = reference.run()
        progress.advance(task)
        for repeat in range(repeats):
            for place in range(len(peers)):
                turn = (place + repeat) % len(peers)
                peer, variant = peers[turn], variants[turn]
                progress.update(task, description=variant.name)
                gc.collect()
                started = time.perf_counter()
                rows, variant.tokens = peer.run()
                variant.seconds.append(time.perf_counter() - started)
                variant.error = max(variant.error, _difference(rows, expected))
                progress.advance(task)
    for peer in peers:
        peer.close()
    _print(variants, len(pairs), prompts)
    if output is not None:
        _save(output, variants, len(pairs))


def _difference(rows: list[list[float]], expected: list[list[float]]) -> float:
    differences = [abs(x - y) for row, e in zip(rows, expected, strict=True) for x, y in zip(row, e, strict=True)]
    return max(differences, key=lambda difference: (difference != difference, difference))  # NaN is the largest


def _print(variants: list[Variant], pairs: int, prompts: list[tuple[int, ...]]) -> None:
    ours = variants[0]
    table = Table("variant", box=None, pad_edge=False, header_style="bold")
    for head in ("tokens computed", "seconds (min-max)", "pairs/s", "tokens/s", "adjudge is", "max |Δ log p|"):
        table.add_column(head, justify="right")
    for variant in variants:
        spread = f"{variant.median:.2f} ({min(variant.seconds):.2f}-{max(variant.seconds):.2f})"
        ratio = statistics.median(t / o for t, o in zip(variant.seconds, ours.seconds, strict=True))
        table.add_row(
            variant.name,
            f"{variant.tokens:,}",
            spread,
            f"{pairs / variant.median:.3f}",
            f"{variant.tokens / variant.median:,.0f}",
            "" if variant is ours else f"{ratio:.2f} x",
            f"{variant.error:.1e}",
        )
    console = Console(width=None if Console().is_terminal else 130)
    console.print(table)
    total = sum(map(len, prompts))
    console.print(
        f"{pairs} pairs, {len(prompts)} questions, {total:,} prompt tokens:"
        f" {total / ours.tokens:.2f} x as many as adjudge computes",
        highlight=False,
    )
    apart = [variant.name for variant in variants if not variant.error <= AGREEMENT]
    console.print(f"scores differ by more than {AGREEMENT}: {', '.join(apart) or 'nowhere'}", highlight=False)
    console.print(describe_machine(), highlight=False)


def _save(output: Path, variants: list[Variant], pairs: int) -> None:
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "pairs", "tokens", "seconds", "error", "machine"])
        for variant in variants:
            seconds = " ".join(f"{second:.3f}" for second in variant.seconds)
            writer.writerow([variant.name, pairs, variant.tokens, seconds, f"{variant.error:.2e}", describe_machine()])
