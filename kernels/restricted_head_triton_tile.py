"""A shared label set in one Triton launch: a tile of rows against all labels, statistics from registers.

A program stages the label rows of the head once for its tile of rows, block by block of the width, and multiplies on
tensor cores with float32 accumulators. Tile shapes depend on the number of labels and the dtype alone and every row of
a tile adds up in the same order, so a row's bits do not depend on the others.

Bytes: N · D of hidden states from memory, and K · D of weights a tile from the L2 cache: with 32 rows a tile and K = 5
that is 16 % on top for bf16, where one row a program would read K times the hidden states.
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import triton
import triton.language as tl

from adjudge.kernels.triton_math import add_products, norm_scale, soft_capped


# How many rows there are must not make another kernel.
@triton.jit(do_not_specialize=["n"])
def set_tile_kernel(
    hidden,
    rows,
    weight,
    weight_row_stride,
    weight_stride,
    norm_weight,
    eps,
    bias,
    softcap,
    temperature,
    token_ids,
    groups,
    values,
    targets,
    logprobs,
    log_z_out,
    best_out,
    best_logprob_out,
    expected_out,
    variance_out,
    entropy_out,
    margin_out,
    keep_out,
    valid_out,
    n,
    token_count,
    label_count,
    width,
    ROWS: tl.constexpr,
    LABELS: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Score rows `program_id(0) * ROWS …`; pointers that are None switch their part off."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = row < n
    source = row
    if rows is not None:
        source = tl.load(rows + row, mask=row_mask, other=0)
    hidden += source * width
    lane = tl.arange(0, LABELS)
    token_mask = lane < token_count
    ids = tl.load(token_ids + lane, mask=token_mask, other=0)
    weight += ids * weight_row_stride

    scale = _norm_scales(hidden, row_mask, norm_weight, eps, width, ROWS, WIDTH_BLOCK)
    dots = tl.zeros([ROWS, LABELS], tl.float32)
    nothing = tl.zeros([ROWS, WIDTH_BLOCK], tl.float32)  # stays 0 where all is finite
    for d0 in range(0, width, WIDTH_BLOCK):
        d = d0 + tl.arange(0, WIDTH_BLOCK)
        mask = row_mask[:, None] & (d < width)[None, :]
        x = tl.load(hidden[:, None] + d[None, :], mask=mask, other=0.0)
        if norm_weight is not None:
            gain = tl.load(norm_weight + d, mask=d < width, other=0.0).to(tl.float32)
            x = (x.to(tl.float32) * scale[:, None] * gain[None, :]).to(x.dtype)
        nothing += x.to(tl.float32) * 0.0
        w_mask = token_mask[:, None] & (d < width)[None, :]
        w = tl.load(weight[:, None] + d[None, :].to(tl.int64) * weight_stride, mask=w_mask, other=0.0)
        dots = add_products(dots, x, w, INTERPRETED)

    logits = dots
    if bias is not None:
        logits += tl.load(bias + ids, mask=token_mask, other=0.0).to(tl.float32)[None, :]
    if softcap is not None:
        logits = soft_capped(logits, softcap)
    logits = tl.where(token_mask[None, :], logits / temperature, -float("inf"))
    if groups is not None:
        group = tl.load(groups + lane, mask=token_mask, other=-1)
        logits = _merged(logits, group, lane, label_count)

    best_logit, best = tl.max(logits, 1, return_indices=True)
    second_logit = tl.max(tl.where(lane[None, :] == best[:, None], -float("inf"), logits), 1)
    label_mask = (lane < label_count)[None, :]
    total = tl.sum(tl.where(label_mask, tl.exp(logits - best_logit[:, None]), 0.0), 1)
    log_z = best_logit + tl.log(total)
    valid = (tl.sum(nothing, 1) == 0.0) & (tl.abs(log_z) < float("inf"))
    log_z = tl.where(valid, log_z, float("nan"))
    label_logprobs = logits - log_z[:, None]
    probs = tl.exp(label_logprobs)
    places = row[:, None] * label_count + lane[None, :]
    tl.store(logprobs + places, label_logprobs, mask=row_mask[:, None] & label_mask)
    entropy = tl.where(probs == 0, 0.0, probs * label_logprobs)  # 0 · -inf counts as 0
    tl.store(entropy_out + row, -tl.sum(entropy, 1), mask=row_mask)
    if values is not None:
        value = tl.load(values + lane, mask=lane < label_count, other=0.0)[None, :]
        mean = tl.sum(probs * value, 1)
        off = value - mean[:, None]
        tl.store(expected_out + row, mean, mask=row_mask)
        tl.store(variance_out + row, tl.sum(probs * off * off, 1), mask=row_mask)
    best = tl.where(valid, best, -1)
    tl.store(log_z_out + row, log_z, mask=row_mask)
    tl.store(best_out + row, best.to(tl.int64), mask=row_mask)
    tl.store(best_logprob_out + row, best_logit - log_z, mask=row_mask)
    tl.store(margin_out + row, tl.exp(best_logit - log_z) - tl.exp(second_logit - log_z), mask=row_mask)
    tl.store(valid_out + row, valid, mask=row_mask)
    if targets is not None:
        tl.store(keep_out + row, best == tl.load(targets + row, mask=row_mask, other=-2), mask=row_mask)


@triton.jit
def _norm_scales(hidden, row_mask, norm_weight, eps, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """1 / root mean square of each row; NaN where the squares overflow, since zeros in their place look plausible."""
    scale = tl.full([ROWS], 1.0, tl.float32)
    if norm_weight is not None:
        squares = tl.zeros([ROWS, WIDTH], tl.float32)
        for d0 in range(0, width, WIDTH):
            d = d0 + tl.arange(0, WIDTH)
            mask = row_mask[:, None] & (d < width)[None, :]
            x = tl.load(hidden[:, None] + d[None, :], mask=mask, other=0.0).to(tl.float32)
            squares += x * x
        scale = norm_scale(tl.sum(squares, 1) / width, eps)
    return scale


@triton.jit
def _merged(logits, group, lane, label_count):
    """Log-sum-exp over the tokens of each label, in the label's lane; -inf in the lanes beyond the last label."""
    merged = tl.full(logits.shape, -float("inf"), tl.float32)
    for label in range(label_count):
        variants = tl.where((group == label)[None, :], logits, -float("inf"))
        peak = tl.max(variants, 1)
        shift = tl.where(peak == -float("inf"), 0.0, peak)
        log_sum = shift + tl.log(tl.sum(tl.exp(variants - shift[:, None]), 1))
        merged = tl.where((lane == label)[None, :], log_sum[:, None], merged)
    return merged
