from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adjudge.rewards.journal import Journal


@pytest.fixture(autouse=True)
def nothing_is_drawn(without_pictures: None) -> None:
    """Every test here is without pictures."""


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal") as journal:
        yield journal
