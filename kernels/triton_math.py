"""Small functions that several Triton kernels are made of."""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import triton
import triton.language as tl


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
