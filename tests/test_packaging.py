"""What an installation, and an archive of the sources, hold."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

setuptools = pytest.importorskip("setuptools", reason="what builds packages is not installed")

ROOT = Path(__file__).parents[1]
PARTS = ("kernels", "engine", "rewards", "training", "bench")
NOT_READ = "bench/results"
"""What is there for people."""


def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What setup.py tells setuptools."""
    told: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", told.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return told


@pytest.fixture
def tracked() -> set[str]:
    """The files of the five parts that are no Python, without results."""
    if not (ROOT / ".git").exists():
        pytest.skip("an archive does not say which of its files are tracked")
    listed = subprocess.run(["git", "ls-files", *PARTS], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {name for name in listed.stdout.splitlines() if not name.endswith(".py")}
    return {name for name in files if not name.startswith(NOT_READ)}


def test_every_file_that_code_reads_is_installed_with_its_package(
    tracked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    patterns = told(monkeypatch)["package_data"]
    folders = {package.replace(".", "/"): globs for package, globs in patterns.items()}
    installed = {
        str(path.resolve().relative_to(ROOT))
        for folder, globs in folders.items()
        for pattern in globs
        for path in (ROOT / folder).glob(pattern)
    }
    assert len(tracked) > 50 and not tracked - installed


def test_no_package_is_installed_under_another_name_than_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = told(monkeypatch)["packages"]
    assert {"adjudge", *(f"adjudge.{part}" for part in PARTS)} < {*packages}
    assert [name for name in packages if name != "adjudge" and not name.startswith("adjudge.")] == []


def test_an_archive_of_the_sources_holds_every_file_that_code_reads(tracked: set[str], tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "no files found matching" not in made.stderr
    [sources] = tmp_path.glob("*/SOURCES.txt")
    archived = {*sources.read_text().splitlines()}
    assert {f"adjudge/{name}" for name in tracked} <= archived
    assert {"LICENSE", "constraints.txt", "docs/judges.md", "examples/pairs.jsonl", "tests/conftest.py"} <= archived


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_make_finds_a_python_that_goes_by_its_version_alone(version: str, tmp_path: Path) -> None:
    make = shutil.which("make") or pytest.skip("make is not installed")
    python = tmp_path / f"python{version}"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    command = [make, "-C", str(tmp_path), "-f", str(ROOT / "Makefile"), ".venv/bin/pip"]
    made = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert f"creating .venv with python{version}\n" in made.stdout


@pytest.mark.parametrize(
    ("uv", "settings", "installs"),
    [
        (0, "global.extra-index-url='x'", ["uv"]),
        (1, "", ["uv", "pip"]),
        (0, "global.index-url='https://packages.example'", ["pip"]),
    ],
)
def test_make_installs_by_uv_but_by_pip_where_uv_fails_or_an_index_is_the_users_own(
    uv: int, settings: str, installs: list[str], tmp_path: Path
) -> None:
    make = shutil.which("make") or pytest.skip("make is not installed")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    script = 'echo "$2 $*" >> asked', f'test "$3" != config || echo "{settings}"', f'test "$2" != uv || exit {uv}'
    python.write_text("\n".join(["#!/bin/sh", *script, ""]))
    python.chmod(0o755)
    for name in ("setup.py", "pyproject.toml", "constraints.txt", ".venv/bin/pip", ".venv/.torch"):
        (tmp_path / name).touch()
    command = [make, "-C", str(tmp_path), "-f", str(ROOT / "Makefile"), ".venv/.dev"]
    subprocess.run(command, capture_output=True, text=True, check=True)
    asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines() if "install" in line]
    assert [words[0] for words in asked] == installs
    assert all(words[-2:] == ["-e", ".[dev]"] and "constraints.txt" in words for words in asked)
