"""Small functions that several Triton kernels are made of."""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import triton
import triton.language as tl


def interpreted() -> bool:
    """Whether Triton runs its interpreter."""
    return bool(triton.knobs.runtime.interpret)


@triton.jit
def tanh(x):
    """tanh without overflow, and near 0, where the quotient cancels, by its series."""
    decay = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - decay) / (1.0 + decay)
    square = x * x
    small = x * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0))))
    return tl.where(tl.abs(x) < 0.2, small, tl.where(x < 0, -size, size))


@triton.jit
def soft_capped(logits, softcap):
    """softcap · tanh(logits / softcap)."""
    return softcap * tanh(logits / softcap)


@triton.jit
def norm_scale(mean_square, eps):
    """1 / root mean square; NaN where the squares overflow, since zeros in their place look plausible."""
    return tl.where(mean_square < float("inf"), tl.rsqrt(mean_square + eps), float("nan"))


@triton.jit
def row_norm_scale(hidden, norm_weight, eps, width, WIDTH_BLOCK: tl.constexpr):
    """What a row is multiplied by before the norm's weight; 1 without one."""
    scale = 1.0
    if norm_weight is not None:
        squares = tl.zeros([WIDTH_BLOCK], tl.float32)
        for d0 in range(0, width, WIDTH_BLOCK):
            x = hidden_block(hidden, None, 1.0, d0 + tl.arange(0, WIDTH_BLOCK), width)
            squares += x * x
        scale = norm_scale(tl.sum(squares, 0) / width, eps)
    return scale


@triton.jit
def hidden_block(hidden, norm_weight, scale, d, width):
    """A piece of the row in float32: as it stands, or normed and rounded to the model's dtype; zeros beyond D."""
    x = tl.load(hidden + d, mask=d < width, other=0.0).to(tl.float32)
    if norm_weight is not None:
        x = x * scale * tl.load(norm_weight + d, mask=d < width, other=0.0).to(tl.float32)
        x = x.to(hidden.dtype.element_ty).to(tl.float32)
    return x


@triton.jit
def add_products(acc, x_TD, w_LD, INTERPRETED: tl.constexpr):
    """acc [T, L] + x [T, D] · w [L, D]ᵀ in float32."""
    if INTERPRETED:  # its dot is wrong for bf16, and gives equal rows of a tile different last bits
        acc += tl.sum(x_TD.to(tl.float32)[:, None, :] * w_LD.to(tl.float32)[None, :, :], 2)
    else:
        acc = tl.dot(x_TD, tl.trans(w_LD), acc, input_precision="ieee")
    return acc
