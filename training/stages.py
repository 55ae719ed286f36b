"""Stages of data pipelines: rows in, rows out in order, every dropped row with its reason, and nothing asked twice."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from adjudge.engine.completion import Completion
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.engine.whole_file import whole_file
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.asking import room_for, seed_of
from adjudge.rewards.judges.judge import WINDOW
from adjudge.rewards.records.row_files import PACKED, coding_of, read_rows
from adjudge.rewards.records.rows import READ, Row, encodable, id_of, renamed
from adjudge.rewards.records.wire import json_line
from adjudge.training.kept_engine import KeptEngine
from adjudge.training.progress import watched

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
Read = Callable[[str], T]
"""What is made of a text; raises Unusable for one that is not what was asked for."""

TABLES = (".csv", ".tsv", ".parquet")
"""What `read_rows` does not read as JSONL, by its name."""


class Unusable(Exception):
    """A text is not what was asked for, or there is none; `reason` is one of a few words, since they are counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Drop(msgspec.Struct, frozen=True):
    """A row that a stage left out, and why."""

    stage: str
    reason: str
    row: Any

    @property
    def record(self) -> dict[str, Any]:
        """As it is written: the row, with `stage` and `reason` under `dropped`."""
        return {**record_of(self.row), "dropped": {"stage": self.stage, "reason": self.reason}}


class Passed(msgspec.Struct, Generic[T], frozen=True):
    """What a stage made of its rows: those it kept, in order, and those it dropped."""

    stage: str
    kept: list[T]
    dropped: list[Drop]


class Texts:
    """Has texts written, many at a time, free or of the form of a JSON `schema`.

    A text that is empty, cut short or unusable to its reader is written again with another seed, `attempts` times in
    all (at temperature 0 once). Seeds are drawn from `seed` and the prompt, so that a text does not depend on its
    company. With a `journal` every text that came to its end is kept, unusable ones too, and not asked for again:
    `engine` counts them. `rewritten` counts texts, `shortened` prompts that did not fit. Raises AdjudgeError for
    settings that make no sense.
    """

    def __init__(
        self,
        engine: EngineFace,
        sampling: Sampling,
        journal: Journal | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        attempts: int = 3,
        seed: int = 0,
    ) -> None:
        self.reserve = room_for(sampling, engine, attempts=attempts)
        self.engine = KeptEngine(engine, journal)
        self.sampling = sampling
        if schema is not None:
            self.sampling = msgspec.structs.replace(sampling, json_schema=json.dumps(schema))
        self.attempts = attempts if sampling.temperature > 0 else 1
        self.seed = seed
        self.rewritten = self.shortened = 0

    @property
    def counts(self) -> Counter[str]:
        """Texts that were `asked` for, `rewritten` and `remembered`, and prompts that were `shortened`."""
        kept = self.engine
        found = {"asked": kept.asked, "remembered": kept.remembered}
        return Counter(**found, rewritten=self.rewritten, shortened=self.shortened)

    def prompt(self, messages: Sequence[Message], answer: str = "") -> Prompt:
        """A prompt in the model's chat template, its untrusted texts shortened where it would not fit."""
        [prompt], shortened = self.engine.fit([self.engine.chat(messages, answer)], self.reserve)
        self.shortened += shortened
        return prompt

    def write(
        self, prompts: Sequence[Prompt], read: Read[T] | Sequence[Read[T]], *, samples: Sequence[int] | None = None
    ) -> Iterator[tuple[int, T | Unusable]]:
        """(place, what `read` makes of the text) as soon as each is there, or why there is none.

        `read` is one reader for all texts, or one for each. Equal prompts get equal texts, unless `samples` gives them
        other numbers. `WINDOW` of them are in the engine at a time, and those to be written again join the next ones.
        """
        reads = [read] * len(prompts) if callable(read) else read
        samples = samples or [0] * len(prompts)
        waiting = deque((place, 0) for place in range(len(prompts)))
        while waiting:
            window = [waiting.popleft() for _ in range(min(WINDOW, len(waiting)))]
            wanted = [prompts[place] for place, _ in window]
            seeds = [seed_of(self.seed, prompts[place], samples[place], attempt) for place, attempt in window]
            for index, written in self.engine.generate_iter(wanted, self.sampling, seeds=seeds):
                place, attempt = window[index]
                try:
                    yield place, reads[place](_usable(written))
                except Unusable as unusable:
                    if written.finish_reason in ("stop", "length") and attempt + 1 < self.attempts:
                        self.rewritten += 1
                        waiting.append((place, attempt + 1))
                    else:
                        yield place, unusable


