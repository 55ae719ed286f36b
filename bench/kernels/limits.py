"""What a kernel must move and compute at least, and how long that takes on a device: arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OURS, UNCHECKED = "ours", "ours, labels checked before"
INDEX, FULL, MATMUL = "index + matmul", "full head", "matmul alone"
COMPILED = ", compiled"
"""Names of the restricted head's variants; the compiled ones append COMPILED."""

STATISTICS = 8 + 3 * 4 + 1  # bytes a row beside its log-probabilities: best, best_logprob, entropy, margin, valid


@dataclass(frozen=True)
class Ceilings:
    """What a device reaches in practice."""

    bandwidth: float  # bytes a second, read and written
    rate: float  # FLOP/s of a matmul in the dtype at hand

    def __str__(self) -> str:
        """Both numbers in GB/s and GFLOP/s."""
        return f"memory {self.bandwidth / 1e9:,.1f} GB/s, matmul {self.rate / 1e9:,.0f} GFLOP/s"


@dataclass(frozen=True)
class Work:
    """Bytes that must pass through memory and operations that must be done."""

    bytes: float
    flops: float = 0.0

    def seconds(self, ceilings: Ceilings) -> float:
        """The longer of the two."""
        return max(self.bytes / ceilings.bandwidth, self.flops / ceilings.rate)

    def bound(self, ceilings: Ceilings) -> str:
        """Which of the two is longer."""
        return "bytes" if self.bytes / ceilings.bandwidth >= self.flops / ceilings.rate else "FLOPs"


@dataclass(frozen=True)
class HeadCase:
    """N rows of width D, a vocabulary of V and K labels that all rows share."""

    normalizer: Literal["set", "both"]
    n: int
    d: int
    v: int
    k: int

    @property
    def shape(self) -> str:
        """As it stands in tables."""
        return f"N={self.n} D={self.d} V={self.v} K={self.k}"

    def limit(self, itemsize: int) -> Work:
        """Inputs once, outputs once; for "set" of the head only the label rows."""
        labels = 1 if self.normalizer == "set" else 2
        outputs = self.n * (4 * self.k * labels + STATISTICS)
        if self.normalizer == "set":
            return Work((self.n + self.k) * self.d * itemsize + outputs, 2.0 * self.n * self.k * self.d)
        return Work((self.n + self.v) * self.d * itemsize + outputs, 2.0 * self.n * self.v * self.d)

    def logits(self, variant: str, itemsize: int) -> int:
        """Bytes of logits that a variant makes: in the dtype at hand, and for their softmax in float32 beside it."""
        made = {FULL: itemsize + 4, MATMUL: itemsize}.get(variant.removesuffix(COMPILED), 0)
        return self.n * self.v * made

    def work(self, variant: str, itemsize: int) -> Work:
        """What a variant does at least: the limit, and over the whole vocabulary where it makes all logits."""
        if logits := self.logits(variant, itemsize):
            return Work((self.n + self.v) * self.d * itemsize + logits, 2.0 * self.n * self.v * self.d)
        return self.limit(itemsize)

    def memory(self, variant: str, itemsize: int) -> int:
        """Bytes beyond the inputs that a variant will need at most, to know beforehand what cannot fit."""
        return self.logits(variant, itemsize) + self.n * (8 * self.k + 1024)


@dataclass(frozen=True)
class AttentionCase:
    """Sequences (start, length) of query rows; those that start at `shared` or later have their first `shared` keys in
    common with a sequence that ends there."""

    name: str
    heads: int
    kv_heads: int
    width: int
    sequences: tuple[tuple[int, int], ...]
    shared: int = 0

    @property
    def shape(self) -> str:
        """As it stands in tables."""
        longest = max(start + length for start, length in self.sequences)
        heads = f"H={self.heads} KV={self.kv_heads} D={self.width}"
        return f"{heads} sequences={len(self.sequences)} rows={self.rows} context={longest}"

    @property
    def rows(self) -> int:
        """Query rows of all sequences."""
        return sum(length for _, length in self.sequences)

    @property
    def kv_tokens(self) -> int:
        """Positions that have keys of their own."""
        return self.shared + sum(start + length - self.shared for start, length in self.sequences)

    def kv_bytes(self, itemsize: int) -> int:
        """Keys and values, each once."""
        return 2 * self.kv_tokens * self.kv_heads * self.width * itemsize

    def limit(self, itemsize: int) -> Work:
        """Scores and weighted sums of what each row sees; queries, keys, values and outputs once."""
        seen = sum(length * start + length * (length + 1) // 2 for start, length in self.sequences)
        states = 2 * self.rows * self.heads * self.width * itemsize
        return Work(self.kv_bytes(itemsize) + states, 4.0 * self.heads * self.width * seen)


ROWS = (1, 16, 64, 256, 1024, 4096, 65536)
LABELS = (2, 5, 10, 64)
HEADS = ((576, 49_152), (3584, 152_064))
ATTENTION_HEADS = ((9, 3, 64), (28, 4, 128))
Sizes = Literal["small", "full"]


def head_cases(sizes: Sizes) -> list[HeadCase]:
    """All of them, or those that two CPU cores finish in a minute or two; cases with equal heads are neighbours."""
    small = sizes == "small"
    rows, heads = (ROWS[:-1], HEADS[:1]) if small else (ROWS, HEADS)
    of_set = [HeadCase("set", n, *head, k) for head in heads for k in LABELS for n in rows]
    of_both = [HeadCase("both", n, *head, k) for head in heads for k in ((5,) if small else LABELS) for n in rows]
    return sorted(of_set + of_both, key=lambda case: heads.index((case.d, case.v)))


def attention_cases(sizes: Sizes) -> list[AttentionCase]:
    """Prefill, decode, and a judge's questions behind one prefix, computed with them (cold) or before (warm)."""
    prompts, prompt, decoded, context = (8, 2048, 64, 2048) if sizes == "full" else (2, 512, 16, 1024)
    prefix, questions = 600, ((600, 30),) * 12
    return [
        case
        for heads in ATTENTION_HEADS
        for case in (
            AttentionCase("prefill", *heads, ((0, prompt),) * prompts),
            AttentionCase("decode", *heads, ((context - 1, 1),) * decoded),
            AttentionCase("judge, cold", *heads, ((0, prefix), *questions), prefix),
            AttentionCase("judge, warm", *heads, questions, prefix),
        )
    ]
