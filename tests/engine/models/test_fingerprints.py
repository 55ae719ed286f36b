from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from adjudge.engine.errors import ModelCorrupt
from adjudge.engine.models.fingerprints import REMEMBERED_BYTES, file_sha256, folder_fingerprint

ONE, TWO = b"1" * REMEMBERED_BYTES, b"2" * REMEMBERED_BYTES


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors", "README.md", "training_args.bin"):
        (folder / name).write_text(name)
    return folder


def test_a_file_is_read_once_until_it_changes(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weights"
    file.write_bytes(ONE)
    first = file_sha256(file)
    assert first == hashlib.sha256(ONE).hexdigest()
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", None)
        assert file_sha256(file) == first
    file.write_bytes(TWO)
    assert file_sha256(file) == hashlib.sha256(TWO).hexdigest()


def test_no_note_is_made_of_a_small_file(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(ONE[1:])
    assert file_sha256(file) == hashlib.sha256(ONE[1:]).hexdigest()
    assert not (cache / "hashes").exists()


def test_a_file_is_hashed_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weights"
    file.write_bytes(ONE)
    for place in (str(file), "~nobody-here"):  # a file where the folder should be, and no place at all
        monkeypatch.setenv("ADJUDGE_CACHE", place)
        assert file_sha256(file) == hashlib.sha256(ONE).hexdigest()


def test_a_damaged_note_is_not_believed(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(ONE)
    file_sha256(file)
    (note,) = (cache / "hashes").iterdir()
    note.write_text("{")
    assert file_sha256(file) == hashlib.sha256(ONE).hexdigest()


@pytest.mark.parametrize("part", ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"])
def test_a_fingerprint_changes_with_each_part_of_the_model(cache: Path, model: Path, part: str) -> None:
    before = folder_fingerprint(model)
    (model / part).write_text("changed")
    assert folder_fingerprint(model) != before


def test_a_fingerprint_is_of_the_content_not_of_the_place(cache: Path, model: Path) -> None:
    before = folder_fingerprint(model)
    (model / "README.md").write_text("changed")
    (model / "training_args.bin").unlink()
    assert folder_fingerprint(model.rename(model.with_name("moved"))) == before


def test_a_folder_without_weights_is_refused(cache: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelCorrupt, match=f"{model} holds no weights"):
        folder_fingerprint(model)
