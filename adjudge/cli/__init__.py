"""The `adjudge` command, one file a command; what each does is in `adjudge.commands`, loaded when it is called."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from adjudge.cli.bench import bench
from adjudge.cli.bench_personal import bench_personal
from adjudge.cli.bench_policy import bench_policy
from adjudge.cli.curate import curate
from adjudge.cli.evolve import evolve
from adjudge.cli.judge import judge_command
from adjudge.cli.models import models
from adjudge.cli.prompts import prompts
from adjudge.cli.rank import rank
from adjudge.cli.readers import readers
from adjudge.cli.replay import replay
from adjudge.cli.rubrics import rubrics
from adjudge.cli.score import score
from adjudge.cli.serve import serve
from adjudge.cli.train import train
from adjudge.cli.train_judges import train_agreement, train_direct, train_house, train_reward, train_teacher
from adjudge.cli.writing import writing
from adjudge.engine.errors import AdjudgeError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        print(f"adjudge {version('adjudge')}")
        raise typer.Exit


@app.callback()
def adjudge(
    which: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """LLM judges as rewards. Start with: adjudge judge pairs.jsonl -o verdicts.jsonl"""


app.command("judge")(judge_command)
for command in (rank, replay, score, serve, models):
    app.command()(command)
train.command("direct")(train_direct)
train.command("reward")(train_reward)
train.command("house")(train_house)
train.command("teacher")(train_teacher)
train.command("agreement")(train_agreement)
bench.command("personal-studies")(bench_personal)
bench.command("policy")(bench_policy)
GROUPS = {
    "bench": bench,
    "curate": curate,
    "evolve": evolve,
    "prompts": prompts,
    "readers": readers,
    "rubrics": rubrics,
    "train": train,
    "writing": writing,
}
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def _say_no_more(*streams: int) -> None:
    """Let go what is left for these: it would fail again at the end."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def main() -> NoReturn:
    """Run the command line: mistakes the user can mend are one sentence on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for encodings that have not every character
    try:
        try:
            app()
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # which typer and rich end with 1
                raise ended.__context__ from None
            print(end="", flush=True)  # what is left to write fails here, and not after the end
            raise
    except AdjudgeError as error:
        from adjudge.rewards.visible import in_a_line

        print(f"adjudge: {in_a_line(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # as typer ends with, which has not begun yet
        sys.exit(130)
    except BrokenPipeError:
        _say_no_more(1, 2)
        sys.exit(141)
    except OSError as error:
        from adjudge.commands.output import FULL, UNUSABLE
        from adjudge.rewards.visible import in_a_line

        if error.errno in UNUSABLE and error.filename:
            what = in_a_line(f"cannot use {error.filename} ({error.strerror}): name another")
            print(f"adjudge: {what}", file=sys.stderr)
            sys.exit(2)
        if (mend := FULL.get(error.errno or 0)) is None:
            raise
        _say_no_more(1)
        where = error.filename or "the standard output"
        print(in_a_line(f"adjudge: cannot write {where} ({error.strerror}): {mend}"), file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
