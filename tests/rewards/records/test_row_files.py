from __future__ import annotations

import gzip
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from adjudge.commands.runs.rows import rows_of
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import READ
from adjudge.rewards.records.rubric import rubric_of
from adjudge.rewards.records.verdict import Pair
from adjudge.rewards.records.wire import item_of, json_line, pair_of


def pairs(path: Path) -> list[Pair]:
    return [pair_of(row, number) for number, row in enumerate(read_rows(path), 1)]


RUBRIC = {"criteria": [{"name": "end", "text": "Is it earned?", "levels": {"0": "no", "1": "yes"}}]}
OTHER = {"criteria": [{"name": "end", "text": "Is it earned?", "levels": {"2": "no", "3": "yes"}}]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", "", "is empty"),
        ("p.jsonl", "\n \n", "is empty"),
        ("p.csv", "story_a,story_b\n", "is empty"),
        ("p.csv", "story_a,story_b\na,b,c\n", "line 2 of p.csv has more columns"),
        ("p.csv", "prompt,story_a\np,a\n", 'line 2 of p.csv: "story_b" is missing'),
        (
            "p.csv",
            "prompt;story_a;story_b\np;a, b;c;d\n",
            "quote texts that hold semicolons",
        ),
    ],
)
def test_files_without_rows_or_with_a_wrong_shape(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AdjudgeError) as caught:
        pairs(tmp_path / name)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["p.csv", "p.tsv"])
@pytest.mark.parametrize("mark", ["\t", ";", ","])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_is_read_whatever_parts_its_columns(tmp_path: Path, name: str, mark: str, encoding: str) -> None:
    rows = (("prompt", "story_a", "story_b"), ("p", '"a, \u4f60; b"', "c"))
    (tmp_path / name).write_text("".join(mark.join(row) + "\r\n" for row in rows), encoding=encoding, newline="")
    assert pairs(tmp_path / name) == [Pair("a, \u4f60; b", "c", "p", id="1")]


@pytest.mark.parametrize("name", ["p.jsonl.gz", "p.csv.GZ", "p.gz"])
def test_packed_files_are_read_and_damaged_ones_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = "prompt,story_a,story_b\np,a,b\n" if "csv" in name else '{"prompt": "p", "story_a": "a", "story_b": "b"}'
    path.write_bytes(packed := gzip.compress(text.encode()))
    assert pairs(path) == [Pair("a", "b", "p", id="1")]
    for damaged in (text.encode(), packed[:-4], packed[:20] + b"\xff" * 20 + packed[40:]):
        path.write_bytes(damaged)
        with pytest.raises(AdjudgeError, match=f"^cannot read {path} "):
            read_rows(path)


