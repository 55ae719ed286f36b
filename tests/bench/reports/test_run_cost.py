from __future__ import annotations

import pytest

from adjudge.bench.reports.run_cost import RunCost
from adjudge.engine.engine import Engine


@pytest.mark.parametrize("writes", [False, True])
def test_no_more_is_computed_than_was_asked_for_whatever_was_asked(writes: bool) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.05)
    if writes:
        [text] = engine.generate(["Tell one. "], max_tokens=7, ignore_eos=True)
        beyond = len(text.token_ids) - 1
    else:
        [text] = engine.score(["Grade: "], [*"123456789", "10"])  # type: ignore[assignment]
        beyond = 0
    cost = RunCost.of(engine, 1.0)
    assert cost.tokens_computed == text.prompt_tokens + (beyond or 1)
    assert cost.tokens_asked == cost.tokens_computed + writes
    assert cost.tokens == f"computed {cost.tokens_computed} of {cost.tokens_asked} tokens asked for"
