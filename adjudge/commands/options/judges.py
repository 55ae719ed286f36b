"""Options of judges, which a command takes together: None where the user says nothing, and the judge's choice holds."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from adjudge.commands.options.groups import Group

# By the panel of --help in which they stand.
_asked = partial(typer.Option, rich_help_panel="Questions")
_written = partial(typer.Option, rich_help_panel="Analyses in writing")
_of_some = partial(typer.Option, rich_help_panel="Of some judges")

_ORDERS = (
    "Of pairwise, and of personal for pairs: both orders (default) cancel position bias, ab shows the first text first"
    " only."
)
_MIN_MASS = "Probability the labels must have together, or the score abstains"


def _aspects(default: str) -> Any:
    return _asked(
        help="hanna, storyer, perse, or comma-separated names; your own as"
        f' name="what it means" (in quotes where it has commas); name*3 triples its weight (default: {default}).'
    )


Principles = Annotated[Path | None, _of_some(help="TOML, JSON or plain lines of principles (principle).")]
OPTIONS: dict[str, Any] = {
    "aspects": Annotated[str | None, _aspects("hanna; of personal perse")],
    "orders": Annotated[
        Literal["both", "ab"] | None, _asked(help=f"{_ORDERS} Where no --judge is named, either asks for pairwise.")
    ],
    "rubric": Annotated[
        Path | None,
        _of_some(
            help="TOML or JSON of criteria, or six, igniting or writing; for rows without one of their own (rubric)."
        ),
    ],
    "scheme": Annotated[
        Literal["fixed", "free", "binary"] | None,
        _of_some(
            help="fixed: points that sum to the total (default where the rubric states one); free: points, levels or"
            " weights; binary: met or not (rubric)."
        ),
    ],
    "principles": Principles,
    "examples": Annotated[
        Path | None,
        _of_some(help="JSONL of good texts to compare with: prompt, response (debate; a server must embed)."),
    ],
    "without": Annotated[
        str | None,
        _of_some(
            help="Leave out, comma-separated: nodes of a tree; retrieval, positive, negative, judge or reflect of a"
            " debate; texts of earlier reviews (personal)."
        ),
    ],
    "weights": Annotated[
        str | None,
        _of_some(
            help="equal (default), generated: the model writes them once for an instruction; or leaf=number after"
            " commas (tree)."
        ),
    ],
    "k": Annotated[
        int | None,
        _of_some(
            help="Earlier reviews of the reader to show (personal: 3, of pairs 1), or good texts to find for each text"
            " (debate: 3)."
        ),
    ],
    "override": Annotated[
        float | None,
        _of_some(
            help="Probability that the review must give to another ruling to override the judge's (debate: 0.75)."
        ),
    ],
    "partners": Annotated[
        int | None, _of_some(help="Other texts of the file that each is compared with (ensemble: 4).", min=0)
    ],
    "form": Annotated[
        Literal["fixed", "parity"] | None,
        _of_some(help="parity: the formulas as published; fixed (default): without their flaws (tree, rubric)."),
    ],
    "mode": Annotated[
        Literal["direct", "reasoned"] | None,
        _written(help="direct (default): scores only; reasoned: the model writes an analysis before it scores."),
    ],
    "max_tokens": Annotated[int | None, _written(help="Tokens of an analysis at most (512).", min=1)],
    "temperature": Annotated[float | None, _written(help="How freely it is written (0.7).", min=0.0)],
    "samples": Annotated[
        int | None, _written(help="Analyses of each question, averaged, with their spread (1).", min=1)
    ],
    "attempts": Annotated[
        int | None, _written(help="How often a text without readable scores is written in all (3).", min=1)
    ],
    "seed": Annotated[int | None, typer.Option(help="Another seed draws other analyses, and other partners (0).")],
    "language": Annotated[str | None, _asked(help="Language of the prompts (en); see `adjudge prompts`.")],
    "layout": Annotated[
        Literal["shared", "paper"] | None,
        _asked(help="Order of a prompt's parts: shared (default) computes least, paper is as published."),
    ],
    "min_mass": Annotated[float | None, _asked(help=f"{_MIN_MASS} (0.01).")],
    "cut": Annotated[
        Literal["middle", "head", "tail", "never"] | None,
        _asked(help="What goes of texts too long for the model (middle); never: abstain instead."),
    ],
}
"""Each as it is typed and explained, unless a command has an option of its own by that name."""
ANALYSES = ("mode", "max_tokens", "temperature", "samples", "attempts")
"""Whether a judge analyses in writing before it scores, and how it writes."""
WORDING = ("language", "layout", "min_mass", "cut")
"""In what words and order a judge asks, of how much of a text, and when it abstains."""

ReaderAspects = Annotated[str | None, _aspects("perse")]
PromptOrders = Annotated[Literal["both", "ab"] | None, _asked(help=_ORDERS)]

# Where an earlier run is scored anew.
RunAspects = Annotated[
    str | None,
    _asked(help="Names after commas, of those that the run asked; name*3 triples a weight (default: the run's)."),
]
RunOrders = Annotated[
    Literal["both", "ab"] | None,
    _asked(
        help="Of pairwise, and of personal for pairs: both, if the run asked both, or ab, the first text first only"
        " (default: the run's)."
    ),
]
RunWeights = Annotated[str | None, _of_some(help="equal, or leaf=number after commas (tree; default: the run's).")]
RunForm = Annotated[
    Literal["fixed", "parity"] | None,
    _of_some(help="parity: the formulas as published; fixed: without their flaws (tree, rubric; default: the run's)."),
]
RunMinMass = Annotated[float | None, _asked(help=f"{_MIN_MASS} (default: the run's).")]


def of_judge(*names: str, **own: Any) -> Group:
    """The options of a judge by these names, which are typed in this order; a command gets those that were given.

    `own` are the command's own, in the place of those in `OPTIONS`.
    """

    def make(**given: Any) -> dict[str, Any]:
        return {name: value for name, value in given.items() if value is not None}

    typed = {**OPTIONS, **own}
    make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=typed[name])
            for name in names
        ]
    )
    return Group(make)
