"""Answer spans of 1,000 analyses of 500 tokens of the default model, each with one score at its end."""

from __future__ import annotations

import random
import re
from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from adjudge.engine.models.sources import open_tokenizer, resolve
from adjudge.engine.text.token_bytes import byte_table
from adjudge.kernels import ByteTable, answer_spans

ROWS, LENGTH = 1000, 500
ANALYSIS = "the plot is clear and its [1] characters drawn with care, though <b>one</b> ending of 3 feels rushed"
LABELS = tuple(str(number).encode() for number in range(1, 11))
FORM: dict[str, Any] = {"openings": (b"<ANSWER>", b"[["), "labels": LABELS, "closings": (b"</ANSWER>", b"]]")}
PATTERN = r"(?:<ANSWER>|\[\[)[ \t\r\n*:]{0,16}(10|[1-9])[ \t\r\n*:]{0,16}(?:</ANSWER>|\]\])"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The default model's tokenizer, as transformers opens it."""
    return open_tokenizer(resolve("smollm2-135m"))


@pytest.fixture(scope="module")
def table(tokenizer: Any) -> ByteTable:
    """The bytes of its vocabulary."""
    return byte_table(tokenizer)


@pytest.fixture(scope="module")
def rows(tokenizer: Any) -> list[list[int]]:
    """Token ids of the analyses."""
    chosen = random.Random(0)
    made = []
    for _ in range(ROWS):
        answer = tokenizer.encode(f"\n<ANSWER> {chosen.randint(1, 10)} </ANSWER>")
        analysis = tokenizer.encode(" ".join(chosen.choices(ANALYSIS.split(), k=LENGTH)))
        made.append(analysis[: LENGTH - len(answer)] + answer)
    return made


@pytest.fixture(scope="module")
def expected(rows: list[list[int]], table: ByteTable) -> list[int]:
    """The score's token in each row."""
    return tokens_by_joining(rows, pieces_of(table))


def scores_by_decoding(rows: list[list[int]], tokenizer: Any) -> list[str]:
    """What most judges do: a regular expression over decoded text. It finds the score, but not its token."""
    pattern = re.compile(PATTERN)
    return [match[1] for text in tokenizer.batch_decode(rows) if (match := pattern.search(text))]


def tokens_by_decoding(rows: list[list[int]], tokenizer: Any) -> list[int]:
    """The same with the score's token: the first whose prefix decodes to more text than stands before the score."""
    pattern = re.compile(PATTERN)
    found = []
    for row in rows:
        match = pattern.search(tokenizer.decode(row))
        assert match is not None
        before = match.start(1)

        def reaches(size: int, row: list[int] = row, before: int = before) -> bool:
            return len(tokenizer.decode(row[:size])) > before

        found.append(bisect_left(range(1, len(row) + 1), True, key=reaches))
    return found


def tokens_by_joining(rows: list[list[int]], pieces: list[bytes]) -> list[int]:
    """A regular expression over the joined bytes of the tokens."""
    pattern = re.compile(PATTERN.encode())
    found = []
    for row in rows:
        of_row = [pieces[token] for token in row]
        match = pattern.search(b"".join(of_row))
        assert match is not None
        found.append(bisect_right(list(accumulate(map(len, of_row))), match.start(1)))
    return found


def pieces_of(table: ByteTable) -> list[bytes]:
    """The table as a list of strings."""
    data = bytes(table.data.tolist())
    return [data[first:last] for first, last in pairwise(table.starts.tolist())]


def test_decoding_without_tokens(rows: list[list[int]], tokenizer: Any, benchmark: BenchmarkFixture) -> None:
    """Decode and search; that is less than is asked for."""
    assert len(benchmark(scores_by_decoding, rows, tokenizer)) == ROWS


def test_decoding(rows: list[list[int]], tokenizer: Any, expected: list[int], benchmark: BenchmarkFixture) -> None:
    """Decode, search, and decode prefixes until the token is found."""
    assert benchmark(tokens_by_decoding, rows, tokenizer) == expected


def test_joining(rows: list[list[int]], table: ByteTable, expected: list[int], benchmark: BenchmarkFixture) -> None:
    """Search the joined bytes."""
    assert benchmark(tokens_by_joining, rows, pieces_of(table)) == expected


@pytest.mark.parametrize("count", [1, 100, ROWS])
def test_ours(
    rows: list[list[int]], table: ByteTable, expected: list[int], count: int, benchmark: BenchmarkFixture
) -> None:
    """Ours, from one row to all."""
    ids = torch.tensor([token for row in rows[:count] for token in row])
    offsets = torch.tensor([0, *accumulate(map(len, rows[:count]))])
    found = benchmark(answer_spans, ids, offsets, table, **FORM)
    assert found.token.tolist() == expected[:count]


def test_a_hostile_megabyte(benchmark: BenchmarkFixture) -> None:
    """An opening that begins at every byte."""
    ids, offsets = torch.zeros(1 << 20, dtype=torch.int64), torch.tensor([0, 1 << 20])
    found = benchmark(answer_spans, ids, offsets, ByteTable.of([b"["]), **FORM)
    assert len(found.token) == len(ids) - 1
