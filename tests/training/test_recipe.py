from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.guarded import STANDARD, Guarded
from adjudge.training.evaluator.recipe import DirectRecipe, JudgeOptimiser, PreferenceRecipe
from adjudge.training.grpo.recipe import GrpoOptimiser, GrpoRecipe, batch_of
from adjudge.training.house.recipe import HouseRecipe
from adjudge.training.recipe import laid_over, read_recipe, recipe_of
from adjudge.training.sft_recipe import SftOptimiser, SftRecipe
from tests.training.runs import Vowels, tiny_recipe

WHOLE = """
output = "out"
[data]
train = "prompts.jsonl"
[reward.parts.ends]
kind = "check"
ends_with = ["."]
"""


def written(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_recipe(tmp_path: Path) -> None:
    text = WHOLE + (
        '[reward.parts.graded]\nkind = "judge"\njudge = "rubric"\n'
        'options = {rubric = "rubric.toml"}\nengine = {model = "./judge"}\n'
    )
    text = text.replace('"prompts.jsonl"', '"prompts.jsonl"\nheld_out = "others.jsonl"')
    recipe = read_recipe(written(tmp_path, 'policy.model = "./policy"\n' + text), GrpoRecipe)
    assert recipe.output == str(tmp_path / "out")
    assert (recipe.data.train, recipe.data.held_out) == (
        str(tmp_path / "prompts.jsonl"),
        str(tmp_path / "others.jsonl"),
    )
    assert recipe.policy.model == str(tmp_path / "policy")
    above = read_recipe(written(tmp_path / "recipes", 'policy.model = "../policy"\n' + text), GrpoRecipe)
    assert above.policy.model == recipe.policy.model
    graded = recipe.reward.parts["graded"]
    assert graded.options["rubric"] == str(tmp_path / "rubric.toml")  # type: ignore[union-attr]
    assert graded.engine.model == str(tmp_path / "judge")  # type: ignore[union-attr]
    record = {"output": "out", "data": {"prompts": ["a"]}, "reward": {"parts": {}}, "guards": {"canaries": "c.jsonl"}}
    assert recipe_of(record, GrpoRecipe, tmp_path).guards.canaries == str(tmp_path / "c.jsonl")
    nobodys = written(tmp_path, WHOLE + '[guards]\ncanaries = "~nobody_at_all/c.jsonl"\n')
    with pytest.raises(AdjudgeError, match=r"^recipe\.toml: '~nobody_at_all/c\.jsonl' names no file"):
        read_recipe(nobodys, GrpoRecipe)


def test_a_recipe_that_says_nothing_of_guards_has_the_standard_ones(tmp_path: Path) -> None:
    watched = read_recipe(written(tmp_path, WHOLE), GrpoRecipe).guards.watching(Vowels())
    assert isinstance(watched, Guarded) and [guard.name for guard in watched.guards] == list(STANDARD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            WHOLE + "[optimiser]\nlearning_rate = 1",
            r'^recipe.toml: \[optimiser\] has no field "learning_rate": .* lr, .*; adjudge train fields grpo says what',
        ),
        (WHOLE + "[optimiser]\nepsilan = 1", r'\[optimiser\] has no field "epsilan": did you mean "epsilon"\?'),
        (WHOLE + 'mention = ["a"]', r'\[reward.parts.ends\] has no field "mention": did you mean "mentions"\?'),
        (WHOLE + "[optimizer]\nlr = 1", r'a recipe of this kind has no field "optimizer": did you mean "optimiser"\?'),
        (WHOLE.replace('"out"', '""'), r'^recipe.toml: output is "": name a file or folder'),
        (WHOLE + '[guards]\ncanaries = ""', r'^recipe.toml: \[guards\] canaries is "": name a file or folder'),
        (
            WHOLE + '[reward.parts.x]\nkind = "judge"\njudge = "pointwise"\nengine.adapter = ""',
            r'^recipe.toml: \[reward.parts.x.engine\] adapter is "": name a file or folder',
        ),
        (WHOLE + "[optimiser]\nlr = -1", r"\[optimiser\] lr: expected float > 0"),
        (WHOLE + "[generation]\ngroup = 1", r"\[generation\] group: expected int >= 2"),
        (WHOLE + "[generation]\ngroup = 1000000000000", r"\[generation\] group: expected int <= 65536"),
        (WHOLE + "[optimiser]\nprompts_per_step = 100000", r"\[optimiser\] prompts_per_step: expected int <= 65536"),
        (WHOLE + "[optimiser]\nepochs = 1e308", r"\[optimiser\] epochs: expected float <= 10000"),
        (WHOLE + "[optimiser]\nsteps = 1000000000000", r"\[optimiser\] steps: expected int <= 1000000"),
        (WHOLE + f"[guards.length]\nwindow = {2**63}", r"\[guards.length\] window: expected int <= 1000000000"),
        (WHOLE + f"[guards.collapse]\nwindow = {2**63}", r"\[guards.collapse\] window: expected int <= 1000000000"),
        (WHOLE + "[guards.collapse]\nbins = 1000000000000", r"\[guards.collapse\] bins: expected int <= 10000"),
        (WHOLE + "[optimiser]\nsteps = 1\nepochs = 1", r"\[optimiser\] has both steps and epochs: give one"),
        (WHOLE + '[policy]\nmethod = "qlora"', r"\[policy\] method: invalid enum value 'qlora': choose full, lora"),
        (
            WHOLE.replace('"check"', '"vibes"'),
            r'\[reward.parts.ends\] kind is "vibes": write one of judge, tournament, ',
        ),
        (
            WHOLE.replace('kind = "check"', ""),
            r"\[reward.parts.ends\] kind is missing: write one of judge, tournament, ",
        ),
        (
            WHOLE.replace('"check"', '["check"]'),
            r"\[reward.parts.ends\] kind is \['check'\]: write one of judge, tournament, ",
        ),
        (
            WHOLE + "[reward.gates.x]\nkind = {a = 1}",
            r"\[reward.gates.x\] kind is {'a': 1}: write one of judge, tournament, ",
        ),
        (WHOLE + 'weight = "much"', r"\[reward.parts.ends\] weight: expected float, got str"),
        (
            "writes = true\n" + WHOLE,
            'has no field "writes": .* it has output, .*, logging, data,',
        ),
        (WHOLE.replace('train = "prompts.jsonl"', ""), r'\[data\] needs either train = "prompts.jsonl" or prompts'),
        (WHOLE.replace('output = "out"', ""), 'output is missing: name the run.s folder, as in output = "out/run"'),
        ('output = "o"\ndata.prompts = ["a"]', r"\[reward\] is missing: say what is paid for, as in \[reward.parts."),
        (
            WHOLE + '[reward.parts.n]\nkind = "length"',
            r"\[reward.parts.n\] words is missing: give it; .* train fields grpo says",
        ),
        ('preset = "qrl"\n' + WHOLE, 'there is no preset "qrl": choose .*evolvr-story.*qurl'),
        (WHOLE + "[logging]\nsave_every = 3\n[optimiser]\niterations = 2", "save_every is 3, which is no multiple of"),
        (WHOLE + "[logging]\nevery = 4\nsave_every = 6", r"save_every is 6, which is no multiple of every \(4\)"),
        (WHOLE + "[policy.lora]\nrank = 16", r'\[policy.lora\] is for method "lora", .*: set method = "lora"'),
        ("output = ", r"recipe.toml is not TOML \("),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_mend(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        read_recipe(written(tmp_path, text), GrpoRecipe)


IMITATED = 'output = "o"\n[data]\ntrain = "a"\nheld_out = 1'
PREFERRED = 'output = "o"\n[data]\ntrain = "a"\nheld_out = 0.5'
SCORED = PREFERRED + '\n[scores]\ncolumn = "c"'


@pytest.mark.parametrize(
    ("text", "kind", "command"),
    [
        (WHOLE, SftRecipe, "grpo"),
        (WHOLE, HouseRecipe, "grpo"),
        ('preset = "igniting"', DirectRecipe, "grpo"),
        (SCORED, PreferenceRecipe, "direct"),
        (SCORED, GrpoRecipe, "direct"),
        (IMITATED, HouseRecipe, "sft"),
        (PREFERRED, HouseRecipe, "reward"),
        ('output = "o"\n[[sources]]\npath = "s"\nlicence = "MIT"\nattribution = "a"', DirectRecipe, "house"),
    ],
)
def test_a_recipe_of_another_command_is_told_from_a_mistake(tmp_path: Path, text: str, kind: Any, command: str) -> None:
    with pytest.raises(AdjudgeError, match=f"this looks like a recipe of adjudge train {command}"):
        read_recipe(written(tmp_path, text), kind)


def test_what_a_judge_s_recipe_lacks_is_named_with_its_mend(tmp_path: Path) -> None:
    told = 'people\'s scores, as in [scores] columns = {quality = "human"}'
    with pytest.raises(AdjudgeError, match=re.escape(told)):
        read_recipe(written(tmp_path, PREFERRED), DirectRecipe)
    for share in ("2", "-0.5", "true", "[0.2]"):
        text = SCORED.replace("0.5", share)
        with pytest.raises(AdjudgeError, match=r"held_out: .*: write a share of the prompts, such as 0.2, or name a"):
            read_recipe(written(tmp_path, text), DirectRecipe)


@pytest.mark.parametrize(
    ("kind", "tables", "told"),
    [
        (
            SftRecipe,
            {"select": {"above": 3}},
            "[select] column is missing: give it; adjudge train fields sft says what",
        ),
        (
            HouseRecipe,
            {"sources": [{"path": "s", "licence": "MIT", "attribution": "a"}, {"licence": "MIT"}]},
            "[[sources]] (2) path is missing: give it; adjudge train fields house says what it is",
        ),
        (HouseRecipe, {"sources": [{"path": 5}]}, "[[sources]] (1) path: expected str, got int"),
        (HouseRecipe, {"sources": ["s"]}, "[[sources]] (1): expected object, got str"),
        (
            HouseRecipe,
            {"sources": [{"path": "s", "license": "MIT"}]},
            '[[sources]] (1) has no field "license": did you',
        ),
        (
            GrpoRecipe,
            {"reward": {"parts": {"x": {"kind": "function"}}}},
            "[reward.parts.x] function is missing: give it; adjudge train fields grpo says what it is",
        ),
        (
            SftRecipe,
            {"data": {"prompts": ["a"], "held_out": True}},
            "held_out: expected int | str, got bool: write how",
        ),
    ],
)
def test_what_is_amiss_in_a_table_is_told_as_toml_writes_it_and_with_what_explains_it(
    kind: type[Any], tables: dict[str, Any], told: str
) -> None:
    usual = {} if kind is HouseRecipe else {"data": {"prompts": ["a"]}}
    with pytest.raises(AdjudgeError, match=f"^.*{re.escape(told)}"):
        recipe_of({"output": "out", **usual, **tables}, kind, Path())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[reward]\nshut = -3", r"\[reward\] shut is what a shut gate pays, .*: add \[reward.gates.NAME\]"),
        ('[reward.engine]\nmodel = "m"', r"\[reward\] engine is for judges, and no part has one: leave it out"),
        ("[reward]\ndeadline = 1.0", r"\[reward\] deadline is for judges and functions, and no part .*: leave"),
        ('[reward]\non_failure = "abstain"', r"\[reward\] on_failure is for judges and functions, and no"),
        ("[reward]\nsleep = true", r"\[reward\] sleep is for judges, and no part has one: leave it out"),
        (
            '[reward.parts.best]\nkind = "tournament"\nk = 2',
            r"\[reward.parts.best\] k is for pairings that leave some out, .*: set pairing",
        ),
        (
            '[guards]\nuse = ["length"]\n[guards.canary]\ndrift = 0.1',
            r'\[guards.canary\] is of a guard that is not in use: add "canary" to use',
        ),
        ("[guards]\nuse = []\nevery = 3", r"\[guards\] every is for guards that put .*, and none is in use: name some"),
        ('[guards]\nuse = ["length"]\ncanaries = "c"', r"\[guards\] canaries is for .*: name some of canary, deg"),
        ('[guards]\nuse = ["collapse"]\nform = "{text}"', r"\[guards\] form is for .* in use, or leave form out"),
        (
            "[generation]\nvllm_memory = 0.5",
            r'\[generation\] vllm_memory is for engine "vllm", .*: set engine = "vllm"',
        ),
        (
            '[data]\nprompts = ["a"]\ncolumns = {reference = "ref"}',
            r"\[data\] columns renames those of a file, .*: leave columns out",
        ),
        (
            "[data]\nheld_out = 0.2",
            r"\[data\] held_out: expected int .*, got float: write how many rows, or name a file",
        ),
        ("[optimiser]\nsteps = 1.5", r"\[optimiser\] steps: expected .*, got float: write a whole number"),
    ],
)
def test_what_nothing_would_come_of_is_refused(tmp_path: Path, text: str, message: str) -> None:
    whole = WHOLE.replace('train = "prompts.jsonl"\n', "") if "prompts =" in text else WHOLE
    whole = whole.replace("[data]", text) if text.startswith("[data]") else whole + text
    with pytest.raises(AdjudgeError, match=message):
        read_recipe(written(tmp_path, whole), GrpoRecipe)


