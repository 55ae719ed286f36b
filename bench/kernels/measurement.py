"""One line of a kernel benchmark: a case done one way, and its CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec

from adjudge.bench.csv_table import write_rows
from adjudge.engine.errors import AdjudgeError


@dataclass(frozen=True)
class Measurement:
    """What was measured; None where it was not (then `note` says why) or has no meaning."""

    kernel: str  # restricted head, attention
    case: str  # set, both; prefill, decode, ...
    shape: str
    dtype: str
    variant: str
    median_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    host_us: float | None = None  # until the host is free again, nothing queued before; None on CPU
    limit_us: float | None = None
    limit_percent: float | None = None
    bound: str = ""  # what the limit is made of: bytes or FLOPs
    flops: float | None = None
    bytes: float | None = None
    kv_bytes: float | None = None
    launches: int | None = None
    peak_bytes: int | None = None
    error: float | None = None  # largest difference from float64
    note: str = ""
    device: str = ""
    machine: str = ""
    commit: str = ""

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of the shape by name."""
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", self.shape)}

    @property
    def gflops(self) -> float | None:
        """Useful GFLOP/s."""
        return None if self.median_us is None or self.flops is None else self.flops / self.median_us / 1e3


def write_measurements(path: Path, measurements: Iterable[Measurement]) -> None:
    """Write them as CSV; the file appears whole or not at all."""
    header = [field.name for field in fields(Measurement)]
    write_rows(path, header, ([_text(value) for value in asdict(m).values()] for m in measurements))


def read_measurements(path: Path) -> list[Measurement]:
    """Read what `write_measurements` wrote; raises AdjudgeError for a file that is not there or is another's."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise AdjudgeError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise AdjudgeError(f"{path} is no CSV ({error}): pass one of `adjudge bench kernels`") from error
    if not rows:
        raise AdjudgeError(f"{path} is empty: pass a CSV of `adjudge bench kernels`")
    made = []
    for line, row in enumerate(rows, 2):
        try:
            made.append(msgspec.convert({name: text for name, text in row.items() if text}, Measurement, strict=False))
        except msgspec.ValidationError as error:
            raise AdjudgeError(f"line {line} of {path}: {error}; pass a CSV of `adjudge bench kernels`") from None
    return made


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{value:.6g}"
    return "" if value is None else str(value)
