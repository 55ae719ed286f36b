"""Options of models: which one a command asks, where it runs, or behind which server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from adjudge.commands.options.groups import Group
from adjudge.commands.options.source import Source

model_option = partial(typer.Option, rich_help_panel="Model")
_server = partial(typer.Option, rich_help_panel="Model behind a server")

DEFAULT_MODEL = "smollm2-135m"
"""What writes where nobody names a model."""
DEFAULT_JUDGE = "house"
"""What judges."""

Model = Annotated[
    str,
    model_option(help="An alias (see `adjudge models`), a folder, a hub id, a .gguf file, or `dummy:<config>`."),
]
JudgeModelHere = Annotated[
    str | None,
    model_option(help=f"As in `adjudge models` (default: {DEFAULT_JUDGE}; under --adapter {DEFAULT_MODEL})."),
]
_JudgeModel = Annotated[
    str | None,
    model_option(
        help=f"As in `adjudge models` (default: {DEFAULT_JUDGE}; under --adapter {DEFAULT_MODEL}; with --url the"
        " server's only one)."
    ),
]
_WriterModel = Annotated[
    str | None,
    model_option(help=f"As in `adjudge models` (default: {DEFAULT_MODEL}; with --url the server's only one)."),
]
Adapter = Annotated[Path | None, model_option(help="A PEFT folder: a LoRA adapter to lay over the model.")]
_Url = Annotated[str | None, _server(help="Ask the OpenAI-compatible server there; its key is $ADJUDGE_API_KEY.")]
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
Dtype = Annotated[
    str,
    model_option(help="auto (float32 on CPU, bfloat16 on GPU), float32, bfloat16 (faster on a CPU with AMX), float16."),
]
Replicas = Annotated[int, model_option(help="Engines in processes of their own, on Ray, that share the work.", min=1)]


def usual_model(default: str, adapter: Path | None) -> str:
    """The model of a command that was told of none: an adapter lies over the bare one, not over one with ours in it."""
    return default if adapter is None else DEFAULT_MODEL


def _engine(default: str, model_option: object) -> Group:
    """The engine that a command asks (`Source`): of the model `default`, as `model_option` says, if none is named."""

    def make(
        model: str | None = None,
        adapter: Adapter = None,
        url: _Url = None,
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


Asked = Annotated[Source, _engine(DEFAULT_JUDGE, _JudgeModel)]
"""The engine that a command asks to judge."""
AskedToWrite = Annotated[Source, _engine(DEFAULT_MODEL, _WriterModel)]
"""The engine that a command asks to write."""
