from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra report")

from adjudge.engine.errors import AdjudgeError
from adjudge.training.pictures import new_figure, save_figure


@pytest.mark.parametrize("width", [3.0, 5.7, 9.9])
def test_a_title_is_no_wider_than_its_figure(tmp_path: Path, width: float) -> None:
    figure = new_figure(width, 1.5)
    words = "MACHINE of many cores, Python 3.11.7, torch 2.13.0+cpu, triton 3.7.1, transformers 5.23.0, commit a154431"
    save_figure(figure, tmp_path / "plot.png", f"pairwise judge, a model of a name\n{words}")
    [title] = [text for text in figure.texts if "MACHINE" in text.get_text()]
    box = title.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    assert figure.bbox.width < 900 or title.get_text().count("\n") == 1


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


def test_nothing_lies_in_the_folder_while_a_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure, found = new_figure(), list[Path]()
    draw = figure.savefig

    def watched(*place: Any, **how: Any) -> None:
        draw(*place, **how)
        found.extend(tmp_path.iterdir())

    monkeypatch.setattr(figure, "savefig", watched)
    save_figure(figure, tmp_path / "plot.png", "First")
    assert not found and list(tmp_path.iterdir()) == [tmp_path / "plot.png"]