def object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with these properties, all of which it must have, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(longest: int) -> dict[str, Any]:
    """The JSON schema of a text of 1 to so many characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def json_of(kind: type[T]) -> Read[T]:
    """A reader of JSON of that type."""

    def read(text: str) -> T:
        try:
            return msgspec.convert(encodable(msgspec.json.decode(text.strip().encode())), kind)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            raise Unusable("unparsable") from error

    return read


def passed(stage: str, rows: Sequence[Any], results: Iterable[tuple[int, T | Unusable]]) -> Passed[T]:
    """The results of a stage, put in the order of its `rows` (objects or Structs), with a bar while they come."""
    found = dict(watched(stage, results, len(rows)))
    kept: list[T] = []
    dropped: list[Drop] = []
    for place, row in enumerate(rows):
        result = found[place]
        if isinstance(result, Unusable):
            dropped.append(Drop(stage, result.reason, row))
        else:
            kept.append(result)
    return Passed(stage, kept, dropped)


def sifted(stage: str, rows: Iterable[T], why_not: Callable[[T], str | None]) -> Passed[T]:
    """The rows for which `why_not` gives no reason, and those it gives one for."""
    kept: list[T] = []
    dropped: list[Drop] = []
    for row in rows:
        if (reason := why_not(row)) is None:
            kept.append(row)
        else:
            dropped.append(Drop(stage, reason, row))
    return Passed(stage, kept, dropped)


def without_repeats(
    rows: Iterable[T], key: Callable[[T], Hashable], reason: str, *, stage: str = "repeats"
) -> Passed[T]:
    """The first row of each key, and the others, dropped for that reason."""
    seen: set[Hashable] = set()

    def repeated(row: T) -> str | None:
        known = len(seen)
        seen.add(key(row))
        return reason if len(seen) == known else None

    return sifted(stage, rows, repeated)


def grouped(rows: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """The rows by their keys, in order."""
    groups: dict[Key, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def record_of(row: Any) -> Mapping[str, Any]:
    """A row as it is written: a mapping is what it is, a Struct says it in `record` or by its fields."""
    if isinstance(row, Mapping):
        return row
    record = getattr(row, "record", None)
    return msgspec.to_builtins(row) if record is None else record  # type: ignore[no-any-return]


def write_stage(path: Path, rows: Iterable[Any]) -> None:
    """Write rows as JSONL, the whole file or nothing: what was there stays until the new one is on the disk.

    Raises OSError when it cannot.
    """
    with whole_file(path) as file:
        for row in rows:
            file.write(json_line(record_of(row)))


def read_stage(path: Path, *, needs: Sequence[str] = (), columns: Mapping[str, str] = {}) -> list[Row]:
    """The rows of a file; each has the columns it `needs`, and goes by an id of its own (see `id_of`).

    `columns` has, for each name of ours, the file's. Raises AdjudgeError as `read_rows` and `renamed` do, for two rows
    of one id, and for a file that was not written to its end.
    """
    try:
        rows = renamed(read_rows(path, [columns.get(name, name) for name in READ]), columns, "--columns")
    except AdjudgeError as error:
        if isinstance(error.__cause__, ValueError | RecursionError):  # of what is no JSON
            _check_whole(path)
        raise
    places: dict[str, Row] = {}
    for number, row in enumerate(rows, 1):
        for name in needs:
            if row.columns.get(name) is None:
                raise row.without(name, "needed here")
        own = id_of(row, number)
        if earlier := places.get(own):
            raise AdjudgeError(_namesakes(own, earlier, row))
        places[own] = row
    return rows


def _namesakes(name: str, *rows: Row) -> str:
    """What is wrong with two rows of one id, of which one may have none and go by its number."""
    other = next((row for row in rows if row.columns.get("id") in (None, "")), None)
    if other is None:
        return f'{rows[1].place}: its id "{name}" is that of {rows[0].place} too: give each row its own, or none any'
    [has] = [row for row in rows if row is not other]
    return f'{other.place} has no id and goes by its number, "{name}", which is the id of {has.place}: give it one'


def _check_whole(path: Path) -> None:
    """Refuse a JSONL file whose last line breaks off: a part of it would be taken for the whole.

    Raises AdjudgeError.
    """
    if path.suffix.lower() in (*TABLES, PACKED):
        return
    if not path.is_file():  # a pipe is read once, and its writer tells how it ended
        return
    content = path.read_bytes()
    text = content.decode(coding_of(content), "replace")
    if text.lstrip().startswith("["):  # an array, which cannot be read without its end
        return
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not (last := lines[-1].strip()):
        return
    try:
        json.loads(last)
    except (ValueError, RecursionError) as error:
        detail = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply, or too many digits"
        journal = path.with_name(f"{path.name}.journal")
        kept = f" (what a model was asked for it is in {journal})" if journal.is_file() else ""
        raise AdjudgeError(
            f"{path} breaks off in its last line, or has a mistake there (line {len(lines)} is not JSON: {detail}):"
            f" mend that, or make the file again{kept}"
        ) from error


def _usable(written: Completion) -> str:
    """The text; raises Unusable for one that is blank or was cut short."""
    if (ended := written.finish_reason) != "stop":
        raise Unusable("cut_short" if ended == "length" else ended)
    if not written.text.strip():
        raise Unusable("empty")
    return written.text
