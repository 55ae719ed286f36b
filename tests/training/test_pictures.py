from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra report")

from adjudge.engine.errors import AdjudgeError
from adjudge.training.pictures import new_figure, save_figure


def test_a_full_disk_leaves_the_picture_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, figure = tmp_path / "plot.png", new_figure()
    save_figure(figure, path, "First")
    before = path.read_bytes()
    assert before.startswith(b"\x89PNG")

    def half(place: Any, **_: Any) -> None:
        with Path(place).open("wb") if isinstance(place, Path) else place as file:
            file.write(before[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(figure, "savefig", half)
    with pytest.raises(AdjudgeError, match=r"plot.png cannot be written \(No space left on device\): name another"):
        save_figure(figure, path, "Second")
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
