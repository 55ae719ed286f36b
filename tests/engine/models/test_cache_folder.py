from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import SafetensorError

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.cache_folder import Manifest, build, cache_root, entries, find

MANIFEST = Manifest("m", "m.gguf", "0" * 64)

# Makes an entry in two halves; between them it waits for a line on its standard input.
SLOW = """
import sys
from adjudge.engine.models.cache_folder import Manifest, build

def make(folder):
    (folder / "weights").write_bytes(b"ha")
    print("making", flush=True)
    sys.stdin.readline()
    (folder / "weights").write_bytes(b"whole")
    return Manifest("m", "m.gguf", "0")

build("key", make, lambda line: print("waiting", flush=True))
print("done", flush=True)
"""


def make(folder: Path) -> Manifest:
    (folder / "weights").write_bytes(b"whole")
    return MANIFEST


def refuse(folder: Path) -> Manifest:
    raise AssertionError("made again")


@contextlib.contextmanager
def slow_process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SLOW]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ADJUDGE_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/adjudge"),
        ({"ADJUDGE_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/me/.cache/adjudge"),
        ({"XDG_CACHE_HOME": "not/absolute"}, "/home/me/.cache/adjudge"),
        ({"ADJUDGE_CACHE": "~/models"}, "/home/me/models"),
    ],
)
def test_the_environment_names_the_cache_folder(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("ADJUDGE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_root() == Path(expected)


def test_where_no_home_is_known_the_cache_wants_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJUDGE_CACHE", "~nobody-here/models")
    with pytest.raises(AdjudgeError, match="no home folder is known for ~nobody-here/models: set HOME, or name a"):
        cache_root()
    for name in ("ADJUDGE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user whom the machine does not know
    with pytest.raises(AdjudgeError, match="no home folder is known for ~/.cache/adjudge"):
        cache_root()


def test_an_entry_is_made_once(cache: Path) -> None:
    folder = build("key", make, refuse_status)
    assert folder.parent.parent == cache
    assert build("key", refuse, refuse_status) == folder == find("key")
    assert [(path, manifest.files) for path, manifest in entries()] == [(folder, {"weights": 5})]


def refuse_status(line: str) -> None:
    raise AssertionError(line)


def test_an_entry_whose_manifest_tells_more_is_not_made_again(cache: Path) -> None:
    manifest = build("key", make, refuse_status) / "adjudge.json"
    told = json.loads(manifest.read_text()) | {"fingerprint": "f" * 64, "converter": 1}  # as it did once
    manifest.write_text(json.dumps(told))
    assert build("key", refuse, refuse_status) == manifest.parent


@pytest.mark.parametrize("damage", ["short", "gone", "manifest gone", "manifest damaged"])
def test_a_damaged_entry_is_made_again(cache: Path, damage: str) -> None:
    folder = build("key", make, refuse_status)
    if damage == "short":
        (folder / "weights").write_bytes(b"who")
    elif damage == "gone":
        (folder / "weights").unlink()
    elif damage == "manifest gone":
        (folder / "adjudge.json").unlink()
    else:
        (folder / "adjudge.json").write_text('{"name": ')
    assert find("key") is None
    assert list(entries()) == []
    assert (build("key", make, refuse_status) / "weights").read_bytes() == b"whole"


def test_a_failure_leaves_nothing_behind(cache: Path) -> None:
    def fail(folder: Path) -> Manifest:
        (folder / "weights").write_bytes(b"ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build("key", fail, refuse_status)
    assert [path.name for path in (cache / "models").iterdir()] == [".key.lock"]
    build("key", make, refuse_status)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left.*make room, or name"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "No space left.*make room, or name"),
        (Exception("Disk quota exceeded (os error 122)"), "quota exceeded.*have the quota raised, or name"),
    ],
)
def test_a_full_disk_is_one_clear_sentence_however_it_is_told(cache: Path, error: Exception, said: str) -> None:
    def fail(folder: Path) -> Manifest:
        raise error

    with pytest.raises(AdjudgeError, match=rf"{cache}.*{said}.*ADJUDGE_CACHE"):
        build("key", fail, refuse_status)


def test_a_cache_that_cannot_be_written_is_one_clear_sentence(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(AdjudgeError, match="cannot write to the cache folder .*ADJUDGE_CACHE"):
        build("key", make, refuse_status)


def test_of_two_processes_one_makes_the_entry_and_the_other_waits_for_it(cache: Path) -> None:
    with slow_process() as first, slow_process() as second:
        assert {said(first), said(second)} == {"making", "waiting"}
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        assert {said(first), said(second)} == {"done"}
    folder = find("key")
    assert folder is not None
    assert (folder / "weights").read_bytes() == b"whole"


def test_a_process_killed_half_way_leaves_the_entry_to_the_next(cache: Path) -> None:
    with slow_process() as killed:
        assert said(killed) == "making"
        with slow_process() as waiting:
            assert said(waiting) == "waiting"
            killed.kill()
            assert said(waiting) == "making"
    leftovers = [path.name for path in (cache / "models").glob(".key.partial-*")]
    assert len(leftovers) == 1
    assert find("key") is None and list(entries()) == []
    build("key", make, refuse_status)
    assert sorted(path.name for path in (cache / "models").iterdir()) == [".key.lock", "key"]
