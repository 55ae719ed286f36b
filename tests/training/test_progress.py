from __future__ import annotations

from types import SimpleNamespace

import pytest
from rich.console import Console

from adjudge.training import progress


def test_where_stderr_is_no_terminal_a_long_run_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(progress.watched("judging", "abc", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""  # it took no ten seconds
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "BURST", -1.0)  # each answer by itself
    assert list(progress.watched("judging", "abcd", 4)) == ["a", "b", "c", "d"]
    assert capsys.readouterr().err == "judging: 2 of 4, 0 min left\n"  # and then no minute
    monkeypatch.setattr(progress, "EVERY", 0.0)
    assert list(progress.watched("judging", "abcd", 4)) == ["a", "b", "c", "d"]
    assert capsys.readouterr().err == "judging: 2 of 4, 0 min left\njudging: 3 of 4, 0 min left\n"
    assert list(progress.watched("judging", "abcd", 4, shown=False)) == ["a", "b", "c", "d"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("came", "said"),
    [
        ([0, *8 * [120.0], *8 * [240.0]], ["x 9 of 64, 12 min left"]),  # eight in two minutes, and the next has come
        ([0, *(3.0 * n for n in range(1, 30))], [f"x {n} of 64, {m} min left" for n, m in ((4, 3), (24, 2))]),
        ([0, *(0.5 * n for n in range(1, 50))], ["x 21 of 64, 0 min left"]),
    ],
    ids=["together", "slowly", "fast"],
)
def test_how_long_the_rest_takes_is_reckoned_of_whole_bursts(
    came: list[float], said: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(came)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(times)))
    pace = progress.Pace(Console(stderr=True, force_terminal=False), 64)
    for done in range(1, len(came)):
        pace.say("x", done)
    assert capsys.readouterr().err.splitlines() == said
