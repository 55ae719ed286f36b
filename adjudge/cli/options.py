"""The options that several commands take, as they are typed and explained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from adjudge.commands.output import is_stream
from adjudge.engine.errors import AdjudgeError

# Options by the panel of --help in which they stand.
model_option = partial(typer.Option, rich_help_panel="Model")
_server = partial(typer.Option, rich_help_panel="Model behind a server")
run_option = partial(typer.Option, rich_help_panel="Run")
_asked = partial(typer.Option, rich_help_panel="Questions")
_written = partial(typer.Option, rich_help_panel="Analyses in writing")
_of_some = partial(typer.Option, rich_help_panel="Of some judges")

DEFAULT_MODEL = "smollm2-135m"
"""What writes where nobody names a model."""
DEFAULT_JUDGE = "house"
"""What judges."""


def beside(path: Path, ending: str) -> Path:
    """The usual output for a file, of its name with another ending; raises AdjudgeError for what is no file's name."""
    if not path.name:
        raise AdjudgeError(f'"{path}" names no file: give one, or name the output with -o')
    if is_stream(path):
        raise AdjudgeError(f"an output cannot stand beside {path}, which is no file: name it with -o")
    return (path.with_suffix("") if path.suffix == ".gz" else path).with_suffix(ending)


def output_beside(what: str, ending: str) -> Any:
    """The option of an output that is `beside` the input, unless the user says where."""
    return typer.Option("-o", "--output", help=f"{what} (default: beside the input, {ending}).")


Plot = Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf.")]
Model = Annotated[
    str,
    model_option(help="An alias (see `adjudge models`), a folder, a hub id, a .gguf file, or `dummy:<config>`."),
]
JudgeModel = Annotated[
    str | None,
    model_option(
        help=f"As in `adjudge models` (default: {DEFAULT_JUDGE}; under --adapter {DEFAULT_MODEL}; with --url the"
        " server's only one)."
    ),
]
JudgeModelHere = Annotated[
    str | None,
    model_option(help=f"As in `adjudge models` (default: {DEFAULT_JUDGE}; under --adapter {DEFAULT_MODEL})."),
]
WriterModel = Annotated[
    str | None,
    model_option(help=f"As in `adjudge models` (default: {DEFAULT_MODEL}; with --url the server's only one)."),
]
Adapter = Annotated[Path | None, model_option(help="A PEFT folder: a LoRA adapter to lay over the model.")]
Url = Annotated[str | None, _server(help="Ask the OpenAI-compatible server there; its key is $ADJUDGE_API_KEY.")]
TokenizerName = Annotated[
    str | None,
    _server(
        "--tokenizer",
        help="Whose tokenizer the server at --url has, as in `adjudge models` (default: that of its model's name).",
    ),
]
MaxContext = Annotated[
    int | None,
    _server(help="The tokens of a prompt and its answer that the server at --url takes, if it does not say.", min=2),
]
MaxConcurrency = Annotated[
    int | None,
    _server(help="Requests to the server at --url that are under way at most (default: 16).", min=1),
]
Timeout = Annotated[
    float | None, _server(help="Seconds that a request to the server at --url may take (default: 120).")
]
Retries = Annotated[
    int | None, _server(help="How often such a request is made again where it fails (default: 4).", min=0)
]
Device = Annotated[str, model_option(help="auto, cpu, cuda, cuda:1, ...")]
Replicas = Annotated[int, model_option(help="Engines in processes of their own, on Ray, that share the work.", min=1)]
Dtype = Annotated[
    str,
    model_option(help="auto (float32 on CPU, bfloat16 on GPU), float32, bfloat16 (faster on a CPU with AMX), float16."),
]
Resume = Annotated[bool, run_option("--resume", help="Continue an earlier run of the same output.")]
Overwrite = Annotated[bool, run_option("--overwrite", help="Forget an earlier run of the same output.")]
OverwriteFile = Annotated[bool, run_option("--overwrite", help="Write over the files that are there.")]
Limit = Annotated[int | None, run_option(help="Only the first rows; --resume goes on with the others.", min=1)]
JudgeLimit = Annotated[
    int | None, run_option(help="Only the first rows (not ensemble); --resume goes on with the others.", min=1)
]
Columns = Annotated[
    str | None,
    run_option(help="What the file calls its columns, as in prompt=question,response=answer."),
]
JournalFile = Annotated[Path | None, run_option(help="Where finished verdicts are kept (default: beside the output).")]

Report = Annotated[Path | None, run_option(help="Also write a self-contained HTML report here.")]

# Options of judges: None where the user says nothing, and the judge's own choice holds.


def _aspects(default: str) -> Any:
    return _asked(
        help="hanna, storyer, perse, or comma-separated names; your own as"
        f' name="what it means" (in quotes where it has commas); name*3 triples its weight (default: {default}).'
    )


