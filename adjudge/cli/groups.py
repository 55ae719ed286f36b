"""Options that several commands take together, and how a command takes them: as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from adjudge.cli.options import (
    DEFAULT_JUDGE,
    DEFAULT_MODEL,
    Adapter,
    Attempts,
    Device,
    Dtype,
    JournalFile,
    JudgeCut,
    JudgeModel,
    Language,
    Layout,
    MaxConcurrency,
    MaxContext,
    MaxTokens,
    MinMass,
    Mode,
    Overwrite,
    Replicas,
    Resume,
    Retries,
    Samples,
    Temperature,
    Timeout,
    TokenizerName,
    Url,
    WriterModel,
    usual_model,
)
from adjudge.commands.run_options import Earlier, RunOptions
from adjudge.commands.source import Source
from adjudge.commands.writing_options import Writing
from adjudge.engine.errors import AdjudgeError


@dataclass(frozen=True)
class Group:
    """Options that are typed one by one, and reach a command as what `make` makes of them."""

    make: Callable[..., Any]


def with_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command, or what makes a group, as typer reads it: parameters of a `Group` give way to the options of that."""
    parameters: list[inspect.Parameter] = []
    options: dict[str, tuple[Group, list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        marks = getattr(parameter.annotation, "__metadata__", ())
        group = next((mark for mark in marks if isinstance(mark, Group)), None)
        if group is None:
            parameters.append(parameter)
        else:
            own = inspect.signature(group.make, eval_str=True).parameters
            parameters += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in own.values()]
            options[parameter.name] = (group, list(own))

    @functools.wraps(command)
    def typed(**given: Any) -> Any:
        made = {name: group.make(**{one: given.pop(one) for one in own}) for name, (group, own) in options.items()}
        return command(**given, **made)

    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return typed


def _engine(default: str, model_option: object) -> Group:
    """The engine that a command asks (`Source`): of the model `default`, as `model_option` says, if none is named."""

    def make(
        model: JudgeModel = None,
        adapter: Adapter = None,
        url: Url = None,
        tokenizer: TokenizerName = None,
        max_context: MaxContext = None,
        max_concurrency: MaxConcurrency = None,
        timeout: Timeout = None,
        retries: Retries = None,
        device: Device = "auto",
        dtype: Dtype = "auto",
        replicas: Replicas = 1,
    ) -> Source:
        return Source(
            model=usual_model(default, adapter) if model is None and url is None else model,
            adapter=None if adapter is None else str(adapter),
            url=url,
            tokenizer=tokenizer,
            max_context=max_context,
            max_concurrency=max_concurrency,
            timeout=timeout,
            retries=retries,
            device=device,
            dtype=dtype,
            replicas=replicas,
        )

    make.__annotations__["model"] = model_option
    return Group(make)


def _earlier(resume: Resume = False, overwrite: Overwrite = False) -> Earlier:
    if resume and overwrite:
        raise AdjudgeError("--resume continues an earlier run and --overwrite forgets it: leave one out")
    return "resume" if resume else "overwrite" if overwrite else "refuse"


def written(most: int, how_freely: float = 0.7) -> Group:
    """How the model writes (`Writing`), where texts have `most` tokens unless the user says otherwise."""

    def make(
        max_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.", min=1)] = most,
        temperature: Annotated[float, typer.Option(help="How freely texts are written.", min=0.0)] = how_freely,
        attempts: Annotated[int, typer.Option(help="How often an unusable text is written in all.", min=1)] = 3,
        seed: Annotated[int, typer.Option(help="Another seed draws other texts, and whatever else is drawn.")] = 0,
    ) -> Writing:
        return Writing(max_tokens=max_tokens, temperature=temperature, attempts=attempts, seed=seed)

    return Group(make)


def _analyses(
    mode: Mode = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    samples: Samples = None,
    attempts: Attempts = None,
) -> dict[str, Any]:
    return locals()


def _wording(
    language: Language = None, layout: Layout = None, min_mass: MinMass = None, cut: JudgeCut = None
) -> dict[str, Any]:
    return locals()


Asked = Annotated[Source, _engine(DEFAULT_JUDGE, JudgeModel)]
"""The engine that a command asks to judge."""

AskedToWrite = Annotated[Source, _engine(DEFAULT_MODEL, WriterModel)]
"""The engine that a command asks to write."""

EarlierRun = Annotated[Earlier, Group(_earlier)]
"""What becomes of an earlier run of the same output."""

Analyses = Annotated[dict[str, Any], Group(_analyses)]
"""Whether a judge analyses in writing before it scores, and how it writes; `judge_options` finds them."""

Wording = Annotated[dict[str, Any], Group(_wording)]
"""In what words and order a judge asks, of how much of a text, and when it abstains; `judge_options` finds them."""


@with_groups
def _judging(*, source: Asked, earlier: EarlierRun, journal: JournalFile = None) -> RunOptions:
    return RunOptions(source, earlier, journal)


@with_groups
def _writing(*, source: AskedToWrite, earlier: EarlierRun, journal: JournalFile = None) -> RunOptions:
    return RunOptions(source, earlier, journal)


RunToJudge = Annotated[RunOptions, Group(_judging)]
"""What a command takes whose stages ask a model that judges."""

RunToWrite = Annotated[RunOptions, Group(_writing)]
"""What a command takes whose stages ask a model that writes."""