def test_what_a_setting_is_for_may_come_from_a_preset_and_the_other_way_round(tmp_path: Path) -> None:
    gates = '[reward.gates.form]\nkind = "format"\n[reward]\nshut = -1.0\n'
    assert read_recipe(written(tmp_path, WHOLE + gates), GrpoRecipe).reward.shut == -1.0
    own = 'preset = "qurl"\noutput = "out"\n[data]\nprompts = ["a"]\n[guards]\nuse = []'
    assert read_recipe(written(tmp_path, own), GrpoRecipe).guards.use == ()


@pytest.mark.parametrize(
    ("kind", "table", "message"),
    [
        (SftRecipe, {"optimiser": {"epochs": 1e308}}, r"\[optimiser\] epochs: expected float <= 10000"),
        (SftRecipe, {"optimiser": {"rows_per_step": 10**12}}, r"\[optimiser\] rows_per_step: expected int <= 65536"),
        (HouseRecipe, {"optimiser": {"rows_per_step": 10**12}}, r"\[optimiser\] rows_per_step: expected int <= 65536"),
        (HouseRecipe, {"excerpts": {"count": 10**12}}, r"\[excerpts\] count: expected int <= 1000000"),
    ],
)
def test_a_number_that_nothing_could_be_laid_out_for_is_one_sentence(
    tmp_path: Path, kind: type[Any], table: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        recipe_of({"output": "out", **table}, kind, tmp_path)


@pytest.mark.parametrize("kind", [SftRecipe, DirectRecipe, PreferenceRecipe, HouseRecipe])
def test_no_recipe_saves_between_two_lines_of_its_metrics(kind: Any) -> None:
    own: dict[str, Any] = {
        SftRecipe: {"data": {"prompts": ["a"]}},
        DirectRecipe: {"scores": {"column": "ratings"}},
        PreferenceRecipe: {},
        HouseRecipe: {"sources": [{"path": "texts", "licence": "CC0-1.0", "attribution": "ours"}]},
    }[kind]
    assert recipe_of({"output": "out", **own, "logging": {"every": 25}}, kind, Path()).logging.save_every == 50
    with pytest.raises(AdjudgeError, match=r"save_every is 50, which is no multiple of every \(3\): .* make it one"):
        recipe_of({"output": "out", **own, "logging": {"every": 3}}, kind, Path())


def test_a_preset_of_another_command_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    text = 'preset = "evolvr-evaluator-sft"\noutput = "out"\n[data]\nprompts = ["a"]'
    with pytest.raises(AdjudgeError, match='preset "evolvr-evaluator-sft" is for another command than this'):
        read_recipe(written(tmp_path, text), GrpoRecipe)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="cannot read .*absent.toml .No such file"):
        read_recipe(tmp_path / "absent.toml", GrpoRecipe)


