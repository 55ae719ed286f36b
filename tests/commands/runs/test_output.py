"""The files that commands write."""

from __future__ import annotations

from pathlib import Path

from adjudge.commands.runs.output import is_stream


def test_a_stream_is_one_whatever_it_is_redirected_to(tmp_path: Path) -> None:
    assert is_stream(Path("/dev/stdout")) and is_stream(Path("/dev/fd/1")) and is_stream(Path("/dev/null"))
    (tmp_path / "file").touch()
    assert not any(map(is_stream, (tmp_path, tmp_path / "file", tmp_path / "none", Path("v.jsonl"))))
