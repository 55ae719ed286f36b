from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest

pytest.importorskip("trl", reason="needs the extra train")

import torch
from safetensors.torch import load_file

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import open_source, resolve
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of, pair_of
from adjudge.training.evaluator.direct import SlotTask, train_direct
from adjudge.training.evaluator.questions import rated_rows
from adjudge.training.evaluator.recipe import DirectRecipe
from adjudge.training.evaluator.split import read_split
from adjudge.training.metrics import read_metrics
from adjudge.training.run import Run
from tests.training.evaluator.rated import STORIES, direct_recipe, prepared_aspects
from tests.training.runs import KillAfter, Killed, curve

TWO = {"judge": {"options": {"aspects": "wit=Is it funny?,grip=Does it hold one?"}}}


def last(run: Run) -> dict[str, Any]:
    return [line for line in read_metrics(run.folder.metrics) if line["split"] == "held_out"][-1]


def people(recipe: DirectRecipe) -> list[float]:
    """People's mean scores of the held-out rows, by aspect and side."""
    rated = rated_rows(read_split(recipe.data, recipe.seed).held_out, recipe.judge, recipe.scores)
    return [sum(p * (k + 1) for k, p in enumerate(target)) for one in rated for target in one.targets.values()]


def test_scores_are_learnt_and_the_engine_serves_what_was_trained_without_writing(tmp_path: Path) -> None:
    rows = [{**row, "ratings": {**row["ratings"], "grip": [1, 2 + n % 4]}} for n, row in enumerate(STORIES)]
    recipe = direct_recipe(tmp_path, rows, **TWO, optimiser={"steps": 12})
    run = train_direct(recipe)
    assert run.before is not None and run.after is not None and run.after < run.before - 0.5
    engine = Engine("dummy:tiny-llama", adapter=run.folder.policy, kv_cache_gb=0.05)
    aspects = PointwiseJudge(engine, prepared_aspects(recipe), min_mass=0)
    held_out = read_split(recipe.data, recipe.seed).held_out
    verdicts = aspects.judge([item_of(row, 1) for row in held_out])
    scores = [part.score for verdict in verdicts for part in verdict.breakdown.values()]
    measured = last(run)
    error = fmean(abs(score - said) for score, said in zip(scores, people(recipe), strict=True) if score is not None)
    assert error == pytest.approx(measured["error"], abs=1e-4) and len(scores) == 2 * len(held_out)
    assert min(verdict.mass or 0 for verdict in verdicts) == pytest.approx(measured["mass_least"], abs=1e-4)
    assert engine.stats.tokens_computed and measured["entropy_known"] > 0


def test_what_is_minimised_is_what_is_measured(tmp_path: Path) -> None:
    rows = [
        {**row, "ratings": {"wit": row["ratings"]["Wit"], "grip": 1.5} if n % 2 else {"wit": 2}}
        for n, row in enumerate(STORIES)
    ]
    recipe = direct_recipe(tmp_path, rows, **TWO, optimiser={"mass": 0.7})
    rated = rated_rows(read_split(recipe.data, 0).train, recipe.judge, recipe.scores)
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    task = SlotTask(recipe, opened, recipe.optimiser, [(recipe.judge, rated[:3], rated[3:8])])
    assert [len(example.slots) for example in task.held_out] != [2] * 5
    batch = task.batch(task.held_out)
    with torch.no_grad():
        loss, answers = task.loss(opened.model, batch), task.answers(opened.model, batch)
    measures = task.measures(task.held_out, answers)
    assert measures["loss"] == pytest.approx(float(loss), abs=1e-4)
    crossed = [
        -sum(t * math.log(p) for t, p in zip(slot.target, answer.probabilities, strict=True))
        - 0.7 * math.log(answer.mass)
        for slot, answer in zip(task.held_out[0].slots, answers[0], strict=True)
    ]
    alone = task.measures(task.held_out[:1], answers[:1])["loss"]
    assert alone == pytest.approx(fmean(crossed), abs=1e-6)


