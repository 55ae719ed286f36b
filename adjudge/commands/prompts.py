"""`adjudge prompts`: which prompts there are, and what a judge really asks, with its untrusted slots marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from adjudge.commands.lazy import Commands
from adjudge.commands.options.judges import PromptOrders, of_judge
from adjudge.commands.runs.rows import rows_of
from adjudge.engine.absent import AbsentEngine, Card, ModelNeeded
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import ALIASES
from adjudge.engine.text.prompt import Prompt
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.imported import importable, is_own
from adjudge.rewards.judges import template
from adjudge.rewards.judges.judge import AskingJudge, Judge, check_subject
from adjudge.rewards.judges.kinds import Options, kind_of, named, prepare
from adjudge.rewards.records.rows import Row
from adjudge.rewards.visible import visible
from adjudge.training.terminal import counted, open_console, plain_table

EXAMPLES: dict[str, dict[str, Any]] = {
    "pairs": {
        "prompt": "prompt",
        "story_a": "story_a",
        "story_b": "story_b",
        "reviews": [{"a": "reviews: a", "b": "reviews: b", "preferred": "a"}],
    },
    "items": {
        "prompt": "prompt",
        "response": "response",
        "reference": "reference",
        "reviews": [{"plot": "reviews: plot", "review": "reviews: review", "score": 7}],
        "rubric": {"criteria": [{"name": "rubric: name", "text": "rubric: text", "points": 10}]},
    },
}
"""A row whose texts are the names of their columns."""

UNTRUSTED = "black on yellow"
OPEN, CLOSE = "⟦", "⟧"
MARKS = str.maketrans({OPEN: "⟨U+27E6⟩", CLOSE: "⟨U+27E7⟩"})
"""What stands around an untrusted slot, written out where a text holds it, so that no text can end its own slot."""


prompts = Commands(help="List the prompts of all judges, or show what one asks.", invoke_without_command=True)


@prompts.callback()
def list_prompts(context: typer.Context) -> None:
    """List the prompts of all judges: their languages, and the versions that journals record."""
    if context.invoked_subcommand is not None:
        return
    table = plain_table("judge", "language", "version")
    for path in sorted(template.FOLDER.rglob("*.jinja")):
        judge = path.parent.relative_to(template.FOLDER).as_posix()
        table.add_row(judge, path.stem, template.load(judge, path.stem).hash)
    console = open_console(120)
    console.print(table)
    console.print("\nadjudge prompts show JUDGE shows what one asks.", highlight=False)


@prompts.command("show")
def show(
    judge: Annotated[str, typer.Argument(help="Which judge, as in `adjudge judge --judge`.")],
    rows: Annotated[Path | None, typer.Option(help="Show it for a row of this file (default: an example).")] = None,
    row: Annotated[int, typer.Option(help="Which row.", min=1)] = 1,
    model: Annotated[
        str | None, typer.Option(help="In this model's chat template; only its tokenizer is loaded.")
    ] = None,
    question: Annotated[str | None, typer.Option(help="Which question (default: the first).")] = None,
    every: Annotated[bool, typer.Option("--all", help="All questions.")] = False,
    *,
    options: Annotated[
        Options,
        of_judge(
            *("aspects", "orders", "rubric", "scheme", "principles", "examples", "without", "weights", "k", "form"),
            *("mode", "language", "layout", "cut"),
            orders=PromptOrders,
        ),
    ],
) -> None:
    """Show what a judge asks, word for word; of a judge of several rounds, the first.

    Texts of the data stand between ⟦ and ⟧, or in colour on a terminal, and their invisible characters are written out.
    They are shown whole: those too long for a model are shortened when it is asked.
    """
    if judge == "tournament":
        raise AdjudgeError("tournament asks what pairwise does, or with house pointwise: name one of the two")
    if is_own(judge):
        importable(Path())
    what = kind_of(judge).what
    chosen = _row(rows, row) if rows is not None else _example(what, options)
    name = named(judge, [chosen])
    kind, open_judge = kind_of(name), prepare(name, options)
    subject = kind.subject(chosen, 1)
    engine = _engine(model)
    opened = open_judge(engine, None)
    check_subject(opened, subject, chosen.place)
    questions = first_round(opened, subject)
    console = open_console(1 << 16, highlight=False)
    for shown in _chosen(questions, question, every):
        _print(console, shown, engine)
    if not every and question is None and len(questions) > 1:
        names = ", ".join(visible(other.name) for other in questions[1:])
        console.print(
            f"\n{counted(len(questions) - 1, 'more question')} (--all, or --question NAME): {names}",
            markup=False,
            soft_wrap=True,
        )


class Asked(NamedTuple):
    """A question by its name, and what would answer it."""

    name: str
    prompt: Prompt
    answer: str


def first_round(judge: Judge[Any, Any], subject: Any) -> Sequence[Asked]:
    """What the judge asks first about a subject."""
    if isinstance(judge, AskingJudge):
        return [Asked(one.name, one.prompt, " ".join(one.labels.labels) or "a text") for one in judge.ask(subject)[0]]
    try:
        judge.judge([subject])
    except ModelNeeded as needed:
        asked = zip(needed.prompts, needed.answers, strict=True)
        return [
            Asked(f"first round, {number}", prompt, answer)
            for number, (prompt, answer) in enumerate(asked, 1)
            if isinstance(prompt, Prompt)
        ]
    raise AdjudgeError("this judge asks a model nothing: there is no prompt to show")


def _example(what: str, options: Options) -> Row:
    """The example, without a rubric of its own where the judge has been given one."""
    given = {"rubric"} & options.keys()
    return Row("the example", {name: value for name, value in EXAMPLES[what].items() if name not in given})


def marked_text(prompt: Prompt, *, colour: bool) -> Text:
    """A prompt as it is asked: trusted text plain, untrusted slots in colour or between ⟦ and ⟧, nothing hidden."""
    text = Text()
    for segment in prompt.segments:
        words = visible(segment.text).translate(MARKS)
        if segment.trusted:
            text.append(words)
        elif colour:
            text.append(words or " ", UNTRUSTED)
        else:
            text.append(f"{OPEN}{words}{CLOSE}")
    return text


def _engine(model: str | None) -> AbsentEngine:
    """An engine with the model's tokenizer, if one is named; its weights stay where they are."""
    if model is None:
        return AbsentEngine()
    from adjudge.engine.models.sources import tokenizer_named

    weights = ALIASES[model].fingerprint if model in ALIASES else ""
    return AbsentEngine(Card(model, weights), Tokenizer(tokenizer_named(model)))


def _row(path: Path, number: int) -> Row:
    rows = rows_of(path)
    if not 1 <= number <= len(rows):
        raise AdjudgeError(f"{path} has {counted(len(rows), 'row')}, no row {number}")
    return rows[number - 1]


def _chosen(questions: Sequence[Asked], name: str | None, every: bool) -> Sequence[Asked]:
    if name is None:
        return questions if every else questions[:1]
    found = [question for question in questions if question.name == name]
    if not found:
        raise AdjudgeError(f'no question "{name}": choose from {", ".join(question.name for question in questions)}')
    return found


def _print(console: Console, question: Asked, engine: AbsentEngine) -> None:
    tokens = f", {len(engine.tokenizer.prompt(question.prompt)):,} tokens" if engine.has_tokenizer else ""
    console.print(
        f"--- {visible(question.name)} → {visible(question.answer)}{tokens}", style="bold", markup=False, soft_wrap=True
    )
    console.print(
        marked_text(question.prompt, colour=console.color_system is not None and not console.no_color), soft_wrap=True
    )
