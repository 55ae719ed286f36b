"""The options of judges: what each may say, and as what the judges' classes take them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.field_mistakes import choices_of
from adjudge.rewards.judges.aspects import PERSE, aspects_of
from adjudge.rewards.judges.published_rubrics import open_rubric
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.wire import example_of

if TYPE_CHECKING:
    from adjudge.rewards.judges.kinds import Options

REASONING = ("max_tokens", "temperature", "samples", "attempts", "seed")
ASKING = ("mode", *REASONING, "language", "layout", "min_mass", "cut")
"""The options of every judge that asks questions: see `AskingJudge`."""

OPTION = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)")
"""An option as the command line has it, in the errors of judges."""

Names = str | list[str]
"""Names after commas, or one by one."""


def names_of(value: Names | None) -> list[str]:
    """The names of an option, without blanks around them; none where nothing was said."""
    pieces = value.split(",") if isinstance(value, str) else value or ()
    return [name for name in map(str.strip, pieces) if name]


@cache
def _types() -> dict[str, Any]:
    """What kind of value an option has; files and rubrics are looked at where they are opened."""
    from adjudge.engine.text.prompt import Cut
    from adjudge.rewards.judges.asking import Mode
    from adjudge.rewards.judges.comparing import Orders
    from adjudge.rewards.judges.rubric_scoring import Form, Scheme
    from adjudge.rewards.judges.template import Layout

    return {
        "aspects": str | list[Any] | dict[str, Any],
        "language": str,
        **{"mode": Mode, "orders": Orders, "form": Form, "scheme": Scheme, "layout": Layout, "cut": Cut},
        **dict.fromkeys(("without", "weights"), Names),
        **dict.fromkeys(("k", "partners", "max_tokens", "samples", "attempts", "seed"), int),
        **dict.fromkeys(("temperature", "min_mass", "override"), float),
    }


def by_name(words: str) -> str:
    """The words of an error with options by their names, as Python and recipes have them: "min_mass"."""
    return OPTION.sub(lambda found: found[1].replace("-", "_"), words)


@contextmanager
def options_by_name() -> Iterator[None]:
    """Within the block a mistake calls options by their names."""
    try:
        yield
    except AdjudgeError as error:
        error.args = (by_name(str(error)),)
        raise


def check_type(option: str, value: Any) -> None:
    """Raises AdjudgeError for a value of another kind than the option has."""
    wanted = _types().get(option, Any)
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        mend = choices_of(error, wanted) or f": {error}".lower()
        raise AdjudgeError(f"--{option.replace('_', '-')} is {value!r:.60}{mend}") from error


def how_of(options: Options) -> dict[str, Any]:
    """How a judge asks, from the options that were given: the fields of `How`, but for its journal."""
    from adjudge.rewards.judges.asking import SAMPLING

    given = {name: value for name, value in options.items() if name in ASKING}
    reasoning = {name: given.pop(name) for name in REASONING if name in given}
    if given.get("mode", "direct") == "direct":
        if reasoning:
            name = next(iter(reasoning)).replace("_", "-")
            raise AdjudgeError(f"--{name} is for judges that write: add --mode reasoned")
        return given
    written = {name: reasoning.pop(name) for name in ("max_tokens", "temperature") if name in reasoning}
    named = {"n" if name == "samples" else name: value for name, value in reasoning.items()}
    return given | named | {"sampling": msgspec.structs.replace(SAMPLING, **written)}


def as_taken(kind: str, options: Options) -> dict[str, Any]:
    """The options as the class of that kind takes them by name: files are read, and texts that have parts."""
    readers = _READERS.get(kind, {})
    given = {name: value for name, value in options.items() if value is not None}
    taken = {name: readers[name](value) if name in readers else value for name, value in given.items()}
    if kind == "personal" and "without" in taken:
        if (without := taken.pop("without")) != ["texts"]:
            raise AdjudgeError(f'--without is "{", ".join(without)}": what --judge personal can leave out is texts')
        taken["texts"] = False
    if kind == "tree" and "weights" in taken:
        taken["weights"] = _weights_of(taken["weights"], taken.get("without", ()))
    return taken


def _given(name: str, given: Any, read: Callable[[Path], Any]) -> Any:
    """What a file has, or a list that is given; raises AdjudgeError for anything else."""
    if isinstance(given, str | Path):
        return read(Path(given))
    if not isinstance(given, Sequence):
        raise AdjudgeError(f"{name} is {given!r:.60}: give a file, or a list")
    return given


def _principles_of(given: Any) -> Any:
    from adjudge.rewards.judges.principle import read_principles

    return _given("principles", given, read_principles)


def _examples_of(given: Any) -> Any:
    return _given("examples", given, lambda path: [example_of(row) for row in read_rows(path)])


def _weights_of(given: Any, without: Iterable[str]) -> Any:
    from adjudge.rewards.judges.tree_nodes import checked_without, parse_weights

    return given if isinstance(given, Mapping) else parse_weights(",".join(names_of(given)), checked_without(without))


_READERS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "rubric": {"rubric": open_rubric},
    "tree": {"without": names_of},
    "personal": {"without": names_of},
    "personal of pairs": {"aspects": partial(aspects_of, preferred=PERSE)},
    "principle": {"principles": _principles_of},
    "debate": {"examples": _examples_of, "without": names_of},
}
"""What reads an option, where its judge takes something else than users give."""
