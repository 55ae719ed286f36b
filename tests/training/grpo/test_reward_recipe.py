from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.engines.specification import JudgeSpec
from adjudge.rewards.judge_rewards import judged
from adjudge.rewards.judge_rewards.story_reward import StoryReward
from adjudge.rewards.judge_rewards.tournament_reward import TournamentReward
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rows import Row
from adjudge.rewards.reward import Reward
from adjudge.training.grpo.reward_parts import Engine
from tests.training.runs import tiny_recipe

ENDS = {"kind": "check", "ends_with": ["."]}
SEA = {"kind": "check", "mentions": ["sea"]}
RUBRIC = {"criteria": [{"name": "plot", "text": "Is there one?", "points": 3}]}
REVIEWS = [{"plot": f"Plot {n}.", "review": "Good.", "score": n} for n in (3, 5, 7)]


def opened(**reward: Any) -> Reward:
    recipe = tiny_recipe(Path(), reward=reward)
    return recipe.reward.open(recipe.written(), "journal")


def rewards(reward: Reward, *responses: str) -> tuple[float | None, ...]:
    [scored] = reward.score_groups([Group("p", responses)])
    return scored.rewards


def test_parts_are_summed_by_weight_or_multiplied() -> None:
    parts = {"ends": ENDS | {"weight": 2.0}, "sea": SEA}
    assert rewards(opened(parts=parts), "The sea.", "The sea", "No.", "no") == (3.0, 1.0, 2.0, 0.0)
    parts = {"ends": ENDS, "sea": SEA}
    assert rewards(opened(parts=parts, combine="product"), "The sea.", "The sea") == (1.0, 0.0)


def test_a_gate_shuts_and_a_section_is_seen_alone() -> None:
    reward = opened(parts={"ends": ENDS | {"section": "answer"}}, gates={"format": {"kind": "format"}})
    good, other = "<think>Hm.</think><answer>Yes.</answer>", "<think>Hm.</think><answer>Yes</answer>"
    assert rewards(reward, good, other, "<answer>Yes.</answer>") == (1.0, 0.0, 0.0)


def test_what_may_pay_less_than_0_after_a_thought_wants_a_pattern_of_its_gate() -> None:
    gates = {"y": {"kind": "pattern", "pattern": "(?s).*</think>.*"}}
    assert opened(parts={"x": {"kind": "tournament", "after": "think"}}, gates=gates, shut=-9.0).below_zero


def test_a_length_trend_is_taken_out_of_sections_that_a_gate_asks_for_or_that_are_only_watched() -> None:
    part, how = ENDS | {"section": "answer"}, {"journal": True, "length_free": {}}
    assert opened(parts={"x": part}, gates={"y": {"kind": "format"}}, shut=-9.0, **how).below_zero
    assert not opened(parts={"x": part | {"weight": 0.0}, "ends": ENDS}, **how).below_zero


def test_a_gate_on_what_follows_a_thought_has_the_policy_think() -> None:
    gate = ENDS | {"after": "think"}
    assert tiny_recipe(Path(), reward={"parts": {"x": SEA}, "gates": {"y": gate}}).reward.thinks
    assert not tiny_recipe(Path(), reward={"parts": {"x": SEA}, "gates": {"y": ENDS}}).reward.thinks


def test_what_follows_a_thought_may_be_seen_alone() -> None:
    reward = opened(parts={"ends": ENDS | {"after": "think"}})
    assert rewards(reward, "<think>Hm</think>Yes.", "<think>Hm.</think>Yes", "Yes.") == (1.0, 0.0, 0.0)
    with pytest.raises(AdjudgeError, match=r'^\[reward\.parts\.ends\] a reward sees the section "answer", or'):
        opened(parts={"ends": ENDS | {"after": "think", "section": "answer"}})


