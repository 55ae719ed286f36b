"""What is printed does not act on the terminal, and can be written in its encoding."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.driving import SHORT, Run
from tests.jsonl import write_lines


def test_the_name_of_a_file_does_not_act_on_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Jp.jsonl"
    write_lines(path, *2 * [{"id": "one", "prompt": "P", "story_a": "", "story_b": "B"}])
    path.write_bytes(path.read_bytes().replace(b"B", b"\xff"))
    judged = run("judge", path.name, "--report", "\x1br.html", *SHORT)
    assert judged.returncode == 0 and "\x1b" not in judged.stdout + judged.stderr
    assert judged.stdout.count("⟨U+001B⟩") == 2 and judged.stderr.count("⟨U+001B⟩") == 4


def test_what_an_encoding_has_not_is_a_question_mark(tmp_path: Path) -> None:
    """→ in prompts show."""
    command = [sys.executable, "-m", "adjudge", "prompts", "show", "pairwise"]
    found = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False)
    assert found.returncode == 0 and found.stdout.decode("ascii")


LISTED = """
import subprocess, sys
from adjudge.cli import main
path, *sys.argv = sys.argv[1:]
try:
    main()
finally:
    with open(path, "w") as file:
        print(file.fileno(), file=file)
    streams = "import sys; sys.exit(None in (sys.stdin, sys.stdout, sys.stderr))"  # of a program that is started
    subprocess.run([sys.executable, "-c", streams], check=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs sh")
def test_where_standard_streams_are_closed_nothing_is_said_and_no_file_is_written_in_their_stead(
    tmp_path: Path,
) -> None:
    listing = [LISTED, str(tmp_path / "number"), "adjudge", "models"]
    command = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', sys.executable, "-c", *listing]
    assert subprocess.run(command, check=False).returncode == 0
    assert int((tmp_path / "number").read_text()) > 2


@pytest.mark.skipif(os.name != "posix", reason="signals itself")
def test_an_impatient_ctrl_c_ends_a_command_that_is_done_without_a_traceback() -> None:
    program = (
        "import atexit, os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "from adjudge.cli import main; sys.argv = ['adjudge', '--version']; main()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "") and ended.stdout.startswith("adjudge ")
