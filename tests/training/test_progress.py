from __future__ import annotations

import pytest

from adjudge.training import progress


def test_where_stderr_is_no_terminal_a_long_run_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(progress.watched("judging", "abc", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""  # it took no ten seconds
    monkeypatch.setattr(progress, "FIRST", 0.0)
    assert list(progress.watched("judging", "abc", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == "judging: 1 of 3, 0 min left\n"  # and then no minute
    monkeypatch.setattr(progress, "EVERY", 0.0)
    assert list(progress.watched("judging", "abc", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == "judging: 1 of 3, 0 min left\njudging: 2 of 3, 0 min left\n"