def test_gaps_between_texts_learnt_together_count_as_much_as_the_recipe_says(tmp_path: Path) -> None:
    rows = [{**row, "together": row["prompt"]} for row in STORIES[:12]]
    recipe = direct_recipe(tmp_path, rows, **TWO | {"scores": {"columns": {"wit": "wit", "grip": "grip"}}})
    rows = [{**row, "wit": 1 + n % 5, "grip": 2 + n % 2} for n, row in enumerate(rows)]
    rated = rated_rows([Row("x", row) for row in rows], recipe.judge, recipe.scores)
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    losses = []
    for gap in (0.0, 0.7):
        how = msgspec.structs.replace(recipe.optimiser, gap=gap)
        task = SlotTask(recipe, opened, how, [(recipe.judge, rated, rated[:3])])
        with torch.no_grad():
            batch = task.batch(task.train)
            losses.append(float(task.loss(opened.model, batch)))
            answers = task.answers(opened.model, batch)
        measures = task.measures(task.train, answers)
        assert measures["loss"] == pytest.approx(losses[-1], abs=1e-4)
    squared, right = [], []
    for example, given in zip(task.train, answers, strict=True):
        slots = list(zip(example.slots, given, strict=True))
        gaps = [
            ((a.score - b.score), (one.score - other.score))
            for place, (one, a) in enumerate(slots)
            for other, b in slots[place + 1 :]
            if one.aspect == other.aspect
        ]
        assert len(gaps) == 2
        squared.append(fmean((found - said) ** 2 for found, said in gaps))
        right += [found * said > 0 for found, said in gaps if said]
    assert losses[1] - losses[0] == pytest.approx(0.7 * fmean(squared), abs=1e-4)
    assert measures["order"] == fmean(right) and 0 < len(right) < 2 * len(squared) + 1


def test_a_finished_run_goes_on_to_more_steps_as_one_of_so_many_would_have(tmp_path: Path) -> None:
    whole = train_direct(direct_recipe(tmp_path / "whole", optimiser={"steps": 3}))
    short = train_direct(direct_recipe(tmp_path / "short", optimiser={"steps": 2}))
    longer = train_direct(direct_recipe(tmp_path / "short", optimiser={"steps": 3}), resume=True)
    assert (short.step, longer.step, longer.after) == (2, 3, whole.after)
    lines, expected = ([line for line in curve(run.folder) if line["split"] == "train"] for run in (longer, whole))
    for line in (*lines, *expected):
        line.pop("epoch", None)  # which is rounded by how many steps there are
    assert lines == expected and len(lines) == 3
    one, other = (load_file(run.folder.policy / "adapter_model.safetensors") for run in (whole, longer))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_where_sentences_stand_counts_as_much_as_the_recipe_says(tmp_path: Path) -> None:
    text = "It rained. Ann ran — home.  She slept."
    places = [[10, True], [26, False], [len(text), True]]
    rows = [{**row, "response": text + row["response"], "places": places[: n % 4]} for n, row in enumerate(STORIES[:6])]
    recipe = direct_recipe(tmp_path)
    rated = rated_rows([Row("x", {**row, "together": row["prompt"]}) for row in rows], recipe.judge, recipe.scores)
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    kept: list[torch.Tensor] = []
    opened.model.model.layers[0].register_forward_hook(lambda module, args, output: kept.append(output))
    losses, odds = [], []
    for share in (0.0, 0.7):
        how = msgspec.structs.replace(recipe.optimiser, places=share)
        task = SlotTask(recipe, opened, how, [(recipe.judge, rated, rated)])
        kept.clear()
        with torch.no_grad():
            losses.append(float(task.loss(opened.model, batch := task.batch(task.train))))
            measures = task.measures(task.held_out, task.answers(opened.model, batch))  # of the same rows
        assert measures["loss"] == pytest.approx(losses[-1], abs=1e-4)
    labels = task.train[0].slots[0].labels
    best, worst = (opened.model.lm_head.weight[label[0]] for label in (labels[-1], labels[0]))
    for row, place, in_place in batch["sentences"].tolist():
        logit = float(opened.model.model.norm(kept[0][row, place]) @ (best - worst))
        odds.append(logit if in_place else -logit)
    assert len(odds) > 4
    taken = batch["sentences"][:, 0].tolist()  # a row is an example here, and counts as much as any other
    shares = [1 / taken.count(row) / len(task.train) for row in taken]
    missed = math.fsum(share * math.log1p(math.exp(-one)) for share, one in zip(shares, odds, strict=True))
    assert losses[1] - losses[0] == pytest.approx(0.7 * missed, abs=1e-5)
    for slot in (slot for example in task.train for slot in example.slots):
        for (end, in_place), (token, kept) in zip(places, slot.sentences, strict=False):
            assert opened.tokenizer.decode(slot.tokens[: token + 1]).endswith(text[:end]) and kept == in_place


