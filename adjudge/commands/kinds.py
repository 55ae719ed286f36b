"""The judges that `adjudge judge` can name: what each reads, which options it takes, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.aspects import parse_aspects
from adjudge.rewards.wire import Row, example_of, item_of, pair_of, read_rows

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.journal import Journal
    from adjudge.rewards.judge import Judge

Options = Mapping[str, Any]
"""The options a user gave, by name; what was left out is not in it."""

Open = Callable[["EngineFace", "Journal"], "Judge[Any, Any]"]
"""Opens a judge; mistakes in its options were found before."""

REASONING = ("max_tokens", "temperature", "samples", "attempts", "seed")
ASKING = ("mode", *REASONING, "language", "layout", "min_mass", "cut")
"""The options of every judge that asks questions: see `AskingJudge`."""


class Kind(msgspec.Struct, frozen=True):
    """A judge by name: whether it judges `what`, how a row becomes one, and the options it takes."""

    what: Literal["pairs", "items"]
    prepare: Callable[[Options], Open]
    options: tuple[str, ...]

    def subjects(self, rows: Iterable[Row]) -> list[Any]:
        """The pairs or items of a file; raises AdjudgeError naming the line."""
        read = pair_of if self.what == "pairs" else item_of
        return [read(row, number) for number, row in enumerate(rows, 1)]


def prepare(name: str, options: Options) -> Open:
    """How to open that judge; raises AdjudgeError for an option that is not its, and for what an option says."""
    for option in options:
        if option not in KINDS[name].options:
            takers = ", ".join(kind for kind, entry in KINDS.items() if option in entry.options)
            raise AdjudgeError(f"--{option.replace('_', '-')} is for --judge {takers}: leave it out")
    return KINDS[name].prepare(options)


def how_of(options: Options) -> dict[str, Any]:
    """How a judge asks, from the options that were given: the fields of `How`, but for its journal."""
    from adjudge.rewards.asking import SAMPLING

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


def _pairwise(options: Options) -> Open:
    from adjudge.rewards.pairwise import PairwiseJudge

    aspects, orders, how = (
        parse_aspects(options.get("aspects", "hanna")),
        options.get("orders", "both"),
        how_of(options),
    )
    return lambda engine, journal: PairwiseJudge(engine, aspects, orders=orders, **how, journal=journal)


def _pointwise(options: Options) -> Open:
    from adjudge.rewards.pointwise import PointwiseJudge

    aspects, how = parse_aspects(options.get("aspects", "hanna")), how_of(options)
    return lambda engine, journal: PointwiseJudge(engine, aspects, **how, journal=journal)


def _principle(options: Options) -> Open:
    from adjudge.rewards.principle import PrincipleJudge, default_principles, read_principles

    how = how_of(options)
    file, language = options.get("principles"), options.get("language", "en")
    principles = default_principles(language) if file is None else read_principles(file)
    return lambda engine, journal: PrincipleJudge(engine, principles, **how, journal=journal)


def _debate(options: Options) -> Open:
    from adjudge.rewards.debate import DebateJudge, agents_without

    # Its agents write in either mode, so the options of writing are always its own.
    how = how_of({**options, "mode": "reasoned"}) | {"mode": options.get("mode", "direct")}
    without = [name.strip() for name in options.get("without", "").split(",") if name.strip()]
    agents_without(without)
    file = options.get("examples")
    examples = [] if file is None else [example_of(row) for row in read_rows(file)]
    return lambda engine, journal: DebateJudge(engine, examples, without=without, **how, journal=journal)


KINDS: dict[str, Kind] = {
    "pairwise": Kind("pairs", _pairwise, ("aspects", "orders", *ASKING)),
    "pointwise": Kind("items", _pointwise, ("aspects", *ASKING)),
    "principle": Kind("items", _principle, ("principles", *ASKING)),
    "debate": Kind("items", _debate, ("examples", "without", *ASKING)),
}
