from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.dummy import tiny_tokenizer
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.records.rows import Row
from adjudge.training.prompts import asked, dataset, read_prompts, shuffled, within
from adjudge.training.recipe import Data
from tests.jsonl import write_lines


def file_of(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "rows.jsonl"
    write_lines(path, *rows)
    return str(path)


def test_no_prompt_is_on_both_sides() -> None:
    prompts = read_prompts(Data(prompts=("a", "b", "a", "c", "b"), held_out=2))
    assert [row.columns["prompt"] for row in prompts.train] == ["a", "a"]
    assert [row.columns["prompt"] for row in prompts.held_out] == ["b", "c", "b"]
    with pytest.raises(AdjudgeError, match="leaves no prompt to train on"):
        read_prompts(Data(prompts=("a", "a"), held_out=1))


def test_what_goes_together_stays_on_one_side(tmp_path: Path) -> None:
    twin = {"prompt": "ba", "story_a": "b", "story_b": "a"}
    rows = ({"prompt": "ab", "story_a": "a", "story_b": "b"}, {"prompt": "c", "story_a": "c", "story_b": "d"}, twin)
    prompts = read_prompts(Data(train=file_of(tmp_path, *rows), held_out=1))
    assert [row.columns["prompt"] for row in prompts.held_out] == ["ab", "ba"] and not prompts.left_out
    said = ({"prompt": "1", "reviewer": "u"}, {"prompt": "2", "reviewer": "v"}, {"prompt": "3", "reviewer": "u"})
    prompts = read_prompts(Data(train=file_of(tmp_path, *said), held_out=1))
    assert [row.columns["prompt"] for row in prompts.train] == ["2"]
    numbered = [{"prompt": str(place), "reviewer": reader} for place, reader in enumerate([0, 1, 2, 0])]
    prompts = read_prompts(Data(train=file_of(tmp_path, *numbered), held_out=1))
    assert [row.columns["prompt"] for row in prompts.held_out] == ["0", "3"]


def test_no_story_is_on_both_sides_and_pairs_across_are_counted(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("c", "a"), ("c", "d"), ("b", "a"), ("e", "f"), (" e ", "c"), ("e", "f")]
    rows = [{"prompt": f"{x} or {y}", "story_a": x, "story_b": y} for x, y in pairs]
    prompts = read_prompts(Data(train=file_of(tmp_path, *rows), held_out=1))
    assert [row.columns["prompt"] for row in prompts.held_out] == ["e or f", "e or f"]
    assert [row.columns["prompt"] for row in prompts.train] == ["a or b", "c or a", "c or d", "b or a"]
    assert prompts.left_out == ("left out, as they go with held-out rows: 1 row of training",)


def test_a_prompt_with_other_blanks_is_the_same(tmp_path: Path) -> None:
    prompts = read_prompts(Data(prompts=("a  b ", "c", "a b"), held_out=1))
    assert [row.columns["prompt"] for row in prompts.train] == ["c"] and len(prompts.held_out) == 2


def test_a_column_that_is_renamed_takes_the_place_of_one_of_that_name(tmp_path: Path) -> None:
    for names in (("query", "prompt"), ("prompt", "query")):
        train = file_of(tmp_path, dict(zip(names, names, strict=True)))
        [row] = read_prompts(Data(train=train, columns={"prompt": "query"})).train
        assert row.columns == {"prompt": "query"}
    swapped = Data(train=file_of(tmp_path, {"a": "1", "prompt": "2"}), columns={"prompt": "a", "a": "prompt"})
    assert read_prompts(swapped).train[0].columns == {"prompt": "1", "a": "2"}


def test_texts_that_no_encoder_takes_are_mended_where_they_are_read(tmp_path: Path) -> None:
    [row] = read_prompts(Data(train=file_of(tmp_path, {"prompt": "a\ud800b", "\udc00": ["\ud800"]}))).train
    assert row.columns == {"prompt": "a\ufffdb", "\ufffd": ["\ufffd"]}
    assert dataset([row], Data(prompts=("x",), chat=False))[0]["prompt"] == "a\ufffdb"


def test_prompts_of_a_held_out_file_are_taken_out_of_training_and_counted(tmp_path: Path) -> None:
    train = file_of(tmp_path, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "a"})
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text('{"prompt": "a"}\n')
    prompts = read_prompts(Data(train=train, held_out=str(held_out)))
    assert [row.columns["prompt"] for row in prompts.train] == ["b"] and len(prompts.held_out) == 1
    assert prompts.left_out == ("left out, as they go with held-out rows: 2 rows of training",)


