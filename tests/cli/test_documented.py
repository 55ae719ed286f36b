"""What READMEs and docs tell people to type is there to be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from adjudge.cli import app
from adjudge.training.evaluator.recipe import PreferenceRecipe
from adjudge.training.house.recipe import read_house_recipe
from adjudge.training.recipe import read_recipe
from tests.cli.driving import loaded

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:\.venv/bin/)?adjudge ([^#]*)")


def documented() -> list[tuple[str, str]]:
    """The page and the line of every command in a block of code."""
    pages = [ROOT / folder / "README.md" for folder in (".", "examples", "engine/house")]
    pages += sorted((ROOT / "docs").glob("*.md"))
    blocks = [(page.name, text) for page in pages for kind, text in BLOCK.findall(page.read_text()) if not kind]
    lines = [(name, line) for name, text in blocks for line in text.replace("\\\n", " ").splitlines()]
    return [(name, found[1].strip()) for name, line in lines if (found := COMMAND.match(line))]


LINES = documented()


def test_commands_are_found_on_every_page_that_has_some() -> None:
    names = {name for name, _ in LINES}
    assert {"README.md", "pipelines.md", "speed.md", "training.md"} <= names and len(LINES) > 40


@pytest.mark.parametrize(("page", "line"), LINES, ids=[" ".join(one) for one in LINES])
def test_a_command_of_the_docs_is_one_that_there_is(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command: Any = typer.main.get_command(app)
    name, words = "adjudge", shlex.split(line, comments=True)
    while hasattr(command, "commands"):  # a group of commands, of which the words name one
        assert words and words[0] in command.commands, f"{page}: {name} {words[:1]}"
        name, command, words = words[0], loaded(command.commands[words[0]]), words[1:]
    command.make_context(name, words)  # raises for what it does not take; nothing is run


def test_the_recipes_of_the_docs_can_be_read(tmp_path: Path) -> None:
    found = [text for kind, text in BLOCK.findall((ROOT / "docs" / "pipelines.md").read_text()) if kind == "toml"]
    of_stories, of_rewards = (tmp_path / "stories.toml", tmp_path / "rewards.toml")
    for path, text in zip((of_stories, of_rewards), found, strict=True):
        path.write_text(text)
    (tmp_path / "stories").mkdir()
    assert [source.licence for source in read_house_recipe(of_stories).sources] == ["CC-BY-4.0"]
    assert read_recipe(of_rewards, PreferenceRecipe).data.train == str(tmp_path / "dpo.jsonl")
