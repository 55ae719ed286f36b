from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("accelerate", reason="needs the extra train")

from adjudge.engine.errors import RemoteError
from adjudge.training.grpo.judges import open_judges
from tests.training.runs import tiny_recipe


def test_a_run_goes_on_without_its_server_only_where_it_may_abstain(caplog: pytest.LogCaptureFixture) -> None:
    judge = {"kind": "judge", "judge": "pointwise", "engine": {"url": "http://localhost:1"}}
    stops = tiny_recipe(Path(), reward={"parts": {"x": judge}})
    here = judge | {"engine": {"model": "dummy:tiny-llama", "kv_cache_gb": 0.02}}
    abstains = tiny_recipe(Path(), reward={"parts": {"x": judge, "y": here}, "on_failure": "abstain"})
    for recipe, resume in ((stops, True), (abstains, False)):
        with pytest.raises(RemoteError, match="cannot be reached"):
            open_judges(recipe.reward, recipe.written(), sleep=False, resume=resume)
    assert not caplog.text
    [engine] = open_judges(abstains.reward, abstains.written(), sleep=False, resume=True)  # the other is open
    assert engine.name == "dummy:tiny-llama"
    assert "the run goes on without its judge: http://localhost:1 cannot be reached" in caplog.text


def test_what_was_opened_sleeps_until_it_is_asked() -> None:
    judge = {"kind": "judge", "judge": "pointwise", "engine": {"model": "dummy:tiny-llama", "kv_cache_gb": 0.02}}
    recipe = tiny_recipe(Path(), reward={"parts": {"x": judge}})
    for sleep in (True, False):
        [engine] = open_judges(recipe.reward, recipe.written(), sleep=sleep, resume=False)
        assert engine.asleep is sleep  # type: ignore[attr-defined]
        del engine