def test_a_format_may_be_begun_by_the_prompt() -> None:
    begun = {"kind": "format", "begun": True}
    assert rewards(opened(parts={"ends": {"weight": 0.0}, "form": begun}), "Hm.</think><answer>Yes</answer>") == (1.0,)


def test_every_kind_of_part_opens_without_a_model() -> None:
    kinds: dict[str, Any] = {
        "judge": {"kind": "judge", "judge": "tree"},
        "tournament": {"kind": "tournament", "reference": "dynamic", "over": "reference"},
        "story": {"kind": "story", "aspects": "coherence*3,surprise", "reference": "static", "words": [5, 9]},
        "accuracy": {"kind": "accuracy", "columns": ["score"], "rate": 1.0},
        "length": {"kind": "length", "words": [5, 9]},
        "format": {"kind": "format", "tags": ["a"]},
        "pattern": {"kind": "pattern", "pattern": "[a-z]+"},
        "language": {"kind": "language", "language": "zh"},
        "repetition": {"kind": "repetition", "n": 3},
    }
    reward = opened(parts=kinds)
    assert not reward.engines and len(rewards(opened(parts={"r": kinds["repetition"]}), "a b")) == 1


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (
            {"parts": {"x": {"kind": "judge", "judge": "vibes"}}},
            r'\[reward.parts.x\] no judge is called "vibes": choose',
        ),
        ({"parts": {"x": {"kind": "tournament", "judge": ""}}}, r'\[reward.parts.x\] no judge is called "": choose'),
        ({"parts": {"x": {"kind": "story", "judge": ""}}}, r'\[reward.parts.x\] no judge is called "": choose'),
        ({"parts": {"x": {"kind": "judge", "judge": "tree", "options": {"k": 2}}}}, r"\[reward.parts.x\] k is for"),
        ({"parts": {"x": {"kind": "length", "words": [9, 5]}}}, r"\[reward.parts.x\] a window of 9 to 5 words holds"),
        ({"gates": {"x": {"kind": "check"}}}, r"\[reward.gates.x\] a check checks nothing: give ends_with"),
        (
            {"parts": {"x": ENDS | {"weight": -1.0}}, "gates": {"y": ENDS}},
            r'\[reward\] the part "x" can pay less than 0, what a shut gate pays: give shut',
        ),
        (
            {"parts": {"x": ENDS}, "gates": {"y": ENDS}, "journal": True, "length_free": {}},
            r"\[reward\] length_free can take a reward below 0, what a shut gate pays: give shut",
        ),
        (
            {"parts": {"sea": SEA, "x": ENDS | {"section": "answer"}}, "journal": True, "length_free": {}},
            r'\[reward\] the part "x" pays 0 for a completion without its section, and length_free .* give a gate of',
        ),
        (
            {
                "parts": {"x": ENDS | {"after": "think"}},
                "gates": {"y": {"kind": "format"}},
                "shut": -9.0,
                "journal": True,
                "length_free": {},
            },
            r'\[reward\] the part "x" pays 0 for a completion without its section, and length_free',
        ),
        (
            {"parts": {"x": {"kind": "tournament"}}, "gates": {"y": ENDS}},
            r'\[reward\] the part "x" can pay less than 0',
        ),
        (
            {"parts": {"x": {"kind": "story", "form": "parity"}}, "gates": {"y": ENDS}},
            r'\[reward\] the part "x" can pay less than 0',
        ),
        (
            {"parts": {"x": {"kind": "tournament", "section": "answer"}}},
            r'\[reward\] the part "x" can pay less than 0, what a completion without its section is paid: give a gate',
        ),
        (
            {
                "parts": {"x": {"kind": "tournament", "after": "think"}},
                "gates": {"y": {"kind": "format", "tags": ["think"]}},
                "shut": -9.0,
            },
            r'\[reward\] the part "x" .* give a gate of the kind "format" with that tag \(of "pattern" for',
        ),
        ({"combine": "product", "parts": {"x": ENDS | {"weight": 2.0}}}, r"\[reward\] a product has no weights: leave"),
        (
            {"combine": "product", "parts": {"ends": ENDS, "x": {"kind": "tournament"}}},
            r'\[reward\] the part "x" can pay less than 0, which turns the sign of a product: leave it out',
        ),
        (
            {"gates": {"x": {"kind": "judge", "judge": "pointwise", "scale": "own"}}},
            r'\[reward.gates.x\] scale is "own", but a gate opens at 0.5 of a scale from 0 to 1: leave scale out',
        ),
        (
            {"parts": {"ends": {"weight": 2.0}, "y": SEA | {"weight": -1.0}}, "gates": {"z": ENDS}, "shut": 2.0},
            r"\[reward\] shut is 2, and the parts come to 2 at most: a policy would be paid for shutting the gate",
        ),
        (
            {"parts": {"x": {"kind": "judge", "judge": "pointwise"}}, "gates": {"y": ENDS}, "shut": 2.5},
            r"\[reward\] shut is 2.5, and the parts come to 2 at most",
        ),
        (
            {"parts": {"x": ENDS, "y": SEA}, "combine": "product", "gates": {"z": ENDS}, "shut": 1.0},
            r"\[reward\] shut is 1, and the parts come to 1 at most",
        ),
        ({"parts": {"ends": {"weight": 0.0}}}, r"\[reward\] all weights are 0"),
        (
            {"gates": {"x": ENDS | {"weight": 0.3}}},
            r"\[reward.gates.x\] weight is 0.3, .*or make it \[reward.parts.x\]",
        ),
    ],
)
def test_a_mistake_is_found_before_any_model_is_opened(reward: dict[str, Any], message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        opened(**reward)


def test_a_tournament_over_the_reference_pays_a_probability_which_may_be_a_factor_and_stand_behind_a_gate() -> None:
    part = {"kind": "tournament", "over": "reference"}
    assert isinstance(opened(parts={"x": part, "ends": ENDS}, combine="product", gates={"y": ENDS}), Gated)


@pytest.mark.parametrize("watched", [{"kind": "tournament"}, {"kind": "tournament", "section": "answer"}])
def test_a_part_that_is_only_watched_may_be_below_0(watched: dict[str, Any]) -> None:
    parts = {"x": watched | {"weight": 0.0}, "ends": ENDS}
    reward = opened(parts=parts, gates={"y": ENDS})
    assert isinstance(reward, Gated) and not reward.below_zero


def test_a_shut_gate_pays_what_the_recipe_says() -> None:
    reward = opened(parts={"sea": SEA | {"weight": -1.0}}, gates={"ends": ENDS}, shut=-3.0)
    assert rewards(reward, "no end", "The sea.", "No.") == (-3.0, -1.0, 0.0)


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "tournament"},
        {"kind": "judge", "judge": "scalar", "engine": {"model": "dummy:tiny-qwen3-reward"}},
        {"kind": "judge", "judge": "pointwise", "scale": "own"},
        ENDS | {"weight": 3.0},
    ],
)
def test_a_shut_gate_may_pay_what_the_parts_may_exceed(part: dict[str, Any]) -> None:
    assert isinstance(opened(parts={"x": part}, gates={"y": ENDS}, shut=2.0), Gated)


