"""A label set per row in one Triton launch, for sets of any size: one program a row.

A program walks its tokens in blocks of fixed size and, for each, the width D in blocks of fixed size: the order of its
additions depends on D and on its own label set, never on the other rows. Its logits wait in scratch memory, which no
other program touches, until the row's maximum is known. Weight rows that several sets share come from the L2 cache: the
memory reads each row of the union once as long as the union (its size times D) fits there.
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import triton
import triton.language as tl

from adjudge.kernels.triton_math import hidden_block, row_norm_scale, soft_capped


@triton.jit
def set_row_kernel(
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
    token_offsets,
    groups,
    label_offsets,
    values,
    targets,
    token_logits,
    label_logits,
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
    width,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """Score the labels of row `program_id(0)`; pointers that are None switch their part off."""
    row = tl.program_id(0).to(tl.int64)
    if rows is None:
        hidden += row * width
    else:
        hidden += tl.load(rows + row) * width

    # The row's label set, and where the row's own tokens and labels stand in the outputs.
    label_set = tl.where(SHARED, 0, row)
    first_token = tl.load(token_offsets + label_set)
    first_label = tl.load(label_offsets + label_set)
    token_count = tl.load(token_offsets + label_set + 1) - first_token
    label_count = tl.load(label_offsets + label_set + 1) - first_label
    token_ids += first_token
    token_logits += tl.where(SHARED, row * token_count, first_token)
    label_logits += tl.where(SHARED, row * label_count, first_label)
    logprobs += tl.where(SHARED, row * label_count, first_label)

    scale = row_norm_scale(hidden, norm_weight, eps, width, WIDTH_BLOCK)
    finite = _is_finite(hidden, norm_weight, scale, width, WIDTH_BLOCK)
    for start in range(0, token_count, BLOCK):
        token = start + tl.arange(0, BLOCK)
        token_mask = token < token_count
        ids = tl.load(token_ids + token, mask=token_mask, other=0)
        dots = tl.zeros([BLOCK, WIDTH_BLOCK], tl.float32)
        for d0 in range(0, width, WIDTH_BLOCK):
            d = d0 + tl.arange(0, WIDTH_BLOCK)
            x = hidden_block(hidden, norm_weight, scale, d, width)
            mask = token_mask[:, None] & (d < width)[None, :]
            places = ids[:, None] * weight_row_stride + d[None, :].to(tl.int64) * weight_stride
            w = tl.load(weight + places, mask=mask, other=0.0)
            dots += x[None, :] * w.to(tl.float32)
        logits = tl.sum(dots, 1)
        if bias is not None:
            logits += tl.load(bias + ids, mask=token_mask, other=0.0).to(tl.float32)
        if softcap is not None:
            logits = soft_capped(logits, softcap)
        tl.store(token_logits + token, logits / temperature, mask=token_mask)
    tl.debug_barrier()
    if groups is not None:
        _merge_variants(token_logits, groups + first_token, token_count, label_logits, label_count, BLOCK)
        tl.debug_barrier()

    # The best label (of equals the lowest index) and the runner-up, then the log-sum.
    best = tl.full([], 0, tl.int64)
    best_logit = -float("inf")
    second_logit = -float("inf")
    for start in range(0, label_count, BLOCK):
        lane = tl.arange(0, BLOCK)
        logit = tl.load(label_logits + start + lane, mask=start + lane < label_count, other=-float("inf"))
        block_best, block_lane = tl.max(logit, 0, return_indices=True)
        block_second = tl.max(tl.where(lane == block_lane, -float("inf"), logit), 0)
        second_logit = tl.maximum(tl.maximum(second_logit, block_second), tl.minimum(best_logit, block_best))
        best = tl.where(block_best > best_logit, start + block_lane, best)
        best_logit = tl.maximum(best_logit, block_best)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, label_count, BLOCK):
        label = start + tl.arange(0, BLOCK)
        logit = tl.load(label_logits + label, mask=label < label_count, other=-float("inf"))
        total += tl.where(label < label_count, tl.exp(logit - best_logit), 0.0)
    log_z = best_logit + tl.log(tl.sum(total, 0))
    valid = finite & (tl.abs(log_z) < float("inf"))
    log_z = tl.where(valid, log_z, float("nan"))

    entropy = tl.zeros([BLOCK], tl.float32)
    expected = tl.zeros([BLOCK], tl.float32)
    for start in range(0, label_count, BLOCK):
        label = start + tl.arange(0, BLOCK)
        logit = tl.load(label_logits + label, mask=label < label_count, other=-float("inf"))
        logprob = logit - log_z
        tl.store(logprobs + label, logprob, mask=label < label_count)
        prob = tl.exp(logprob)
        entropy -= tl.where(prob == 0, 0.0, prob * logprob)  # 0 · -inf counts as 0
        if values is not None:
            expected += prob * tl.load(values + first_label + label, mask=label < label_count, other=0.0)
    tl.store(entropy_out + row, tl.sum(entropy, 0))
    if values is not None:
        mean = tl.sum(expected, 0)
        variance = tl.zeros([BLOCK], tl.float32)
        for start in range(0, label_count, BLOCK):
            label = start + tl.arange(0, BLOCK)
            logit = tl.load(label_logits + label, mask=label < label_count, other=-float("inf"))
            value = tl.load(values + first_label + label, mask=label < label_count, other=0.0)
            variance += tl.exp(logit - log_z) * (value - mean) * (value - mean)
        tl.store(expected_out + row, mean)
        tl.store(variance_out + row, tl.sum(variance, 0))

    best = tl.where(valid, best, -1)
    tl.store(log_z_out + row, log_z)
    tl.store(best_out + row, best)
    tl.store(best_logprob_out + row, best_logit - log_z)
    tl.store(margin_out + row, tl.exp(best_logit - log_z) - tl.exp(second_logit - log_z))
    tl.store(valid_out + row, valid)
    if targets is not None:
        tl.store(keep_out + row, best == tl.load(targets + row))


@triton.jit
def _is_finite(hidden, norm_weight, scale, width, WIDTH_BLOCK: tl.constexpr):
    bad = tl.zeros([WIDTH_BLOCK], tl.int32)
    for d0 in range(0, width, WIDTH_BLOCK):
        x = hidden_block(hidden, norm_weight, scale, d0 + tl.arange(0, WIDTH_BLOCK), width)
        bad += tl.where(tl.abs(x) < float("inf"), 0, 1)
    return tl.max(bad, 0) == 0


@triton.jit
def _merge_variants(token_logits, groups, token_count, label_logits, label_count, BLOCK: tl.constexpr):
    """Log-sum-exp over the tokens of each label."""
    for first in range(0, label_count, BLOCK):
        label = first + tl.arange(0, BLOCK)
        peak = tl.full([BLOCK], -float("inf"), tl.float32)
        for start in range(0, token_count, BLOCK):
            peak = tl.maximum(peak, tl.max(_variants(token_logits, groups, token_count, label, start, BLOCK), 1))
        shift = tl.where(peak == -float("inf"), 0.0, peak)
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, token_count, BLOCK):
            variants = _variants(token_logits, groups, token_count, label, start, BLOCK)
            total += tl.sum(tl.exp(variants - shift[:, None]), 1)
        tl.store(label_logits + label, shift + tl.log(total), mask=label < label_count)


@triton.jit
def _variants(token_logits, groups, token_count, label, start, BLOCK: tl.constexpr):
    """Logits of a block of tokens, one row a label; -inf where the token is not the label's."""
    token = start + tl.arange(0, BLOCK)
    logit = tl.load(token_logits + token, mask=token < token_count, other=-float("inf"))
    group = tl.load(groups + token, mask=token < token_count, other=-1)
    return tl.where(label[:, None] == group[None, :], logit[None, :], -float("inf"))