def test_the_last_rows_are_held_out(tmp_path: Path) -> None:
    train = file_of(tmp_path, *({"prompt": str(number)} for number in range(5)))
    prompts = read_prompts(Data(train=train, held_out=2))
    assert [row.columns["prompt"] for row in prompts.train] == ["0", "1", "2"]
    assert [row.columns["prompt"] for row in prompts.held_out] == ["3", "4"]
    with pytest.raises(AdjudgeError, match=r"held_out is 5 of 5 rows: leave some to train on"):
        read_prompts(Data(train=train, held_out=5))


def test_columns_are_renamed_and_the_rest_passes_through(tmp_path: Path) -> None:
    train = file_of(tmp_path, {"query": "q", "story": "s", "score_a": 3})
    [row] = read_prompts(Data(train=train, columns={"prompt": "query", "reference": "story"})).train
    assert row.columns == {"prompt": "q", "reference": "s", "score_a": 3}
    with pytest.raises(
        AdjudgeError, match=r'line 1 of rows.jsonl: "text" is missing \(\[data\] columns takes it as prompt\)'
    ):
        read_prompts(Data(train=train, columns={"prompt": "text"}))


USER, REPLY = {"role": "user", "content": "Tell one."}, {"role": "assistant", "content": "Of whom?"}
SYSTEM = {"role": "system", "content": "Be brief."}


def test_a_conversation_is_what_the_policy_is_asked(tmp_path: Path) -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "Of cats."}], "name": "x"}
    last = {"role": "user", "content": "Of cats."}
    rows = [{"prompt": turns, "system": own} for turns, own in (([USER], "own"), ([SYSTEM, USER, REPLY, parts], None))]
    data = Data(train=file_of(tmp_path, *rows, {"prompt": "Tell  one."}), held_out=1)
    prompts = read_prompts(data)
    assert [row.place for row in prompts.held_out] == ["line 1 of rows.jsonl", "line 3 of rows.jsonl"]
    found = [asked(row, data) for row in (*prompts.train, *prompts.held_out)]
    told = {"role": "system", "content": "own"}
    assert found == [[SYSTEM, USER, REPLY, last], [told, USER], [{"role": "user", "content": "Tell  one."}]]
    said = msgspec.structs.replace(data, system="s")
    assert asked(prompts.train[0], said) == [{"role": "system", "content": "s"}, USER, REPLY, last]
    with pytest.raises(AdjudgeError, match=r"line 1 of rows.jsonl: \"prompt\" is a conversation, and \[data\] chat is"):
        read_prompts(msgspec.structs.replace(data, chat=False))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, '"prompt" is missing'),
        ({"prompt": 7}, '"prompt" is 7, not a string'),
        ({"prompt": ["a"]}, '"prompt" is list: give a string, or messages'),
        ({"prompt": []}, '"prompt" has the turns of nobody: give those of user'),
        ({"prompt": [USER, REPLY]}, '"prompt" has the turns user, assistant: give .*a user\'s last'),
        ({"prompt": [{"role": "tool", "content": "4"}, USER]}, '"prompt" has the turns tool, user: give'),
        ({"prompt": "a", "log_metric": 1}, '"log_metric" is a word of the trainer\'s own: rename it'),
        ({"prompt": "a", "completion_ids": []}, '"completion_ids" is a word of the trainer\'s own: rename it'),
    ],
)
def test_a_row_that_cannot_be_a_prompt_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(AdjudgeError, match=f"line 2 of rows.jsonl: {message}"):
        read_prompts(Data(train=file_of(tmp_path, {"prompt": "a"}, row)))