def test_a_recipe_is_laid_over_its_preset_table_by_table(tmp_path: Path) -> None:
    text = (
        'preset = "qurl"\noutput = "out"\n[data]\nprompts = ["a"]\n[optimiser]\nsteps = 3\n[generation]\nmax_tokens = 9'
    )
    recipe = read_recipe(written(tmp_path, text), GrpoRecipe)
    assert (recipe.optimiser.steps, recipe.optimiser.epochs) == (3, None)
    assert (recipe.optimiser.lr, recipe.generation.group, recipe.generation.max_tokens) == (1e-6, 8, 9)
    assert list(recipe.reward.parts) == ["rubric"] and list(recipe.reward.gates) == ["format"]
    assert laid_over({"a": {"b": 1, "c": 2}, "d": 1}, {"a": {"b": 3}, "d": {}}) == {"a": {"b": 3, "c": 2}, "d": {}}


def test_the_table_of_an_adapter_may_come_from_a_preset_whose_method_is_another(tmp_path: Path) -> None:
    text = 'preset = "igniting-reward"\noutput = "out"\n[data]\ntrain = "pairs.jsonl"\n[policy]\nmethod = "full"\n'
    path = written(tmp_path, text)
    assert read_recipe(path, PreferenceRecipe).policy.method == "full"
    with pytest.raises(AdjudgeError, match=r"\[policy.lora\] is for method"):
        read_recipe(written(tmp_path, text + "[policy.lora]\nrank = 4\n"), PreferenceRecipe)
    path = written(tmp_path, text.replace("full", "lora") + "[policy.lora]\nrank = 4\n")
    assert read_recipe(path, PreferenceRecipe).policy.lora.rank == 4


