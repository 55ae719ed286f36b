"""Small functions that several Triton kernels are made of."""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """tanh without overflow."""
    decay = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - decay) / (1.0 + decay)
    return tl.where(x < 0, -size, size)


@triton.jit
def soft_capped(logits, softcap):
    """softcap · tanh(logits / softcap)."""
    return softcap * tanh(logits / softcap)


@triton.jit
def norm_scale(mean_square, eps):
    """1 / root mean square; NaN where the squares overflow, since zeros in their place look plausible."""
    return tl.where(mean_square < float("inf"), tl.rsqrt(mean_square + eps), float("nan"))
