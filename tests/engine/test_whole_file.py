"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from adjudge.engine.whole_file import whole_file, write_whole


def test_a_file_is_written(tmp_path: Path) -> None:
    write_whole(tmp_path / "note.json", b"old")
    write_whole(tmp_path / "note.json", b"new")
    assert (tmp_path / "note.json").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["note.json"]


def test_a_name_as_long_as_names_may_be_is_written(tmp_path: Path) -> None:
    for name in ("n" * 255, "名" * 85):
        write_whole(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_an_error_leaves_the_old_file_and_no_part_of_the_new_one(tmp_path: Path, fault: BaseException) -> None:
    target = tmp_path / "note.json"
    write_whole(target, b"old")
    with pytest.raises((KeyboardInterrupt, OSError)), whole_file(target) as file:
        file.write(b"new")
        raise fault
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    target = tmp_path / "note.json"
    write_whole(target, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input/output"):
        write_whole(target, b"new")
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]
