from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.canary import SHIPPED
from adjudge.rewards.guards.collapse import CollapseGuard
from adjudge.rewards.guards.guarded import Guarded, standard_guards
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rows import Row
from adjudge.rewards.reward import Reward
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.presets import preset_record
from adjudge.training.recipe import laid_over, read_recipe, recipe_of
from tests.training.runs import Vowels, tiny_recipe


def watching(**guards: Any) -> dict[str, Any]:
    """The guards of a recipe by name, as they watch."""
    reward = tiny_recipe(Path(), guards={"use": ["length", "canary", "degenerate", "injection", "collapse"]} | guards)
    guarded = reward.guards.watching(Vowels())
    assert isinstance(guarded, Guarded)
    return {guard.name: guard for guard in guarded.guards}


def test_a_guard_is_told_what_its_table_says_and_is_as_it_comes_without() -> None:
    usual = {guard.name: guard for guard in standard_guards()}
    guards = watching(
        length={"limit": 0.6, "window": 8},
        canary={"drift": 0.4},
        degenerate={"tolerance": 1.5},
        collapse={"parts": ["x"], "reference": [1, 2.5], "bins": 4, "loss": 0.9},
    )
    assert guards["length"].limits == {"grip": 0.6} and guards["length"].groups.maxlen == 8
    assert guards["canary"].limits == {"drift": 0.4, "abstained": usual["canary"].limits["abstained"]}
    assert guards["degenerate"].limits == {"worst": 1.5} and guards["injection"].limits == usual["injection"].limits
    collapse = guards["collapse"]
    assert (collapse.parts, collapse.reference, collapse.bins) == (("x",), [1.0, 2.5], 4)
    assert collapse.limits == {"loss": 0.9, "zero_variance": usual["collapse"].limits["zero_variance"]}
    assert {name: guard.limits for name, guard in watching().items()} == {
        name: guard.limits for name, guard in usual.items()
    }


OWN = """
from adjudge import OwnJudge

class Short(OwnJudge):
    range = (1.0, 3.0)

    def questions(self, item):
        return [self.question("short", "Is it short? {text}", ["1", "2", "3"], text=item.response)]

class Unranged(Short):
    def score_of(self, parts):
        return 1.0
"""


def test_a_judge_of_ones_own_is_found_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_beside.py").write_text(OWN)
    part = 'kind = "judge"\njudge = "own_beside:Short"\noptions.min_mass = 0.0\n'
    told = 'output = "out"\ndata.prompts = ["a"]\nreward.engine.model = "dummy:tiny-llama"\n'
    text = f"{told}[reward.parts.x]\n{part}"
    (tmp_path / "recipe.toml").write_text(text)
    recipe = read_recipe(tmp_path / "recipe.toml", GrpoRecipe)
    assert recipe.reward.own == ("own_beside:Short",)
    reward = recipe.reward.open(recipe.written(), "journal")
    recipe.reward.check([Row("line 1", {"prompt": "a"})])
    [scored] = reward.score_groups([Group("a", ("A text.", "Another."))])
    assert all(value is not None and 0 <= value <= 1 for value in scored.rewards)
    (tmp_path / "recipe.toml").write_text(text.replace("Short", "Unranged"))
    recipe = read_recipe(tmp_path / "recipe.toml", GrpoRecipe)
    with pytest.raises(AdjudgeError, match=r"\[reward.parts.x\] Unranged declares no range"):
        recipe.reward.open(recipe.written(), "journal")


STORIES = (
    OWN
    + """
from adjudge import PointwisePairJudge

class Pairs(PointwisePairJudge):
    pass
"""
)


