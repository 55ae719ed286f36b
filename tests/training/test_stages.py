from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.rewards.journal import Journal
from adjudge.training import stages
from adjudge.training.attrition import Count
from adjudge.training.stages import Texts, Unusable, json_of, passed, read_stage, write_stage
from tests.rewards.scripted import ScriptedEngine

SHORT = Sampling(max_tokens=64, temperature=1.0)


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt.template(text) for text in texts]


def number(text: str) -> int:
    if not text.isdigit():
        raise Unusable("no_number")
    return int(text)


def test_unusable_texts_are_written_again_with_another_seed_and_then_given_up(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: {"a": "1", "b": "x" * (2 - before) or "2", "c": "x"}[shown])
    texts = Texts(engine, SHORT)
    found = dict(texts.write(prompts("a", "b", "c"), number))
    assert (found[0], found[1], str(found[2])) == (1, 2, "no_number")
    assert sorted(engine.asked) == ["a", "b", "b", "b", "c", "c", "c"] and len(set(engine.seeds)) == 7
    assert (texts.engine.asked, texts.rewritten) == (7, 4)


def test_at_temperature_0_an_unusable_text_is_not_asked_for_again(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "x")
    list(Texts(engine, Sampling(max_tokens=8, temperature=0.0)).write(prompts("a"), number))
    assert engine.asked == ["a"]


@pytest.mark.parametrize(
    ("written", "reason", "asked"),
    [
        (("12", "length"), "cut_short", 3),
        (" \n", "empty", 3),
        (("", "too_long"), "too_long", 1),
        (("", "timeout"), "timeout", 1),
        (("", "non_finite"), "non_finite", 1),
    ],
)
def test_a_text_that_did_not_come_to_its_end_is_not_read(tiny: Engine, written: Any, reason: str, asked: int) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: written)
    [(_, found)] = Texts(engine, SHORT).write(prompts("a"), number)
    assert isinstance(found, Unusable) and found.reason == reason and len(engine.asked) == asked


def test_a_run_that_was_killed_asks_for_nothing_twice(tiny: Engine, book: Journal, monkeypatch: Any) -> None:
    monkeypatch.setattr(stages, "WINDOW", 2)
    answers = {"a": "1", "b": "x", "c": "3", "d": "4"}

    def run(engine: ScriptedEngine, until: int) -> list[Any]:
        texts = Texts(engine, SHORT, book, attempts=2).write(prompts(*answers), number)
        found = [next(texts) for _ in range(until)]
        texts.close()  # type: ignore[attr-defined]
        return [(place, str(result)) for place, result in found]

    first, second = (ScriptedEngine(tiny, lambda shown, before: answers[shown]) for _ in range(2))
    run(first, 3)
    found = run(second, 4)
    assert sorted(found) == [(0, "1"), (1, "no_number"), (2, "3"), (3, "4")]
    assert first.asked == ["a", "b", "c", "d"] and second.asked == ["b"]


def test_prompts_that_had_to_be_shortened_are_counted(tiny: Engine) -> None:
    texts = Texts(ScriptedEngine(tiny, lambda shown, before: "1"), SHORT)
    for story in ("short", "long " * tiny.max_prompt_tokens):
        messages = [Message("user", Prompt.template("Judge: {story}", story=story))]
        assert list(texts.write([texts.prompt(messages)], number)) == [(0, 1)]
    assert texts.shortened == 1


def test_equal_prompts_are_asked_once_unless_they_are_other_samples(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: str(before))
    assert dict(Texts(engine, SHORT).write(prompts("a", "a"), number)) == {0: 0, 1: 0}
    assert dict(Texts(engine, SHORT).write(prompts("b", "b"), number, samples=[0, 1])) == {0: 0, 1: 1}


def test_texts_that_lie_in_the_moment_are_asked_for_again(tiny: Engine, book: Journal) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "7" if before else ("", "timeout"))
    assert [str(found) for _, found in Texts(engine, SHORT, book).write(prompts("a"), number)] == ["timeout"]
    assert list(Texts(engine, SHORT, book).write(prompts("a"), number)) == [(0, 7)]


@pytest.mark.parametrize("text", ["{}", '{"a": "x"', '[1, "x"]', "words", "\ud800"])
def test_json_of_another_form_is_unusable(text: str) -> None:
    with pytest.raises(Unusable, match="unparsable"):
        json_of(list[int])(text)


def test_json_of_the_form_is_read() -> None:
    assert json_of(dict[str, list[int]])(' {"a": [1, 2]}\n') == {"a": [1, 2]}


