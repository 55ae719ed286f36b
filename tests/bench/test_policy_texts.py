from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tokenizers import processors

from adjudge.bench.policies import Asked, Policy
from adjudge.bench.policy_texts import Opening, Writer, Writing
from adjudge.engine.models.dummy import tiny_tokenizer
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.journal import Journal


def test_without_chat_a_policy_reads_its_own_first_tokens_before_a_prompt_as_in_training(tmp_path: Path) -> None:
    tokenizer, engine = tiny_tokenizer(), cast(Any, None)
    first = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, tokenizer.bos_token_id)]
    )
    writing = Writing(Asked(chat=False), Sampling())
    with Journal(tmp_path / "journal") as journal:
        writer = Writer(Policy("p", "dummy:tiny-llama"), writing, journal, device="cpu", dtype="float32")
    asked = Tokenizer(tokenizer).prompt(writer._prompt(engine, Opening("one")))
    assert asked == (tokenizer.bos_token_id, *b"one") == tuple(tokenizer("one")["input_ids"])
