"""The `adjudge` command: its list of commands, each of which is imported when it is called, and how mistakes end."""

from __future__ import annotations

import io
import os
import signal
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from adjudge.commands.lazy import Commands
from adjudge.engine.errors import AdjudgeError

app = Commands(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


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


app.add_lazily(
    {
        "judge": ("judge:judge", "Judge a file of texts; each judge's columns are listed below."),
        "rank": ("rank:rank", "Rank the responses to each prompt by comparing pairs of them."),
        "replay": (
            "replay:replay",
            "Give the verdicts of an earlier run again, from its journal alone: the same lines, byte for byte, and no"
            " model.",
        ),
        "score": (
            "score:score",
            "Read the distribution over labels at the end of each prompt, without generating.",
        ),
        "serve": (
            "serve:serve",
            "Serve a model over HTTP: OpenAI's chat and completions, SGLang's score, judge and rewards.",
        ),
        "models": ("models:models", "List the models that can be named, and where they are kept."),
        "bench": (
            "bench:bench",
            "Measure speed (judge, grpo, kernels, ...), and how good a judge is (agreement, disturbances, ...).",
        ),
        "curate": (
            "curate:curate",
            "Make preference pairs and principles, with which judges are trained and told (Igniting).",
        ),
        "evolve": ("evolve:evolve", "Make rationales for human scores, and keep the sound ones (EvolvR)."),
        "prompts": ("prompts:prompts", "List the prompts of all judges, or show what one asks."),
        "readers": ("readers:readers", "Prepare the reviews of single readers for judges of their taste."),
        "rubrics": (
            "rubrics:rubrics",
            "Mine a rubric for each question from texts that people wrote, and compare the ways to score by rubrics.",
        ),
        "train": (
            "train:train",
            "Train policies (grpo, sft) and judges (direct, reward, house), and compare them.",
        ),
        "writing": (
            "writing:writing",
            "Disturb texts to test a judge, and build writing benchmarks from texts (Tree of Writing).",
        ),
    }
)


def _open_streams() -> None:
    """Open on nothing what standard streams are closed, or the next file has their number and what libraries say."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # programs that are started here want them open, too
            setattr(sys, name, os.fdopen(number, mode))


def _say_no_more(*streams: int) -> None:
    """Let go what is left for these: it would fail again at the end."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def main() -> NoReturn:
    """Run the command line: mistakes the user can mend are one sentence on stderr and exit code 2."""
    # Trainers report their use in a thread that looks up a name, which crashes while another sets a variable (glibc).
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # Torch's threads wait for each other awake, and where others want the processors, mostly for one that has none.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    _open_streams()
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
        from adjudge.commands.runs.output import UNUSABLE
        from adjudge.engine.whole_file import FULL
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
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # an impatient Ctrl-C ends what is left, without its traceback
    sys.exit(0)
