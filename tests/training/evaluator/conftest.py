from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves have tests of their own; drawing them takes longer than a tiny run."""
    monkeypatch.setattr("adjudge.training.callbacks.can_draw", lambda: False)