def test_every_round_takes_all_rows_in_another_order() -> None:
    rows = [Row("", {"prompt": str(number)}) for number in range(20)]
    order = shuffled(rows, 45, seed=1)
    assert len(order) == 45
    assert sorted(order[:20], key=rows.index) == sorted(order[20:40], key=rows.index) == rows
    assert order[:20] != order[20:40] and order == shuffled(rows, 45, seed=1) != shuffled(rows, 45, seed=2)


def test_rubrics_of_different_forms_reach_the_reward_as_they_are() -> None:
    pytest.importorskip("datasets", reason="needs the extra train")
    rubrics = [{"points": 3, "criteria": [{"name": "a", "text": "?"}]}, {"scale": [0, 2], "criteria": []}, None]
    rows = [Row("", {"prompt": "p", "rubric": rubric}) for rubric in rubrics]
    rows[1].columns["reference"] = "r"
    found = dataset(rows, Data(prompts=("p",), system="s"))
    assert [row["rubric"] for row in found] == rubrics
    assert [row["reference"] for row in found] == [None, "r", None]
    assert found[0]["prompt"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "p"}]
    assert dataset(rows, Data(prompts=("p",), chat=False))[0]["prompt"] == "p"


def test_a_row_may_bring_its_own_system_turn() -> None:
    row, data = Row("", {"prompt": "p", "system": "own"}), Data(prompts=("p",))
    turn = {"role": "user", "content": "p"}
    assert asked(row, data) == [{"role": "system", "content": "own"}, turn]
    assert asked(row, Data(prompts=("p",), system="s")) == [{"role": "system", "content": "s"}, turn]
    assert asked(Row("", {"prompt": "p", "system": ""}), data) == [turn]
    assert asked(row, Data(prompts=("p",), system="")) == [turn]
    assert asked(Row("", {"prompt": [{"role": "system", "content": ""}, turn]}), data) == [turn]


def test_prompts_too_long_are_left_out_and_counted() -> None:
    tokenizer = Tokenizer(tiny_tokenizer())
    data = Data(prompts=("a", "b" * 50, "c"), held_out=1, max_prompt_tokens=40)
    kept = within(read_prompts(data), data, tokenizer)
    assert [row.columns["prompt"] for row in kept.train] == ["a"] and len(kept.held_out) == 1
    assert kept.left_out == ("left out for the length of their prompts: 1 row of training, 0 held out",)
    short = Data(prompts=("a", "b"), max_prompt_tokens=2)
    with pytest.raises(AdjudgeError, match=r"no prompt has 2 tokens or fewer: raise \[data\] max_prompt_tokens"):
        within(read_prompts(short), short, tokenizer)


def test_a_prompt_is_as_long_as_the_policy_reads_it_that_is_to_think() -> None:
    tokenizer = Tokenizer(tiny_tokenizer())
    tokenizer.inner.chat_template = "{{ messages[0].content }}|{{ '<think>' if enable_thinking }}"
    data = Data(prompts=("a",), max_prompt_tokens=len(tokenizer.prompt("a|")))
    prompts = read_prompts(data)
    assert within(prompts, data, tokenizer) == prompts
    with pytest.raises(AdjudgeError, match="no prompt has"):
        within(prompts, data, tokenizer, thinks=True)


def test_a_model_without_a_chat_template_is_asked_plainly_or_not_at_all() -> None:
    tokenizer = Tokenizer(tiny_tokenizer())
    tokenizer.inner.chat_template = None
    data = Data(prompts=("a",))
    with pytest.raises(AdjudgeError, match=r"no chat template: set chat = false in \[data\]"):
        within(read_prompts(data), data, tokenizer)
    plain = Data(prompts=("a",), chat=False, max_prompt_tokens=1)
    assert len(within(read_prompts(plain), plain, tokenizer).train) == 1
