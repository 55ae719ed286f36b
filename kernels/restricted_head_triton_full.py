"""The log-sum-exp over the vocabulary without its logits, and what it adds to the scores of the label sets.

Two stages of fixed order, no atomics: a program of the first multiplies a tile of rows with one chunk of the vocabulary
and keeps the chunk's running maximum and sum of each row; a program of the second puts a row's chunks together in order
and finishes the row's scores. Memory beyond the scores: two floats a row and chunk (V / 512 chunks).

Bytes and FLOPs (bf16): V · D · 2 bytes of weights, 2 · N · V · D FLOPs. On an H200 (4.8 TB/s, ~700 TFLOP/s in practice)
D = 3584, V = 152064 takes at least 227 µs up to N = 140 and 1.56 µs a row beyond. Rows of one chunk are neighbours in
the launch order, so a chunk of weights comes from memory once and then from the L2 cache.
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import triton
import triton.language as tl

from adjudge.kernels.triton_math import add_products, hidden_block, row_norm_scale, soft_capped


@triton.jit
def final_row_kernel(hidden, rows, norm_weight, eps, final, width, WIDTH_BLOCK: tl.constexpr):
    """Row `program_id(0)` of `final`: the scored row, normed and rounded to its dtype as the head will read it."""
    row = tl.program_id(0).to(tl.int64)
    source = row
    if rows is not None:
        source = tl.load(rows + row)
    hidden += source * width
    scale = row_norm_scale(hidden, norm_weight, eps, width, WIDTH_BLOCK)
    for d0 in range(0, width, WIDTH_BLOCK):
        d = d0 + tl.arange(0, WIDTH_BLOCK)
        tl.store(final + row * width + d, hidden_block(hidden, norm_weight, scale, d, width), mask=d < width)


# How many rows there are must not make another kernel.
@triton.jit(do_not_specialize=["n", "row_tiles"])
def vocabulary_kernel(
    hidden,
    weight,
    weight_row_stride,
    weight_stride,
    bias,
    softcap,
    temperature,
    peaks,
    sums,
    n,
    vocabulary,
    width,
    row_tiles,
    chunks,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Maximum and sum of exponentials over one chunk of the vocabulary, for a tile of rows: `peaks`, `sums` [N, C]."""
    chunk = tl.program_id(0) // row_tiles
    row = (tl.program_id(0) % row_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = row < n
    hidden += row * width
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(0, CHUNK, COLUMNS):
        column = chunk.to(tl.int64) * CHUNK + start + tl.arange(0, COLUMNS)
        column_mask = column < vocabulary
        logits = tl.zeros([ROWS, COLUMNS], tl.float32)
        for d0 in range(0, width, WIDTH_BLOCK):
            d = d0 + tl.arange(0, WIDTH_BLOCK)
            d_mask = (d < width)[None, :]
            x = tl.load(hidden[:, None] + d[None, :], mask=row_mask[:, None] & d_mask, other=0.0)
            places = column[:, None] * weight_row_stride + d[None, :].to(tl.int64) * weight_stride
            w = tl.load(weight + places, mask=column_mask[:, None] & d_mask, other=0.0)
            logits = add_products(logits, x, w, INTERPRETED)
        if bias is not None:
            logits += tl.load(bias + column, mask=column_mask, other=0.0).to(tl.float32)[None, :]
        if softcap is not None:
            logits = soft_capped(logits, softcap)
        logits = tl.where(column_mask[None, :], logits / temperature, -float("inf"))
        higher = tl.maximum(peak, tl.max(logits, 1))
        shift = tl.where(higher == -float("inf"), 0.0, higher)  # a tile beyond the vocabulary adds nothing
        total = total * tl.exp(peak - shift) + tl.sum(tl.exp(logits - shift[:, None]), 1)
        peak = higher
    tl.store(peaks + row * chunks + chunk, peak, mask=row_mask)
    tl.store(sums + row * chunks + chunk, total, mask=row_mask)


@triton.jit
def full_scores_kernel(
    peaks,
    sums,
    label_offsets,
    logprobs,
    full_logprobs,
    log_z_in,
    log_mass_out,
    mass_out,
    best_io,
    best_logprob_io,
    expected_io,
    variance_io,
    entropy_io,
    margin_io,
    keep_io,
    valid_io,
    chunks,
    SHARED: tl.constexpr,
    REPLACE: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Put a row's chunks together, add mass and full log-probabilities, and blank the row where they are not finite."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, CHUNKS)
    peak = tl.load(peaks + row * chunks + chunk, mask=chunk < chunks, other=-float("inf"))
    part = tl.load(sums + row * chunks + chunk, mask=chunk < chunks, other=0.0)
    highest = tl.max(peak, 0)
    log_full = highest + tl.log(tl.sum(part * tl.exp(peak - highest), 0))
    valid = tl.load(valid_io + row) & (tl.abs(log_full) < float("inf"))
    hole = tl.where(valid, 0.0, float("nan"))
    # Two roundings, or a token twice, may lift a part over its whole.
    log_set = tl.load(log_z_in + row) - log_full
    log_mass = tl.minimum(log_set, 0.0) + hole
    tl.store(log_mass_out + row, log_mass)
    tl.store(mass_out + row, tl.exp(log_mass))

    label_set = tl.where(SHARED, 0, row)
    first = tl.load(label_offsets + label_set)
    count = tl.load(label_offsets + label_set + 1) - first
    first = tl.where(SHARED, row * count, first)
    for start in range(0, count, BLOCK):
        label = start + tl.arange(0, BLOCK)
        logprob = tl.load(logprobs + first + label, mask=label < count, other=0.0)
        full_logprob = tl.minimum(logprob + log_set, 0.0) + hole
        tl.store(full_logprobs + first + label, full_logprob, mask=label < count)
        tl.store(logprobs + first + label, full_logprob if REPLACE else logprob + hole, mask=label < count)
    tl.store(valid_io + row, valid)
    tl.store(best_io + row, tl.where(valid, tl.load(best_io + row), -1))
    best_logprob = tl.load(best_logprob_io + row)
    if REPLACE:
        best_logprob = tl.minimum(best_logprob + log_set, 0.0)
    tl.store(best_logprob_io + row, best_logprob + hole)
    tl.store(entropy_io + row, tl.load(entropy_io + row) + hole)
    tl.store(margin_io + row, tl.load(margin_io + row) + hole)
    if expected_io is not None:
        tl.store(expected_io + row, tl.load(expected_io + row) + hole)
        tl.store(variance_io + row, tl.load(variance_io + row) + hole)
    if keep_io is not None:
        tl.store(keep_io + row, tl.load(keep_io + row) & valid)
