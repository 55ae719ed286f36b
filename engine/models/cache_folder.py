"""The cache folder: converted models, each complete or absent, whoever else is at work there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.whole_file import FULL, no_room

Status = Callable[[str], None]
"""Takes one line that tells the user what is being waited for."""

MANIFEST = "adjudge.json"


class Manifest(msgspec.Struct, frozen=True):
    """What stands beside converted weights: where they come from, and the size of every file."""

    name: str
    file: str
    sha256: str
    licence: str | None = None
    files: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self.files.values())


def cache_root() -> Path:
    """$ADJUDGE_CACHE, else $XDG_CACHE_HOME/adjudge, else ~/.cache/adjudge; raises AdjudgeError where ~ is not known."""
    shared = os.environ.get("XDG_CACHE_HOME", "")
    named = os.environ.get("ADJUDGE_CACHE") or f"{shared if os.path.isabs(shared) else '~/.cache'}/adjudge"
    path = os.path.expanduser(named)
    if path.startswith("~"):
        raise AdjudgeError(f"no home folder is known for {named}: set HOME, or name a folder in ADJUDGE_CACHE")
    return Path(path).absolute()


def find(key: str) -> Path | None:
    """The folder of a complete entry, or None."""
    folder = _models() / key
    return folder if _complete(folder) is not None else None


def entries() -> Iterator[tuple[Path, Manifest]]:
    """Every complete entry and its manifest."""
    for folder in sorted(_models().glob("[!.]*")):
        if manifest := _complete(folder):
            yield folder, manifest


def build(key: str, make: Callable[[Path], Manifest], status: Status) -> Path:
    """The folder of entry `key`, made by `make(empty folder)` if it is absent or damaged.

    Of several processes that ask at once, one makes it and the others wait for the result. What a killed process left
    is removed. Raises AdjudgeError where the cache folder cannot be written.
    """
    from filelock import FileLock, Timeout

    if folder := find(key):
        return folder
    models = _models()
    try:
        models.mkdir(parents=True, exist_ok=True)
        lock = FileLock(models / f".{key}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            status(f"waiting for another process that is preparing this model in {models}")
            lock.acquire()
        try:
            return find(key) or _make(models / key, make)
        finally:
            lock.release()
    except Exception as error:  # writers of weights and tokenizers have types of their own
        known = error if isinstance(error, OSError) else no_room(error)
        if known is None or isinstance(error, AdjudgeError):
            raise
        mend = FULL.get(known.errno or 0, "make room there")
        raise AdjudgeError(
            f"cannot write to the cache folder {cache_root()} ({known.strerror or known}): {mend}, or name another"
            " folder in ADJUDGE_CACHE"
        ) from error


def _make(folder: Path, make: Callable[[Path], Manifest]) -> Path:
    """Make an entry under another name and rename it; the caller holds its lock."""
    for leftover in folder.parent.glob(f".{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        manifest = make(partial)
        sizes = {path.name: path.stat().st_size for path in sorted(partial.iterdir())}
        (partial / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, files=sizes)))
        mode = partial.stat().st_mode & 0o666  # as private as the user's folders are, for whoever shares the cache
        for path in partial.iterdir():
            path.chmod(mode)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder


def _complete(folder: Path) -> Manifest | None:
    """The manifest of an entry whose files are all there in full size (contents are not read again)."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        whole = all((folder / name).stat().st_size == size for name, size in manifest.files.items())
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if whole else None


def _models() -> Path:
    return cache_root() / "models"