def test_the_judge_of_a_part_that_names_none_is_the_houses_and_compares_as_it_can() -> None:
    assert Engine().spec().model == "house" == JudgeSpec("pointwise").engine.model
    assert Engine(adapter="lora").spec().model == "smollm2-135m"
    assert Engine(url="http://localhost:1").spec().model is None
    for kind in ("story", "tournament"):
        for engine, judge in (({}, "pointwise of pairs"), ({"model": "smollm2-135m"}, "pairwise")):
            part = opened(parts={"x": {"kind": kind, "engine": engine}}).parts["x"]  # type: ignore[attr-defined]
            assert isinstance(part, StoryReward | TournamentReward) and part.source.kind == judge


POINTWISE = {"kind": "judge", "judge": "pointwise"}


@pytest.mark.parametrize(
    ("reward", "gpus", "expected"),
    [
        ({"parts": {"x": POINTWISE}}, 1, True),
        ({"parts": {"x": POINTWISE}}, 0, False),
        ({"parts": {"x": POINTWISE}, "sleep": True}, 0, True),
        ({"parts": {"x": POINTWISE}, "sleep": False}, 1, False),
        ({"parts": {"x": ENDS}}, 1, False),
        ({"parts": {"x": ENDS}, "gates": {"y": POINTWISE}}, 1, True),
        ({"parts": {"x": POINTWISE}, "engine": {"device": "cpu"}}, 1, False),
        ({"parts": {"x": POINTWISE}, "engine": {"device": "cuda:1"}}, 1, False),
        ({"parts": {"x": POINTWISE}, "engine": {"device": "cuda:1"}}, 2, True),
        ({"parts": {"x": POINTWISE}, "engine": {"url": "http://localhost:1"}}, 1, False),
        ({"parts": {"x": POINTWISE | {"engine": {"device": "cpu"}}}}, 1, False),
        ({"parts": {"x": POINTWISE | {"reference": "dynamic"}}, "engine": {"url": "http://localhost:1"}}, 1, True),
    ],
)
def test_engines_sleep_where_they_share_a_gpu_with_the_policy_or_as_the_recipe_says(
    reward: dict[str, Any], gpus: int, expected: bool
) -> None:
    assert tiny_recipe(Path(), reward=reward).reward.sleeps(gpus) is expected


