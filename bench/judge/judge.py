"""`adjudge bench judge`: the same questions through adjudge and through its peers, in one run."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from adjudge.bench.csv_table import write_rows
from adjudge.bench.judge import report
from adjudge.bench.judge.load import Load, arrivals, offer
from adjudge.bench.judge.peer_models import PeerModels
from adjudge.bench.judge.peers import Answer, Peer, peers_of
from adjudge.bench.judge.questions import Questions, scoring_questions, writing_questions
from adjudge.bench.judge.rounds import Runs, run_rounds
from adjudge.bench.judge.services import services
from adjudge.bench.machine import describe_machine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.judges.options import names_of
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.wire import pair_of
from adjudge.training.progress import bar
from adjudge.training.terminal import counted, open_console

Mode = Literal["score", "generate"]

AGREEMENT = 1e-3
"""How far a variant's log-probabilities may be from one prompt at a time in float32."""
PAIRS: dict[Mode, int] = {"score": 4, "generate": 1}
TOKENS, REQUESTS, REPEATS = 16, 24, 3
"""Of a text, at each rate, and of each variant, where nothing else is said."""
SHARES = (0.3, 0.6, 0.9)
"""Of the requests a second that adjudge answers when all come at once: the rates of a load, where none are given."""


SWITCHES = {"batch-invariant": "batch_invariant", "cuda-graphs": "cuda_graphs", "compiled": "torch_compile"}
"""What an engine may be opened with besides, and its option."""


class Ours(Peer):
    """adjudge, its cache emptied before each run."""

    def __init__(self, name: str, engine: Engine, questions: Questions) -> None:
        self.name, self.engine, self.questions = name, engine, questions

    def run(self) -> tuple[Sequence[Answer], int]:
        """Score all prompts, or write all texts, from a cold cache."""
        engine, questions = self.engine, self.questions
        engine.cache.clear()
        before = engine.stats.tokens_computed
        if not questions.writes:
            scores = engine.score(questions.prompts, SCALE)
            return [score.full_logprobs or () for score in scores], engine.stats.tokens_computed - before
        greedy = Sampling(max_tokens=questions.writes, temperature=0.0, ignore_eos=True)
        texts = [text.token_ids for text in engine.generate(questions.prompts, greedy)]
        computed = engine.stats.tokens_computed - before
        return texts, computed - sum(len(text) - 1 for text in texts)  # a text's last token is not computed