def test_a_judge_of_ones_own_rewards_stories_if_it_scores_both_by_aspects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_stories.py").write_text(STORIES)
    rewards = {}
    for judge in ("pointwise", "own_stories:Pairs", "own_stories:Short"):
        part = f'kind = "story"\njudge = "{judge}"\naspects = "coherence"\noptions.min_mass = 0.0\n'
        told = 'output = "out"\ndata.prompts = ["a"]\nreward.engine.model = "dummy:tiny-llama"\n'
        (tmp_path / "recipe.toml").write_text(f"{told}[reward.parts.x]\n{part}")
        recipe = read_recipe(tmp_path / "recipe.toml", GrpoRecipe)
        if judge.endswith("Short"):
            with pytest.raises(AdjudgeError, match='of both stories, not "own_stories:Short": name one of these'):
                recipe.reward.open(recipe.written(), "journal")
            continue
        recipe.reward.check([Row("line 1", {"prompt": "a", "reference": "Theirs."})])
        reward = recipe.reward.open(recipe.written(), "journal")
        rewards[judge] = reward.score_groups([Group("a", ("A text.", "Another."), "Theirs.")])[0].rewards
        assert recipe.reward.own == ((judge,) if ":" in judge else ())
    assert rewards["own_stories:Pairs"] == rewards["pointwise"] and None not in rewards["pointwise"]


FUNCTIONS = """
LIMIT = 3

def sea(completions, weight):
    return [one * ("sea" in text) for text, one in zip(completions, weight)]

def turns(prompts, completions):
    return [float(prompt[-1]["role"] == "user" and text[0]["role"] == "assistant")
            for prompt, text in zip(prompts, completions)]

class Sea:
    pass
"""


def test_a_function_of_ones_own_is_a_part_and_a_gate_and_is_found_beside_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_functions.py").write_text(FUNCTIONS)

    def opened(function: str, **told: Any) -> Reward:
        lines = [f"{name} = {json.dumps(value)}" for name, value in told.items()]
        part = "\n".join(['kind = "function"', f'function = "{function}"', *lines])
        gate = 'kind = "function"\nfunction = "own_functions:turns"\nmessages = true'
        text = f'output = "out"\ndata.prompts = ["a"]\n[reward.parts.x]\n{part}\n[reward.gates.y]\n{gate}\n'
        (tmp_path / "recipe.toml").write_text(text)
        recipe = read_recipe(tmp_path / "recipe.toml", GrpoRecipe)
        assert recipe.reward.own == (function, "own_functions:turns")
        return recipe.reward.open(recipe.written(), "journal")

    [scored] = opened("own_functions:sea").score_groups([Group("p", ("The sea.", "A lamp."), columns={"weight": 2.0})])
    assert scored.rewards == (2.0, 0.0) and scored.parts["y"] == (1.0, 1.0)
    for function, message in (
        ("own_functions:lake", "has no lake: it has LIMIT, Sea, sea, turns"),
        ("own_functions:LIMIT", "which is 3: name a function"),
        ("own_functions:Sea", "which is <class .*: name a function"),
        ("own_nowhere:sea", "there is no module own_nowhere"),
        ("sea", 'the function is "sea": write package.module:name'),
    ):
        with pytest.raises(AdjudgeError, match=rf"\[reward.parts.x\] the function is .*{message}|{message}"):
            opened(function)
    with pytest.raises(AdjudgeError, match=r'\[reward.parts.x\] has no field "mesages": did you mean "messages"'):
        opened("own_functions:sea", mesages=True)


NEEDING = """
def needs(prompts, completions, completion_ids, weight, cut=3, **columns):
    return [1.0] * len(completions)

def asks(prompt):
    return []

def held(reference, id):
    return []
"""


@pytest.mark.parametrize("table", ["parts", "gates"])
def test_a_row_without_a_column_that_a_function_must_have_is_found_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    (tmp_path / "own_needing.py").write_text(NEEDING)
    monkeypatch.syspath_prepend(tmp_path)

    def check(name: str, **columns: Any) -> None:
        part = {"kind": "function", "function": f"own_needing:{name}"}
        told = {"parts": {"length": {"kind": "length", "words": [1, 2]}}}
        recipe = tiny_recipe(tmp_path, reward=told | {table: {"x": part}})
        recipe.reward.check([Row("line 7", {"prompt": "a", **columns})])

    check("needs", weight=None)  # as data sets say that a row has none
    check("held", reference="b", id=0)
    for name, lacking, columns in (
        ("needs", "weight", {"year": 1}),
        ("asks", "prompt", {}),
        ("held", "reference", {"reference": "", "id": "b"}),
        ("held", "id", {"reference": "b", "id": None}),
    ):
        message = rf'^line 7: {name} takes "{lacking}", which is no column \(there are: .*\): give the data that column'
        with pytest.raises(AdjudgeError, match=message):
            check(name, **columns)