def test_the_policys_weights_judge_only_where_they_stay_as_they_are() -> None:
    reward = {"parts": {"x": POINTWISE | {"reference": "dynamic"}}, "engine": {"model": "policy"}}
    lora = {"method": "lora"}
    recipe = tiny_recipe(Path(), reward=reward, policy=lora)
    assert recipe.reward.on_policy and not recipe.reward.open(recipe.written(), "journal").engines
    with pytest.raises(AdjudgeError, match=r'set method = "lora" in \[policy\], or name a model'):
        tiny_recipe(Path(), reward=reward)
    with pytest.raises(AdjudgeError, match=r'set engine = "transformers" in \[generation\]'):
        tiny_recipe(Path(), reward=reward, policy=lora, generation={"engine": "vllm"})
    with pytest.raises(AdjudgeError, match=r"\[reward.parts.x\].*leave out adapter, device and dtype"):
        moved = {"parts": {"x": POINTWISE}, "engine": {"model": "policy", "device": "cpu"}}
        recipe = tiny_recipe(Path(), reward=moved, policy=lora)
        recipe.reward.open(recipe.written(), "journal")
    assert not tiny_recipe(Path(), reward=reward | {"parts": {"x": ENDS}}).reward.on_policy


def test_references_are_written_once_for_all_parts_and_as_the_policy_writes() -> None:
    part = POINTWISE | {"reference": "dynamic"}
    how = {"max_tokens": 8, "temperature": 0.5, "top_p": 0.9, "top_k": 3}
    recipe = tiny_recipe(Path(), reward={"parts": {"x": part, "y": part}}, generation=how, data={"chat": False})
    written = recipe.written()
    assert written.sampling == Sampling(max_tokens=8, temperature=0.5, top_p=0.9, top_k=3) and not written.chat
    parts = recipe.reward.open(written, "journal").parts  # type: ignore[attr-defined]
    assert parts["x"].reference is parts["y"].reference is written


