"""An engine answers the same whatever its callers have set for all of torch in their thread."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.engine import Engine
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.written_scores import AnswerFormat, find_answers
from adjudge.kernels.byte_table import ByteTable

LABELS = Labels(("1", "2", "3", "10"))
STORY = "abc def ghi " * 8  # longer than a sliding window
Surroundings = Callable[[], AbstractContextManager[Any]]


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(
    params=[
        partial(torch.autocast, "cpu", dtype=torch.bfloat16),
        partial(torch.device, "meta"),
        partial(default_dtype, torch.bfloat16),
    ],
    ids=["autocast", "default-device", "default-dtype"],
)
def surroundings(request: pytest.FixtureRequest) -> Surroundings:
    made: Surroundings = request.param
    return made


def opened(model: str = "llama") -> Engine:
    return Engine(f"dummy:tiny-{model}", kv_cache_gb=0.05)


def answers(engine: Engine) -> list[Any]:
    """Of all three verbs, penalties and a prompt that is read among them."""
    texts = engine.generate([STORY + "on"], max_tokens=5, seed=0, presence_penalty=0.5, prompt_logprobs=1)
    return [*engine.score([STORY + "Answer:", "A:"], LABELS), *texts, *map(numbers, engine.embed([STORY]))]


def numbers(embedding: Embedding) -> Any:
    assert embedding.values is not None
    return np.asarray(embedding.values).tolist()


def kept(engine: Engine) -> list[torch.Tensor]:
    """Keys and values of what engines that have answered the same have in their caches."""
    blocks = 1 + len(STORY) // engine.runner.block_size
    return [store[1:blocks] for cache in engine.runner.layers.values() for store in (cache.key, cache.value)]


@pytest.mark.parametrize("model", ["llama", "gemma2", "gpt_oss"])
def test_answers_and_the_cache_are_bit_equal_under_autocast_and_under_defaults(
    model: str, surroundings: Surroundings
) -> None:
    plain = opened(model)
    expected = answers(plain)
    for opening, asking in ((surroundings, nullcontext), (nullcontext, surroundings)):
        with opening():
            engine = opened(model)
        assert engine.runner.batch_invariant == plain.runner.batch_invariant
        for around in (asking, nullcontext, asking):  # a cold cache, and a warm one
            with around():
                assert answers(engine) == expected
            assert all(map(torch.equal, kept(engine), kept(plain)))


def test_an_engine_that_opens_in_another_default_dtype_probes_as_others_do() -> None:
    """In a process of its own, which has probed nothing yet."""
    script = (
        "import torch; torch.set_default_dtype(torch.float64);"
        " from adjudge import Engine; engine = Engine('dummy:tiny-llama', kv_cache_gb=0.05);"
        f" print([score.logprobs for score in engine.score([{STORY!r}, 'A:'], {LABELS.labels!r})])"
    )
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    scores = opened().score([STORY, "A:"], LABELS)
    assert there.stdout == f"{[score.logprobs for score in scores]}\n"


def test_weights_and_adapters_are_taken_under_a_default_device(tmp_path: Path) -> None:
    import peft

    engine, other = opened(), opened()
    model: Any = other.runner.model
    weights = {name: 1.5 * tensor for name, tensor in model.state_dict().items() if "mlp" in name}
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    torch.manual_seed(0)
    peft.get_peft_model(model, config).save_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    plain = opened()
    plain.update_weights(weights, adapter=tmp_path)
    with torch.device("meta"):
        engine.update_weights(weights, adapter=tmp_path)
    assert answers(engine) == answers(plain)


def test_a_written_score_is_found_under_a_default_device() -> None:
    completion = Completion(0, 0, "[[4]]", (0, 1, 2), "stop", (), 1)
    with torch.device("meta"):
        form = AnswerFormat(openings=("[[",), closings=("]]",))
        found = find_answers([completion], ["4"], [form], ByteTable.of([b"[[", b"4", b"]]"]))
    assert found == [((0,), "4")]