def test_canaries_are_read_from_a_file_beside_the_recipe(tmp_path: Path) -> None:
    lines = SHIPPED.read_bytes().splitlines(keepends=True)[:3]
    (tmp_path / "canaries.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "recipe.toml").write_text(
        'output = "out"\ndata.prompts = ["a"]\nguards.canaries = "canaries.jsonl"\n'
        'reward.parts.x = {kind = "check", ends_with = ["."]}\n'
    )
    guarded = read_recipe(tmp_path / "recipe.toml", GrpoRecipe).guards.watching(Vowels())
    assert isinstance(guarded, Guarded)
    found = {guard.name: len(guard.canaries) for guard in guarded.guards if hasattr(guard, "canaries")}
    assert found == {"canary": 3, "degenerate": 3, "injection": 3}
    assert json.loads(lines[0])["prompt"] == guarded.guards[1].canaries[0].prompt  # type: ignore[attr-defined]


def test_a_setting_that_a_guard_has_not_is_named_with_those_it_has() -> None:
    with pytest.raises(AdjudgeError, match=r'\[guards.collapse\] has no field "part": did you mean "parts"\?'):
        tiny_recipe(Path(), guards={"collapse": {"part": ["x"]}})
    with pytest.raises(AdjudgeError, match=r"\[guards\] the length guard's limit is nan"):
        watching(length={"limit": float("nan")})
    with pytest.raises(AdjudgeError, match='there is no guard "lengths" to set: choose from length, canary'):
        standard_guards({"lengths": {}})


def test_the_evaluators_collapse_guard_watches_the_scores_that_it_writes() -> None:
    own = {"output": "out", "data": {"prompts": ["a"]}}
    recipe = recipe_of(laid_over(preset_record("evolvr-evaluator"), own), GrpoRecipe, Path())
    reward = recipe.guards.watching(recipe.reward.open(recipe.written(), "journal"))
    wrote = "<ANSWER> 4 </ANSWER> | <ANSWER> 2 </ANSWER>"
    reward.score_groups([Group("p", (wrote, wrote), columns={"score_a": 3, "score_b": 3})])
    assert isinstance(reward, Guarded) and reward.failed == 0
    [collapse] = [guard for guard in reward.guards if isinstance(guard, CollapseGuard)]
    assert list(collapse.scores) == [(4.0, 4.0, 2.0, 2.0)]


def test_what_an_evaluator_writes_is_held_against_the_spread_of_peoples_scores() -> None:
    own = {"output": "out", "data": {"prompts": ["a"]}}
    recipe = recipe_of(laid_over(preset_record("evolvr-evaluator"), own), GrpoRecipe, Path())
    rows = [Row("", {"prompt": "p", "score_a": a, "score_b": b}) for a, b in ((1, 5), (2, 2), (4, "x"), (4, None))]
    told = recipe.guards_over(rows).collapse
    assert (told.reference, told.bins) == ((1, 5, 2, 2, 4, 4), 5)
    assert recipe.guards_over([Row("", {"prompt": "p"})]) == recipe.guards
    with pytest.raises(AdjudgeError, match="all rows have the same score, 2: there is nothing to learn"):
        recipe.guards_over(rows[1:2])
    for other in ({"collapse": {"reference": [1, 5]}}, {"collapse": {"parts": ["accuracy"]}}, {"use": ["length"]}):
        told = recipe_of(laid_over(preset_record("evolvr-evaluator"), own | {"guards": other}), GrpoRecipe, Path())
        assert told.guards_over(rows) == told.guards