def test_rows_stay_in_order_and_every_dropped_one_has_its_reason() -> None:
    rows = [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}]
    results = [(3, "D"), (1, Unusable("dull")), (0, "A"), (2, Unusable("late"))]
    result = passed("rule", rows, results)
    assert result.kept == ["A", "D"]
    assert [drop.record for drop in result.dropped] == [
        {"id": "b", "dropped": {"stage": "rule", "reason": "dull"}},
        {"id": "c", "dropped": {"stage": "rule", "reason": "late"}},
    ]
    assert Count.of(result) == Count("rule", 4, 2, {"dull": 1, "late": 1})


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_stage(path, [{"id": 1}])

    def breaking() -> Iterator[dict[str, int]]:
        yield {"id": 2}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_stage(path, breaking())
    assert path.read_text() == '{"id":1}\n' and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.json", b'[\n  {"a": 1}\n]\n'),
        ("r.json", b'[{"a": 1},\n {"a": 2}]'),
        ("r.jsonl.gz", gzip.compress(b'{"a": 1}', mtime=0)),
    ],
    ids=["laid out", "rows in lines", "packed"],
)
def test_arrays_and_packed_files_are_whole_where_they_can_be_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_stage(tmp_path / name)[0].columns == {"a": 1}
    (tmp_path / name).write_bytes(content[:-5])
    with pytest.raises(AdjudgeError):
        read_stage(tmp_path / name)


def test_a_file_that_breaks_off_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    write_stage(path, [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}])
    with monkeypatch.context() as patch:  # a whole file is not held in memory beside its rows
        patch.setattr(Path, "read_bytes", lambda path: pytest.fail("the file was read once more"))
        assert [row.columns["id"] for row in read_stage(path, needs=["text"])] == [1, 2]
    whole = path.read_bytes()
    path.write_bytes(whole.rstrip())
    assert len(read_stage(path)) == 2
    path.write_bytes(whole[:-5].replace(b"\n", b"\r\n"))
    reason = r"breaks off in its last line, .* \(line 2 is not JSON: Unterminated string.*\): mend that, or make .*"
    with pytest.raises(AdjudgeError, match=f"{reason} again$"):
        read_stage(path)
    path.with_name("rows.jsonl.journal").touch()
    with pytest.raises(AdjudgeError, match=rf"{reason} again \(what a model was asked for it is in .*l\.journal\)$"):
        read_stage(path)
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(AdjudgeError, match="nested too deeply"):
        read_stage(path)


def test_a_file_is_read_in_its_encoding_and_a_pipe_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"id": 1, "text": "eins"}\n{"id": 2, "text": "zwei"}\n'.encode("utf-16"))
    assert [row.columns["text"] for row in read_stage(path)] == ["eins", "zwei"]
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        file.write(b'{"id": 1}\n{"id": 2}\n')
    assert len(read_stage(Path(f"/dev/fd/{read}"))) == 2
    os.close(read)


def test_a_table_needs_no_end_of_line(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import table

    (tmp_path / "t.tsv").write_text("id\ttext\n1\tone\n2\ttwo")
    (tmp_path / "t.CSV").write_text("id,text\n1,one\n2,two")
    parquet.write_table(table({"id": ["1", "2"], "text": ["one", "two"]}), tmp_path / "t.parquet")
    for name in ("t.tsv", "t.CSV", "t.parquet"):
        assert [row.columns["text"] for row in read_stage(tmp_path / name, needs=["text"])] == ["one", "two"]


def test_ids_that_come_twice_and_columns_that_are_missing_are_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [{"id": "a", "x": 1}, {"x": 2}, {"id": "a"}]))
    with pytest.raises(AdjudgeError, match='line 3 .*"a" is that of line 1'):
        read_stage(path)
    with pytest.raises(AdjudgeError, match=r'line 3 .*"x" is missing \(needed here\): its columns are "id"'):
        read_stage(path, needs=["x"])
    for rows, line, other in (('{"id": 2}\n{"id": ""}\n', 2, 1), ('{"x": 1}\n{"id": "1"}\n', 1, 2)):
        path.write_text(rows)
        told = f'line {line} of .* has no id and goes by its number, "{line}", which is the id of line {other} of'
        with pytest.raises(AdjudgeError, match=told):
            read_stage(path)


def test_lines_may_end_as_macs_once_ended_them(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"id": 1}\r{"id": 2}\r')
    assert len(read_stage(tmp_path / "rows.jsonl")) == 2