def test_examples_that_go_through_the_model_together_are_learnt_as_each_by_itself(tmp_path: Path) -> None:
    rows = [
        {
            **row,
            "response": f"It rained {n * ' so'}. Ann ran.",
            "places": [[10, True], [20 + 3 * n, False]],
            "together": n // 2,
        }
        for n, row in enumerate(STORIES[:8])
    ]
    recipe = direct_recipe(tmp_path)
    rated = rated_rows([Row("x", row) for row in rows], recipe.judge, recipe.scores)
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    how = msgspec.structs.replace(recipe.optimiser, gap=1.0)
    for places in (0.0, 0.7):
        task = SlotTask(recipe, opened, msgspec.structs.replace(how, places=places), [(recipe.judge, rated, rated)])
        batch = task.batch(task.train)
        with torch.no_grad():
            together = float(task.loss(opened.model, batch))
            alone = [float(task.loss(opened.model, task.batch([example]))) for example in task.train]
            answers = task.answers(opened.model, batch)
            by_itself = [task.answers(opened.model, task.batch([example]))[0] for example in task.train]
        assert len(alone) > 3 and together == pytest.approx(fmean(alone), abs=1e-4)
        for one, other in zip(answers, by_itself, strict=True):
            assert [answer.score for answer in one] == pytest.approx([answer.score for answer in other], abs=1e-4)


def test_pairs_are_learnt_in_both_orders_each_story_at_its_own_slot(tmp_path: Path) -> None:
    rows = [
        {
            "prompt_a": f"p{n}",
            "prompt_b": f"p{n}",
            "story_a": "dull " * 3,
            "story_b": "great " * 3,
            "wit_a": 1,
            "wit_b": 5 if n % 2 else 4.5,
        }
        for n in range(10)
    ]
    tables = {"judge": {"name": "pairwise"}, "scores": {"columns": {"wit": "wit"}}, "policy": {"method": "full"}}
    recipe = direct_recipe(tmp_path, rows, **tables, optimiser={"steps": 3, "rows_per_step": 2})
    run = train_direct(recipe)
    judge = PairwiseJudge(Engine(str(run.folder.policy), kv_cache_gb=0.05), prepared_aspects(recipe), min_mass=0)
    held_out = read_split(recipe.data, recipe.seed).held_out
    prompts = [prompt for row in held_out for prompt in judge.prompts(pair_of(row, 1))[0]]
    scores = [score.expected for score in judge.engine.score(prompts, judge.ask(pair_of(held_out[0], 1))[0][0].labels)]
    said = [row.columns[f"wit_{side}"] for row in held_out for side in "abba"]
    error = fmean(abs(score - one) for score, one in zip(scores, said, strict=True) if score is not None)
    assert error == pytest.approx(last(run)["error"], abs=1e-4)


def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    tables = {
        "policy": {"lora": {"dropout": 0.2}},
        "optimiser": {"steps": 4},
        "logging": {"evaluate_every": 3, "save_every": 2},
    }
    whole = train_direct(direct_recipe(tmp_path / "whole", **tables))
    recipe = direct_recipe(tmp_path / "killed", **tables)
    with pytest.raises(Killed):
        train_direct(recipe, callbacks=[KillAfter(3)])
    resumed = train_direct(recipe, resume=True)
    assert curve(resumed.folder) == curve(whole.folder) and len(curve(whole.folder)) == 7
    one, other = (
        torch.load(run.folder.path / "checkpoint-4" / "optimizer.pt", weights_only=True)["state"]
        for run in (whole, resumed)
    )
    assert all(torch.equal(one[key]["exp_avg"], other[key]["exp_avg"]) for key in one)
    names = [run.folder.policy / "adapter_model.safetensors" for run in (whole, resumed)]
    assert names[0].read_bytes() == names[1].read_bytes()


