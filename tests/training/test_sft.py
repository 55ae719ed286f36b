from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import torch
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import open_source, resolve
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.records.rows import Row
from adjudge.training.prompts import read_prompts
from adjudge.training.sft import train_sft
from adjudge.training.sft_recipe import Response, Select, SftRecipe
from adjudge.training.sft_trainer import _texts
from tests.training.runs import ROWS, KillAfter, Killed, curve, recipe_in, weights


def test_the_responses_are_learnt_and_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    tables = {"data": {"held_out": 1}}
    whole = train_sft(recipe_in(tmp_path / "whole", **tables))
    assert whole.before is not None and whole.after is not None and whole.after < whole.before - 0.5
    recipe = recipe_in(tmp_path / "killed", **tables)
    with pytest.raises(Killed):
        train_sft(recipe, callbacks=[KillAfter(4)])
    resumed = train_sft(recipe, resume=True)
    lines, expected = curve(resumed.folder), curve(whole.folder)
    for line in (*lines, *expected):
        line.pop("num_tokens", None)  # which TRL counts from where it resumes
    assert lines == expected and len(lines) == 7


def test_a_finished_run_goes_on_to_more_steps_as_one_of_so_many_would_have(tmp_path: Path) -> None:
    def recipe(folder: str, steps: int) -> SftRecipe:
        tables: dict[str, Any] = {"data": {"held_out": 1}, "logging": {"save_every": 9}}
        return recipe_in(tmp_path / folder, optimiser={"steps": steps}, **tables)

    whole, short = train_sft(recipe("whole", 3)), train_sft(recipe("short", 2))
    longer = train_sft(recipe("short", 3), resume=True)
    assert (short.step, longer.step, longer.after) == (2, 3, whole.after)
    lines, expected = ([line for line in curve(run.folder) if line["split"] == "train"] for run in (longer, whole))
    for line in (*lines, *expected):
        del line["num_tokens"], line["epoch"]  # counted from where it resumes; rounded by how many steps there are
    assert lines == expected and len(lines) == 3
    one, other = weights(whole.folder.policy), weights(longer.folder.policy)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_held_out_rows_count_by_their_tokens_whatever_goes_through_the_policy_at_once(tmp_path: Path) -> None:
    rows = [{"prompt": f"Number {n}?", "response": "Yes. " * (1 + 5 * (n % 4))} for n in range(12)]
    curves = [
        curve(
            train_sft(
                recipe_in(
                    tmp_path / str(size),
                    rows,
                    data={"held_out": 4},
                    optimiser={"micro_batch": size, "steps": 1, "rows_per_step": 4},
                )
            ).folder
        )
        for size in (1, 4)
    ]
    begun = curves[0][0]
    assert begun["split"] == "held_out" and begun == curves[1][0]
    source = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    recipe = recipe_in(tmp_path / "1", rows, data={"held_out": 4})
    losses: list[float] = []
    for text in _texts(recipe, read_prompts(recipe.data), Tokenizer(source.tokenizer), 2048)[1]:
        ids = torch.tensor([text.tokens])
        with torch.no_grad():
            odds = source.model(ids).logits[0].log_softmax(-1)
        losses += [-float(odds[place - 1, text.tokens[place]]) for place in range(text.begins, len(text.tokens))]
    assert begun["loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-4)


def test_only_rows_rated_above_the_number_are_imitated(tmp_path: Path) -> None:
    said: list[str] = []
    tables = {"select": {"column": "ratings", "above": 3.5}, "optimiser": {"steps": 1}}
    train_sft(recipe_in(tmp_path, **tables), status=said.append)
    assert said[:2] == ["left out by [select]: 3 rows of training, 0 held out", "3 rows to train on, 0 held out"]
    with pytest.raises(AdjudgeError, match=r"\[select\] leaves no rows to train on: lower above"):
        train_sft(recipe_in(tmp_path / "none", select={"column": "ratings", "above": 9}))
    with pytest.raises(AdjudgeError, match=r'line 1 of rows.jsonl: "stars" has no numbers \(needed by \[select\]\)'):
        train_sft(recipe_in(tmp_path / "none", select={"column": "stars", "above": 9}))


def test_a_number_in_a_csv_file_is_a_text_and_other_texts_are_none() -> None:
    select = Select("stars", 3.5)
    assert [select.takes(Row("", {"stars": stars})) for stars in ("4", " 3.5 ", 5, {"a": 5, "reader": "1"})] == [
        True, False, True, True
    ]  # fmt: skip
    for stars in ("good", "", "nan", None):
        with pytest.raises(AdjudgeError, match='line 2: "stars" has no numbers'):
            select.takes(Row("line 2", {"stars": stars}))
    with pytest.raises(AdjudgeError, match=r"\(needed by \[select\]\): give some, with a point for the comma"):
        select.takes(Row("line 2", {"stars": "3,5"}))


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_response_is_refused_as_a_missing_one(blank: str) -> None:
    with pytest.raises(AdjudgeError, match='line 1: "response" is blank: fill it in or take the row out'):
        Response().of(Row("line 1", {"prompt": "p", "response": blank}))


def test_a_cold_start_is_made_of_its_sections() -> None:
    response = Response(sections=("think", "answer"))
    row = Row("line 1", {"prompt": "p", "think": " Hm. ", "answer": "Yes."})
    assert response.of(row) == "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>"
    whole = "<think>a</think><answer>b</answer>"
    assert response.of(Row("line 1", {"response": whole})) == whole
    for wrong in ({"response": "b"}, {"think": "a", "answer": " "}, {"think": "a</think>", "answer": "b"}):
        with pytest.raises(AdjudgeError, match="line 1: the response is not made of <think>, <answer>, each once"):
            response.of(Row("line 1", wrong))
    with pytest.raises(AdjudgeError, match='line 1: "answer" is missing'):
        response.of(Row("line 1", {"think": "a"}))


@pytest.mark.parametrize("chat", [True, False])
def test_what_is_learnt_is_the_response_and_its_end_and_no_text_becomes_a_special_token(
    tmp_path: Path, chat: bool
) -> None:
    source = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    words, eos = source.tokenizer, source.tokenizer.eos_token
    rows = [{"prompt": "Why?", "response": "So."}, {"prompt": f"{eos}Why?", "response": f"So.{eos} {eos}"}]
    recipe = recipe_in(tmp_path, rows, data={"chat": chat})
    plain, hostile = _texts(recipe, read_prompts(recipe.data), Tokenizer(words), 2048)[0]
    assert "So." in words.decode(plain.tokens[plain.begins :]) and "Why?" in words.decode(plain.tokens[: plain.begins])
    if chat:
        turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
        expected = words.apply_chat_template(turns, return_dict=True)["input_ids"]
        assert words.decode(expected.pop()) == "\n"  # which no policy writes after the end of its turn
        before = words.apply_chat_template(turns[:1], add_generation_prompt=True, return_dict=True)["input_ids"]
    else:
        before = words("Why?")["input_ids"]
        expected = [*before, *words("So.", add_special_tokens=False)["input_ids"], words.eos_token_id]
    assert (list(plain.tokens), plain.begins) == (expected, len(before))
    assert hostile.tokens.count(words.eos_token_id) == plain.tokens.count(words.eos_token_id)
    assert hostile.tokens[hostile.begins :].count(words.eos_token_id) == 1


TURNS = (
    "{%% for turn in messages %%}{{ '%s' if turn['role'] == 'user' else '%s' }}{{ turn['content'] }}%s{%% endfor %%}"
)


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (TURNS % ("<|im_start|>", "A:", ""), "<|im_start|>"),  # as GLM-4.5's
        (TURNS % ("<|im_start|>", "A:", "\\n"), "\n<|im_start|>"),
        (TURNS % ("Q:", "A:", "\\n"), "\n<|im_end|>"),
        (TURNS % ("", "", ""), "<|im_end|>"),
        (TURNS % ("<|im_start|>", "A:", "<|im_end|>\\n"), "<|im_end|>"),  # which closes the turn itself
    ],
)
def test_where_a_template_leaves_the_last_turn_open_the_policy_learns_what_ends_it(
    tmp_path: Path, template: str, end: str
) -> None:
    words = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32).tokenizer
    words.chat_template = template.replace("\\n", "{{ '\\n' }}")
    recipe = recipe_in(tmp_path, [{"prompt": "Why?", "response": "So."}])
    [text] = _texts(recipe, read_prompts(recipe.data), Tokenizer(words), 2048)[0]
    assert words.decode(text.tokens[text.begins :]).removeprefix("A:") == f"So.{end}"


