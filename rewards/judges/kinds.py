"""The judges by name: what each reads, which options it takes, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import ALIASES, HOUSE, SCORES_ONLY
from adjudge.rewards.imported import is_own
from adjudge.rewards.judges.aspects import HANNA, PERSE, STORYER, aspects_of
from adjudge.rewards.judges.options import ASKING, as_taken, check_type, how_of, names_of
from adjudge.rewards.judges.published_rubrics import RUBRICS
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of, pair_of

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.journal import Journal
    from adjudge.rewards.judges.judge import Judge
    from adjudge.rewards.records.verdict import Item

Options = Mapping[str, Any]
"""The options a user gave, by name; what was left out is not in it. A program may give `Aspect`s and a `Rubric` too."""

Open = Callable[["EngineFace", "Journal | None"], "Judge[Any, Any]"]
"""Opens a judge; mistakes in its options were found before."""

OF_PAIRS = " of pairs"
"""Ends the entry of a judge for pairs that has another for single texts."""

UNTRAINED = ("rubric", "tree", "principle", "personal")
"""The judges that `house` was not trained for; it was for the scores of aspects."""

FILES = ("rubric", "principles", "examples")
"""The options that may name files."""

JudgeName = Literal["pairwise", "pointwise", "rubric", "tree", "principle", "debate", "personal", "scalar"]


class Kind(msgspec.Struct, frozen=True):
    """A judge by name: whether it judges `what`, the options it takes, and what it reads of a row besides the texts.

    `made` is where its class stands in this package, and `how` it asks follows from the options; where it is opened
    otherwise `opening` says how. `reads` names columns as `READERS` does. `labels` says that its scores are
    probabilities of good, which people's labels are compared with; `gather` puts the subjects of a file together where
    each is judged beside others.
    """

    what: Literal["pairs", "items"]
    made: str
    options: tuple[str, ...]
    reads: tuple[str, ...] = ()
    how: Callable[[Options], dict[str, Any]] = how_of
    opening: Callable[[Options], Open] | None = None
    labels: bool = False
    gather: Callable[[list[Any], Options], list[Any]] | None = None

    def subject(self, row: Row, number: int) -> Any:
        """The pair or item of a row; raises AdjudgeError naming the row's place."""
        return (pair_of if self.what == "pairs" else item_of)(row, number, self.reads)

    def subjects(self, rows: Iterable[Row], options: Options) -> list[Any]:
        """The same of all rows of a file."""
        subjects = [self.subject(row, number) for number, row in enumerate(rows, 1)]
        return subjects if self.gather is None else self.gather(subjects, options)


def kind_name(judge: object) -> str | None:
    """The name among KINDS of a judge that is open, or of a class of judges; None for one of the user's own making."""
    from adjudge.rewards.judges.own import OwnJudge
    from adjudge.rewards.records.verdict import PairVerdict

    made = judge if isinstance(judge, type) else type(judge)
    if issubclass(made, OwnJudge):  # whatever its author has called it
        return None
    name = str(getattr(judge, "kind", "")).removesuffix("_pair")
    if issubclass(getattr(judge, "verdict_type", object), PairVerdict):
        name = of_pairs(name)
    return name if name in KINDS else None


def named(judge: str, rows: Sequence[Row]) -> str:
    """The entry of KINDS for these rows: for a judge of single texts and of pairs, the first row's columns decide.

    What is left of a pair, one of whose stories goes by the name of a response, is a single text.
    """
    columns = rows[0].columns.keys()
    stories = {"story_a", "story_b"} & columns
    return of_pairs(judge) if len(stories) == 2 or (stories and "response" not in columns) else judge


def of_pairs(judge: str) -> str:
    """The entry of KINDS for pairs."""
    return judge + OF_PAIRS if judge + OF_PAIRS in KINDS else judge


def usual(model: str | None, options: Options) -> Literal["pairwise", "pointwise"]:
    """Which judge compares stories where nobody has named one.

    `house` was trained to read one story at a time, and sees little of which of two is asked about.
    """
    return "pointwise" if model == HOUSE.name and "orders" not in options else "pairwise"


def misfit(model: str | None, judge: str, options: Options) -> str | None:
    """What to warn of where `house` is to be a judge that it was never trained for, None where there is nothing.

    Raises AdjudgeError where that judge would have it write, and where a model with a short name, none of which is a
    reward model, is to be read as one.
    """
    if judge == "scalar" and model in ALIASES:
        raise AdjudgeError(f"{model} has no reward head, which a scalar judge reads: name a reward model")
    if model != HOUSE.name:
        return None
    if judge == "debate" or options.get("mode") == "reasoned" or names_of(options.get("weights")) == ["generated"]:
        raise AdjudgeError(SCORES_ONLY)
    name = judge.removesuffix(OF_PAIRS)
    if name in UNTRAINED or is_own(name):
        return f"{HOUSE.name} was not trained for {name}: its scores may mean nothing"
    asked = aspects_of(options["aspects"], PERSE if name == "personal" else ()) if options.get("aspects") else ()
    known = {aspect.definition for aspect in (*HANNA, *STORYER)}
    if other := [f'"{aspect.name}"' for aspect in asked if aspect.definition not in known]:
        return (
            f"{HOUSE.name} was not trained for the aspect{'s' * (len(other) > 1)} {', '.join(other)}, and will say much"
            " what it says of coherence: name a larger model"
        )
    return None