def test_micro_batches_and_checkpointing_change_memory_and_time_alone(tmp_path: Path) -> None:
    hows = {"one": {"micro_batch": 1}, "four": {"micro_batch": 4, "gradient_checkpointing": True}}
    runs = [train_direct(direct_recipe(tmp_path / name, optimiser={"steps": 2, **how})) for name, how in hows.items()]
    one, four = (last(run)["loss"] for run in runs)
    assert one == pytest.approx(four, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"ratings": {"wit": 6}},
            "line 1 of rows.jsonl: wit: a score is 6, outside 1 to 5: .* say the data.s own: .scores. scale = ",
        ),
        ({"ratings": {"wit": [1, "x"]}}, r'"ratings: wit" is \[1, "x"\], not a number or a list of numbers'),
        ({"ratings": {"wit": []}}, r'"ratings: wit" is \[\], not a number or a list'),
        ({"ratings": {"wit": True}}, '"ratings: wit" is true, not a number'),
        ({"ratings": {"depth": 3}}, r"line 1 of rows.jsonl has no score of wit: name its column in \[scores\]"),
        ({"ratings": 3}, 'line 1 of rows.jsonl: "ratings" is no object of scores by aspect'),
        ({"id": "s1"}, 'line 2 of rows.jsonl: the id "s1" is that of line 1 of rows.jsonl too'),
        ({"prompt": ""}, r'"prompt" is missing \(rows are split by it\): fill it in or take the row out'),
        ({"prompt": None}, r'line 1 of rows.jsonl: "prompt" is missing \(rows are split by it\)'),
    ],
)
def test_a_bad_row_is_refused_before_a_model_is_opened(tmp_path: Path, change: Any, message: str) -> None:
    rows = [{**STORIES[0], **change}, *STORIES[1:]]
    with pytest.raises(AdjudgeError, match=message):
        train_direct(direct_recipe(tmp_path, rows, policy={"model": "nowhere"}))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (
            {"column": "rating"},
            r'"rating" is missing \(\[scores\] column names it, and no row has it\).*; is "ratings" meant\?',
        ),
        ({"columns": {"wit": "resp"}}, r"\[scores\] columns names it, and no row has it"),
    ],
)
def test_a_column_of_scores_that_no_row_has_is_named(tmp_path: Path, scores: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        train_direct(direct_recipe(tmp_path, scores=scores, policy={"model": "nowhere"}))


def test_a_judge_of_pairs_is_not_taught_on_single_texts_nor_the_other_way_round(tmp_path: Path) -> None:
    pair = {"prompt": "p", "story_a": "a", "story_b": "b", "wit_a": 1, "wit_b": 2}
    nowhere = {"model": "nowhere"}
    with pytest.raises(AdjudgeError, match=r'single text, "response", and pairs have story_a.*name = "pointwise" in'):
        train_direct(direct_recipe(tmp_path, judge={"name": "pairwise"}, policy=nowhere))
    with pytest.raises(AdjudgeError, match=r'is a pair.* name is "pointwise": set it to "pairwise"'):
        train_direct(direct_recipe(tmp_path, [pair], scores={"columns": {"wit": "wit"}}, data={"held_out": 0}))


def test_one_class_alone_teaches_nothing(tmp_path: Path) -> None:
    rows = [{**row, "ratings": {"wit": 3}} for row in STORIES]
    with pytest.raises(AdjudgeError, match="all rows to train on have the same score of wit, 3: there is nothing"):
        train_direct(direct_recipe(tmp_path, rows, policy={"model": "nowhere"}))


def test_a_judge_that_writes_and_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="mode is not .direct.: a judge that writes is trained with train sft"):
        direct_recipe(tmp_path, judge={"options": {"mode": "reasoned"}})
    with pytest.raises(AdjudgeError, match="^rubric is for judge rubric"):
        direct_recipe(tmp_path, judge={"options": {"rubric": "six"}})
    with pytest.raises(AdjudgeError, match=r'\[scores\] needs either column = "ratings" or columns'):
        direct_recipe(tmp_path, scores={"column": "ratings", "columns": {"wit": "w"}})


def test_long_texts_are_shortened_as_a_judge_shortens_them_and_counted(tmp_path: Path) -> None:
    said: list[str] = []
    rows = [{**STORIES[0], "response": "x" * 3000}, *STORIES[1:]]
    train_direct(direct_recipe(tmp_path, rows, optimiser={"max_tokens": 1200, "steps": 1}), status=said.append)
    assert "1 shortened" in said[0]


def test_a_question_too_long_however_it_is_shortened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match=r"line \d+ of .*: a question about it has \d+ tokens.* allow 60: raise"):
        train_direct(direct_recipe(tmp_path, optimiser={"max_tokens": 60}))


def test_rows_learnt_together_are_counted_as_rows_in_groups(tmp_path: Path) -> None:
    said: list[str] = []
    rows = [{**row, "together": row["prompt"]} for row in STORIES]
    train_direct(direct_recipe(tmp_path, rows, optimiser={"steps": 1}), status=said.append)
    found = re.fullmatch(
        r"(\d+) rows in (\d+) groups to train on, (\d+) in (\d+) groups? held out, 0 shortened", said[0]
    )
    assert found is not None and said[1].startswith("1 step of ") and "group" in said[1], said
    rows_here, groups, rows_there, others = map(int, found.groups())
    assert rows_here + rows_there == len(STORIES) and groups + others == len({row["prompt"] for row in STORIES})
