from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tokenizers import AddedToken, processors

from adjudge.bench.agreement.likelihood import BareModel
from adjudge.bench.policy.policies import Asked, Policy
from adjudge.bench.policy.texts import Opening, Writer, Writing, identity_of, opening_of
from adjudge.engine.engine import Engine
from adjudge.engine.models.dummy import tiny_tokenizer
from adjudge.engine.models.sources import open_source, resolve
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.rows import Row
from adjudge.training.prompts import asked, read_by_policy
from adjudge.training.recipe import Data


@pytest.mark.parametrize("system", [None, "", "Be brief."])
@pytest.mark.parametrize("own", [{}, {"system": ""}, {"system": "Be long."}])
def test_a_policy_has_the_turns_that_it_has_in_training(
    system: str | None, own: dict[str, str], tmp_path: Path
) -> None:
    engine, row = Engine("dummy:tiny-llama", kv_cache_gb=0.05), Row("", {"prompt": "one", **own})
    trained = read_by_policy(asked(row, Data(prompts=("one",), system=system)), engine.tokenizer)
    with Journal(tmp_path / "journal") as journal:
        writing = Writing(Asked(system=system), Sampling())
        writer = Writer(Policy("p", "dummy:tiny-llama"), writing, journal, device="cpu", dtype="float32")
    evaluated = engine.tokenizer.prompt(writer._prompt(engine, opening_of(row, "a test")))
    assert list(evaluated) == list(trained)


def test_without_chat_a_policy_reads_its_own_first_tokens_before_a_prompt_as_in_training(tmp_path: Path) -> None:
    tokenizer, engine = tiny_tokenizer(), cast(Any, None)
    first = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, tokenizer.bos_token_id)]
    )
    writing = Writing(Asked(chat=False), Sampling())
    with Journal(tmp_path / "journal") as journal:
        writer = Writer(Policy("p", "dummy:tiny-llama"), writing, journal, device="cpu", dtype="float32")
    begun = Tokenizer(tokenizer).prompt(writer._prompt(engine, Opening("one")))
    assert begun == (tokenizer.bos_token_id, *b"one") == tuple(tokenizer("one")["input_ids"])


def test_texts_and_likelihoods_in_tokens_that_were_others_before_are_kept_apart(tmp_path: Path) -> None:
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    opened.tokenizer.backend_tokenizer.add_tokens([AddedToken("    ", special=False)])  # of an indented line
    opened.model.save_pretrained(tmp_path)
    opened.tokenizer.save_pretrained(tmp_path)
    name = str(tmp_path)
    asked_in = Engine(name, kv_cache_gb=0.05).fingerprint
    assert asked_in != resolve(name).fingerprint
    assert identity_of(Policy("p", name), "cpu", "float32") == (asked_in, None, "float32")
    assert BareModel(name, "cpu", "float32").fingerprint == asked_in
