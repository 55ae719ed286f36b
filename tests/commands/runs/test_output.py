"""The files that commands write."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.commands.runs.output import is_stream, open_output_anew
from adjudge.engine.errors import AdjudgeError


def test_a_stream_is_one_whatever_it_is_redirected_to(tmp_path: Path) -> None:
    assert is_stream(Path("/dev/stdout")) and is_stream(Path("/dev/fd/1")) and is_stream(Path("/dev/null"))
    (tmp_path / "file").touch()
    assert not any(map(is_stream, (tmp_path, tmp_path / "file", tmp_path / "none", Path("v.jsonl"))))


def test_lines_of_which_a_part_had_room_leave_no_file_in_the_next_runs_way(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with (
            pytest.raises(AdjudgeError, match="o.jsonl .*: make room, run again"),
            open_output_anew(tmp_path / "o.jsonl") as write,
        ):
            write(b"{}\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
            write(b"{}\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
