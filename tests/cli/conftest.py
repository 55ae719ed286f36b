from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from adjudge.cli import main
from tests.cli.driving import Run


@pytest.fixture
def process(tmp_path: Path) -> Run:
    """The command in a process of its own."""

    def process(*arguments: str | Path, input: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "adjudge", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, input=input)

    return process


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command in this process, which saves the seconds of its imports; it ends and prints as one of its own does.

    Warnings and log lines are on stderr too, as they are where pytest does not take them.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["adjudge", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        capfd.readouterr()
        with warnings.catch_warnings(record=True) as warned, monkeypatch.context() as without_handlers:
            without_handlers.setattr(logging.root, "handlers", [])
            warnings.resetwarnings()
            for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
                warnings.simplefilter("ignore", kind)
            with pytest.raises(SystemExit) as end:
                main()
        printed, told = capfd.readouterr()
        told += "".join(warnings.formatwarning(one.message, one.category, one.filename, one.lineno) for one in warned)
        return subprocess.CompletedProcess(command, end.value.code, printed, told)

    return run
