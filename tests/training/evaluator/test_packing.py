from __future__ import annotations

import pytest
import torch

from adjudge.engine.models.sources import open_source, resolve
from adjudge.training.evaluator.packing import packed, padded, shares, stacked

PROMPTS = [(5, 6, 7, 8), (5, 6, 9), (5, 6, 9, 3, 2), (5, 6, 7, 8)]


def test_what_prompts_share_stands_once_and_nobody_sees_a_sibling() -> None:
    pack = packed(PROMPTS)
    assert (pack.tokens, pack.depths, pack.ends) == ((5, 6, 7, 8, 9, 3, 2), (0, 1, 2, 3, 2, 3, 4), (3, 4, 6, 3))
    assert pack.branches and not packed(PROMPTS[:1]).branches
    for prompt, end in zip(PROMPTS, pack.ends, strict=True):
        assert [token for token, seen in zip(pack.tokens, pack.seen[end], strict=True) if seen] == list(prompt)


@pytest.mark.parametrize("model", ["llama", "qwen3", "gpt2"])
@torch.inference_mode()
def test_a_packed_row_gives_the_logits_of_each_prompt_alone(model: str) -> None:
    opened = open_source(resolve(f"dummy:tiny-{model}"), dtype=torch.float32).model
    assert shares(opened)
    pack = packed(PROMPTS)
    logits = opened(**padded([packed([PROMPTS[2] * 3]), pack], 0), use_cache=False).logits[1]
    for prompt, end in zip(PROMPTS, pack.ends, strict=True):
        alone = opened(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
        torch.testing.assert_close(logits[end], alone, rtol=1e-4, atol=1e-4)


def test_models_whose_layers_look_back_differently_far_do_not_share() -> None:
    assert not shares(open_source(resolve("dummy:tiny-gemma2"), dtype=torch.float32).model)


def test_packs_put_side_by_side_in_fewer_rows_do_not_see_each_other() -> None:
    model = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32).model
    texts = [PROMPTS, [(4, 4)], [(9, 8, 7, 6, 5, 4, 3), (9, 8, 1)], [(3, 2, 1, 2, 3)], [(1, 2), (1, 3)]]
    packs = [packed(prompts) for prompts in texts]
    rows, places = stacked(packs)
    assert [len(row.tokens) for row in rows] == [8, 7, 8, 2] and len(places) == len(packs)
    with torch.inference_mode():
        logits = model(**padded(rows, 0), use_cache=False).logits
        for prompts, pack, (row, start) in zip(texts, packs, places, strict=True):
            for prompt, end in zip(prompts, pack.ends, strict=True):
                alone = model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
                torch.testing.assert_close(logits[row, start + end], alone, rtol=1e-4, atol=1e-4)