def test_completions_are_kept_of_a_policy_that_writes_alone(tmp_path: Path) -> None:
    more = "[logging]\ncompletions = true\n"
    assert read_recipe(written(tmp_path, WHOLE + more), GrpoRecipe).logging.completions
    text = 'output = "out"\n[data]\ntrain = "rows.jsonl"\n'
    for kind, own in ((SftRecipe, ""), (PreferenceRecipe, ""), (DirectRecipe, '[scores]\ncolumn = "ratings"\n')):
        with pytest.raises(AdjudgeError, match=r"\[logging\] completions keeps what a policy writes, which train grpo"):
            read_recipe(written(tmp_path, text + own + more), kind)
    old = {"output": "out", "logging": {"completions": True}}  # as records of earlier runs may say
    assert msgspec.convert(old, PreferenceRecipe).logging.completions


def test_steps_count_prompts_and_iterations() -> None:
    assert GrpoOptimiser(prompts_per_step=4).count(10) == 2
    assert GrpoOptimiser(prompts_per_step=4, epochs=5.0).count(10) == 12
    assert GrpoOptimiser(prompts_per_step=4, epochs=5.0, iterations=2).count(10) == 24
    assert GrpoOptimiser(prompts_per_step=64).count(10) == 1
    assert GrpoOptimiser(steps=7).count(10) == 7
    assert GrpoOptimiser(prompts_per_step=1, epochs=0.29).count(100) == 29
    assert GrpoOptimiser(prompts_per_step=5, epochs=1.15).count(100) == 23
    assert SftOptimiser(rows_per_step=10, epochs=1.1).count(100) == 11
    assert SftOptimiser(rows_per_step=10, epochs=2.2).count(50) == 11