def bench_judge(
    path: Path,
    *,
    model: str,
    mode: Mode = "score",
    load: bool = False,
    limit: int | None = None,
    repeats: int | None = None,
    max_tokens: int | None = None,
    rates: str | None = None,
    requests: int | None = None,
    also: str | None = None,
    kv_cache_gb: float | None = None,
    output: Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> None:
    """Measure every variant, and print and save the table; see the command's help for the options."""
    asked, switches = _rates(rates), _switches(also)
    if (asked or requests) and not load:
        raise AdjudgeError(f"--{'rates' if asked else 'requests'} is for a load: add --load, or leave it out")
    if repeats and load:
        raise AdjudgeError("--repeats is for the table without a load: leave it out")
    if max_tokens and mode != "generate":
        raise AdjudgeError("--max-tokens is for texts: add --mode generate, or leave it out")
    count = requests or REQUESTS
    if output is not None and output.suffix == ".png":
        raise AdjudgeError(f"{output} is the table, and the plot stands beside it as .png: name a .csv")
    rows = [pair_of(row, number) for number, row in enumerate(read_rows(path), 1)]
    how: dict[str, Any] = {"device": device, "dtype": dtype, "kv_cache_gb": kv_cache_gb}
    engine = Engine(model, **how)
    if engine.reward_head is not None:
        raise AdjudgeError(f"{model} is a reward model, which neither answers nor writes: name another --model")
    engines = {"adjudge": engine}
    for name in switches:
        switched = how | {SWITCHES[name]: True}
        engines[f"adjudge, {name}"] = Engine(model, **switched)
    enough = count if load else PAIRS[mode]  # pairs; each has several questions
    asked_about = rows[: limit or enough]
    if mode == "generate":
        questions = writing_questions(engine, asked_about, max_tokens or TOKENS)
    else:
        questions = scoring_questions(engine, asked_about)
    if load:
        if count > len(questions.prompts):
            raise AdjudgeError(
                f"{count} requests need as many questions, and {questions.pairs} pairs of {path} have"
                f" {len(questions.prompts)}: give more pairs, or --requests {len(questions.prompts)}"
            )
        _under_load(engines, questions.first(count), asked, output)
    else:
        _compare(engines, questions, repeats or REPEATS, output)


def _compare(engines: Mapping[str, Engine], questions: Questions, repeats: int, output: Path | None) -> None:
    models = PeerModels(questions)
    peers = [*(Ours(name, engine, questions) for name, engine in engines.items()), *peers_of(questions, models)]
    with bar() as progress:
        expected, runs = run_rounds(peers, repeats, progress)
    for peer in peers:
        peer.close()
    agreement: Callable[[Runs, Sequence[Answer]], float]
    agreement = report.equal_texts if questions.writes else report.largest_difference
    found = {run.name: agreement(run, expected) for run in runs if not run.failure}
    if output is not None:  # before anything is printed
        write_rows(output, *report.comparison_rows(runs, questions, found))
    console = _console()
    console.print(report.comparison_table(runs, questions, found))
    pairs, asked = counted(questions.pairs, "pair"), len(questions.prompts)
    if questions.writes:
        console.print(
            f"{pairs}, {asked} texts of {questions.writes} tokens after {questions.prompt_tokens:,} prompt tokens, the"
            " most probable token each time; all tokens/s counts both"
        )
        apart = [name for name, count in found.items() if count < asked]
        console.print(f"texts differ from one prompt at a time: {', '.join(apart) or 'nowhere'}")
    else:
        computed = runs[0].tokens
        assert computed is not None
        console.print(
            f"{pairs}, {asked} questions, {questions.prompt_tokens:,} prompt tokens:"
            f" {questions.prompt_tokens / computed:.2f} x as many as adjudge computes"
        )
        apart = [name for name, error in found.items() if not error <= AGREEMENT]
        console.print(f"scores differ by more than {AGREEMENT}: {', '.join(apart) or 'nowhere'}")
    _finish(console, [f"{run.name}: {run.failure}" for run in runs if run.failure] + models.absent, questions)


def _under_load(engines: Mapping[str, Engine], questions: Questions, rates: list[float], output: Path | None) -> None:
    models = PeerModels(questions)
    offered = services(engines, questions, models)
    count = len(questions.prompts)
    console = _console()
    loads: list[Load] = []
    with bar() as progress:
        task = progress.add_task("what adjudge can do", total=None)
        if not rates:
            at_once = [asyncio.run(offer(offered[0], math.inf, [0.0] * count)) for _ in range(2)][-1]  # one to warm up
            if at_once.note:
                raise AdjudgeError(f"adjudge did not answer all questions: {at_once.note}")
            rates = [share * at_once.achieved for share in SHARES]
            console.print(f"adjudge answers {at_once.achieved:.2f} requests/s when {count} come at once")
        progress.update(task, total=count * len(rates) * len(offered))
        for rate, service in product(rates, offered):
            progress.update(task, description=f"{service.name}, {rate:.2f} requests/s")
            gc.collect()
            loads.append(asyncio.run(offer(service, rate, arrivals(rate, count), lambda: progress.advance(task))))
            progress.update(task, completed=count * len(loads))
            if output is not None:
                write_rows(output, report.LOAD_COLUMNS, report.load_rows(loads, questions))  # it may be cut short
    for service in offered:
        service.close()
    console.print(report.load_table(loads))
    what = f"a text of {questions.writes} tokens" if questions.writes else "one label distribution"
    console.print(
        f"{count} requests, {what} each, due at random (Poisson) and timed from when they were due, from a cold cache"
    )
    if count < 100:
        console.print(f"p99 of {count} requests is the longest")
    left_out = models.absent + ["vllm: its offline engine takes whole batches"] * (models.vllm is not None)
    machine = _finish(console, left_out, questions)
    if output is not None:
        try:
            report.plot_load(
                loads, output.with_suffix(".png"), f"{Path(questions.model).name}, {questions.dtype}, {what}\n{machine}"
            )
        except AdjudgeError as error:
            print(f"adjudge: {error}", file=sys.stderr)


def _finish(console: Console, left_out: Sequence[str], questions: Questions) -> str:
    """Print what is not in the table and why, and with which model on what it was measured; returns the latter."""
    for line in left_out:
        console.print(f"left out: {line}")
    machine = describe_machine(torch.device(questions.device))
    console.print(f"{Path(questions.model).name}, {questions.dtype}, {questions.device}\n{machine}")
    return machine


def _rates(text: str | None) -> list[float]:
    """Rates from the command line, requests a second after commas; raises AdjudgeError for others."""
    try:
        rates = [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        rates = [0.0]
    if any(not 0 < rate < math.inf for rate in rates):
        raise AdjudgeError(f'--rates is "{text}": give requests a second above 0, such as 0.5,1,2')
    return rates


def _switches(text: str | None) -> list[str]:
    """Switches from the command line, after commas, each once; raises AdjudgeError for others."""
    names = list(dict.fromkeys(names_of(text)))
    if unknown := [name for name in names if name not in SWITCHES]:
        raise AdjudgeError(f'--also names "{unknown[0]}": choose {", ".join(SWITCHES)}')
    return names


def _console() -> Console:
    return open_console(170, highlight=False)
