"""Recipes of a training run: a strict TOML file, laid over a preset where it names one."""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.field_mistakes import choices_of
from adjudge.training.presets import preset_record
from adjudge.training.recipe_kinds import command_for, command_taking

Whole = Annotated[int, Meta(ge=1, le=10**9)]
MOST_AT_ONCE = 2**16
"""Prompts, completions of one, or rows of a step: more are a slip of the pen, and laying them out would not end."""
AtOnce = Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
SEEDS = 2**31
"""Seeds are below it: every process adds its number to one, and below 2**32 random generators take them."""

MISSING = re.compile(r"Object missing required field `(\w+)`")
EXPECTED = re.compile(r"expected `([^`]*)`")
ONE_OF = re.compile(r"(.+)\[(\d+)\]")
"""A table of several in a row, as msgspec counts them."""
NEEDED = {
    "output": ("output", "name the run's folder", 'output = "out/run"'),
    "data": ("[data]", "name the rows to learn from", '[data] train = "rows.jsonl"'),
    "reward": ("[reward]", "say what is paid for", '[reward.parts.ending] kind = "check", ends_with = ["."]'),
    "reward.parts": ("[reward.parts]", "say what is paid for", 'kind = "check" in [reward.parts.ending]'),
    "scores": ("[scores]", "name the columns of people's scores", '[scores] columns = {quality = "human"}'),
    "sources": ("[[sources]]", "name texts", '[[sources]] path = "stories.jsonl", with licence and attribution'),
}
"""What no recipe of its kind can do without: how it is written, and how its absence is mended."""

INSTEAD = {"steps": "epochs", "epochs": "steps"}
"""Fields that say the same in two ways."""

PATHS = ("output", "train", "held_out", "path", "adapter", "canaries", "keep_of")
"""Fields of all recipes that are paths, where they are texts."""
MODELS = ("model", "tokenizer")
"""Those that are paths where they begin with a dot, and names otherwise."""

AnyRecipe = TypeVar("AnyRecipe", bound="Recipe")
Table = TypeVar("Table")