def test_a_server_has_the_tokenizer_that_the_recipe_names_and_nothing_of_this_machine() -> None:
    server = {"model": "m", "url": "http://localhost:1", "tokenizer": "./t"}
    recipe = tiny_recipe(Path("/data"), reward={"parts": {"x": POINTWISE}, "engine": server}).reward
    assert recipe.engine.spec().tokenizer == "/data/t"
    patient = opened(parts={"x": POINTWISE}, engine={**server, "timeout": 600, "retries": 0}).parts["x"]  # type: ignore[attr-defined]
    assert (patient.source.spec.engine.timeout, patient.source.spec.engine.retries) == (600.0, 0)
    with pytest.raises(AdjudgeError, match=r"\[reward.parts.x\] the engine is a server, .* leave out device, which"):
        opened(parts={"x": POINTWISE}, engine={**server, "device": "cpu"})


def test_peoples_scores_that_cannot_be_read_are_found_by_row_and_column() -> None:
    accuracy = {"kind": "accuracy", "columns": ["score"]}
    for table in ("parts", "gates"):
        recipe = tiny_recipe(Path(), reward={table: {"accuracy": accuracy}}).reward
        recipe.check([Row("row 1", {"score": "4.5"}), Row("row 2", {"score": 1})])
        for wrong in ({"score": "good"}, {"score": 6}, {"score": ""}, {}):
            with pytest.raises(AdjudgeError, match='row 2: "score" is'):
                recipe.check([Row("row 1", {"score": 2}), Row("row 2", wrong)])


@pytest.mark.parametrize(
    ("part", "good", "bad", "said"),
    [
        ({"kind": "story", "reference": "static"}, {"reference": "Once."}, {"reference": ""}, '"reference" is blank'),
        ({"kind": "story"}, {"reference": "Once."}, {}, '"reference" is missing'),
        ({"kind": "judge", "judge": "pairwise"}, {"reference": "Once."}, {"reference": None}, '"reference" is missing'),
        (
            {"kind": "tournament", "over": "reference"},
            {"reference": "Once."},
            {},
            'unless .* has reference = "dynamic"',
        ),
        ({"kind": "judge", "judge": "rubric"}, {"rubric": RUBRIC}, {"rubric": None}, '"rubric" is missing'),
        ({"kind": "judge", "judge": "tree"}, {"task": "guide"}, {"task": "dance"}, '"task" is "dance"'),
        ({"kind": "judge", "judge": "personal"}, {"reviews": REVIEWS}, {"reviews": []}, "reviews"),
    ],
)
def test_a_row_without_what_a_judge_reads_is_found_before_the_run(
    part: dict[str, Any], good: dict[str, Any], bad: dict[str, Any], said: str
) -> None:
    recipe = tiny_recipe(Path(), reward={"gates": {"judge": part}, "parts": {"ends": ENDS}}).reward
    rows = [Row("row 1", {"prompt": "p", **good}), Row("row 2", {"prompt": "p", **bad})]
    recipe.check(rows[:1])
    with pytest.raises(AdjudgeError, match=f"^row 2.*{said}"):
        recipe.check(rows)


def test_a_judge_is_opened_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[str] = []
    prepare = judged.prepare

    def noted(kind: str, options: dict[str, Any]) -> Any:
        kinds.append(kind)
        return prepare(kind, options)

    monkeypatch.setattr(judged, "prepare", noted)
    recipe = tiny_recipe(Path(), reward={"parts": {"x": {"kind": "judge", "judge": "tree"}}}).reward
    recipe.check([Row(f"row {number}", {"prompt": "p"}) for number in range(3)])
    assert kinds == ["tree"]


def test_what_needs_nothing_of_the_data_asks_for_nothing() -> None:
    parts: dict[str, Any] = {
        "group": {"kind": "tournament"},
        "dynamic": {"kind": "story", "reference": "dynamic"},
        "six": {"kind": "judge", "judge": "rubric", "options": {"rubric": "six"}},
        "alone": {"kind": "judge", "judge": "pointwise"},
    }
    tiny_recipe(Path(), reward={"parts": parts}).reward.check([Row("row 1", {"prompt": "p"})])