def test_an_array_of_objects_is_rows(tmp_path: Path) -> None:
    path, rows = tmp_path / "p.json", [{"prompt": "p", "story_a": "a", "story_b": str(number)} for number in range(3)]
    for text in (json.dumps(rows), "\n\n" + json.dumps(rows, indent=1) + "\n"):
        path.write_text(text)
        assert [row.place for row in read_rows(path)] == [f"row {number} of p.json" for number in (1, 2, 3)]
        assert [pair.b for pair in pairs(path)] == ["0", "1", "2"]
    for text, message in (
        ("[]", "is empty"),
        ('[{"prompt": "p"},\n {"prompt": "q"}\n {}]', "line 3 of p.json is not JSON"),
        ('[{"prompt": "p"},\n {"prompt": "q"}\n', "line 2 of p.json is not JSON"),
        ('[{"prompt": "p"}, 1]', "row 2 of p.json is int, not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
    ):
        path.write_text(text)
        with pytest.raises(AdjudgeError, match=message):
            read_rows(path)


@pytest.mark.parametrize(
    "text",
    [
        '"prompt, or so";prompt;story_a;story_b\nx;p;a;b\n',
        'prompt,story_a,story_b\rp,"a\t",b\r',
        "sep=;\r\nprompt;story_a;story_b\r\np;a;b\r\n",
        "prompt, story_a , story_b\np,a,b\n",
        "sep=\t\nprompt\tstory_a\tstory_b\np\ta\tb\n",
    ],
)
def test_what_parts_a_tables_columns_is_told_by_its_first_line_outside_quotes(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.csv").write_bytes(text.encode())
    assert [(pair.a.strip(), pair.b) for pair in pairs(tmp_path / "p.csv")] == [("a", "b")]


def test_a_row_after_a_line_that_says_what_parts_columns_is_where_an_editor_shows_it(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sep=;\nprompt;story_a\np;a;b\n")
    with pytest.raises(AdjudgeError, match="line 3 of p.csv has more columns"):
        read_rows(tmp_path / "p.csv")


def test_bytes_of_parquet_that_are_text_are_read_as_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"prompt": "P", "response": "Ré".encode(), "parts": [{"x": b"y"}], "raw": b"\xff"}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    [row] = read_rows(tmp_path / "p.parquet")
    assert row.columns == {"prompt": "P", "response": "Ré", "parts": [{"x": "y"}], "raw": "/w=="}
    twice = pyarrow.table([["a"], ["b"]], names=["prompt", "prompt"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(AdjudgeError, match='^twice.parquet has the column "prompt" twice: rename one$'):
        read_rows(tmp_path / "twice.parquet")


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_json_in_an_encoding_that_it_does_not_tell_is_to_be_saved_in_another(tmp_path: Path, coding: str) -> None:
    (tmp_path / "p.jsonl").write_bytes('{"prompt": "p"}\n'.encode(coding))
    with pytest.raises(AdjudgeError, match=r"^line 1 of p.jsonl is not JSON \(.*\): save it as UTF-8$"):
        read_rows(tmp_path / "p.jsonl")


def test_lines_that_are_not_utf_8_are_read_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = '{"prompt": "p", "story_a": "a%s", "story_b": "b"}\n'
    path = tmp_path / "p.jsonl"
    path.write_bytes((line % "").encode() + 2 * (line % "’").encode("cp1252"))
    assert [pair.a for pair in pairs(path)] == ["a", "a\ufffd", "a\ufffd"]
    assert [record.message for record in caplog.records] == [
        "line 2 of p.jsonl, and 1 more: bytes that are not UTF-8 are read as U+FFFD: save it as UTF-8"
    ]
    caplog.clear()
    path.write_bytes(2 * (line % "’").encode("utf-8-sig"))  # as two files joined
    assert [pair.a for pair in pairs(path)] == ["a’", "a’"] and not caplog.records


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(AdjudgeError, match="cannot read"):
            read_rows(path)


def test_a_table_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "gbk.csv"
    path.write_bytes('prompt,story_a,story_b\np,"one\n\u4f60\u597d",b\n'.encode("gbk"))
    with pytest.raises(AdjudgeError, match="^line 3 of gbk.csv is not UTF-8: save it as UTF-8$"):
        read_rows(path)
    path.write_bytes(path.read_bytes().decode("gbk").encode("utf-8-sig"))
    assert pairs(path) == [Pair("one\n\u4f60\u597d", "b", "p", id="1")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'id,prompt\n1,a\n2,"b\n3,c\n',
            "line 3 of p.csv is not CSV .*: close each quote, and double those inside a text",
        ),
        ('id,prompt\n1,"a"b\n', "line 2 of p.csv is not CSV"),
        ("id,prompt,prompt\n1,a,b\n", 'p.csv has the column "prompt" twice: rename one'),
        ('id,prompt\n\n1,"a\nb"\n2,"c\nd",e\n', "line 5 of p.csv has more columns than the header"),
    ],
)
def test_a_table_whose_rows_are_not_where_they_seem_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(AdjudgeError, match=message):
        read_rows(path)


def test_quotes_within_a_text_and_short_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('id,prompt,more\n1,He said "hi",x\n2,"a ""b"""\n')
    one, two = read_rows(path)
    assert one.columns == {"id": "1", "prompt": 'He said "hi"', "more": "x"}
    assert two.columns == {"id": "2", "prompt": 'a "b"', "more": None}


def test_parquet_is_read_as_rows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"prompt": "P", "response": "R", "rubric": RUBRIC}, {"prompt": "P", "response": "S", "rubric": OTHER}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    read = read_rows(tmp_path / "p.parquet")
    assert [row.place for row in read] == ["row 1 of p.parquet", "row 2 of p.parquet"]
    items = [item_of(row, number, ("rubric",)) for number, row in enumerate(read, 1)]  # has the other's levels as null
    assert [item.rubric for item in items] == [rubric_of(rubric, "here") for rubric in (RUBRIC, OTHER)]
    (tmp_path / "q.parquet").write_text("no table")
    with pytest.raises(AdjudgeError, match="q.parquet"):
        read_rows(tmp_path / "q.parquet")


def test_a_number_of_too_many_digits_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"prompt": "P", "n": ' + "1" * 5000 + "}")
    with pytest.raises(AdjudgeError, match="too many digits"):
        read_rows(tmp_path / "r.jsonl")


def test_columns_of_nothing_at_the_right_of_a_table_are_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    path.write_text("prompt,response,,,\np,r,,,\nq,s\n,,,,\n")
    assert [row.columns for row in read_rows(path)] == [
        {"prompt": "p", "response": "r"},
        {"prompt": "q", "response": "s"},
    ]
    path.write_text("prompt,response,,,\np,r,,here,\n")
    with pytest.raises(AdjudgeError, match="line 2 of sheet.csv has a value in a column without a name: name it"):
        read_rows(path)
    path.write_text("prompt,,,response\np,here,there,r\n")
    with pytest.raises(AdjudgeError, match='sheet.csv has the column "" twice: rename one'):
        read_rows(path)
    path.write_text("prompt,response\np,r,\n")  # may be a text that ends with a comma
    with pytest.raises(AdjudgeError, match="line 2 of sheet.csv has more columns than the header"):
        read_rows(path)


def test_empty_rows_of_a_table_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("prompt,story_a,story_b\r\nP,a,b\r\n,,\r\n\r\nQ,c,\r\n")
    assert [row.place for row in read_rows(tmp_path / "t.csv")] == ["line 2 of t.csv", "line 5 of t.csv"]


def test_dates_and_numbers_of_parquet_are_written_as_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    when = datetime(2024, 5, 1, 12, tzinfo=UTC)
    values = {"when": when, "day": when.date(), "price": Decimal("1.50"), "raw": b"\xff", "took": timedelta(hours=1)}
    parquet.write_table(pyarrow.Table.from_pylist([{"prompt": "P", **values}]), tmp_path / "w.parquet")
    [row] = read_rows(tmp_path / "w.parquet")
    assert json.loads(json_line(row.columns)) == row.columns
    assert row.columns["when"].startswith("2024-05-01T12:00:00") and row.columns["price"] == "1.50"


def test_rows_come_from_a_pipe_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines = [json.dumps({"prompt": f"p{n}", "response": "r" * 5000}) for n in range(6)]
    writer = threading.Thread(target=lambda: pipe.write_text("\n".join(lines)), daemon=True)
    writer.start()
    assert [row.columns["prompt"] for row in rows_of(pipe)] == [f"p{n}" for n in range(6)]
    writer.join(10)


def test_utf_16_that_is_damaged_is_read_with_signs_in_place_of_it(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xff\xfe" + '{"prompt": "a?b"}'.encode("utf-16-le").replace(b"?\0", b"\x00\xd8"))
    [row] = read_rows(path)
    assert row.columns["prompt"].startswith("a\ufffd")


def test_json_that_windows_has_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "Über"}\r\n{"prompt": "…"}\r\n', encoding="utf-16")
    assert [row.columns["prompt"] for row in read_rows(path)] == ["Über", "…"]


def test_what_one_row_of_parquet_has_not_is_not_there(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = [{"scores": {"wit": 3}, "note": None}, {"scores": {"depth": 4}, "note": "x"}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert [row.columns for row in read_rows(tmp_path / "t.parquet")] == rows
    far = pyarrow.table({"at": pyarrow.array([2**60], pyarrow.timestamp("us"))})
    parquet.write_table(far, tmp_path / "far.parquet")
    with pytest.raises(AdjudgeError, match='^column "at" of far.parquet cannot be read .*: leave it out, or write it'):
        read_rows(tmp_path / "far.parquet")
    where = pyarrow.table({"at": pyarrow.array([2**40], pyarrow.timestamp("us", "Middle/Earth"))})
    parquet.write_table(where, tmp_path / "where.parquet")
    with pytest.raises(AdjudgeError, match='^column "at" of where.parquet cannot be read'):
        read_rows(tmp_path / "where.parquet")


@pytest.mark.parametrize("text", [b"Caf\xe9", [b"fine", b"Caf\xe9"]])
def test_a_text_of_parquet_that_is_not_utf_8_is_refused(tmp_path: Path, text: object) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    name = "responses" if isinstance(text, list) else "response"
    rows = [{name: None, "answer": None}, {name: text, "answer": text}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "b.parquet")
    for texts, refused in ((READ, name), (["answer"], "answer")):
        with pytest.raises(AdjudgeError, match=f'^row 2 of b.parquet: "{refused}" is not UTF-8: save it as UTF-8$'):
            read_rows(tmp_path / "b.parquet", texts)
