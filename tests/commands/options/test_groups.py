from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from adjudge.commands.options.groups import Group, with_groups
from adjudge.commands.options.judges import ANALYSES, OPTIONS, WORDING, of_judge
from adjudge.commands.options.models import DEFAULT_JUDGE, DEFAULT_MODEL, Asked
from adjudge.commands.options.runs import EarlierRun
from adjudge.commands.options.source import Source
from adjudge.commands.options.writing import Writing, written
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.kinds import KINDS, Options

LUCKY = Annotated[int | None, typer.Option(help="How lucky.")]


def typed(*arguments: str) -> tuple[Path, Source, str, int]:
    """What a command gets that is called with these arguments."""
    got: list[tuple[Path, Source, str, int]] = []
    app = typer.Typer()

    @app.command()
    @with_groups
    def command(texts: Path, *, source: Asked, earlier: EarlierRun, limit: int = 3) -> None:
        """Say what there is."""
        got.append((texts, source, earlier, limit))

    CliRunner().invoke(app, arguments, catch_exceptions=False)
    return got[0]


def test_the_options_of_a_group_are_typed_one_by_one_and_reach_the_command_as_one() -> None:
    texts, source, earlier, limit = typed(
        "t.jsonl", "--limit", "5", "--url", "http://h", "--tokenizer", "t", "--resume"
    )
    assert (texts, limit, earlier) == (Path("t.jsonl"), 5, "resume")
    assert (source.url, source.tokenizer, source.model) == ("http://h", "t", None)


def test_a_group_has_its_own_defaults() -> None:
    _, source, earlier, limit = typed("t.jsonl")
    assert (source.model, source.replicas, source.device, earlier, limit) == (DEFAULT_JUDGE, 1, "auto", "refuse", 3)


def test_an_adapter_alone_lies_over_the_bare_model() -> None:
    _, source, _, _ = typed("t.jsonl", "--adapter", "lora")
    assert source.model == DEFAULT_MODEL != DEFAULT_JUDGE


def test_commands_have_texts_written_each_with_its_own_defaults() -> None:
    app, long, short = typer.Typer(), list[Writing](), list[Writing]()

    @app.command("one")
    @with_groups
    def one(writing: Annotated[Writing, written(9)]) -> None:
        long.append(writing)

    @app.command("two")
    @with_groups
    def two(writing: Annotated[Writing, written(7, 0.1)]) -> None:
        short.append(writing)

    CliRunner().invoke(app, ["one", "--seed", "3"], catch_exceptions=False)
    CliRunner().invoke(app, ["two", "--attempts", "1"], catch_exceptions=False)
    assert long == [Writing(max_tokens=9, temperature=0.7, attempts=3, seed=3)]
    assert short == [Writing(max_tokens=7, temperature=0.1, attempts=1, seed=0)]
    assert short[0].sampling.max_tokens == 7


def test_what_options_contradict_is_found_before_the_command_begins() -> None:
    with pytest.raises(AdjudgeError, match=r"a server, http://h \(--url\): leave out --device, which it"):
        typed("t.jsonl", "--url", "http://h", "--device", "cuda")


def test_a_command_keeps_its_name_and_its_help() -> None:
    @with_groups
    def command(pair: Annotated[int, Group(lambda one=1, two=2: one + two)]) -> None:
        """Add."""

    assert (command.__name__, command.__doc__) == ("command", "Add.")


def test_options_of_a_judge_that_were_given_are_found_in_the_order_in_which_they_stand() -> None:
    got: list[Options] = []
    app = typer.Typer()

    @app.command()
    @with_groups
    def command(
        *, options: Annotated[Options, of_judge("aspects", *ANALYSES, "seed", *WORDING)], limit: int = 0
    ) -> None:
        got.append(options)

    given = "--limit 3 --min-mass 0.5 --language zh --seed 4 --aspects coherence --attempts 2 --mode reasoned"
    CliRunner().invoke(app, given.split(), catch_exceptions=False)
    assert list(got[0].items()) == [
        ("aspects", "coherence"),
        ("mode", "reasoned"),
        ("attempts", 2),
        ("seed", 4),
        ("language", "zh"),
        ("min_mass", 0.5),
    ]


def test_an_option_of_a_judge_may_be_a_commands_own() -> None:
    app = typer.Typer()

    @app.command()
    @with_groups
    def command(options: Annotated[Options, of_judge("k", "mode", k=LUCKY)]) -> None:
        """Judge."""

    page = CliRunner().invoke(app, ["--help"]).output
    assert "How lucky." in page and "Earlier reviews of" not in page and "scores only" in page


def test_the_options_of_judges_that_can_be_typed_are_options_of_judges() -> None:
    assert OPTIONS.keys() <= {name for kind in KINDS.values() for name in kind.options}
