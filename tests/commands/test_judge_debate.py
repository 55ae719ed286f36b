"""`adjudge judge --judge debate` as a user meets it, in this process, with a tiny model of random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from tests.cli.driving import DEBATING
from tests.engine.http.serving import served
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

GREETING = "1. A greeting\nHello 0"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_lines(
        "g.jsonl", *({"prompt": "A greeting", "response": f"Hello {n}", "label": n, "id": f"g{n}"} for n in (0, 1))
    )
    write_lines(
        "good.jsonl", {"prompt": "A wish", "response": "Sleep well."}, {"prompt": "A greeting", "response": "Hello 0"}
    )
    return lambda *arguments: CliRunner().invoke(app, ["judge", "g.jsonl", "--judge", "debate", *arguments])


def lines(path: str = "g.verdicts.jsonl") -> list[dict[str, dict[str, object]]]:
    return read_lines(path)


def test_a_debate_is_held_about_each_text_with_examples_found_by_the_engine_itself(run: Run) -> None:
    result = run("--examples", "good.jsonl", *DEBATING)
    assert result.exit_code == 0, result.output
    first, second = lines()
    assert (first["id"], second["id"], first["label"]) == ("g0", "g1", 0)
    for verdict in (first, second):
        assert verdict["score"] is not None and {"judge", "reflect"} <= verdict["breakdown"].keys()
        assert list(verdict["analysis"]) == ["retrieval", "positive", "negative"]
    assert first["analysis"]["retrieval"] == ["1. A wish\nSleep well."]  # not itself
    assert second["analysis"]["retrieval"] == ["1. A greeting\nHello 0\n\n2. A wish\nSleep well."]


def test_how_many_examples_are_found_and_how_sure_a_review_must_be_are_the_users(run: Run) -> None:
    retrieval = ("--examples", "good.jsonl", "--without", "positive,negative,reflect", "--overwrite", *DEBATING)
    keys = set()
    for more in ((), ("--override", "1"), ("--k", "1")):
        result = run(*retrieval, *more)
        assert result.exit_code == 0, result.output
        keys.add(str(lines()[1]["key"]))
    assert len(keys) == 3
    assert [line["analysis"]["retrieval"] for line in lines()] == [["1. A wish\nSleep well."], [GREETING]]


def test_agents_can_be_left_out(run: Run) -> None:
    assert run("--without", "positive, negative,reflect", *DEBATING).exit_code == 0
    assert [list(verdict["breakdown"]) for verdict in lines()] == [["judge"], ["judge"]]
    assert lines()[0]["analysis"] is None


def test_rulings_in_writing_are_averaged_over_samples(run: Run) -> None:
    script = ("--mode", "reasoned", "--samples", "2", "--without", "reflect,positive,negative")
    result = run(*script, *DEBATING, "--attempts", "2")
    assert result.exit_code == 0, result.output
    assert [len(verdict["analysis"]["judge"]) for verdict in lines()] == [2, 2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--examples", "none.jsonl"), r"cannot read none\.jsonl"),
        (("--examples", "bad.jsonl"), r'line 1 of bad\.jsonl: "response" is missing'),
        (("--k", "2"), "add --examples"),
    ],
)
def test_mistakes_are_found_before_a_model_is_looked_for(run: Run, options: tuple[str, ...], reason: str) -> None:
    write_lines("bad.jsonl", {"prompt": "A wish"})
    result = run(*options, "--model", "no/such-model")
    assert isinstance(result.exception, AdjudgeError)
    with pytest.raises(AdjudgeError, match=reason):
        raise result.exception


def test_examples_are_found_by_the_server_that_judges(run: Run) -> None:
    arguments = ("--examples", "good.jsonl", *DEBATING[2:])
    assert run(*arguments, *DEBATING[:2]).exit_code == 0
    expected = Path("g.verdicts.jsonl").read_text()
    engine = AsyncEngine(Engine(DEBATING[1]))
    with served(engine) as site:
        result = run(*arguments, "--url", site.url, "-o", "there.jsonl")
    engine.worker.close(drain=False)
    assert result.exit_code == 0, result.output
    assert Path("there.jsonl").read_text() == expected
