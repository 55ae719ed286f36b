"""The user's mistakes: one sentence each, exit code 2, nothing lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.driving import PAIR, TINY, Run, refused, write_pairs

MISTAKES = {
    "line 7 without story_b": ('{"prompt": "p", "story_a": "a"}', 'line 7 of pairs.jsonl: "story_b" is missing'),
    "line 7 not JSON": ('{"prompt": "p", ', "line 7 of pairs.jsonl is not JSON"),
    "expected of another kind": (json.dumps({**PAIR, "expected": "A"}), '"expected" is "A": write a, b or tie'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_file_is_one_sentence_before_anything_is_written(
    run: Run, tmp_path: Path, mistake: str
) -> None:
    line, message = MISTAKES[mistake]
    write_pairs(tmp_path / "pairs.jsonl", 6).open("a").write(line + "\n")
    assert message in refused(run("judge", "pairs.jsonl", "-o", "v.jsonl", *TINY))
    assert not (tmp_path / "v.jsonl").exists()


def test_what_stands_in_a_row_acts_in_no_terminal_and_forges_no_line(run: Run, tmp_path: Path) -> None:
    sign = "\x1b[2J\nadjudge: all passed"
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "p", "response": "r", "task": sign}) + "\n")
    said = refused(run("judge", "rows.jsonl", "--judge", "tree", *TINY))
    assert '"task" is "⟨U+001B⟩[2J⟨U+000A⟩adjudge: all passed"' in said
    rows = [{"id": sign, "prompt": "p", "response": text} for text in ("One.", "Two.")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    told = run("judge", "rows.jsonl", "--judge", "pointwise", "--aspects", "coherence", *TINY)
    assert told.returncode == 0 and "\x1b" not in told.stdout + told.stderr
    assert not [line for line in (told.stdout + told.stderr).splitlines() if line.startswith("adjudge: all passed")]


def test_mistakes_in_the_command_are_one_sentence(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 1)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "file").touch()
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "A day. A night."}) + "\n")
    for arguments, message in [
        (("judge", "absent.jsonl"), "cannot read absent.jsonl"),
        (("judge", "empty.jsonl"), "empty.jsonl is empty"),
        (("judge", "pairs.jsonl", "--aspects", "humor"), 'unknown aspect "humor"'),
        (("judge", "pairs.jsonl", "--judge", "turnament"), "debate, tournament, or write package.module:name"),
        (("judge", "pairs.jsonl", "--model", "smollm"), "did you mean smollm2-135m"),
        (("judge", "pairs.jsonl", "-o", "file/v.jsonl"), "cannot make the folder file"),
        (("judge", "pairs.jsonl", "-o", tmp_path), "cannot write"),
        (("judge", "pairs.jsonl", "--journal", "file/j"), "as a journal"),
        (("judge", "pairs.jsonl", "--report", "file/r.html"), "cannot make the folder file"),
        (("judge", "pairs.jsonl", "--journal", "."), ". is a folder, and no journal: name another with --journal"),
        (("judge", "texts.jsonl", "--judge", "ensemble", "--limit", "1"), "leave out --limit"),
        (("bench", "tree", "."), ". is a folder: name a file"),
        (("judge", "pairs.jsonl", "-o", "pairs.jsonl", "--overwrite"), "both the pairs and the output"),
        (("judge", "pairs.jsonl", "--overwrite", "--journal", "pairs.jsonl"), "both the pairs and the journal"),
        (("judge", "pairs.jsonl", "--device", "gpu"), 'device is "gpu"'),
        (("score", "pairs.jsonl", "-o", "pairs.jsonl", "--labels", "1,2"), "is what is read"),
        (("score", "--prompt", "", "--labels", "1"), '--prompt: "prompt" is empty'),
        (("score", "pairs.jsonl", "--labels", "1,2", "--prompt", "x"), "either a file of prompts or --prompt"),
        (("score", "--prompt", "x"), '"labels" is missing'),
        (("score", "pairs.jsonl", "--labels", "1,1", *TINY), '--labels: label "1" is given twice'),
        (("score", "pairs.jsonl", "--labels", "1,2", "-o", "s.csv"), "s.csv would hold JSON"),
        (("judge", "pairs.jsonl", "-o", "v.csv"), "call it v.jsonl"),
        (("writing", "disturb", "texts.jsonl", "-o", "d.csv"), "call it d.jsonl"),
        (("rank", "pairs.jsonl", "--resume", "--overwrite"), "leave one out"),
        (("train", "house", "absent.toml", "--resume", "--overwrite"), "leave one out"),
        (("bench", "probe", "--judge", "debate"), "not to write"),
        (("bench", "probe", "--judge", "pairwise"), "choose pointwise, rubric, tree, principle, debate, scalar, or"),
        (("bench", "probe", "--judge", "adjudge:PairwiseJudge"), "and single texts are judged here: derive it from"),
        (("rank", "pairs.jsonl", "--judge", "scalar"), "choose pairwise, pointwise, or write package.module:name"),
        (("bench", "judge"), "examples/pairs.jsonl is not in this folder"),
        (("prompts", "show", "vibes"), "choose pairwise, pointwise, ensemble"),
    ]:
        assert message in refused(run(*arguments))


def test_what_is_read_is_not_written_over_by_measurements(run: Run, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.jsonl", 2).read_text()
    for command in ("judge", "disturbances", "confidence"):
        assert "is what is read" in refused(run("bench", command, "pairs.jsonl", "-o", "pairs.jsonl"))
    assert "is what is read" in refused(run("bench", "grpo", "pairs.jsonl", "-o", "pairs.jsonl"))
    for keep, why in (("pairs.jsonl", "is what is read"), ("x", "is what is read"), ("x.csv", "would hold JSON")):
        assert why in refused(run("bench", "confidence", "pairs.jsonl", "--keep", keep, "-o", "x"))
    assert (tmp_path / "pairs.jsonl").read_text() == pairs
    reward = ("--model", "dummy:tiny-llama-reward")
    assert "is a reward model" in refused(run("bench", "judge", "pairs.jsonl", *reward))


def test_a_path_that_cannot_be_looked_at_is_one_sentence(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 1)
    long = "x" * 300
    for command, named in (
        (("judge", "pairs.jsonl", *TINY, "-o", f"{long}.jsonl"), f"{long}.jsonl"),
        (("replay", long), long),
        (("bench", "tree", long), long),
        (("bench", "policy", long, "--prompts", "pairs.jsonl", "-o", "out"), f"{long}/recipe.json"),
    ):
        said = refused(run(*command))
        if sys.version_info < (3, 14):  # since then pathlib takes such a path for one where nothing is
            assert said == f"adjudge: cannot use {named} (File name too long): name another"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_path_that_one_may_not_use_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def may_not(path: Path) -> bool:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("adjudge.commands.replay.is_journal", may_not)
    assert refused(run("replay", "locked/j")) == f"adjudge: cannot use locked/j ({os.strerror(number)}): name another"


def test_a_full_standard_output_is_one_sentence(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "adjudge", "models"]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    what = "adjudge: cannot write the standard output (No space left on device): make room\n"
    assert done.returncode == 1 and done.stderr == what


@pytest.mark.parametrize("command", ["models", "--version", "--help"])  # printed by rich, by us, and by typer
def test_a_reader_who_has_read_enough_ends_the_command_without_a_word(command: str) -> None:
    read, written = os.pipe()
    os.close(read)
    how = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as users have it
    command_line = [sys.executable, "-m", "adjudge", command]
    try:
        done = subprocess.run(command_line, stdout=written, stderr=subprocess.PIPE, env=how)
    finally:
        os.close(written)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_file_that_grows_too_large_is_one_sentence(tmp_path: Path) -> None:
    with (tmp_path / "models.txt").open("w") as limited:
        command = ["sh", "-c", f"trap '' XFSZ; ulimit -f 0; exec {sys.executable} -m adjudge models"]
        done = subprocess.run(command, cwd=tmp_path, stdout=limited, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("adjudge: cannot write the standard output (File too large): raise the limit on ")


def test_a_quota_that_is_used_up_is_one_sentence() -> None:
    used_up = "raise OSError(errno.EDQUOT, 'Disk quota exceeded', 'v.jsonl')"
    command = f"import errno\nfrom adjudge import cli\ndef app():\n    {used_up}\ncli.app = app\ncli.main()"
    done = subprocess.run([sys.executable, "-c", command], stderr=subprocess.PIPE, text=True)
    what = (
        "adjudge: cannot write v.jsonl (Disk quota exceeded): delete files of yours there, or have the quota raised\n"
    )
    assert done.returncode == 1 and done.stderr == what
