from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported
from adjudge.engine.models.sources import ModelSource, open_source, open_tokenizer, resolve, tokenizer_named


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a tiny model and its tokenizer were saved to."""
    folder = tmp_path_factory.mktemp("saved")
    model, tokenizer = open_source(resolve("dummy:tiny-qwen3-untied"), dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path, cache: Path) -> Path:
    """A copy of it that a test may damage."""
    copy = tmp_path / "model"
    copy.mkdir()
    for file in saved.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def test_importing_the_module_loads_no_framework() -> None:
    heavy = "('torch', 'transformers', 'gguf')"
    script = f"import sys, adjudge.engine.models.sources; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_tokenizers_that_several_threads_open_at_once_in_a_new_process_are_all_opened() -> None:
    script = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from adjudge.engine.models.sources import tokenizer_named\n"
        "with ThreadPoolExecutor(4) as threads:\n"
        "    print(len(set(map(len, threads.map(tokenizer_named, ['dummy:tiny-llama'] * 4)))))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "1\n", run.stderr


def test_a_folder_opens_as_it_was_saved(folder: Path) -> None:
    source = resolve(str(folder))
    assert (source.kind, source.path) == ("folder", str(folder))
    model, tokenizer = open_source(source, dtype=torch.float32)
    saved = load_file(folder / "model.safetensors")
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, saved[name])
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert tokenizer("<|im_end|>").input_ids == open_tokenizer(source)("<|im_end|>").input_ids == [258]


def test_an_engine_takes_a_path_and_refuses_what_names_no_model(folder: Path) -> None:
    assert Engine(folder, kv_cache_gb=0.05).name == str(folder)
    with pytest.raises(ModelNotFound, match="the model is None: give a name that `adjudge models` lists"):
        Engine(None)  # type: ignore[arg-type]


def test_a_folder_opens_in_the_precision_asked_for(folder: Path) -> None:
    model, _ = open_source(resolve(str(folder)), dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_opening_prints_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_source(resolve(str(folder)), dtype=torch.float32)
    open_source(resolve("dummy:tiny-gemma2"), dtype=torch.bfloat16)
    assert capfd.readouterr() == ("", "")


def test_a_path_may_be_relative_or_begin_at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    expected = resolve(str(folder))
    for name in ("model", "./model", "~/model"):
        source = resolve(name)
        assert (source.path, source.fingerprint) == (expected.path, expected.fingerprint)


def test_absent_weights_are_never_made_up(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"], weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelCorrupt, match=r"has no weights for model\.layers\.1\.mlp\.up_proj\.weight and 1 more"):
        open_source(resolve(str(folder)), dtype=torch.float32)


def test_truncated_weights_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ModelCorrupt, match="are unreadable"):
        open_source(resolve(str(folder)), dtype=torch.float32)


def test_weights_of_other_shapes_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 160}))
    with pytest.raises(ModelUnsupported, match="cannot open"):
        open_source(resolve(str(folder)), dtype=torch.float32)


def test_a_model_with_code_of_its_own_is_refused_without_asking(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelUnsupported, match="cannot open"):
        open_source(resolve(str(folder)), dtype=torch.float32)


def test_a_folder_without_a_tokenizer_is_refused(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(ModelUnsupported, match="has no tokenizer"):
        open_source(resolve(str(folder)), dtype=torch.float32)


@pytest.mark.parametrize(
    ("files", "mend"),
    [
        ([], "pass a folder that a transformers model was saved to"),
        (["adapter_config.json"], "it holds an adapter; pass its base model"),
        (["model.gguf"], "pass the file itself, .*model.gguf"),
    ],
)
def test_a_folder_that_is_no_model_says_what_to_pass(files: list[str], mend: str, tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).touch()
    with pytest.raises(ModelNotFound, match=f"has no config.json: {mend}"):
        resolve(str(tmp_path))


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelCorrupt, match="holds no weights"):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("smollm-135m", "there is no model 'smollm-135m': did you mean smollm2-135m\\? run `adjudge models`"),
        ("gpt9", "there is no model 'gpt9': run `adjudge models`"),
        ("", "there is no model ''"),
        ("a/b/c", "there is no model 'a/b/c'"),
        ("http://me:secret@h", "^an address is no model: give it as the url of a server$"),
        ("./absent", "there is no folder absent"),
        ("/absent/model", "there is no folder /absent/model"),
        ("absent.gguf", "there is no file absent.gguf"),
        ("~nobody-here/model", "there is no folder ~nobody-here/model"),
        ("dummy:~nobody-here", "there is no configuration .*~nobody-here"),
        ("x" * 5000, "cannot read x+ \\(File name too long\\)"),
    ],
)
def test_a_name_that_is_nothing_says_what_to_do(name: str, sentence: str, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(AdjudgeError, match=sentence) as caught:
        resolve(name)
    assert isinstance(caught.value, ModelNotFound)
    assert "\n" not in str(caught.value)


def test_a_hub_id_without_a_network_says_what_to_do(cache: Path, tmp_path: Path) -> None:
    script = "from adjudge.engine.models.sources import resolve; resolve('no-such-organisation/no-such-model')"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd())}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    last = run.stderr.splitlines()[-1]
    assert "ModelNotFound: the hub did not give no-such-organisation/no-such-model" in last
    assert last.endswith("check the name and the connection, or name the folder of a model")


def test_a_hub_id_opens_at_the_commit_that_was_fetched(
    saved: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def snapshot_download(hub_id: str, **options: Any) -> str:
        asked.update(options, hub_id=hub_id)
        folder = tmp_path / str(options["revision"] or "c0ffee")
        folder.symlink_to(saved)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    source = resolve("me/model@v2", status=lambda line: None)
    assert (asked["hub_id"], asked["revision"]) == ("me/model", "v2")
    latest = resolve("me/model", status=lambda line: None)
    assert (latest.kind, latest.revision) == ("hub", "c0ffee")
    assert source.fingerprint != latest.fingerprint
    assert open_source(latest, dtype=torch.float32).model.config.model_type == "qwen3"


def test_the_default_model_answers(smollm2: str) -> None:
    source = resolve(smollm2)
    assert source.kind == "alias"
    model, tokenizer = open_source(source, dtype=torch.float32)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        assert tokenizer.decode(model(**prompt).logits[0, -1].argmax()) == " Paris"
    dummy = resolve(f"dummy:{smollm2}")
    assert dummy != source and isinstance(dummy, ModelSource)
    assert open_tokenizer(dummy)("judge").input_ids == tokenizer("judge").input_ids


def test_a_tokenizer_opens_without_the_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.safetensors").unlink()
    asked: list[str] = []

    def snapshot_download(hub_id: str, *, allow_patterns: list[str], **options: Any) -> str:
        asked.extend(allow_patterns)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    for name in (str(folder), "me/model", "dummy:tiny-llama"):
        assert tokenizer_named(name).encode("a<think>") == [97, 259]
    assert "*.json" in asked and "*.safetensors" not in asked
