"""Where models come from: an alias, a folder, a hub id, a GGUF file, or a dummy with random weights."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.util
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError, ModelNotFound, ModelUnsupported, reason
from adjudge.engine.models import aliases, cache_folder, gguf_file
from adjudge.engine.models.aliases import ALIASES
from adjudge.engine.models.cache_folder import Status
from adjudge.engine.models.classes import model_class
from adjudge.engine.models.fingerprints import digest, file_sha256, folder_fingerprint
from adjudge.engine.models.loading import loading, require_all_weights
from adjudge.engine.models.quiet import quiet
from adjudge.engine.paths import expanded

if TYPE_CHECKING:
    import torch

Kind = Literal["alias", "folder", "hub", "gguf", "dummy"]

DUMMY = "dummy:"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
VOCABULARIES = ["tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "tekken.json"]
TOKENIZER_PATTERNS = ["*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt"]
HUB_PATTERNS = ["*.safetensors", *TOKENIZER_PATTERNS]


class ModelSource(msgspec.Struct, frozen=True):
    """A model that is ready to be opened.

    `name` is what the user wrote; `path` the folder to open, or a dummy's configuration (`tiny-<model_type>` or the
    path of a config.json). `fingerprint` (64 hex digits) changes with the weights, the tokenizer or the configuration,
    and with nothing else. `revision` is the commit of a hub model (ORG/NAME or ORG/NAME@REVISION).
    """

    name: str
    kind: Kind
    path: str
    fingerprint: str
    revision: str | None = None


class OpenModel(NamedTuple):
    """A transformers decoder in evaluation mode, with the head it was saved with, and its tokenizer."""

    model: Any
    tokenizer: Any


class ModelListing(msgspec.Struct, frozen=True):
    """A line of `adjudge models`: sizes are in bytes; `path` is the folder in the cache, None before the first use."""

    name: str
    kind: Kind
    about: str
    licence: str | None
    download_size: int | None
    disk_size: int | None
    path: str | None


def print_status(line: str) -> None:
    """Tell the user on stderr what is being waited for."""
    print(f"adjudge: {line} ...", file=sys.stderr, flush=True)


def resolve(name: str | Path, *, status: Status = print_status) -> ModelSource:
    """Find the model called `name`; fetch and convert it where that is needed, once.

    Raises ModelNotFound, ModelCorrupt or ModelUnsupported, each with one sentence that says what to do.
    """
    if isinstance(name, Path):
        name = str(name)
    if not isinstance(name, str):
        raise ModelNotFound(f"the model is {shown(name)}: give a name that `adjudge models` lists, or a folder's path")
    try:
        if name.startswith(DUMMY):
            return _dummy(name, status)
        if alias := ALIASES.get(name):
            folder = aliases.converted(alias, status)
            return ModelSource(name, "alias", str(folder), alias.fingerprint)
        path = expanded(name)
        if path.suffix.lower() == ".gguf":
            return _gguf(name, path, status)
        if name and (path.exists() or name.startswith((".", "/", "~"))):
            return _folder(name, path)
    except OSError as error:
        where = error.filename or name
        raise ModelNotFound(f"cannot read {where} ({error.strerror}): check the path and its permissions") from error
    if HUB_ID.fullmatch(name):
        return _hub(name, status)
    raise _unknown(name)


def open_source(source: ModelSource, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> OpenModel:
    """Load a model and its tokenizer.

    Raises ModelCorrupt where weights are absent: transformers would fill them with random numbers.
    """
    if source.kind == "dummy":
        model, tokenizer = _open_dummy(source, dtype, device)
    else:
        model, tokenizer = _load(source, dtype, device), open_tokenizer(source)
    return OpenModel(model.eval().requires_grad_(False), tokenizer)


def open_tokenizer(source: ModelSource) -> Any:
    """The tokenizer of a model alone."""
    importlib.import_module("transformers")  # waits for a thread that imports it: `from` may find half of it
    from transformers import AutoTokenizer

    folder = Path(source.path) if source.kind != "dummy" else Path(source.path).parent
    has_vocabulary = any(file for pattern in VOCABULARIES for file in folder.glob(pattern))
    if source.kind == "dummy":
        from adjudge.engine.models.dummy import TINY, tiny_tokenizer

        if source.path.startswith(TINY) or not has_vocabulary:
            return tiny_tokenizer()
    if not has_vocabulary:  # transformers would make up an empty one
        raise ModelUnsupported(f"{source.name} has no tokenizer: save its tokenizer beside the model")

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelUnsupported(
            f"transformers cannot open the tokenizer of {source.name} ({reason(error)}): save it again"
        ) from error


def tokenizer_named(name: str) -> Any:
    """The tokenizer of the model called `name`; of a folder or a hub model the weights need not be there.

    Raises what `resolve` and `open_tokenizer` do.
    """
    path = expanded(name)
    if name not in ALIASES and path.is_dir():
        return open_tokenizer(ModelSource(name, "folder", str(path.absolute()), ""))
    if name not in ALIASES and HUB_ID.fullmatch(name):
        return open_tokenizer(_hub(name, print_status, TOKENIZER_PATTERNS))
    return open_tokenizer(resolve(name))


def list_models() -> list[ModelListing]:
    """The aliases, then the converted GGUF files in the cache. Touches neither the network nor transformers."""
    cached = {manifest.sha256: (str(folder), manifest) for folder, manifest in cache_folder.entries()}
    listings = []
    for alias in ALIASES.values():
        path, manifest = cached.pop(alias.identity, (None, None))
        disk_size = manifest.size if manifest else None
        listings.append(ModelListing(alias.name, "alias", alias.about, alias.licence, alias.size, disk_size, path))
    for path, manifest in cached.values():
        earlier = f"an earlier {manifest.name}, which nothing opens any more: delete it"
        about = earlier if manifest.name in ALIASES else f"converted from {manifest.file}"
        listings.append(ModelListing(manifest.name, "gguf", about, manifest.licence, None, manifest.size, path))
    return listings


def _gguf(name: str, path: Path, status: Status) -> ModelSource:
    gguf_file.check(path)
    sha256 = file_sha256(path)
    folder = gguf_file.converted(path, sha256, status)
    return ModelSource(name, "gguf", str(folder), gguf_file.fingerprint(sha256))


def _folder(name: str, path: Path) -> ModelSource:
    if not path.is_dir():
        raise ModelNotFound(f"there is no folder {path}: check the path, or run `adjudge models` to see the names")
    if not (path / "config.json").is_file():
        raise ModelNotFound(f"{path} has no config.json: {_what_else(path)}")
    return ModelSource(name, "folder", str(path.absolute()), folder_fingerprint(path))


def _what_else(folder: Path) -> str:
    """What to do about a folder that is no model."""
    if files := sorted(folder.glob("*.gguf")):
        return f"pass the file itself, {files[0]}"
    if (folder / "adapter_config.json").is_file():
        return "it holds an adapter; pass its base model as the model, and the folder as the adapter"
    return "pass a folder that a transformers model was saved to"


def _hub(name: str, status: Status, files: list[str] = HUB_PATTERNS) -> ModelSource:
    from huggingface_hub import snapshot_download

    hub_id, _, revision = name.partition("@")
    status(f"fetching {name} from the hub, unless it is here already")
    try:
        with contextlib.nullcontext() if sys.stderr.isatty() else quiet():
            folder = snapshot_download(
                hub_id, revision=revision or None, allow_patterns=files, ignore_patterns=["*/*", "consolidated*"]
            )
    except (OSError, ValueError) as error:
        raise ModelNotFound(
            f"the hub did not give {name} ({reason(error)}): check the name and the connection, or name the folder of a"
            " model"
        ) from error
    commit = Path(folder).name
    return ModelSource(name, "hub", folder, digest("hub", hub_id, commit), commit)


_version = functools.cache(version)  # it reads and parses a file of the package


def _dummy(name: str, status: Status) -> ModelSource:
    from adjudge.engine.models.dummy import RECIPE, SEED, TINY

    spec = name.removeprefix(DUMMY)
    recipe = [str(RECIPE), str(SEED), _version("torch"), _version("transformers")]
    if spec.startswith(TINY):
        return ModelSource(name, "dummy", spec, digest("dummy", spec, *recipe))
    path = expanded(resolve(spec, status=status).path if spec in ALIASES else spec).absolute()
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        raise ModelNotFound(
            f"{name}: there is no configuration {path}; write dummy:PATH with a config.json or its folder, "
            "dummy:tiny-llama (or another model type), or dummy:ALIAS"
        )
    files = [path, *(file for file in (path.parent / "tokenizer.json",) if file.is_file())]
    return ModelSource(name, "dummy", str(path), digest("dummy", *recipe, *map(file_sha256, files)))


def _open_dummy(source: ModelSource, dtype: torch.dtype, device: torch.device | str) -> OpenModel:
    from adjudge.engine.models import dummy
    from adjudge.engine.text.signs import ids_of

    tiny = source.path.startswith(dummy.TINY)
    config = dummy.tiny_config(source.path.removeprefix(dummy.TINY)) if tiny else dummy.read_config(Path(source.path))
    tokenizer = open_tokenizer(source)
    rows = config.get_text_config(decoder=True).vocab_size
    if (needed := ids_of(tokenizer)) > rows:
        raise ModelUnsupported(f"{source.name}: vocab_size is {rows}, but the tokenizer needs {needed}; raise it")
    return OpenModel(dummy.random_model(source.name, config, dtype, device), tokenizer)


def _load(source: ModelSource, dtype: torch.dtype, device: torch.device | str) -> Any:
    import torch
    from transformers import AutoConfig

    # Without accelerate the weights take the way through the host's memory.
    through_host = torch.device(device).type == "cpu" or importlib.util.find_spec("accelerate") is None
    with loading(source.name):
        config = AutoConfig.from_pretrained(source.path, trust_remote_code=False)
        loaded: Any = model_class(source.name, config).from_pretrained(
            source.path,
            trust_remote_code=False,
            dtype=dtype,
            device_map=None if through_host else device,
            output_loading_info=True,
        )
    model, info = loaded
    require_all_weights(source.name, info)
    return model.to(device)


def _unknown(name: str) -> AdjudgeError:
    if "://" in name:  # with a password in it, perhaps
        return ModelNotFound("an address is no model: give it as the url of a server")
    near = difflib.get_close_matches(name, ALIASES, 3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return ModelNotFound(
        f"there is no model {name!r}: {hint}run `adjudge models` for the names there are, "
        "or pass a folder, a .gguf file or a hub id (ORG/NAME)"
    )