def evaluator(**tables: Any) -> GrpoRecipe:
    """The preset's recipe, with `tables` laid over it."""
    own = {"output": "out", "data": {"prompts": ["a"]}} | tables
    return recipe_of(laid_over(preset_record("evolvr-evaluator"), own), GrpoRecipe, Path())


def scored(*scores: Any) -> list[Row]:
    return [Row("", {"prompt": "p", "score_a": score, "score_b": score}) for score in scores]


def test_an_evaluator_that_writes_the_nearest_labels_of_averaged_scores_has_not_collapsed() -> None:
    thirds = [1 + number / 3 for number in range(13)]
    recipe = evaluator()
    reward = recipe.guards_over(scored(*thirds)).watching(recipe.reward.open(recipe.written(), "journal"))
    assert isinstance(reward, Guarded)
    groups = [
        Group("p", (f"<ANSWER> {round(y)} </ANSWER> | <ANSWER> {round(y)} </ANSWER>",) * 4, columns=row.columns)
        for y, row in zip(thirds, scored(*thirds), strict=True)
    ]
    reward.score_groups(groups)
    assert reward.metrics["guards/collapse/loss"] == pytest.approx(0) and reward.failed == 0
    assert recipe.guards_over(scored(2.5, 4)).collapse.reference == (2, 2, 4, 4)
    assert recipe.guards_over(scored(2.5, 4)).collapse.bins == 3
    with pytest.raises(AdjudgeError, match="all rows have the same score, 3: there is nothing to learn"):
        recipe.guards_over(scored(2.75, 3.25))


def test_scores_of_a_csv_file_are_texts() -> None:
    assert evaluator().guards_over(scored("2", "4.4", "", "good")).collapse.reference == (2, 2, 4, 4)


@pytest.mark.parametrize("named", ["", "reward/"])
@pytest.mark.parametrize("gates", [{}, {"format": {"kind": "format"}}])
def test_the_collapse_guard_finds_its_parts_behind_gates_and_without(named: str, gates: dict[str, Any]) -> None:
    parts = [f"{named}accuracy/score/score_{side}" for side in "ab"]
    recipe = evaluator(reward={"gates": gates}, guards={"collapse": {"parts": parts}})
    guards = recipe.guards_over(scored(1, 5))
    reward = guards.watching(recipe.reward.open(recipe.written(), "journal"))
    wrote = "<think>x</think><answer>4</answer>"
    reward.score_groups([Group("p", (wrote, wrote), columns={"score_a": 3, "score_b": 3})])
    assert isinstance(reward, Guarded) and reward.failed == 0
    assert guards.collapse.reference == (1, 1, 5, 5)


@pytest.mark.parametrize("part", ["accuracy/score/score_c", "acuracy", "accuracy/scores", "reward", "format"])
def test_a_part_that_the_reward_has_not_is_refused_before_the_run(part: str) -> None:
    recipe = evaluator(guards={"collapse": {"parts": [part]}})
    with pytest.raises(
        AdjudgeError, match=rf'\[guards.collapse\] the reward has no part "{part}": choose from accuracy'
    ):
        recipe.guards_over(scored(1, 5))
    assert recipe.guards_over(scored(1, 5), own=False) == recipe.guards


def test_what_a_judge_says_of_itself_is_not_known_before_and_gates_and_trends_are_parts() -> None:
    judge = {"kind": "judge", "judge": "pointwise"}
    reward: dict[str, Any] = {"parts": {"story": judge}, "gates": {"format": {"kind": "format"}}}
    reward |= {"journal": True, "length_free": {}}
    parts = ["story/coherence", "format", "reward", "length_trend"]
    told = tiny_recipe(Path(), reward=reward, guards={"use": ["collapse"], "collapse": {"parts": parts}})
    assert told.guards_over([]).collapse.parts == ("reward/story/coherence", *parts[1:])