def test_an_assistants_earlier_turn_is_read_as_the_policys_own(tmp_path: Path) -> None:
    words = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32).tokenizer
    roles_texts = [("system", "In verse."), ("user", "Who?"), ("assistant", "A poet."), ("user", "Then sing.")]
    turns = [{"role": role, "content": text} for role, text in roles_texts]
    recipe = recipe_in(tmp_path, [{"prompt": turns, "response": "La la."}])
    [text] = _texts(recipe, read_prompts(recipe.data), Tokenizer(words), 2048)[0]
    whole = [*turns, {"role": "assistant", "content": "La la."}]
    assert words.decode(text.tokens) + "\n" == words.apply_chat_template(whole, tokenize=False)
    asked = words.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert words.decode(text.tokens[: text.begins]) == asked


def test_rows_too_long_are_left_out_and_counted_never_cut(tmp_path: Path) -> None:
    said: list[str] = []
    rows = [*ROWS, {"prompt": "p", "response": "a" * 500}]
    train_sft(recipe_in(tmp_path, rows, optimiser={"steps": 1, "max_tokens": 200}), status=said.append)
    assert said[0] == "left out for their length: 1 row" and said[1].startswith("6 rows to train on")
    with pytest.raises(AdjudgeError, match=r"no row has 5 tokens or fewer: raise \[optimiser\] max_tokens"):
        train_sft(recipe_in(tmp_path / "none", optimiser={"max_tokens": 5}))


def test_rows_beyond_the_policys_context_are_too_long_whatever_the_recipe_allows(tmp_path: Path) -> None:
    said: list[str] = []
    rows = [*ROWS, {"prompt": "p", "response": "a" * 2100}]  # a token for each character, and the tiny model has 2048
    train_sft(recipe_in(tmp_path, rows, optimiser={"steps": 1, "max_tokens": 4096}), status=said.append)
    assert said[0] == "left out for their length: 1 row" and said[1].startswith("6 rows to train on")
    with pytest.raises(AdjudgeError, match="no row has 2048 tokens or fewer: dummy:tiny-llama has no longer context"):
        train_sft(recipe_in(tmp_path / "none", rows[-1:], optimiser={"max_tokens": 4096}))


def test_the_command_names_what_came_of_it(tmp_path: Path) -> None:
    recipe_in(tmp_path)
    (tmp_path / "recipe.toml").write_text(
        'output = "out"\npolicy.model = "dummy:tiny-llama"\ndata = {train = "rows.jsonl", held_out = 1, chat = false}\n'
        "optimiser = {steps = 1, rows_per_step = 1}\n"
    )
    result = CliRunner().invoke(app, ["train", "sft", str(tmp_path / "recipe.toml")], catch_exceptions=False)
    assert result.exit_code == 0 and "loss on held-out rows: " in result.output and "policy: " in result.output
