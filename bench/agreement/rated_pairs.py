"""Public files of pairs with people's preference: Auto-J, MT-Bench, RewardBench and its like, Per-DOC, and our own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from adjudge.bench.agreement.dataset import RatedPair
from adjudge.bench.agreement.reading import rating_of
from adjudge.bench.personal.perse import read_chosen
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row, id_of
from adjudge.rewards.records.verdict import Pair
from adjudge.rewards.records.wire import pair_of

AUTOJ = {"0": 1.0, "1": 0.0, "2": 0.5}
WINNERS = {"model_a": 1.0, "model_b": 0.0}
VOTED_ON = ("question_id", "model_a", "model_b", "turn")
EXPECTED = {"a": 1.0, "b": 0.0, "tie": 0.5}
TIE = re.compile(r"tie( \(.*\))?")


def autoj(rows: Sequence[Row], path: Path) -> Iterator[RatedPair]:
    """Auto-J: label 0 where the first answer is better, 1 the second, 2 a tie."""
    for number, row in enumerate(rows, 1):
        label = str(row.columns["label"])
        if label not in AUTOJ:
            raise AdjudgeError(f'{row.place}: "label" is {label[:40]}: Auto-J has 0 (first), 1 (second) and 2 (tie)')
        first, second, prompt = (row.text(name, "Auto-J") for name in ("response 1", "response 2", "prompt"))
        pair = Pair(first, second, prompt, id=id_of(row, number))
        yield RatedPair(pair, AUTOJ[label], pair.prompt, row.place, row.optional_text("scenario", "Auto-J"))


def mt_bench(rows: Sequence[Row], path: Path) -> Iterator[RatedPair]:
    """MT-Bench's human judgements: votes on two conversations.

    Those on the same two models in the same turn are one pair, whichever of the two stood first. The story is the
    answer of that turn, and its prompt the conversation up to it; what was said later is left out.
    """
    votes: dict[tuple[str, ...], list[tuple[Row, str, float]]] = {}
    for row in rows:
        winner = str(row.columns["winner"])
        if winner not in WINNERS and not TIE.fullmatch(winner):
            raise AdjudgeError(f'{row.place}: "winner" is "{winner[:40]}": MT-Bench has model_a, model_b and tie')
        question, a, b, turn = (str(row.columns.get(name, "")) for name in VOTED_ON)
        vote, sides = WINNERS.get(winner, 0.5), "ab"
        if b < a:
            a, b, vote, sides = b, a, 1 - vote, "ba"
        votes.setdefault((question, a, b, turn), []).append((row, sides, vote))
    for (question, a, b, turn), cast in votes.items():
        first, sides, _ = cast[0]
        turns = int(turn) if turn.isdecimal() else None
        (prompt_a, story_a), (prompt_b, story_b) = (_conversation(first, f"conversation_{one}", turns) for one in sides)
        pair = Pair(story_a, story_b, prompt_a=prompt_a, prompt_b=prompt_b, id=f"{question}/{a}/{b}/{turn}")
        yield RatedPair(pair, fmean(vote for *_, vote in cast), question, first.place, f"turn {turn or 1}")


def preferences(rows: Sequence[Row], path: Path) -> Iterator[RatedPair]:
    """Preference files: `chosen` and `rejected`, texts or conversations, with `prompt` (or `query`) or without.

    The chosen text stands first or second by a hash of both, so that a judge of one order gains nothing by its place.
    Pairs without a prompt are drawn one by one.
    """
    for number, row in enumerate(rows, 1):
        named = next((name for name in ("prompt", "query", "instruction") if row.columns.get(name) is not None), None)
        prompt = "" if named is None else _asked(row, named)
        (prompt_c, chosen), (prompt_r, rejected) = (_conversation(row, name) for name in ("chosen", "rejected"))
        flipped = hashlib.blake2b(f"{prompt}\0{chosen}\0{rejected}".encode("utf-8", "backslashreplace")).digest()[0] % 2
        a, b = (rejected, chosen) if flipped else (chosen, rejected)
        name = id_of(row, number)
        group = row.optional_text("subset", "RewardBench")
        if prompt or (prompt_c == prompt_r):
            pair = Pair(a, b, prompt or prompt_c, id=name)
        else:
            sides = (prompt_r, prompt_c) if flipped else (prompt_c, prompt_r)
            pair = Pair(a, b, prompt_a=sides[0], prompt_b=sides[1], id=name)
        yield RatedPair(pair, float(not flipped), pair.prompts[0] or f"pair {name}", row.place, group)


def per_doc(rows: Sequence[Row], path: Path, aspect: str | None = None) -> Iterator[RatedPair]:
    """Per-DOC: a reader's choice between two plots on one aspect, which the file's name tells; readers drawn whole."""
    for row, chosen in zip(rows, read_chosen(rows, path, aspect), strict=True):
        preferred = float(chosen.preferred == "a")
        yield RatedPair(chosen.pair, preferred, chosen.reviewer, row.place, chosen.aspect, chosen.aspect)


def expected(rows: Sequence[Row], path: Path) -> Iterator[RatedPair]:
    """Lines as `adjudge judge` reads them, with `expected`: a, b or tie. Those without a prompt are drawn singly.

    Those of which nothing is expected are left out.
    """
    for number, row in enumerate(rows, 1):
        if rating_of(row, "expected") is None:
            continue
        said = str(row.columns["expected"])
        if said not in EXPECTED:
            raise AdjudgeError(f'{row.place}: "expected" is "{said[:40]}": write a, b or tie')
        pair, group = pair_of(row, number), row.optional_text("group", "a table")
        yield RatedPair(pair, EXPECTED[said], pair.prompts[0] or row.place, row.place, group)


def _asked(row: Row, name: str) -> str:
    value = row.columns[name]
    if isinstance(value, list):
        return _transcript([_message(row, name, message) for message in value])
    return row.text(name, "a preference")


def _conversation(row: Row, name: str, turns: int | None = None) -> tuple[str, str]:
    """(What was asked, the last answer) of a text or a list of messages, or of so many turns of it."""
    value = row.columns.get(name)
    if not isinstance(value, list):
        return "", row.text(name, "a preference")
    messages = [_message(row, name, message) for message in value][: None if turns is None else 2 * turns]
    if not messages:
        raise AdjudgeError(f'{row.place}: "{name}" is an empty list: give at least an answer')
    return _transcript(messages[:-1]), messages[-1][1]


def _message(row: Row, name: str, message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not all(isinstance(message.get(field), str) for field in ("role", "content")):
        raise AdjudgeError(f'{row.place}: a message of "{name}" is not {{"role", "content"}}: {str(message)[:40]}')
    return message["role"], message["content"]


def _transcript(messages: Sequence[tuple[str, str]]) -> str:
    """One message as it is; several each under its role."""
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(f"{role}: {content}" for role, content in messages)