@pytest.mark.parametrize(("rows", "processes", "at_once"), [(2, 1, 2), (3, 1, 3), (6, 1, 3), (16, 1, 4), (4, 2, 2)])
def test_as_many_rows_go_through_a_judge_at_once_as_share_a_step_evenly(
    rows: int, processes: int, at_once: int
) -> None:
    judge = JudgeOptimiser(rows_per_step=rows)
    assert judge.at_once(processes) == at_once and judge.parts(processes) == rows // processes // at_once
    assert SftOptimiser(rows_per_step=rows).at_once(processes) == 1
    with pytest.raises(AdjudgeError, match="micro_batch is 5, which does not divide"):
        JudgeOptimiser(rows_per_step=rows, micro_batch=5)


@pytest.mark.parametrize("path", ["~nosuchuser/out", "a\0b", "no-utf8-\udcff"])
def test_a_path_that_cannot_be_is_a_mistake(path: str, tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="names no file"):
        tiny_recipe(tmp_path, output=path)
    with pytest.raises(AdjudgeError, match="names no file"):
        tiny_recipe(tmp_path).changed(None, Path(path))


def test_a_step_is_spread_evenly_over_processes_or_refused(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, generation={"group": 6}, optimiser={"prompts_per_step": 4})
    assert [(batch.micro, batch.accumulate) for batch in (batch_of(recipe, count) for count in (1, 2, 3))] == [
        (8, 3),
        (6, 2),
        (8, 1),
    ]
    with pytest.raises(AdjudgeError, match="4 prompts of 6 completions, which 5 processes cannot share evenly"):
        batch_of(recipe, 5)
    odd = tiny_recipe(tmp_path, optimiser={"micro_batch": 3})
    with pytest.raises(
        AdjudgeError, match=r"micro_batch is 3, but a process has 4 completions a step: give one of 1, 2"
    ):
        batch_of(odd, 1)


def test_a_recipe_of_another_kind_is_refused() -> None:
    with pytest.raises(AdjudgeError, match="parts: expected object, got array"):
        recipe_of({"output": "o", "data": {"prompts": ["a"]}, "reward": {"parts": []}}, GrpoRecipe, Path())