_ORDERS = (
    "Of pairwise, and of personal for pairs: both orders (default) cancel position bias, ab shows the first text first"
    " only."
)
JudgeAspects = Annotated[str | None, _aspects("hanna; of personal perse")]
ReaderAspects = Annotated[str | None, _aspects("perse")]
RunAspects = Annotated[
    str | None,
    _asked(help="Names after commas, of those that the run asked; name*3 triples a weight (default: the run's)."),
]
JudgeOrders = Annotated[
    Literal["both", "ab"] | None,
    _asked(help=f"{_ORDERS} Where no --judge is named, either asks for pairwise."),
]
PromptOrders = Annotated[Literal["both", "ab"] | None, _asked(help=_ORDERS)]
RunOrders = Annotated[
    Literal["both", "ab"] | None,
    _asked(
        help="Of pairwise, and of personal for pairs: both, if the run asked both, or ab, the first text first only"
        " (default: the run's)."
    ),
]
Rubric = Annotated[
    Path | None,
    _of_some(help="TOML or JSON of criteria, or six, igniting or writing; for rows without one of their own (rubric)."),
]
Scheme = Annotated[
    Literal["fixed", "free", "binary"] | None,
    _of_some(
        help="fixed: points that sum to the total (default where the rubric states one); free: points, levels or"
        " weights; binary: met or not (rubric)."
    ),
]
Principles = Annotated[Path | None, _of_some(help="TOML, JSON or plain lines of principles (principle).")]
Examples = Annotated[
    Path | None,
    _of_some(help="JSONL of good texts to compare with: prompt, response (debate; a server must embed)."),
]
Without = Annotated[
    str | None,
    _of_some(
        help="Leave out, comma-separated: nodes of a tree; retrieval, positive, negative, judge or reflect of a"
        " debate; texts of earlier reviews (personal)."
    ),
]
TreeWeights = Annotated[
    str | None,
    _of_some(
        help="equal (default), generated: the model writes them once for an instruction; or leaf=number after"
        " commas (tree)."
    ),
]
RunWeights = Annotated[str | None, _of_some(help="equal, or leaf=number after commas (tree; default: the run's).")]
Partners = Annotated[
    int | None, _of_some(help="Other texts of the file that each is compared with (ensemble: 4).", min=0)
]
HowMany = Annotated[
    int | None,
    _of_some(
        help="Earlier reviews of the reader to show (personal: 3, of pairs 1), or good texts to find for each text"
        " (debate: 3)."
    ),
]
Override = Annotated[
    float | None,
    _of_some(help="Probability that the review must give to another ruling to override the judge's (debate: 0.75)."),
]
Form = Annotated[
    Literal["fixed", "parity"] | None,
    _of_some(help="parity: the formulas as published; fixed (default): without their flaws (tree, rubric)."),
]
RunForm = Annotated[
    Literal["fixed", "parity"] | None,
    _of_some(help="parity: the formulas as published; fixed: without their flaws (tree, rubric; default: the run's)."),
]
Mode = Annotated[
    Literal["direct", "reasoned"] | None,
    _written(help="direct (default): scores only; reasoned: the model writes an analysis before it scores."),
]
MaxTokens = Annotated[int | None, _written(help="Tokens of an analysis at most (512).", min=1)]
Temperature = Annotated[float | None, _written(help="How freely it is written (0.7).", min=0.0)]
Samples = Annotated[int | None, _written(help="Analyses of each question, averaged, with their spread (1).", min=1)]
Attempts = Annotated[
    int | None, _written(help="How often a text without readable scores is written in all (3).", min=1)
]
Language = Annotated[str | None, _asked(help="Language of the prompts (en); see `adjudge prompts`.")]
Layout = Annotated[
    Literal["shared", "paper"] | None,
    _asked(help="Order of a prompt's parts: shared (default) computes least, paper is as published."),
]
_MIN_MASS = "Probability the labels must have together, or the score abstains"
MinMass = Annotated[float | None, _asked(help=f"{_MIN_MASS} (0.01).")]
RunMinMass = Annotated[float | None, _asked(help=f"{_MIN_MASS} (default: the run's).")]
JudgeCut = Annotated[
    Literal["middle", "head", "tail", "never"] | None,
    _asked(help="What goes of texts too long for the model (middle); never: abstain instead."),
]


def usual_model(default: str, adapter: Path | None) -> str:
    """The model of a command that was told of none: an adapter lies over the bare one, not over one with ours in it."""
    return default if adapter is None else DEFAULT_MODEL


def judge_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a judge that the user gave, of all the parameters of a command (its `locals()` at the start).

    A parameter that is a dict stands for the options in it.
    """
    from adjudge.rewards.judges.kinds import KINDS

    names = {name for kind in KINDS.values() for name in kind.options}
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return {name: value for name, value in flat.items() if name in names and value is not None}
