"""`PrincipleJudge`: is a text good, by a list of principles? (Igniting, section 3.2; arXiv 2508.21476)."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.face import EngineFace
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.judges import template
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.judge import How, ItemJudge
from adjudge.rewards.records.verdict import Item, Verdict

GOOD = Labels(("0", "1"), terminator=" </ANSWER>")
"""Not good, good; and the mark that ends an answer."""

_BULLET = re.compile(r"^(?:\d{1,3}(?:[.)](?=\s|$)|[、．](?!\d))|[-*](?=\s|$)|•)\s*")


class PrincipleJudge(ItemJudge):
    """Judges whether texts are good by a list of principles, strictly: 1 is for what is excellent.

    The score of a text is P(1), the probability of "good" against "not good" at the answer slot; the paper's 0 or 1 is
    whether it is above 0.5. In reasoned mode the model weighs the principles in writing first. `principles` are by
    default those shipped for the language (`default_principles`); see `read_principles` for a file. `how` is that of
    `PromptedJudge`.
    """

    kind = "principle"
    range = (0.0, 1.0)

    def __init__(self, engine: EngineFace, principles: Sequence[str] | None = None, **how: Unpack[How]) -> None:
        language = how.get("language", "en")
        self.principles = default_principles(language) if principles is None else checked_principles(principles)
        super().__init__(engine, **how)

    def _content(self, item: Item) -> dict[str, Any]:
        return {"labels": GOOD, "principles": self.principles, "prompt": item.prompt, "response": item.response}

    def _questions(self, item: Item) -> list[Question]:
        data = {"prompt": item.prompt, "text": item.response}
        return [Question("judge", self._prompt(data, principles=self.principles), GOOD)]

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        parts = {"judge": self._part(answers["judge"])}
        return self._verdict(parts["judge"].score, parts, answers, key, truncated)


def default_principles(language: str = "en") -> tuple[str, ...]:
    """The ten principles for creative texts that come with adjudge, in English ("en") or Chinese ("zh").

    Raises AdjudgeError for a language without them.
    """
    known = {file.name: file for file in (template.FOLDER / PrincipleJudge.kind).glob("principles.*.toml")}
    if (path := known.get(f"principles.{language}.toml")) is None:
        raise AdjudgeError(
            f'no principles in language "{language[:40]}" come with adjudge: name another, or give your own'
        )
    return read_principles(path)


def read_principles(path: str | Path) -> tuple[str, ...]:
    """The principles of a file: TOML with a list `principles`, JSON with a list of strings, or one on each line.

    On plain lines, a number or bullet before a principle is not part of it; empty lines mean nothing. Raises
    AdjudgeError for a file that cannot be read, one of another shape, an empty list, and a principle that is no text,
    is blank or comes twice.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        suffix = path.suffix.lower()
        if suffix == ".toml":
            found = _only_list(tomllib.loads(text), path)
        elif suffix == ".json":
            found = json.loads(text)
        else:
            found = [_BULLET.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise AdjudgeError(f"cannot read {path} ({error.strerror}): name a file that can be read") from error
    except RecursionError as error:
        raise AdjudgeError(f"{path} is nested too deeply: give a list of texts") from error
    except ValueError as error:  # not UTF-8, not TOML, not JSON
        raise AdjudgeError(f"{path} cannot be read as principles ({reason(error)}): mend it there") from error
    if not isinstance(found, list):
        raise AdjudgeError(f"{path} holds {type(found).__name__}: write a list of principles")
    try:
        return checked_principles(found)
    except AdjudgeError as error:
        raise AdjudgeError(f"{path}: {error}") from error


def checked_principles(principles: Sequence[Any]) -> tuple[str, ...]:
    """The principles without the blanks around them; raises AdjudgeError naming the one that is none, by its number."""
    if isinstance(principles, str) or not isinstance(principles, Sequence):
        raise AdjudgeError(f"principles are {shown(principles)}: give a list of them")
    if not principles:
        raise AdjudgeError("no principles: give at least one")
    for number, principle in enumerate(principles, 1):
        if not isinstance(principle, str):
            raise AdjudgeError(f"principle {number} is {type(principle).__name__}: write it as a text")
        if not principle.strip():
            raise AdjudgeError(f"principle {number} is blank: write it out or leave it out")
        if "\ue000" in principle or "\ue001" in principle:
            raise AdjudgeError(f"principle {number} holds U+E000 or U+E001, which mark the places of data: remove them")
    found = tuple(well_formed(principle).strip() for principle in principles)
    if double := next((principle for principle, count in Counter(found).items() if count > 1), None):
        raise AdjudgeError(f'principle {found.index(double) + 1} comes twice ("{double[:60]}"): leave one out')
    return found


def _only_list(table: dict[str, Any], path: Path) -> Any:
    if unknown := sorted(table.keys() - {"principles"}):
        raise AdjudgeError(f'{path} has "{unknown[0]}": the one name in it must be `principles`')
    if "principles" not in table:
        raise AdjudgeError(f"{path} has no list `principles`: write the principles as one")
    return table["principles"]