def files_of(options: Options) -> dict[str, Path]:
    """The files that the options name; a rubric may also be a published one."""
    named = {option: Path(options[option]) for option in FILES if option in options}
    return {option: path for option, path in named.items() if option != "rubric" or str(path) not in RUBRICS}


def takers(option: str) -> str:
    """The judges that take an option, as users name them."""
    return ", ".join(name.replace(OF_PAIRS, " (of pairs)") for name, kind in KINDS.items() if option in kind.options)


def prepare(name: str, options: Options) -> Open:
    """How to open that judge; raises AdjudgeError for an option that is not its, and for what an option says."""
    kind = kind_of(name)
    for option in () if is_own(name) else options:
        if option not in kind.options:
            mend = f"is no option of {name}: choose from {', '.join(kind.options)}"
            if whose := takers(option):
                mend = f"is for --judge {whose}: leave it out"
            raise AdjudgeError(f"--{option.replace('_', '-')} {mend}")
        check_type(option, options[option])
    return _opening(name, options) if kind.opening is None else kind.opening(options)


def kind_of(name: str) -> Kind:
    """The judge of that name; raises AdjudgeError where there is none.

    One of the user's own, "package.module:name", is imported: a name from afar is looked up in KINDS, and not here.
    """
    if is_own(name):
        from adjudge.rewards.judges.own import own_kind

        return own_kind(name)
    if name not in KINDS:
        names = ", ".join(one for one in KINDS if not one.endswith(OF_PAIRS))
        raise AdjudgeError(
            f'no judge is called "{name[:40]}": choose {names}, or write package.module:name for one of your own'
        )
    return KINDS[name]


def _opening(name: str, options: Options) -> Open:
    """How the judge of that name is opened on an engine.

    It is opened here too, on a model that is not there: the class finds mistakes before one is loaded.
    """
    from adjudge.engine.absent import AbsentEngine

    made = resolve_name(f"{__package__}.{KINDS[name].made}")
    given = as_taken(name, {option: value for option, value in options.items() if option not in ASKING})
    given |= KINDS[name].how(options)

    def opened(engine: EngineFace, journal: Journal | None) -> Judge[Any, Any]:
        judge: Judge[Any, Any] = made(engine, **given, journal=journal)
        return judge

    opened(AbsentEngine(), None)
    return opened


def _ensemble(options: Options) -> Open:
    from adjudge.rewards.judges.ensemble import EnsembleJudge

    writes = options.get("mode") == "reasoned"  # else the seed is the partners' alone
    asked = {name: value for name, value in options.items() if name != "partners" and (writes or name != "seed")}
    opened = _opening("pairwise", {**asked, "orders": "ab"})
    return lambda engine, journal: EnsembleJudge(opened(engine, journal))  # type: ignore[arg-type]


def _accompanied(items: list[Item], options: Options) -> list[Any]:
    from adjudge.rewards.judges.ensemble import accompanied

    return list(accompanied(items, options.get("partners", 4), options.get("seed", 0)))


def _how_of_tree(options: Options) -> dict[str, Any]:
    written = names_of(options.get("weights")) == ["generated"]
    theirs = {name: options[name] for name in ("attempts", "seed") if written and name in options}  # the weights' too
    return how_of({name: value for name, value in options.items() if name not in theirs}) | theirs


def _how_of_debate(options: Options) -> dict[str, Any]:
    if "k" in options and options.get("examples") is None:
        raise AdjudgeError("--k is how many examples a debate retrieves: leave it out, or add --examples")
    # Those who argue write in either mode, so the options of writing are its own; only rulings have samples.
    how_of({name: options[name] for name in ("mode", "samples") if name in options})
    return how_of({**options, "mode": "reasoned"}) | {"mode": options.get("mode", "direct")}


KINDS: dict[str, Kind] = {
    "pairwise": Kind("pairs", "pairwise:PairwiseJudge", ("aspects", "orders", *ASKING)),
    "pointwise": Kind("items", "pointwise:PointwiseJudge", ("aspects", *ASKING)),
    "pointwise of pairs": Kind("pairs", "pointwise:PointwisePairJudge", ("aspects", *ASKING)),
    "ensemble": Kind("items", "", ("aspects", "partners", *ASKING), opening=_ensemble, gather=_accompanied),
    "scalar": Kind("items", "scalar:ScalarJudge", ("cut",)),
    "rubric": Kind("items", "rubric_judge:RubricJudge", ("rubric", "scheme", "form", *ASKING), ("rubric",)),
    "tree": Kind("items", "tree:TreeJudge", ("weights", "form", "without", *ASKING), ("genre", "task"), _how_of_tree),
    "personal": Kind("items", "personal:PersonalJudge", ("k", "without", *ASKING), ("reviews",)),
    "personal of pairs": Kind("pairs", "personal:PersonalPairJudge", ("k", "aspects", "orders", *ASKING), ("reviews",)),
    "principle": Kind("items", "principle:PrincipleJudge", ("principles", *ASKING), labels=True),
    "debate": Kind(
        "items",
        "debate:DebateJudge",
        ("examples", "k", "override", "without", *ASKING),
        how=_how_of_debate,
        labels=True,
    ),
}