class Lora(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The adapter that is trained instead of the weights. `targets` are names of linear layers, or "all" of them."""

    rank: Whole = 16
    alpha: Whole = 32
    dropout: Share = 0.0
    targets: Annotated[tuple[str, ...], Meta(min_length=1)] | Literal["all"] = "all"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model that is trained: an alias, a folder, a hub id or a GGUF file, as `adjudge models` explains.

    `method` "full" trains all weights, "lora" an adapter. `dtype` is what it computes in ("auto": bfloat16 on a GPU,
    float32 else); weights that are trained are kept in float32 in any case, or steps of 1e-6 would be rounded away.
    """

    model: str = "smollm2-135m"
    method: Literal["full", "lora"] = "full"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    lora: Lora = Lora()


class Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files that a policy learns from and is tested on; `columns` renames: {prompt = "query"}."""

    train: str | None = None
    held_out: str | float = 0
    columns: dict[str, str] = {}


class Data(Rows, frozen=True, forbid_unknown_fields=True):
    """What the policy is asked, and what it is tested on.

    `train` is a file of rows with a column `prompt`, or `prompts` lists them here; further columns go to the
    reward. In a file a prompt may also be a conversation, [{"role": "user", "content": "..."}], which a user ends.
    `held_out` is another such file, or how many of the last rows are kept from training, with all others that have
    their prompts. `columns` renames: {prompt = "query"} reads the prompt from the column query. With `chat` a prompt is
    a user's turn in the model's chat template, after `system` where it is given, here or else in a row's own column
    (an empty one here: after none); without, it is the text's beginning. Judges see a row's `system`, and not the one
    given here.
    Prompts of more than `max_prompt_tokens` are left out and counted.
    """

    held_out: str | Annotated[int, Meta(ge=0)] = 0
    prompts: tuple[str, ...] = ()
    chat: bool = True
    system: str | None = None
    max_prompt_tokens: Whole | None = None

    def __post_init__(self) -> None:
        if (self.train is None) == (not self.prompts):
            raise AdjudgeError('[data] needs either train = "prompts.jsonl" or prompts = ["...", "..."]')
        if self.system is not None and not self.chat:
            raise AdjudgeError("[data] system is a turn of a chat, and chat is false: put it into the prompts")


class Logging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is written down, in steps: metrics `every`, checkpoints `save_every` (the last `keep` stay).

    `evaluate_every` is how often the held-out prompts are answered between the first step and the last (0: never).
    `completions` also keeps what a policy writes in train grpo, in Parquet files. `report_to` names trackers of
    transformers ("wandb", "tensorboard", ...). A run may be resumed with all of these changed, and in another `output`
    that its folder was moved to.
    """

    every: Whole = 1
    save_every: Whole = 50
    keep: Whole = 2
    evaluate_every: Annotated[int, Meta(ge=0)] = 0
    completions: bool = False
    report_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.save_every % self.every:
            raise AdjudgeError(
                f"[logging] save_every is {self.save_every}, which is no multiple of every ({self.every}): a run"
                " resumed between two lines would log other means, make it one"
            )


class Optimiser(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every optimiser is told. `warmup` is the share of steps over which the rate rises."""

    lr: Positive
    steps: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    epochs: Annotated[float, Meta(gt=0, le=10**4)] | None = None
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: Share = 0.0
    weight_decay: NotNegative = 0.0
    max_grad_norm: NotNegative = 1.0
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise AdjudgeError("[optimiser] has both steps and epochs: give one")

    def passes(self, rows: int) -> float:
        """How many rows are gone through for the `epochs`, one if none are named: 110 of 100 for 1.1."""
        return round(rows * (self.epochs or 1.0), 6)


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every recipe says; `output` is the run's folder, `preset` the one this recipe is laid over."""

    output: str
    preset: str | None = None
    seed: Annotated[int, Meta(ge=0, lt=SEEDS)] = 0
    policy: Policy = Policy()
    logging: Logging = Logging()
    writes: ClassVar[bool] = False
    """Whether the policy writes while it is trained."""

    def placed(self, folder: Path) -> Self:
        """The same, its paths, which are relative to `folder`, made absolute."""
        return placed(self, folder)

    def idle(self, own: Mapping[str, Any]) -> Iterator[str]:
        """Settings of the file without effect, each with its fix; `own` is the file without its preset."""
        if "lora" in own.get("policy", {}) and self.policy.method != "lora":
            yield (
                f'[policy.lora] is for method "lora", and method is "{self.policy.method}", which trains all weights:'
                ' set method = "lora" in [policy], or leave the table out'
            )
        if own.get("logging", {}).get("completions") and not self.writes:
            yield "[logging] completions keeps what a policy writes, which train grpo alone has it do: leave it out"

    def changed(self, seed: int | None, output: Path | None) -> Self:
        """The same, with what else was said, if it was, in the place of its own."""
        return msgspec.structs.replace(
            self,
            seed=self.seed if seed is None else seed,
            output=self.output if output is None else beside(Path.cwd(), str(output)),
        )


class RowsRecipe(Recipe, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recipe that learns from files of rows."""

    data: Rows

    def idle(self, own: Mapping[str, Any]) -> Iterator[str]:
        """Settings of the file without effect, each with its fix."""
        yield from super().idle(own)
        if {"prompts", "columns"} <= own.get("data", {}).keys():
            yield "[data] columns renames those of a file, and prompts are listed here: leave columns out"


def read_recipe(path: Path, kind: type[AnyRecipe]) -> AnyRecipe:
    """The recipe of a TOML file; its own paths are relative to it, and absolute from here on.

    Raises AdjudgeError naming the file, the table, the field and the mend: for what cannot be read, is not TOML, has a
    field that a recipe of this kind has not, a value that it cannot take, or one that nothing would come of.
    """
    try:
        record = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise AdjudgeError(f"cannot read {path} ({error.strerror}): name a file that can be read") from error
    except ValueError as error:
        raise AdjudgeError(f"{path.name} is not TOML ({reason(error)}): mend it there") from error
    try:
        own = record
        if (preset := record.get("preset")) is not None:
            record = laid_over(_given(preset, kind), record)
        recipe = recipe_of(record, kind, path.parent.absolute())
        if (idle := next(recipe.idle(own), None)) is not None:
            raise AdjudgeError(idle)
        return recipe
    except AdjudgeError as error:
        raise AdjudgeError(f"{path.name}: {error}") from error


def _given(preset: Any, kind: type[Recipe]) -> dict[str, Any]:
    """What a preset says; raises AdjudgeError for one that is for recipes of another kind."""
    record = preset_record(preset)
    try:
        _refuse_unknown(record, kind, "", None)
    except AdjudgeError as error:
        raise AdjudgeError(
            f'preset "{preset}" is for another command than this ({error}): `adjudge train presets` tells which is for'
            " what"
        ) from error
    return record


def recipe_of(record: dict[str, Any], kind: type[AnyRecipe], folder: Path) -> AnyRecipe:
    """The recipe of a decoded TOML file whose paths are relative to `folder`; raises AdjudgeError as `read_recipe`."""
    _refuse_unknown(record, kind, "", command_for(kind))
    recipe: AnyRecipe = _converted(record, kind, "", command_for(kind))
    return recipe.placed(folder)


def laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both records, table by table; where both say something, `above` holds, also about what stands instead of it."""
    merged = dict(below)
    for name, value in above.items():
        merged.pop(INSTEAD.get(name, ""), None)
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = laid_over(merged[name], value) if both else value
    return merged


def placed(table: Table, folder: Path, called: str = "") -> Table:
    """A table with its paths, and those of the tables in it, in `folder` and absolute; anything else as it is.

    `called` is its name in the recipe. Raises AdjudgeError for a path that is empty or that no file can have.
    """
    if isinstance(table, tuple):
        entries = enumerate(table)
        return tuple(placed(one, folder, f"{called}[{number}]") for number, one in entries)  # type: ignore[return-value]
    if isinstance(table, dict):
        named = table.items()
        return {name: placed(one, folder, f"{called}.{name}") for name, one in named}  # type: ignore[return-value]
    if not isinstance(table, msgspec.Struct):
        return table
    changes = {}
    for name in table.__struct_fields__:
        value = getattr(table, name)
        if not isinstance(value, str):
            inner = f"{called}.{name}" if called else name
            changes[name] = _judge_options(value, folder) if name == "options" else placed(value, folder, inner)
        elif name in PATHS and not value:
            where = f"{_header(called)} " if called else ""
            raise AdjudgeError(f'{where}{name} is "": name a file or folder')
        elif name in PATHS or (name in MODELS and value.startswith(".")):
            changes[name] = beside(folder, value)
    return msgspec.structs.replace(table, **changes)


def _judge_options(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A judge's options; those that may name files may name a published rubric as well, which has no suffix."""
    from adjudge.rewards.judges.kinds import FILES

    return {
        name: beside(folder, value) if name in FILES and isinstance(value, str) and Path(value).suffix else value
        for name, value in options.items()
    }


def beside(folder: Path, path: str) -> str:
    """A path of a recipe in `folder`, absolute; ~ is the user's home."""
    try:
        placed = str((folder / Path(path).expanduser()).resolve())
        placed.encode()  # weights and tokenizers are written by libraries that know no other names
        return placed
    except (RuntimeError, ValueError) as error:  # the home of nobody; what no file can be called
        raise AdjudgeError(f"{path!r} names no file ({reason(error)}): write another path") from error


def _refuse_unknown(value: Any, hint: Any, table: str, command: str | None) -> None:
    """Find fields that a table has not, before msgspec does: the mend names the field that may be meant.

    Where none is near, it names the fields that there are, and what prints them for the recipes of a `command`. `hint`
    is what the table's place in the recipe holds: a kind of table, one of several, a row or a dict of them.
    """
    if isinstance(value, list) and get_origin(hint) is tuple:
        for number, entry in enumerate(value):
            _refuse_unknown(entry, get_args(hint)[0], f"{table}[{number}]", command)
    if not isinstance(value, dict):
        return
    if get_origin(hint) is dict:
        for name, entry in value.items():
            _refuse_unknown(entry, get_args(hint)[1], f"{table}.{name}", command)
            # msgspec does not name the entries of a dict
            _converted(entry, get_args(hint)[1], f"{table}.{name}", command)
        return
    kind = _kind_of(value, hint, table)
    if kind is None:
        return
    hints, tag = get_type_hints(kind), kind.__struct_config__.tag_field
    hints = {name: hints[name] for name in kind.__struct_fields__}
    unknown = [name for name in value if name not in hints and name != tag]
    if unknown and not table and (other := command_taking(value)) is not None:
        mend = f"this looks like a recipe of adjudge train {other}"
        raise AdjudgeError(f'a recipe of this kind has no field "{unknown[0]}": {mend}')
    for name, entry in value.items():
        if name in hints:
            _refuse_unknown(entry, hints[name], f"{table}.{name}" if table else name, command)
        elif name != tag:
            near = difflib.get_close_matches(name, hints, 1)
            mend = f'did you mean "{near[0]}"?' if near else "leave it out;"
            where = _header(table) if table else "a recipe of this kind"
            told = f"; adjudge train fields {command} says what each is" if command and not near else ""
            raise AdjudgeError(f'{where} has no field "{name}": {mend} it has {", ".join(hints)}{told}')


def _header(table: str) -> str:
    """How TOML begins a table; of several in a row it is told which, counted from 1."""
    if (found := ONE_OF.fullmatch(table)) is not None:
        return f"[[{found[1]}]] ({int(found[2]) + 1})"
    return f"[{table}]"


def _without(field: str, table: str, command: str | None) -> str:
    """What is wrong where a field is missing that must be there, in the table of that name."""
    if (needed := NEEDED.get(f"{table}.{field}".strip("."))) is not None:
        name, what, how = needed
        return f"{name} is missing: {what}, as in {how}"
    told = f"; adjudge train fields {command} says what it is" if command else ""
    return f"{_header(table)} {field} is missing: give it{told}"


def _kind_of(value: dict[str, Any], hint: Any, table: str) -> Any:
    """The kind of table that a value is, by its tag where there are several; None where there is none to be."""
    choices = {
        choice.__struct_config__.tag: choice
        for choice in (hint, *get_args(hint))
        if isinstance(choice, type) and issubclass(choice, msgspec.Struct)
    }
    if len(choices) < 2:
        return next(iter(choices.values()), None)
    tag = str(next(iter(choices.values())).__struct_config__.tag_field)
    given = value.get(tag)
    if isinstance(given, str) and given in choices:
        return choices[given]
    said = "missing" if given is None else f'"{given}"' if isinstance(given, str) else shown(given)
    raise AdjudgeError(f"{_header(table)} {tag} is {said}: write one of {', '.join(map(str, choices))}")


def _converted(value: Any, hint: Any, table: str, command: str | None) -> Any:
    """The value as that kind of table; what msgspec says of a mistake, with the place as TOML writes it."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        *tables, field = [part for part in re.split(r"[.`]", f"{table}{place}") if part] or [""]
        where = _header(field) if ONE_OF.fullmatch(field) else field
        if tables:
            where = f"{_header('.'.join(tables))} {field}"
        if missing := MISSING.fullmatch(said):
            raise AdjudgeError(_without(missing[1], ".".join([*tables, field]).strip("."), command)) from error
        said = f"{said[0].lower()}{said[1:]}{choices_of(error, hint)}"
        expected = found[1] if (found := EXPECTED.search(said)) is not None else ""
        if field == "held_out" and "float" in expected:
            said += ": write a share of the prompts, such as 0.2" + ", or name a file" * (tables[-1:] == ["data"])
        elif field == "held_out" and "int" in expected:
            said += ": write how many rows, or name a file of them"
        elif "int" in expected and "got `float`" in said:
            said += ": write a whole number"
        elif "object" in expected and field:
            said += f": write it as a table, {_header('.'.join([*tables, field]))}"
        text = f"{where}: {said}".lstrip(": ").replace("`", "")
        raise AdjudgeError(text) from error
